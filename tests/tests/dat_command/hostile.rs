//! Peers that are no `dat`: what they say is written here byte by byte, and none of it disturbs
//! anybody else.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::mpsc;
use std::thread;

use dat_core::provider::Net;
use dat_core::{
    CompletionFlags, DtoStatus, Ep, Evd, EvdFlags, Event, LmrParam, LmrTriplet, MemPriv, PspFlag,
    Pz, RmrTriplet,
};
use hca_mlx5::Config;
use hca_mlx5::dma::Buffer;
use vfio_host::user::VfioUser;
use vfio_host::{Nic, NicStorage, Options};

use crate::stage::{LONG, Stage};

const NONE: CompletionFlags = CompletionFlags::empty();
const SIZE: u32 = 64;
const COUNT: u64 = 10;

/// A hello: kind (1 ping, 2 send, 3 write, 4 read, 5 bind), depth 4 (a ping's is 1), 64 bytes, 10
/// operations, MTU 4096.
fn hello(kind: u8) -> Vec<u8> {
    let mut bytes = b"dat?\x01".to_vec();
    bytes.push(kind);
    bytes.extend(if kind == 1 { 1_u16 } else { 4 }.to_be_bytes());
    bytes.extend(SIZE.to_be_bytes());
    bytes.extend(COUNT.to_be_bytes());
    bytes.extend(7_u64.to_be_bytes());
    bytes.extend(4096_u16.to_be_bytes());
    bytes
}

/// The message "verify up to `number`", with a piece of memory.
fn verify(number: u64, addr: u64, key: u32, len: u32) -> Vec<u8> {
    let mut bytes = b"dat:\x02\0\0\0".to_vec();
    bytes.extend(number.to_be_bytes());
    bytes.extend(addr.to_be_bytes());
    bytes.extend(key.to_be_bytes());
    bytes.extend(len.to_be_bytes());
    bytes
}

/// A peer that is not the command: an adapter in this process.
struct ForeignPeer<'h> {
    nic: Nic<'h, 'h, VfioUser>,
    pz: Pz,
    evd: Evd,
    buffer: Buffer<'h, VfioUser>,
    lmr: LmrParam,
}

