//! Mappings: what is accepted, what a device reaches through them.

use crate::rig::{Dir, EINVAL, Raw, memfd, quick, serve};
use mlx5_model::server::{Map, Server, Settings};
use std::fs::File;
use std::os::unix::fs::FileExt;

const EEXIST: i32 = 17;
const ENOSPC: i32 = 28;

fn mastering(dir: &Dir) -> Raw {
    let mut raw = Raw::greet(&dir.at("a"));
    raw.set_command(6);
    raw
}

#[test]
fn an_access_is_split_where_mappings_meet() {
    let dir = Dir::new();
    let server = serve(&dir);
    let mut raw = mastering(&dir);
    let (one, two) = (memfd(0x8000), memfd(0x4000));
    // Four pages in a row on the bus, none in order in memory.
    let places = [(&one, 0x3000), (&two, 0x1000), (&one, 0x0000), (&two, 0x3000)];
    for (iova, (file, offset)) in (0x10_0000..).step_by(4096).zip(places) {
        raw.map(3, offset, iova, 4096, Some(file)).unwrap();
    }
    let sent: Vec<u8> = (0..0x3ffbu32).map(|k| (k * 7) as u8).collect();
    let copy = sent.clone();
    let write = server.with(0, move |one| one.dma_write(0x10_0003, &copy));
    assert_eq!(write, Some(Ok(())));
    let read = server.with(0, |one| one.dma_read(0x10_0003, 0x3ffb));
    assert_eq!(read, Some(Ok(sent.clone())));
    let mut second = [0; 4096];
    two.read_exact_at(&mut second, 0x1000).unwrap();
    assert_eq!(second[..], sent[0xffd..0x1ffd]);
    assert_eq!(server.with(0, |one| one.dma_refused()), Some(0));
}

#[test]
fn every_edge_is_an_edge() {
    let dir = Dir::new();
    let server = serve(&dir);
    let mut raw = mastering(&dir);
    let ram = memfd(0x4000);
    raw.map(3, 0, 0x1_0000, 0x2000, Some(&ram)).unwrap();
    raw.map(1, 0x2000, 0x1_2000, 0x1000, Some(&ram)).unwrap();
    raw.map(2, 0x3000, 0x1_4000, 0x1000, Some(&ram)).unwrap();
    raw.map(1, 0, 0xfffc_0000, 0x1000, None).unwrap();
    let mut refused = 0;
    let mut tries = |iova: u64, length: usize, reads: bool, writes: bool| {
        let read = server.with(0, move |one| one.dma_read(iova, length)).unwrap();
        assert_eq!(read.is_ok(), reads, "read {length} at {iova:#x}");
        let write = server.with(0, move |one| one.dma_write(iova, &vec![0; length]));
        assert_eq!(write.unwrap().is_ok(), writes, "write {length} at {iova:#x}");
        refused += u64::from(!reads) + u64::from(!writes);
    };
    tries(0x1_0000, 0x2000, true, true);
    tries(0xffff, 1, false, false);
    tries(0xffff, 2, false, false);
    tries(0x1_1fff, 2, true, false);
    tries(0x1_2000, 0x1000, true, false);
    tries(0x1_2fff, 2, false, false);
    tries(0x1_3000, 1, false, false);
    tries(0x1_4000, 8, false, true);
    tries(0xfffc_0000, 4, false, false);
    tries(u64::MAX, 1, false, false);
    tries(u64::MAX, 4, false, false);
    raw.unmap(0, 0x1_0000, 0x2000).unwrap();
    tries(0x1_0000, 1, false, false);
    assert_eq!(server.with(0, |one| one.dma_refused()), Some(refused));
}

#[test]
fn a_refused_probe_writes_nothing() {
    let dir = Dir::new();
    let server = serve(&dir);
    let mut raw = mastering(&dir);
    let ram = memfd(4096);
    raw.map(3, 0, 0x1000, 4096, Some(&ram)).unwrap();
    let write = server.with(0, |one| one.dma_write(0x1ff0, &[0xff; 32]));
    assert_eq!(write.unwrap().unwrap_err().to_string(), "DMA to 0x2000 refused by the IOMMU");
    let mut page = [0xee; 4096];
    ram.read_exact_at(&mut page, 0).unwrap();
    assert_eq!(page, [0; 4096]);
}

