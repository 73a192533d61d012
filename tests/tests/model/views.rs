//! Memory of the in-process host, which CPU and device see each in its own way.
#![expect(clippy::unwrap_used, reason = "test code: a panic here is a failed test")]

use dat_tests::host::views::{PAGE, RUN, Views};

fn iova(views: &Views, offset: usize) -> u64 {
    views.iova(offset).unwrap().0
}

#[test]
fn a_store_without_a_fence_is_not_seen_and_the_newest_arrives_first() {
    let mut views = Views::new(2, 0);
    views.store(0, &[1; 8]);
    views.store(64, &[2; 4]);
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
    let mut views = Views::new(1, 0);
    let at = iova(&views, 128);
    views.write_dma(at, &[7; 64]).unwrap();
    assert_eq!(views.load32(128 + 60), 0x0707_0707);
    let mut bytes = [9; 8];
    views.read(128, &mut bytes);
    assert_eq!(bytes, [0; 8]);
    views.acquire();
    views.read(128, &mut bytes);
    assert_eq!(bytes, [7; 8]);
}

#[test]
fn the_cpu_s_own_unreleased_store_survives_an_acquire() {
    let mut views = Views::new(1, 0);
    let at = iova(&views, 0);
    views.store(4, &[5; 4]);
    views.write_dma(at, &[7; 16]).unwrap();
    views.acquire();
    let mut bytes = [0; 16];
    views.read(0, &mut bytes);
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
    views.read(PAGE - 2, &mut bytes);
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