impl ForeignPeer<'_> {
    /// Runs `act` on HCA `nth` of the stage.
    fn run<T>(stage: &Stage, nth: usize, act: impl FnOnce(&mut ForeignPeer<'_>) -> T) -> T {
        let host = VfioUser::open(&stage.sockets[nth], &Options::default()).unwrap();
        let mut room = Box::new(NicStorage::new());
        let net = Net::new(Ipv4Addr::new(192, 168, 7, 1 + u8::try_from(nth).unwrap()).into(), 24);
        let mut nic = Nic::open(&host, room.parts(), net, &Config::default()).unwrap();
        let pz = nic.pz_create().unwrap();
        let evd = nic.evd_create(64, EvdFlags::DEFAULT).unwrap();
        let buffer = nic.buffer(1 << 16).unwrap();
        let lmr = nic.lmr_create(pz, buffer.region(), MemPriv::ALL).unwrap();
        act(&mut ForeignPeer { nic, pz, evd, buffer, lmr })
    }

    fn endpoint(&mut self) -> Ep {
        let evd = Some(self.evd);
        let ep = self.nic.ep_create(Some(self.pz), evd, evd, evd, None).unwrap();
        for piece in 0..8 {
            let segment = self.segment(4096 * piece, 4096);
            self.nic.ep_post_recv(ep, &segment, piece as u64, NONE).unwrap();
        }
        ep
    }

    fn segment(&self, at: usize, len: usize) -> [LmrTriplet; 1] {
        [LmrTriplet {
            addr: self.lmr.region.addr + at as u64,
            len: u32::try_from(len).unwrap(),
            context: self.lmr.lmr_context,
        }]
    }

    /// The next event that is no completion of a receive flushed or a request that succeeded.
    fn event(&mut self) -> Event {
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

    /// Calls the listener; the Endpoint, what came of it, and the private data of the answer.
    fn call(&mut self, hello: &[u8]) -> (Ep, Event, Vec<u8>) {
        let ep = self.endpoint();
        let to = SocketAddr::new(Ipv4Addr::new(192, 168, 7, 1).into(), 4711);
        self.nic.ep_connect(ep, to, LONG, hello).unwrap();
        let event = self.event();
        let private = self.nic.ep_private_data(ep).unwrap().to_vec();
        (ep, event, private)
    }

    /// Agrees on a test: the Endpoint, and the memory that may be reached.
    fn agree(&mut self, kind: u8) -> (Ep, RmrTriplet) {
        let (ep, event, private) = self.call(&hello(kind));
        assert_eq!(event, Event::Established(ep));
        assert_eq!(private[..6], [b'd', b'a', b't', b'!', 1, kind]);
        let far = RmrTriplet {
            addr: u64::from_be_bytes(private[8..16].try_into().unwrap()),
            len: u64::from_be_bytes(private[16..24].try_into().unwrap()).try_into().unwrap(),
            context: u32::from_be_bytes(private[24..28].try_into().unwrap()),
        };
        (ep, far)
    }

    fn send(&mut self, ep: Ep, bytes: &[u8]) {
        self.buffer.copy_in(60 << 10, bytes);
        let segment = self.segment(60 << 10, bytes.len());
        self.nic.ep_post_send(ep, &segment, 99, NONE).unwrap();
    }

    /// Waits for the end of the connection.
    fn ends(&mut self, ep: Ep) {
        loop {
            let event = self.event();
            if event.is_terminal() {
                self.nic.ep_free(ep).unwrap();
                return;
            }
        }
    }
}

#[test]
fn another_program_is_refused_in_words() {
    let stage = Stage::of(3);
    let listener = stage.listen("");
    ForeignPeer::run(&stage, 2, |peer| {
        let mut version = hello(2);
        version[4] = 2;
        let mut shallow = hello(3);
        shallow[6..8].fill(0);
        let mut huge = hello(2);
        huge[8..12].fill(0xff);
        let mut tail = hello(2);
        tail.resize(56, 1);
        for (bytes, words) in [
            (&b""[..], "no dat test"),
            (b"GET / HTTP/1.1", "no dat test"),
            (&version, "another version"),
            (&hello(9), "no such kind"),
            (&shallow, "1 to 48 operations"),
            (&huge, "1 byte to 1M"),
            (&tail, "behind the hello"),
        ] {
            let (ep, event, private) = peer.call(bytes);
            assert_eq!(event, Event::PeerRejected(ep), "{words}");
            assert_eq!(private[..5], *b"dat-\x01");
            let said = String::from_utf8_lossy(&private[5..]);
            assert!(said.contains(words), "{said}");
            peer.nic.ep_free(ep).unwrap();
        }
    });
    stage.client("ping", 1, "--count 10").well();
    listener.interrupt();
    let listener = listener.end().well();
    assert_eq!(listener.out.lines().count(), 1, "{}", listener.out);
}

#[test]
fn a_liar_fails_its_own_test_only() {
    let stage = Stage::of(3);
    let listener = stage.listen("");
    ForeignPeer::run(&stage, 2, |liar| {
        // A message of another length, and one with other contents: the answer says which.
        let (ep, _) = liar.agree(2);
        liar.send(ep, b"short");
        liar.ends(ep);
        let (ep, _) = liar.agree(2);
        liar.send(ep, &[0; SIZE as usize]);
        let Event::Dto(dto) = liar.event() else { panic!() };
        let mut words = [0; 16];
        liar.buffer.copy_out(4096 * usize::try_from(dto.cookie).unwrap(), &mut words);
        assert_eq!(words, *b"dat:\x03\0\0\0\0\0\0\0\0\0\0\0");
        liar.ends(ep);

        // Operations that were never done, too many of them, none; a message that makes no sense.
        for claim in [
            verify(4, 0, 0, 0),
            verify(11, 0, 0, 0),
            verify(0, 0, 0, 0),
            verify(u64::MAX, 0, 0, 0),
            vec![b'x'; 32],
        ] {
            let (ep, _) = liar.agree(3);
            liar.send(ep, &claim);
            liar.ends(ep);
        }

        // A byte beyond the memory that may be written, and a write to what may only be read.
        for (kind, beyond) in [(3, 1), (4, 0)] {
            let (ep, far) = liar.agree(kind);
            let to = RmrTriplet {
                addr: far.addr + u64::from(far.len - SIZE) + beyond,
                len: SIZE,
                ..far
            };
            let segment = liar.segment(0, SIZE as usize);
            liar.nic.ep_post_rdma_write(ep, &segment, 1, &to, NONE).unwrap();
            let Event::Dto(dto) = liar.event() else { panic!() };
            assert_eq!(dto.status, DtoStatus::ErrRemoteAccess);
            liar.ends(ep);
        }

        // A window that is none, and one of another length.
        for (key, len) in [(0xdead_be00, SIZE), (liar.lmr.rmr_context, u32::MAX)] {
            let (ep, _) = liar.agree(5);
            let addr = liar.lmr.region.addr;
            liar.send(ep, &verify(4, addr, key, len));
            liar.ends(ep);
        }
        // Somebody else is served meanwhile.
        let (ep, _) = liar.agree(1);
        stage.client("perf", 1, "--count 50").well();
        liar.nic.ep_free(ep).unwrap();
    });
    listener.interrupt();
    let listener = listener.end().fails(1, &[]);
    let lines: Vec<&str> = listener.out.lines().collect();
    assert_eq!(lines.len(), 13, "{}", listener.out);
    for words in [
        "FAILED: message 0 has 5 bytes instead of 64",
        "FAILED: operation 0 has wrong contents from byte 0 on",
        "FAILED: the peer claims 11 operations of 10 after 0",
        "FAILED: the peer claims 0 operations of 10 after 0",
        "FAILED: the peer sent a malformed message",
        "FAILED: the connection broke",
        "FAILED: the peer's device refused its memory",
        "FAILED: the peer's window has 4294967295 bytes instead of 64",
        "192.168.7.2: write, 4096 bytes, 50 verified",
    ] {
        assert!(listener.out.contains(words), "{words}: {}", listener.out);
    }
}

#[test]
fn a_listener_need_not_be_dat() {
    let stage = Stage::new();
    let answer = |answer: Option<&'static [u8]>, ping: &dyn Fn()| {
        let (ready, go) = mpsc::channel();
        thread::scope(|scope| {
            scope.spawn(|| {
                ForeignPeer::run(&stage, 0, |peer| {
                    let evd = peer.evd;
                    peer.nic.psp_create(4711, evd, PspFlag::Consumer).unwrap();
                    ready.send(()).unwrap();
                    let Event::ConnectionRequest { cr, .. } = peer.event() else { panic!() };
                    let Some(private) = answer else {
                        peer.nic.cr_reject(cr, b"go away").unwrap();
                        // The rejection goes out when the adapter is driven.
                        let _ = peer.nic.evd_wait(evd, std::time::Duration::from_millis(200), 1);
                        return;
                    };
                    let ep = peer.endpoint();
                    peer.nic.cr_accept(cr, Some(ep), private).unwrap();
                    while !peer.event().is_terminal() {
                        // The answer to anything is the same.
                        let segment = peer.segment(0, SIZE as usize);
                        let _ = peer.nic.ep_post_send(ep, &segment, 5, NONE);
                    }
                });
            });
            go.recv().unwrap();
            ping();
        });
    };
    answer(None, &|| {
        let run = stage.client("ping", 1, "");
        run.fails(1, &["refused the connection, and it is no dat listen", "help:"]);
    });
    answer(Some(b"220 mail.example.org"), &|| {
        let run = stage.client("ping", 1, "");
        run.fails(1, &["is no dat listen of this version", "help:"]);
    });
    // A dat's welcome to a ping of one in flight, and nothing like an answer behind it.
    answer(Some(b"dat!\x01\x01\0\x01"), &|| {
        let run = stage.client("ping", 1, "--count 10");
        run.fails(1, &["answer 0 has wrong contents from byte 0 on"]);
    });
    answer(Some(b"dat!\x01\x02\0\x10"), &|| {
        let run = stage.client("perf", 1, "--kind send --count 100");
        run.fails(1, &["the peer sent a malformed message"]);
    });
}
