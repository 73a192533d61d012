//! Peers that are not the command: adapters in this process, which say what a test wants.

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use dat_core::cm::QpTerms;
use dat_core::provider::{Mtu, Net, Provider};
use dat_core::{
    CloseFlag, CompletionFlags, Cr, DtoStatus, Ep, Evd, EvdFlags, Event, LmrParam, LmrTriplet,
    MemPriv, PspFlag, Pz,
};
use hca_mlx5::Config;
use hca_mlx5::dma::Buffer;
use vfio_host::user::VfioUser;
use vfio_host::{Nic, NicStorage, Options};

use crate::stage::{LONG, Run, Stage};

const NONE: CompletionFlags = CompletionFlags::empty();

/// A peer that is not the command: an adapter in this process.
pub(crate) struct ForeignPeer<'h> {
    pub(crate) nic: Nic<'h, 'h, VfioUser>,
    pz: Pz,
    pub(crate) evd: Evd,
    pub(crate) buffer: Buffer<'h, VfioUser>,
    pub(crate) lmr: LmrParam,
}

impl ForeignPeer<'_> {
    /// Runs `act` on HCA `nth` of the stage.
    pub(crate) fn run<T>(
        stage: &Stage,
        nth: usize,
        act: impl FnOnce(&mut ForeignPeer<'_>) -> T,
    ) -> T {
        let host = VfioUser::open(&stage.sockets[nth], &Options::default()).unwrap();
        let mut room = Box::new(NicStorage::new());
        let net = Net::new(Ipv4Addr::new(192, 168, 7, 1 + u8::try_from(nth).unwrap()).into(), 24);
        let mut nic = Nic::open(&host, room.parts(), net, &Config::default()).unwrap();
        let pz = nic.pz_create().unwrap();
        let evd = nic.evd_create(64, EvdFlags::DEFAULT).unwrap();
        let buffer = nic.buffer(1 << 16).unwrap();
        let lmr =
            nic.lmr_create(pz, buffer.region(), MemPriv::ALL | MemPriv::REMOTE_ATOMIC).unwrap();
        act(&mut ForeignPeer { nic, pz, evd, buffer, lmr })
    }

    pub(crate) fn endpoint(&mut self) -> Ep {
        let evd = Some(self.evd);
        let ep = self.nic.ep_create(Some(self.pz), evd, evd, evd, None).unwrap();
        for piece in 0..8 {
            let segment = self.segment(4096 * piece, 4096);
            self.nic.ep_post_recv(ep, &segment, piece as u64, NONE).unwrap();
        }
        ep
    }

    pub(crate) fn segment(&self, at: usize, len: usize) -> [LmrTriplet; 1] {
        [LmrTriplet {
            addr: self.lmr.region.addr + at as u64,
            len: u32::try_from(len).unwrap(),
            context: self.lmr.lmr_context,
        }]
    }

    /// The next event that is no completion of a receive flushed or a request that succeeded.
    pub(crate) fn event(&mut self) -> Event {
        loop {
            let event = self.nic.evd_wait(self.evd, LONG, 1).unwrap();
            let Event::Dto(dto) = event else { return event };
            let request = dto.status == DtoStatus::Success
                && dto.operation != dat_core::DtoOperation::Receive;
            if !request && dto.status != DtoStatus::ErrFlushed {
                return event;
            }
        }
    }

    /// Calls a listener at 192.168.7.1; the Endpoint, what came of it, and the private data of the
    /// answer.
    pub(crate) fn call(&mut self, port: u16, hello: &[u8]) -> (Ep, Event, Vec<u8>) {
        let ep = self.endpoint();
        let to = SocketAddr::new(Ipv4Addr::new(192, 168, 7, 1).into(), port);
        self.nic.ep_connect(ep, to, LONG, hello).unwrap();
        let event = self.event();
        let private = self.nic.ep_private_data(ep).unwrap().to_vec();
        (ep, event, private)
    }

    pub(crate) fn send(&mut self, ep: Ep, bytes: &[u8]) {
        self.buffer.copy_in(60 << 10, bytes);
        let segment = self.segment(60 << 10, bytes.len());
        self.nic.ep_post_send(ep, &segment, 99, NONE).unwrap();
    }

    /// Waits for the end of the connection.
    pub(crate) fn ends(&mut self, ep: Ep) {
        loop {
            let event = self.event();
            if event.is_terminal() {
                self.nic.ep_free(ep).unwrap();
                return;
            }
        }
    }

    /// Ends a connection.
    pub(crate) fn part(&mut self, ep: Ep) {
        self.nic.ep_disconnect(ep, CloseFlag::Abrupt).unwrap();
        self.ends(ep);
    }

    /// Lets the adapter run for some time.
    pub(crate) fn idle(&mut self, time: Duration) {
        let nobody = self.nic.evd_create(1, EvdFlags::DEFAULT).unwrap();
        let _ = self.nic.evd_wait(nobody, time, 1);
        self.nic.evd_free(nobody).unwrap();
    }
}

