//! Payload in completions: who gets it, and how long.

use dat_core::provider::Status;

use super::*;
use crate::data::scripted::ARENA_IOVA;
use crate::platform::Reach;
use crate::prm::cqe;

fn hca(p: &Scripted<false>, asked: bool, can: bool) -> Hca<'_, false> {
    let mut device = p.device();
    device.caps.general.set_sctr_data_cqe(can);
    device.caps.general.set_log_max_srq(4);
    device.caps.general.set_log_max_srq_sz(10);
    let config = Config { inline_receives: asked, ..Config::default() };
    Mlx5::over(device, &config).unwrap()
}

#[test]
fn connections_get_it_if_asked_for_and_the_device_can() {
    for (asked, can) in [(false, false), (false, true), (true, false), (true, true)] {
        let p = Scripted::<false>::new();
        let mut hca = hca(&p, asked, can);
        let pd = hca.pd_create().unwrap();
        let (cq, _end) = hca.cq_create(8).unwrap();
        let connected = init(pd, cq);
        let datagram = seam::Service::Datagram { qkey: 1 };
        let (shared, _queue) = hca.shared_create(&shared_init(pd)).unwrap();
        for init in [
            connected,
            QpInit { service: datagram, ..connected },
            QpInit { shared: Some(shared), ..connected },
        ] {
            hca.qp_create(&init).unwrap();
        }
        // Requests never do; QP1 comes first.
        let bits = p.of(Opcode::CreateQp).iter().map(|c| c.bits(0x18 + 0xc4, 15, 0)).collect();
        let golden: Vec<u32> = [0, u32::from(asked && can), 0, 0].into();
        assert_eq!((hca.receives_inline(), bits), (asked && can, golden));
        hca.close().unwrap();
        assert_eq!(p.held(), 0, "asked {asked}, can {can}");
    }
}

#[test]
fn memory_by_device_addresses_is_refused_then() {
    for asked in [false, true] {
        let p = Scripted::<false>::new();
        let mut hca = hca(&p, asked, true);
        let pd = hca.pd_create().unwrap();
        let refused = [
            hca.mr_map(pd, PAGES, 0, Access::all()).map(drop),
            hca.mr_allocate(pd, 4).map(drop),
            hca.mr_reserved(pd).map(drop),
        ];
        for answer in refused {
            let kind = answer.map_err(|fault| fault.kind);
            assert_eq!(kind, if asked { Err(FaultKind::Unsupported) } else { Ok(()) });
        }
        hca.mr_map(pd, Backing::Host(REGION), 0x55, Access::all()).unwrap();
    }
}

/// A connection with receives into a region, and completions of 4 bytes.
struct Rig<'p> {
    hca: Hca<'p, false>,
    p: &'p Scripted<false>,
    cq: Cq<'p, Scripted<false>>,
    mr: Mr,
    qp: NewQp<Sq<'p, Scripted<false>>, Rq<'p, Scripted<false>>>,
}

impl<'p> Rig<'p> {
    fn new(p: &'p Scripted<false>) -> Self {
        let mut hca = hca(p, true, true);
        let pd = hca.pd_create().unwrap();
        let (cq, end) = hca.cq_create(8).unwrap();
        let mr = hca.mr_create(pd, REGION, Access::LOCAL_WRITE).unwrap();
        let mut qp = hca.qp_create(&init(pd, cq)).unwrap();
        for _ in 0..4 {
            qp.rq.recv(&[Segment { addr: REGION.addr, len: 8, lkey: mr.lkey }]);
        }
        Self { hca, p, cq: end, mr, qp }
    }

    /// Whether the next completion brings its payload to the region.
    fn brings(&mut self, payload: [u8; 4]) -> bool {
        let token = u8::try_from(self.cq.taken()).unwrap();
        let mut entry = [0; 64];
        entry[..4].copy_from_slice(&payload);
        entry[0x23] = 7;
        entry[0x2f] = 4;
        entry[0x38..0x3c].copy_from_slice(&self.qp.qp.number.to_be_bytes());
        entry[0x3d] = token;
        entry[0x3f] = cqe::RESPONDER_SEND << 4 | cqe::INLINE_32 << 2;
        self.p.put(self.p.cq_ring(2) + 64 * usize::from(token), &entry);
        let found = self.cq.poll().unwrap();
        let there = self.p.bytes(0, 4) == payload;
        assert_eq!(found.status == Status::Success, there);
        there
    }
}

#[test]
fn payload_goes_to_what_exists() {
    let p = Scripted::<false>::new();
    // The region is the first page.
    p.alloc(4096, 4096, Reach::ReadWrite).unwrap();
    let mut rig = Rig::new(&p);
    assert!(rig.brings([1; 4]));
    // A region that cannot be destroyed is still one.
    p.refuse(Opcode::DestroyMkey, 6, 0);
    assert_eq!(rig.hca.mr_destroy(rig.mr).unwrap_err().status, 6);
    assert!(rig.brings([2; 4]));
    p.refusals.borrow_mut().clear();
    rig.hca.mr_destroy(rig.mr).unwrap();
    assert!(!rig.brings([3; 4]));
    assert_eq!(p.bytes(0, 4), [2; 4]);
}

#[test]
fn a_queue_pair_that_is_gone_gets_none() {
    let p = Scripted::<false>::new();
    p.alloc(4096, 4096, Reach::ReadWrite).unwrap();
    let mut rig = Rig::new(&p);
    let pd = Pd(rig.hca.pds.numbers().next().unwrap());
    let fresh = rig.hca.qp_create(&QpInit { index: 9, ..init(pd, seam::Cq(rig.cq.cqn())) });
    let NewQp { qp, sq, rq } = core::mem::replace(&mut rig.qp, fresh.unwrap());
    rig.hca.qp_destroy(qp, sq, rq).unwrap();
    rig.qp.qp = qp;
    assert!(!rig.brings([1; 4]));
}

/// What a reaping end is copying to exists until it has finished.
#[test]
fn an_end_waits_for_copies() {
    let p = Scripted::<false>::new();
    p.alloc(4096, 4096, Reach::ReadWrite).unwrap();
    let mut rig = Rig::new(&p);
    let record = p.of(Opcode::CreateCq)[2].wide(0x10 + 0x38) - ARENA_IOVA;
    let word = usize::try_from(record).unwrap() + 12;
    assert!(rig.brings([1; 4]));
    assert_eq!(p.bytes(word, 4), 2_u32.to_ne_bytes(), "one copy, which is over");
    p.put(word, &3_u32.to_ne_bytes());
    let before = p.commands.borrow().len();
    let fault = rig.hca.mr_destroy(rig.mr).unwrap_err();
    assert_eq!((fault.kind, p.commands.borrow().len()), (FaultKind::Timeout, before));
    p.put(word, &4_u32.to_ne_bytes());
    assert!(rig.brings([2; 4]), "it is still there");
    rig.hca.mr_destroy(rig.mr).unwrap();
    assert!(!rig.brings([3; 4]));
}
