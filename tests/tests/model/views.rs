//! Memory of the in-process host, of which CPU and device have a view each.
#![expect(clippy::unwrap_used, reason = "test code: a panic here is a failed test")]

use std::sync::{Arc, Mutex};

use dat_tests::host::views::{PAGE, RUN, Shared, Views};
use hca_mlx5::dma::Memory;
use hca_mlx5::platform::Span;

/// Views, and their memory as the driver has it.
fn views(pages: usize, reserve: usize) -> (Shared, Memory<Shared>) {
    let shared = Shared(Arc::new(Mutex::new(Views::new(pages, reserve))));
    let memory = shared.memory(0);
    (shared, memory)
}

fn iova(views: &Views, offset: usize) -> u64 {
    views.iova(offset).unwrap().0
}

#[test]
fn a_store_without_a_fence_is_not_seen_and_the_newest_arrives_first() {
    let (shared, memory) = views(2, 0);
    memory.write_bytes(0, &[1; 8]);
    memory.store32(64, 0x0202_0202);
    let mut views = shared.0.lock().unwrap();
    let (a, b) = (iova(&views, 0), iova(&views, 64));
    let mut bytes = [0; 4];
    views.read_dma(a, &mut bytes).unwrap();
    assert_eq!(bytes, [0; 4]);
    views.drain_one();
    views.read_dma(b, &mut bytes).unwrap();
    assert_eq!(bytes, [2; 4]);
    views.read_dma(a, &mut bytes).unwrap();
    assert_eq!(bytes, [0; 4]);
    views.release();
    views.read_dma(a, &mut bytes).unwrap();
    assert_eq!(bytes, [1; 4]);
}

#[test]
fn a_device_write_is_seen_by_one_word_at_a_time_until_the_fence() {
    let (shared, memory) = views(1, 0);
    let entries = memory.entries::<64>(Span { offset: 128, len: 64 }).unwrap();
    let at = iova(&shared.0.lock().unwrap(), 128);
    shared.0.lock().unwrap().write_dma(at, &[7; 64]).unwrap();
    assert_eq!(memory.load32(128 + 60), 0x0707_0707);
    assert_eq!(entries.load32::<60>(0), 0x0707_0707);
    let mut bytes = [9; 8];
    memory.read_bytes(128, &mut bytes);
    assert_eq!((bytes, entries.load_words::<1, 0>(0)), ([0; 8], [0]));
    shared.0.lock().unwrap().acquire();
    memory.read_bytes(128, &mut bytes);
    assert_eq!((bytes, entries.load_words::<1, 0>(0)), ([7; 8], [0x0707_0707_0707_0707]));
}

#[test]
fn stores_through_entries_wait_for_the_fence_too() {
    let (shared, memory) = views(1, 0);
    let entries = memory.entries::<64>(Span { offset: 64, len: 128 }).unwrap();
    entries.store_words::<1, 8>(1, &[0x0303_0303_0303_0303]);
    entries.store32::<60>(0, 0x0404_0404);
    let mut views = shared.0.lock().unwrap();
    let (words, dword) = (iova(&views, 64 + 64 + 8), iova(&views, 64 + 60));
    let seen = |views: &mut Views| {
        let (mut a, mut b) = ([0; 8], [0; 4]);
        views.read_dma(words, &mut a).unwrap();
        views.read_dma(dword, &mut b).unwrap();
        (a, b)
    };
    assert_eq!(seen(&mut views), ([0; 8], [0; 4]));
    views.drain_one();
    assert_eq!(seen(&mut views), ([0; 8], [4; 4]));
    views.release();
    assert_eq!(seen(&mut views), ([3; 8], [4; 4]));
}

#[test]
fn the_cpu_s_own_unreleased_store_survives_an_acquire() {
    let (shared, memory) = views(1, 0);
    memory.store32(4, 0x0505_0505);
    let mut views = shared.0.lock().unwrap();
    let at = iova(&views, 0);
    views.write_dma(at, &[7; 16]).unwrap();
    views.acquire();
    drop(views);
    let mut bytes = [0; 16];
    memory.read_bytes(0, &mut bytes);
    assert_eq!(bytes, [7, 7, 7, 7, 5, 5, 5, 5, 7, 7, 7, 7, 7, 7, 7, 7]);
}

#[test]
fn runs_are_apart_for_the_device_and_an_access_may_span_pages() {
    let mut views = Views::new(3 * RUN, 0);
    let (first, run) = views.iova(10).unwrap();
    assert_eq!(run, RUN * PAGE - 10);
    assert_ne!(first + run as u64, iova(&views, RUN * PAGE));
    let at = iova(&views, PAGE - 2);
    views.write_dma(at, &[1, 2, 3, 4]).unwrap();
    views.acquire();
    let mut bytes = [0; 4];
    views.memory().read_bytes(PAGE - 2, &mut bytes);
    assert_eq!(bytes, [1, 2, 3, 4]);
    let end = iova(&views, RUN * PAGE - 2);
    assert!(views.write_dma(end, &[0; 4]).is_err());
    assert_eq!(views.refused, 1);
}

#[test]
fn firmware_pages_come_back_only_once() {
    let mut views = Views::new(1, 3);
    let mut pages = [0; 5];
    assert_eq!(views.pages_take(&mut pages), 3);
    views.write_dma(pages[1] + 8, &[1]).unwrap();
    assert_eq!(views.pages_return(&pages[..2]), 2);
    assert_eq!(views.pages_return(&pages[..2]), 0);
    assert!(views.write_dma(pages[1] + 8, &[1]).is_err());
    assert_eq!(views.pages_out(), 1);
}
