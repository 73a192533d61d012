//! How many connections a second two processes make over the device models of a third one.
#![expect(clippy::print_stdout, reason = "processes that say when they are ready")]

use std::io::{BufRead, BufReader, Read, stdin};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use dat_core::provider::Net;
use dat_core::{Ep, Evd, EvdFlags, Event, Parts, PspFlag, Sizes};
use hca_mlx5::Config;
use mlx5_model::server::{Server, Settings};
use vfio_host::user::VfioUser;
use vfio_host::{Nic, Options};

use super::crowd::{DTOS, Leak, address};

const QPS: usize = 1 << 15;
const KEYS: usize = 512;
/// Longer than a connection takes among the others.
const LIMIT: Duration = Duration::from_secs(30);
const SERVICE: u16 = 4711;
/// Connections that are made at a time.
const WINDOW: usize = 128;

type Adapter = Nic<'static, 'static, VfioUser, QPS, 64, KEYS, 64>;

/// One side: its adapter, the dispatcher of all events, and its Endpoints.
struct Side {
    nic: Adapter,
    evd: Evd,
    eps: Vec<Ep>,
}

impl Side {
    fn open(socket: &Path, side: usize, eps: usize) -> Self {
        let options = Options {
            arena: (64 << 20) + eps * (16 << 10),
            firmware: 1 << 30,
            ..Options::default()
        };
        let host = Box::leak(Box::new(VfioUser::open(socket, &options).unwrap()));
        let all = eps as u32;
        let sizes =
            Sizes { eps: all + 8, evds: 8, lmrs: 8, dtos: DTOS.into(), events: 4096, srqs: 1 };
        let parts = Parts::supplied(&mut Leak, &sizes).unwrap();
        let net = Net::new(address(side), 16);
        let mut nic = Adapter::open(host, parts, net, &Config::default()).unwrap();
        let pz = nic.pz_create().unwrap();
        let dto = nic.evd_create(1024, EvdFlags::DTO).unwrap();
        let evd = nic.evd_create(4096, EvdFlags::CONNECTION | EvdFlags::CR).unwrap();
        let mut attr = nic.ep_attr_default();
        (attr.max_request_dtos, attr.max_recv_dtos) = (DTOS, DTOS);
        let make =
            |_| nic.ep_create(Some(pz), Some(dto), Some(dto), Some(evd), Some(&attr)).unwrap();
        let eps = (0..eps).map(make).collect();
        Self { nic, evd, eps }
    }

    /// The next event; waits for it.
    fn event(&mut self) -> Event {
        match self.nic.evd_dequeue(self.evd) {
            Ok(event) => event,
            Err(_) => self.nic.evd_wait(self.evd, LIMIT, 1).unwrap(),
        }
    }
}

/// Another process of this program, which does `words` until it is dropped.
struct Other(Child);

impl Other {
    /// Starts it, and waits until it says that it is ready.
    fn start(words: &[&str]) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(words).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut said = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut said).unwrap();
        assert_eq!(said, "ready\n", "{words:?}");
        Self(child)
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn sockets(folder: &Path) -> [PathBuf; 2] {
    ["a", "b"].map(|name| folder.join(name))
}

/// Says that this process is ready, and stays until the one that started it goes.
fn stay() {
    println!("ready");
    let _ = stdin().read(&mut [0]);
}

/// The models of both sides, in a folder.
///
/// # Panics
/// If they cannot be served.
pub fn serve(folder: &Path) {
    let _server = Server::start(Settings::new(sockets(folder))).unwrap();
    stay();
}

/// The passive side: accepts so many connections.
///
/// # Panics
/// If one does not come about.
pub fn accept(folder: &Path, eps: usize) {
    let mut side = Side::open(&sockets(folder)[1], 1, eps);
    side.nic.psp_create(SERVICE.into(), side.evd, PspFlag::Consumer).unwrap();
    println!("ready");
    let (mut free, mut made) = (side.eps.clone(), 0);
    while made < eps {
        match side.event() {
            Event::ConnectionRequest { cr, .. } => {
                side.nic.cr_accept(cr, free.pop(), b"").unwrap();
            }
            Event::Established(_) => made += 1,
            other => panic!("{other:?}"),
        }
    }
    stay();
}

/// The active side: connects so many, then more, of which it returns the number a second.
///
/// # Panics
/// If one does not come about.
#[must_use]
pub fn measure(open: usize, more: usize) -> f64 {
    let folder = std::env::temp_dir().join(format!("dat-rate-{}", std::process::id()));
    std::fs::create_dir(&folder).unwrap();
    let text = folder.to_str().unwrap();
    let _server = Other::start(&["--serve", text]);
    let _peer = Other::start(&["--accept", text, "--eps", &(open + more).to_string()]);
    let mut side = Side::open(&sockets(&folder)[0], 0, open + more);
    std::fs::remove_dir_all(&folder).unwrap();
    let to = SocketAddr::new(address(1), SERVICE);
    let (mut begun, mut made) = (0, 0);
    let mut connect = |side: &mut Side, upto: usize| {
        let start = Instant::now();
        let before = made;
        while made < upto {
            while begun < upto && begun - made < WINDOW {
                side.nic.ep_connect(side.eps[begun], to, LIMIT, b"").unwrap();
                begun += 1;
            }
            match side.event() {
                Event::Established(_) => made += 1,
                other => panic!("{other:?}"),
            }
        }
        (made - before) as f64 / start.elapsed().as_secs_f64()
    };
    connect(&mut side, open);
    connect(&mut side, open + more)
}
