//! Nothing leaks: a device is opened a hundred times, after a reset or a close, in one process with
//! its server.

use std::collections::BTreeMap;
use std::fs;

use dat_core::CloseFlag;
use hca_mlx5::platform::{Dma, Reach};
use vfio_host::{Host, NicStorage, Options};

use crate::rig::{Rig, Side};

/// Descriptors of this process, by what they are, and its mappings of memory files.
pub(crate) fn held() -> (BTreeMap<String, usize>, usize) {
    let mut fds = BTreeMap::new();
    for entry in fs::read_dir("/proc/self/fd").unwrap().flatten() {
        if let Ok(target) = fs::read_link(entry.path()) {
            let text = target.to_string_lossy();
            let kind = text.split([':', '(']).next().unwrap().to_owned();
            *fds.entry(kind).or_default() += 1;
        }
    }
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    (fds, maps.lines().filter(|line| line.contains("dat-arena")).count())
}

/// In a process of its own, or another test's descriptors would be counted.
pub(crate) fn alone(name: &str, test: impl FnOnce()) {
    const MARK: &str = "VFIO_USER_ALONE";
    if std::env::var_os(MARK).is_some() {
        return test();
    }
    let me = std::env::current_exe().unwrap();
    let status = std::process::Command::new(me)
        .args(["--exact", name, "--nocapture"])
        .env(MARK, "1")
        .status();
    assert!(status.unwrap().success());
}

#[test]
fn a_hundred_openings_leave_nothing_behind() {
    alone("reopen::a_hundred_openings_leave_nothing_behind", || {
        let rig = Rig::new();
        let mut before = None;
        for round in 0..100 {
            {
                let mut host = rig.host(0);
                // By turns: closed in good order, or reset under the driver and made new for
                // another.
                if round % 2 == 1 {
                    {
                        let mut room = Box::new(NicStorage::new());
                        let _side = Side::open(&host, &mut room, 0);
                        host.reset().unwrap();
                    }
                    host.renew().unwrap();
                }
                let mut room = Box::new(NicStorage::new());
                let mut side = Side::open(&host, &mut room, 0);
                side.buffer.release();
                side.nic.close(CloseFlag::Abrupt).unwrap();
            }
            // The server notices the hang-up when its turn comes.
            while rig.server().with(0, |function| function.has_client()).unwrap() {
                std::thread::yield_now();
            }
            if round == 1 {
                before = Some(held());
            }
        }
        assert_eq!(held(), before.unwrap());
        assert_eq!(held().1, 0);
        let maps = rig.server().with(0, |function| function.maps().len());
        assert_eq!(maps, Some(0));
    });
}

#[test]
fn a_driver_that_is_closed_leaves_the_host_to_the_next() {
    let rig = Rig::new();
    let host = rig.host(0);
    for _ in 0..3 {
        let mut room = Box::new(NicStorage::new());
        let mut side = Side::open(&host, &mut room, 0);
        side.nic.ep_free(side.ep).unwrap();
        side.nic.lmr_free(side.lmr.lmr).unwrap();
        side.nic.evd_free(side.evd).unwrap();
        side.nic.pz_free(side.pz).unwrap();
        side.buffer.release();
        side.nic.close(CloseFlag::Graceful).unwrap();
        // The firmware has given its pages back and cannot reach them any more.
        assert!(host.maps().iter().all(|mapping| mapping.purpose == "arena"));
        // Nothing of the arena is missing.
        let all = Options::default();
        let spans = [
            host.alloc(all.arena - all.read_only, 4096, Reach::ReadWrite),
            host.alloc(all.read_only, 4096, Reach::Read),
        ];
        spans.into_iter().for_each(|span| host.free(span.unwrap()));
    }
    assert_eq!(host.trouble(), None);
}