#[test]
fn mappings_that_are_accepted() {
    let dir = Dir::new();
    let server = serve(&dir);
    let mut raw = mastering(&dir);
    let ram = memfd(0x4000);
    let mut map =
        |flags, offset, iova, size, file: Option<&File>| raw.map(flags, offset, iova, size, file);
    assert_eq!(map(3, 0, 0x1000, 0, Some(&ram)), Err(EINVAL), "nothing");
    assert_eq!(map(0, 0, 0x1000, 4096, Some(&ram)), Err(EINVAL), "no rights");
    assert_eq!(map(3, 0, 0x1800, 4096, Some(&ram)), Err(EINVAL), "half a page on");
    assert_eq!(map(3, 0, 0x1000, 100, Some(&ram)), Err(EINVAL), "part of a page");
    assert_eq!(map(3, 0, u64::MAX - 4095, 8192, Some(&ram)), Err(EINVAL), "round the end");
    assert_eq!(map(3, 0x3000, 0x1000, 0x2000, Some(&ram)), Err(EINVAL), "beyond the file");
    assert_eq!(map(3, u64::MAX - 4095, 0x1000, 4096, Some(&ram)), Err(EINVAL));
    let null = File::open("/dev/null").unwrap();
    assert_eq!(map(3, 0, 0x1000, 4096, Some(&null)), Err(EINVAL), "no memory");
    map(3, 0, 0x2000, 0x2000, Some(&ram)).unwrap();
    for (iova, size) in [(0x1000, 0x2000), (0x2000, 0x1000), (0x3000, 0x1000), (0, 0x10_000)] {
        assert_eq!(map(3, 0, iova, size, None), Err(EEXIST), "{iova:#x}");
    }
    map(1, 0, 0x1000, 0x1000, Some(&ram)).unwrap();
    map(2, 0, u64::MAX - 4095, 4096, Some(&ram)).unwrap();
    let one = |iova, size, read, write| Map { iova, size, read, write, memory: true };
    let expected = vec![
        one(0x1000, 0x1000, true, false),
        one(0x2000, 0x2000, true, true),
        one(u64::MAX - 4095, 4096, false, true),
    ];
    assert_eq!(server.with(0, |one| one.maps()), Some(expected));
}

#[test]
fn unmappings_that_are_accepted() {
    let dir = Dir::new();
    let server = serve(&dir);
    let mut raw = mastering(&dir);
    let ram = memfd(0x4000);
    let count = || server.with(0, |one| one.maps().len()).unwrap();
    for k in 0..4 {
        raw.map(3, k * 4096, k * 4096, 4096, Some(&ram)).unwrap();
    }
    raw.map(3, 0, 0x10_0000, 0x4000, Some(&ram)).unwrap();
    assert_eq!(raw.unmap(0, 0, 0), Err(EINVAL));
    assert_eq!(raw.unmap(0, 0x10_1000, 0x1000), Err(EINVAL), "a piece out of one");
    assert_eq!(raw.unmap(0, 0x10_0000, 0x1000), Err(EINVAL), "its head");
    assert_eq!(raw.unmap(0, 0x10_3000, 0x1000_0000), Err(EINVAL), "its tail");
    assert_eq!(count(), 5);
    raw.unmap(0, 0x1000, 0x2000).unwrap();
    assert_eq!(count(), 3, "two at once");
    // A host that sweeps: powers of two that mostly hit nothing, up to the end of the address
    // space.
    for shift in 20..63 {
        raw.unmap(0, 1 << shift, 1 << shift).unwrap();
    }
    raw.unmap(0, 1 << 63, 1 << 63).unwrap();
    assert_eq!(count(), 2);
    raw.unmap(4, 0, 0).unwrap();
    assert_eq!(count(), 0, "all");
}

#[test]
fn a_limit_of_mappings() {
    let dir = Dir::new();
    let settings = Settings {
        rude: vec!["dma-limit=2".parse().unwrap()],
        ..Settings::with_device(&quick(), [dir.at("a")])
    };
    let _server = Server::start(settings).unwrap();
    let mut raw = mastering(&dir);
    let ram = memfd(4096);
    raw.map(3, 0, 0, 4096, Some(&ram)).unwrap();
    raw.map(3, 0, 0x1000, 4096, Some(&ram)).unwrap();
    assert_eq!(raw.map(3, 0, 0x2000, 4096, Some(&ram)), Err(ENOSPC));
    raw.unmap(0, 0, 4096).unwrap();
    raw.map(3, 0, 0x2000, 4096, Some(&ram)).unwrap();
}

#[test]
fn a_file_that_grows_is_reached_as_far_as_it_goes() {
    let dir = Dir::new();
    let server = serve(&dir);
    let mut raw = mastering(&dir);
    let ram = memfd(4096);
    raw.map(3, 0, 0, 4096, Some(&ram)).unwrap();
    ram.set_len(8192).unwrap();
    raw.map(3, 4096, 0x1000, 4096, Some(&ram)).unwrap();
    ram.write_all_at(&[1, 2, 3, 4], 4094).unwrap();
    let read = server.with(0, |one| one.dma_read(4094, 4));
    assert_eq!(read, Some(Ok(vec![1, 2, 3, 4])));
}
