//! A model server with two HCAs, a host on each, and adapters that are connected with each other.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use dat_core::provider::Net;
use dat_core::{
    CompletionFlags, DtoEvent, DtoStatus, Ep, Evd, EvdFlags, Event, LmrParam, LmrTriplet, MemPriv,
    PspFlag, Pz, RmrTriplet,
};
use hca_mlx5::Config;
use hca_mlx5::dma::Buffer;
use mlx5_model::Config as Card;
use mlx5_model::server::{Handle, Server, Settings};
use tempfile::TempDir;
use vfio_host::user::VfioUser;
use vfio_host::{Host, Nic, NicStorage, Options, WaitError};

/// Longer than anything here takes.
pub(crate) const LONG: Duration = Duration::from_secs(20);
/// The service that the passive side offers.
pub(crate) const SERVICE: u16 = 4711;
pub(crate) const NONE: CompletionFlags = CompletionFlags::empty();
/// Bytes of each side's buffer.
pub(crate) const BUFFER: usize = 1 << 16;

/// A server and the sockets of its HCAs.
pub(crate) struct Rig {
    pub(crate) server: Option<Handle>,
    pub(crate) sockets: [PathBuf; 2],
    folder: TempDir,
}

impl Rig {
    pub(crate) fn new() -> Self {
        Self::of(&Card::default())
    }

    /// With two cards like this one.
    pub(crate) fn of(card: &Card) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let sockets = ["a", "b"].map(|name| folder.path().join(name));
        let control = Some(folder.path().join("control"));
        let settings = Settings { control, ..Settings::with_device(card, sockets.clone()) };
        Self { server: Some(Server::start(settings).unwrap()), sockets, folder }
    }

    /// Says a line to the server's control socket.
    pub(crate) fn control(&self, line: &str) {
        use std::io::{BufRead, BufReader, Write};
        let mut stream = UnixStream::connect(self.folder.path().join("control")).unwrap();
        writeln!(stream, "{line}").unwrap();
        let mut said = String::new();
        BufReader::new(stream).read_line(&mut said).unwrap();
        assert_eq!(said.trim(), "ok", "{line}");
    }

    pub(crate) fn host(&self, side: usize) -> VfioUser {
        VfioUser::open(&self.sockets[side], &Options::default()).unwrap()
    }

    pub(crate) fn server(&self) -> &Handle {
        self.server.as_ref().unwrap()
    }

    /// Runs `test` on two connected adapters.
    pub(crate) fn connected(&self, test: impl FnOnce(&mut Pair<'_>)) {
        self.connected_by(&Config::default(), test);
    }

    /// The same with a configuration of both.
    pub(crate) fn connected_by(&self, config: &Config<'static>, test: impl FnOnce(&mut Pair<'_>)) {
        let hosts = [self.host(0), self.host(1)];
        let mut rooms = [Box::new(NicStorage::new()), Box::new(NicStorage::new())];
        test(&mut Pair::open_by(&hosts, &mut rooms, config));
    }
}

pub(crate) fn address(side: usize) -> IpAddr {
    Ipv4Addr::new(192, 168, 7, 1 + side as u8).into()
}

pub(crate) fn net(side: usize) -> Net {
    Net::new(address(side), 24)
}

/// One adapter with the objects of a connection.
pub(crate) struct Side<'h> {
    pub(crate) nic: Nic<'h, 'h, VfioUser>,
    pub(crate) pz: Pz,
    pub(crate) evd: Evd,
    pub(crate) ep: Ep,
    pub(crate) buffer: Buffer<'h, VfioUser>,
    pub(crate) lmr: LmrParam,
}

impl<'h> Side<'h> {
    pub(crate) fn open(
        host: &'h VfioUser,
        room: &'h mut NicStorage<'h, VfioUser>,
        side: usize,
    ) -> Self {
        Self::open_by(host, room, side, &Config::default())
    }

    fn open_by(
        host: &'h VfioUser,
        room: &'h mut NicStorage<'h, VfioUser>,
        side: usize,
        config: &Config<'static>,
    ) -> Self {
        let mut nic = Nic::open(host, room.parts(), net(side), config).unwrap();
        let pz = nic.pz_create().unwrap();
        let evd = nic.evd_create(64, EvdFlags::DEFAULT).unwrap();
        let ep = nic.ep_create(Some(pz), Some(evd), Some(evd), Some(evd), None);
        let buffer = nic.buffer(BUFFER).unwrap();
        let lmr = nic.lmr_create(pz, buffer.region(), MemPriv::ALL).unwrap();
        Self { ep: ep.unwrap(), nic, pz, evd, buffer, lmr }
    }

