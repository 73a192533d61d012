//! The acts of the demo over vfio-user, in real time, with a server in this process: descriptors,
//! mappings and ranges of the IOMMU come and go.

use std::path::PathBuf;

use clap::Parser as _;
use mlx5_model::server::{Handle, Server, Settings};
use vfio_host::Host as _;
use vfio_host::user::VfioUser;

use super::Report;
use crate::demo::{self, Options, Run};
use crate::guest::sides::{Sides, rooms};

/// A server of two HCAs.
pub(super) struct Served {
    server: Handle,
    folder: PathBuf,
    sockets: [PathBuf; 2],
}

impl Served {
    pub(super) fn start() -> Self {
        let folder = std::env::temp_dir().join(format!("dat-soak-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let sockets = ["a", "b"].map(|name| folder.join(name));
        let server = Server::start(Settings::new(sockets.clone())).unwrap();
        Self { server, folder, sockets }
    }

    /// Opens both HCAs, runs the acts and closes; by turns one is reset under its driver first.
    /// Returns the ranges that were mapped for the first when it was open.
    pub(super) fn round(&self, seed: u64, report: &mut Report) -> u64 {
        let options = vfio_host::Options {
            arena: 8 << 20,
            read_only: 4 << 20,
            firmware: 64 << 20,
            ..vfio_host::Options::default()
        };
        let demo = Options::try_parse_from(["demo", "--size", "4K", "--count", "16"]).unwrap();
        let ranges = || self.server.with(0, |function| function.maps().len() as u64).unwrap();
        let mapped = {
            let mut hosts =
                self.sockets.each_ref().map(|path| VfioUser::open(path, &options).unwrap());
            if seed % 2 == 0 {
                {
                    let mut rooms = rooms();
                    let _open = Sides::open(&hosts, &mut rooms).unwrap();
                    hosts[0].reset().unwrap();
                }
                hosts.iter_mut().for_each(|host| host.renew().unwrap());
                report.faults += 1;
            }
            let mut rooms = rooms();
            let env = Sides::open(&hosts, &mut rooms).unwrap();
            let depth = demo::depth(demo.size);
            let mut run = Run { env, options: &demo, report: demo::Report::default(), depth };
            demo::all(&mut run).unwrap();
            let mapped = ranges();
            run.finish().unwrap();
            report.connections += 1;
            mapped
        };
        // The server notices the hang-up when its turn comes.
        for function in 0..2 {
            while self.server.with(function, |function| function.has_client()).unwrap() {
                std::thread::yield_now();
            }
        }
        assert_eq!(ranges(), 0, "ranges are mapped though nobody is connected");
        mapped
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}