/// Runs `client` while a foreign peer listens on HCA 0, which takes its request to `act`.
pub(crate) fn listening(
    stage: &Stage,
    port: u64,
    act: impl FnOnce(&mut ForeignPeer<'_>, Cr) + Send,
    client: impl FnOnce() -> Run,
) -> Run {
    let (ready, go) = mpsc::channel();
    thread::scope(|scope| {
        scope.spawn(|| {
            ForeignPeer::run(stage, 0, |peer| {
                let evd = peer.evd;
                peer.nic.psp_create(port, evd, PspFlag::Consumer).unwrap();
                ready.send(()).unwrap();
                let Event::ConnectionRequest { cr, .. } = peer.event() else { panic!() };
                act(peer, cr);
            });
        });
        go.recv().unwrap();
        client()
    })
}

/// Runs `client`, one of perftest's programs, against a foreign server whose memory changes all the
/// time; `client` gets its TCP port.
pub(crate) fn serving_restless_memory(stage: &Stage, client: impl FnOnce(u16) -> Run) -> Run {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::scope(|scope| {
        scope.spawn(|| {
            ForeignPeer::run(stage, 0, |peer| {
                let (mut stream, _) = listener.accept().unwrap();
                peer.serve_restless_memory(&mut stream);
            });
        });
        client(port)
    })
}

impl ForeignPeer<'_> {
    fn serve_restless_memory(&mut self, stream: &mut TcpStream) {
        let mut version = [0; 16];
        version[..4].copy_from_slice(b"6.24");
        let agreed = [&version[..], &4096_u32.to_be_bytes(), &64_u32.to_be_bytes(), b"3\0"];
        for own in agreed {
            stream.read_exact(&mut vec![0; own.len()]).unwrap();
            stream.write_all(own).unwrap();
        }
        let ep = self.endpoint();
        let qpn = self.nic.ep_query(ep).unwrap().qp.unwrap().number;
        let (addr, rkey) = (self.lmr.region.addr, self.lmr.rmr_context);
        let own = format!(
            "0000:0001:{qpn:06x}:000001:{rkey:08x}:{addr:016x}:\
             00:00:00:00:00:00:00:00:00:00:ff:ff:c0:a8:07:01:00000000:\0"
        );
        stream.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
        let (mut line, mut got, mut is_up) = ([0; 108], 0, false);
        for word in 0_u64.. {
            self.buffer.copy_in(0, &word.to_ne_bytes());
            match stream.read(&mut line[got..]) {
                Ok(0) => break,
                Ok(more) => got += more,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.nic.advance();
                }
                Err(_) => break,
            }
            if got < line.len() {
                continue;
            }
            got = 0;
            if !std::mem::replace(&mut is_up, true) {
                let text = String::from_utf8(line.to_vec()).unwrap();
                let number = |nth| u32::from_str_radix(text.split(':').nth(nth).unwrap(), 16);
                self.connect_direct(ep, number(2).unwrap(), number(3).unwrap());
            }
            stream.write_all(own.as_bytes()).unwrap();
        }
    }

    /// Connects to a queue pair of 192.168.7.2, whose first PSN that is; one's own is 1.
    fn connect_direct(&mut self, ep: Ep, remote_qpn: u32, rq_psn: u32) {
        let limits = self.nic.provider().limits();
        let terms = QpTerms {
            remote_qpn,
            rq_psn,
            sq_psn: 1,
            mtu: Mtu::B1024,
            responder_resources: 1,
            initiator_depth: 1,
            retry_count: 7,
            rnr_retry: 7,
            ack_timeout: 14,
            class: limits.classes.best_effort,
        };
        let remote = IpAddr::V4(Ipv4Addr::new(192, 168, 7, 2));
        self.nic.ep_connect_direct(ep, remote, &terms, LONG).unwrap();
        assert_eq!(self.event(), Event::Established(ep));
    }
}
