//! What a registration costs: host CPU, commands of the device, calls to its IOMMU.
//!
//! In process, where the pages are lent already, it is the driver alone. Over vfio-user each call is
//! a message to a server, and pages of the process are exchanged for those of a file, and back.
#![expect(unsafe_code, reason = "memory of this process is lent, and looked at by nobody")]

use dat_core::provider::Region;
use dat_core::{MemPriv, Pz};
use hca_mlx5::Config;
use mlx5_model::server::{Handle, Server, Settings};
use rustix::time::{ClockId, clock_gettime};
use vfio_host::user::VfioUser;
use vfio_host::{Host, Nic, NicStorage, Options, Reach};

use super::host::LENT_PAGES;
use super::stage::Rig;
use crate::bytes::Bytes;
use crate::scale::meter::Meter;

/// Times each registration is made; the best counts.
const TIMES: usize = 24;
/// Where the memory begins on its first page, so that it touches one page more than it is long.
const ODD: usize = 123;
const KIB4: usize = 4 << 10;
const MIB1: usize = 1 << 20;
const ROOM: usize = MIB1 + 2 * KIB4;

/// A registration and its end.
#[derive(Clone, Copy, Debug)]
pub struct Cost {
    /// The case: its length, and `again` inside memory that another registration holds.
    pub name: &'static str,
    /// The device is behind a vfio-user socket.
    pub served: bool,
    /// Microseconds of this process's CPU, to register.
    pub register: f64,
    /// The same, to end it.
    pub release: f64,
    /// Most that both together may take; 0 where they are only reported.
    pub goal: f64,
    /// Commands, of both.
    pub commands: u64,
    /// Mappings of the IOMMU that are made, and ended later.
    pub mappings: usize,
}

const CASES: [(&str, usize, bool, [f64; 2]); 3] = [
    ("lmr_4k", KIB4, false, [20.0, 0.0]),
    ("lmr_1m", MIB1, false, [20.0, 0.0]),
    ("lmr_1m_again", MIB1, true, [20.0, 60.0]),
];

/// Measures all of them.
///
/// # Panics
/// If a registration fails.
#[must_use]
pub fn all() -> Vec<Cost> {
    let mut costs = in_process();
    costs.extend(over_vfio_user());
    costs
}

fn in_process() -> Vec<Cost> {
    let mut rig = Rig::default();
    let pz = rig.ias[0].pz_create().unwrap();
    let doorbells = |rig: &Rig| rig.hosts[0].hca().stats().command_doorbells;
    let mut measure = |(name, len, again, [goal, _]): (_, usize, bool, [f64; 2])| {
        let all = Region { addr: LENT_PAGES, len: ROOM as u64 };
        let region = Region { addr: LENT_PAGES + ODD as u64, len: len as u64 };
        let outer = again.then(|| rig.ias[0].lmr_create(pz, all, MemPriv::ALL).unwrap().lmr);
        let before = doorbells(&rig);
        let mut meter = Meter::default();
        for _ in 0..TIMES {
            let ia = &mut rig.ias[0];
            let made = meter.run("register", || ia.lmr_create(pz, region, MemPriv::ALL)).unwrap();
            meter.run("release", || ia.lmr_free(made.lmr)).unwrap();
        }
        let commands = (doorbells(&rig) - before) / TIMES as u64;
        if let Some(outer) = outer {
            rig.ias[0].lmr_free(outer).unwrap();
        }
        let best = |which| {
            let spans = meter.ran.iter().filter(|(name, _)| *name == which).map(|(_, span)| *span);
            spans.fold(f64::INFINITY, f64::min) / 1000.0
        };
        let (register, release) = (best("register"), best("release"));
        Cost { name, served: false, register, release, goal, commands, mappings: 0 }
    };
    CASES.iter().map(|case| measure(*case)).collect()
}

/// A host on a model that a thread serves.
struct Served {
    nic: Nic<'static, 'static, VfioUser>,
    pz: Pz,
    server: Handle,
}

impl Served {
    fn new() -> Self {
        let socket = std::env::temp_dir().join(format!("dat-bench-{}", std::process::id()));
        let server = Server::start(Settings::new([&socket])).unwrap();
        let host = VfioUser::open(&socket, &Options::default()).unwrap();
        let host: &'static VfioUser = Box::leak(Box::new(host));
        let storage = Box::leak(Box::new(NicStorage::new()));
        let net = dat_core::provider::Net::new(super::stage::address(0), 24);
        let mut nic = Nic::open(host, storage.parts(), net, &Config::default()).unwrap();
        let pz = nic.pz_create().unwrap();
        Self { nic, pz, server }
    }

    fn commands(&self) -> u64 {
        self.server.with(0, |function| function.stats().command_doorbells).unwrap()
    }

    /// Lends and registers a piece of memory. Returns what ends that.
    fn register(&mut self, region: Region) -> dat_core::Lmr {
        // SAFETY: nobody looks at the bytes, and they are taken back before they go.
        unsafe { self.nic.host().lend(region.addr, region.len, Reach::ReadWrite) }.unwrap();
        self.nic.lmr_create(self.pz, region, MemPriv::ALL).unwrap().lmr
    }

    fn release(&mut self, region: Region, lmr: dat_core::Lmr) {
        self.nic.lmr_free(lmr).unwrap();
        self.nic.host().take_back(region.addr, region.len);
    }
}

fn over_vfio_user() -> Vec<Cost> {
    let mut served = Served::new();
    let mut measure = |(name, len, again, [_, goal]): (_, usize, bool, [f64; 2])| {
        let (mut register, mut release) = (f64::INFINITY, f64::INFINITY);
        let (mut commands, mut mappings) = (0, 0);
        for _ in 0..TIMES {
            let memory: Box<Bytes<ROOM>> = Box::default();
            // Memory that is used.
            for page in 0..ROOM / KIB4 {
                memory.put(page * KIB4, &[1]);
            }
            let all = Region { addr: memory.addr(), len: ROOM as u64 };
            let region = Region { addr: memory.addr() + ODD as u64, len: len as u64 };
            let outer = again.then(|| (all, served.register(all)));
            let (sent, maps) = (served.commands(), served.nic.host().maps().len());
            let (lmr, took) = timed(|| served.register(region));
            register = register.min(took);
            mappings = served.nic.host().maps().len() - maps;
            let ((), took) = timed(|| served.release(region, lmr));
            release = release.min(took);
            commands = served.commands() - sent;
            if let Some((region, lmr)) = outer {
                served.release(region, lmr);
            }
        }
        Cost { name, served: true, register, release, goal, commands, mappings }
    };
    CASES.iter().map(|case| measure(*case)).collect()
}

/// Calls it; says how many microseconds of this thread's CPU that took.
fn timed<T>(op: impl FnOnce() -> T) -> (T, f64) {
    let now = || {
        let now = clock_gettime(ClockId::ThreadCPUTime);
        now.tv_sec as f64 * 1e6 + now.tv_nsec as f64 / 1e3
    };
    let start = now();
    let result = op();
    (result, now() - start)
}