    /// A piece of its buffer, for its own requests.
    pub(crate) fn near(&self, at: usize, len: usize) -> [LmrTriplet; 1] {
        [self.lmr.local(at as u64, len as u32)]
    }

    /// A piece of its buffer, for its peer's requests.
    pub(crate) fn far(&self, at: usize, len: usize) -> RmrTriplet {
        self.lmr.remote(at as u64, len as u32)
    }

    /// Bytes of its buffer.
    pub(crate) fn look(&self, at: usize, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        assert_eq!(self.buffer.copy_out(at, &mut bytes), len);
        bytes
    }
}

/// Two sides in one thread, which waits for both as a program with a loop of its own would.
pub(crate) struct Pair<'h> {
    pub(crate) sides: [Side<'h>; 2],
}

impl<'h> Pair<'h> {
    /// Opens both and connects them.
    pub(crate) fn open(
        hosts: &'h [VfioUser; 2],
        rooms: &'h mut [Box<NicStorage<'h, VfioUser>>; 2],
    ) -> Self {
        Self::open_by(hosts, rooms, &Config::default())
    }

    fn open_by(
        hosts: &'h [VfioUser; 2],
        rooms: &'h mut [Box<NicStorage<'h, VfioUser>>; 2],
        config: &Config<'static>,
    ) -> Self {
        let [a, b] = rooms;
        let sides =
            [Side::open_by(&hosts[0], a, 0, config), Side::open_by(&hosts[1], b, 1, config)];
        let mut pair = Self { sides };
        pair.connect();
        pair
    }

    /// The next event of either side.
    pub(crate) fn next(&mut self) -> Result<(usize, Event), WaitError> {
        use rustix::event::{PollFd, PollFlags, Timespec, poll};
        let deadline = Instant::now() + LONG;
        loop {
            for side in [0, 1] {
                let Side { nic, evd, .. } = &mut self.sides[side];
                if nic.prepare(&[*evd])? {
                    return Ok((side, nic.evd_dequeue(*evd)?));
                }
            }
            let left = deadline.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "nothing came in {LONG:?}");
            let [a, b] = &self.sides;
            let mut fds = [&a.nic, &b.nic].map(|nic| PollFd::new(nic, PollFlags::IN));
            poll(&mut fds, Some(&Timespec::try_from(left).unwrap())).unwrap();
        }
    }

    /// The next event of one side, when none is due on the other.
    pub(crate) fn event(&mut self, of: usize) -> Event {
        let (side, event) = self.next().unwrap();
        assert_eq!(side, of, "{event:?}");
        event
    }

    /// The successful completion of a request of one side.
    pub(crate) fn done(&mut self, of: usize, cookie: u64) -> DtoEvent {
        match self.event(of) {
            Event::Dto(done) => {
                assert_eq!((done.status, done.cookie), (DtoStatus::Success, cookie));
                done
            }
            other => panic!("{other:?}"),
        }
    }

    /// Connects side 0 with side 1.
    pub(crate) fn connect(&mut self) {
        let [active, passive] = &mut self.sides;
        let psp = passive.nic.psp_create(SERVICE.into(), passive.evd, PspFlag::Consumer);
        let remote = SocketAddr::new(address(1), SERVICE);
        let connected = active.nic.ep_connect(active.ep, remote, LONG, b"hello");
        connected.unwrap();
        let Event::ConnectionRequest { cr, .. } = self.event(1) else {
            panic!("no request");
        };
        let passive = &mut self.sides[1];
        let ep = passive.ep;
        passive.nic.cr_accept(cr, Some(ep), b"welcome").unwrap();
        let mut seen = [false; 2];
        while seen != [true; 2] {
            match self.next().unwrap() {
                (side, Event::Established(ep)) if ep == self.sides[side].ep => seen[side] = true,
                other => panic!("{other:?}"),
            }
        }
        self.sides[1].nic.psp_free(psp.unwrap()).unwrap();
        let active = &self.sides[0];
        assert_eq!(active.nic.ep_private_data(active.ep).unwrap()[..7], *b"welcome");
    }
}

/// Interrupts that a host has taken, by vector.
pub(crate) fn interrupts(host: &impl Host) -> [u64; 3] {
    [0, 1, 2].map(|vector| host.wakeups().interrupts(vector))
}
