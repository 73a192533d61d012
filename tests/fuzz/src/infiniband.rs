//! Frames of an InfiniBand link into a whole driver's port, whose subnet manager and administrator
//! the input is: datagrams to QP0 and QP1, IP over InfiniBand, true answers with lies in them, and a
//! device that lies about its port.
//!
//! It goes on, rests when nothing comes, sends a bounded number of frames for each, and leads no
//! packet to a LID that no port can have, or that only answers named which it had not asked for.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::task::Poll;
use std::time::Duration;

use arbitrary::{Arbitrary, Unstructured};
use dat_core::provider::{Net, NextHop, Provider as _};
use dat_core::{CloseFlag, Ep, EvdFlags, Event, Ia, Instant, PspFlag, Qos, Storage};
use dat_tests::attack::ib::{
    BROADCAST_GID, BROADCAST_LID, GROUP_QPN, ib_datagram, ib_mad, ipoib_arp, smp_by_lid,
    smp_over_cable,
};
use dat_tests::attack::mad::Req;
use dat_tests::attack::{Cm, Mad};
use dat_tests::bringup::{Rig, patience};
use dat_tests::host::inproc::Slot;
use hca_mlx5::{Config, Mlx5};
use mlx5_model::Config as Card;
use mlx5_model::ifc::subnet::port_info;
use mlx5_model::subnet::Smp;
use mlx5_model::subnet::smp::{attribute, method};
use mlx5_model::wire::Wire as _;
use mlx5_model::wire::ib::{Grh, Packet};

use crate::input::{Patch, patch, steps};
use crate::world::{MEMORY, Rule, change_answers};

type Driver<'p> = Mlx5<'p, Slot, 16, 16, 8>;
type Room<'p> = Storage<Driver<'p>, 4, 8, 8, 16, 32>;

const OWN: Ipv4Addr = Ipv4Addr::new(192, 168, 7, 1);
const PEER: Ipv4Addr = Ipv4Addr::new(192, 168, 7, 2);
const PORT: u16 = 4711;
const PREFIX: u128 = 0xfe80 << 112;
/// LIDs of the port, of its manager, of peers, and one that only forgeries name.
const OWN_LID: u16 = 5;
const MANAGER: u16 = 2;
const PEER_LID: u16 = 7;
const FORGED: u16 = 0x66;
/// Frames that one service may send.
const MOST: usize = 400;

#[derive(Clone, Copy, Debug, Arbitrary)]
struct Setting {
    manager: bool,
    ipv6: bool,
    by_gid: bool,
    virt: bool,
}

#[derive(Debug, Arbitrary)]
enum Step<'a> {
    Any(&'a [u8]),
    /// The administrator's answer to its last question; `changed` from somewhere.
    Answer {
        status: u8,
        patches: [Option<Patch>; 3],
    },
    /// The same from another LID, or in another's name.
    Forged {
        kind: u8,
        patches: [Option<Patch>; 2],
    },
    /// It redirects.
    Redirect {
        lid: u8,
        qpn: u8,
    },
    Mad {
        from: u8,
        class: u8,
        method: u8,
        attribute: u8,
        grh: bool,
        patches: [Option<Patch>; 3],
    },
    Cm {
        kind: u8,
        from: u8,
        patches: [Option<Patch>; 3],
    },
    Arp {
        operation: u8,
        from: u8,
        qpn: u8,
        gid: u8,
        group: bool,
        patches: [Option<Patch>; 2],
    },
    Smp {
        cable: bool,
        set: bool,
        attribute: u8,
        modifier: u8,
        patches: [Option<Patch>; 3],
    },
    /// PortInfo as it was, with changes.
    Configure {
        state: u8,
        reregister: bool,
        patches: [Option<Patch>; 2],
    },
    Resolve {
        to: u8,
        asker: bool,
    },
    Connect {
        to: u8,
    },
    Lie {
        rules: [Rule; 2],
    },
    Events,
    Turn {
        millis: u16,
    },
}

struct World<'a, 's> {
    rig: &'a Rig,
    peer: &'a mut mlx5_model::wire::switch::Port,
    ia: Ia<'s, Driver<'s>>,
    ep: Ep,
    evds: [dat_core::Evd; 3],
    /// The last question to the administrator.
    asked: Option<Packet>,
    /// Queue pair and Q_Key of IP over InfiniBand, as its frames say.
    link: u32,
    gid: u128,
    lies: bool,
    /// The administrator has said what nobody says.
    absurd: bool,
}

/// Runs the target.
pub fn run(data: &[u8]) {
    let mut bytes = Unstructured::new(data);
    let Ok(setting) = bytes.arbitrary::<Setting>() else { return };
    let virt = if setting.virt { "ib-virt=yes" } else { "ib-virt=no" };
    let facts = virt.parse().unwrap();
    let card = Card { boot_pages: 3, init_pages: Some(9), facts, ..Card::infiniband() };
    let Rig { world, slot, peer } = Rig::with(card, MEMORY);
    let (unplugged, _) = mlx5_model::wire::switch::cable();
    let (rig, mut peer) = (Rig { world, slot, peer: unplugged }, peer);
    let mut room = Box::new(Room::new());
    let config = Config { subnet_manager: setting.manager, ..patience() };
    let mut driver = Driver::open(&rig.slot, &config).unwrap();
    let gid = driver.ib_port().unwrap().unwrap().gid;
    let addr = match setting {
        Setting { by_gid: true, .. } => IpAddr::V6(Ipv6Addr::from_bits(gid)),
        Setting { ipv6: true, .. } => IpAddr::from([0xfd00, 0, 0, 7, 0, 0, 0, 1]),
        Setting { .. } => OWN.into(),
    };
    let net = Net { addr, prefix: if addr.is_ipv4() { 24 } else { 64 }, gateway: None, vlan: None };
    let mut ia = Ia::open(driver, room.parts(), net, rig.now(), [3; 32]).unwrap();
    let evds = [EvdFlags::DTO, EvdFlags::CONNECTION, EvdFlags::CR]
        .map(|flags| ia.evd_create(16, flags).unwrap());
    ia.psp_create(PORT.into(), evds[2], PspFlag::Consumer).unwrap();
    let pz = ia.pz_create().unwrap();
    let mut attr = ia.ep_attr_default();
    (attr.max_request_dtos, attr.max_recv_dtos) = (4, 4);
    let ep = ia.ep_create(Some(pz), Some(evds[0]), Some(evds[0]), Some(evds[1]), Some(&attr));
    let mut world = World {
        rig: &rig,
        peer: &mut peer,
        ia,
        ep: ep.unwrap(),
        evds,
        asked: None,
        link: 0,
        gid,
        lies: false,
        absurd: false,
    };
    world.come_up();
    for step in steps(&mut bytes, 48) {
        world.step(step);
        world.turn(100_000);
    }
    world.end();
    drop(world);
    assert_eq!(rig.slot.views().strays(), 0, "the driver stored where nobody has memory");
}

fn lid(code: u8) -> u16 {
    match code % 12 {
        0 => 0,
        1 => BROADCAST_LID,
        2 => 0xffff,
        3 => OWN_LID,
        4..=6 => FORGED,
        7 | 8 => MANAGER,
        _ => PEER_LID,
    }
}

fn peer_gid(code: u8) -> u128 {
    PREFIX | 0x0200_00ff_fe00_0000 | u128::from(code % 16)
}

fn host(code: u8) -> Ipv4Addr {
    if code < 128 { PEER } else { Ipv4Addr::new(192, 168, 7, code) }
}

impl World<'_, '_> {
    fn send(&mut self, packet: &Packet) {
        self.peer.send(&packet.build());
    }

    /// A manager activates the port and answers its first questions.
    fn come_up(&mut self) {
        for state in [0, 3, 4] {
            self.configure(state, false, &[]);
            self.turn(1_000);
        }
        for _ in 0..40 {
            self.answer(0, &[], MANAGER, 1);
            self.turn(200_000);
        }
    }

    fn configure(&mut self, state: u8, reregister: bool, patches: &[Option<Patch>]) {
        let mut smp = Smp::request(method::SET, attribute::PORT_INFO, 1, 9);
        let data = smp.data_mut();
        port_info::gid_prefix.set64(data, 0xfe80 << 48);
        for (field, value) in [
            (port_info::lid, OWN_LID.into()),
            (port_info::master_sm_lid, MANAGER.into()),
            (port_info::port_state, u32::from(state)),
            (port_info::neighbor_mtu, 4),
            (port_info::operational_vls, 1),
            (port_info::client_reregister, reregister.into()),
        ] {
            field.set(data, value);
        }
        patch(data, patches);
        self.send(&smp_over_cable(&smp));
    }

    /// One service, then time; takes what the port sends.
    fn turn(&mut self, leap: u64) {
        let _ = self.ia.advance(self.rig.now());
        self.rig.world.turn_by(leap);
        let mut frames = 0;
        while let Some(frame) = self.peer.recv() {
            frames += 1;
            let Ok(packet) = Packet::parse(&frame) else { continue };
            if packet.payload.get(..3) == Some(&[1, 3, 2]) && packet.payload[3] & 0x80 == 0 {
                self.asked = Some(packet);
            } else if packet.lrh.dlid >= BROADCAST_LID && packet.lrh.vl == 0 {
                self.link = packet.ext.deth.map_or(0, |deth| deth.src_qp);
            }
        }
        assert!(frames <= MOST, "{frames} frames at once");
    }

    /// Answers the last question as the administrator does, with changes of the record.
    fn answer(&mut self, status: u8, patches: &[Option<Patch>], slid: u16, qpn: u32) {
        let Some(asked) = self.asked.clone() else { return };
        let what = asked.payload.get(17).copied();
        let mut mad = asked.payload;
        mad[3] = if mad[3] == 0x15 { 0x95 } else { 0x81 };
        mad[4..6].copy_from_slice(&[status & 7, status >> 3 & 3]);
        let record = &mut mad[56..];
        if record.len() == 200 && what == Some(0x35) {
            if record[8..24] == [0; 16] {
                record[8..24].copy_from_slice(&peer_gid(2).to_be_bytes());
            }
            record[40..42].copy_from_slice(&PEER_LID.to_be_bytes());
            record[42..44].copy_from_slice(&OWN_LID.to_be_bytes());
            record[54..57].copy_from_slice(&[0x84, 0x83, 0x92]);
        } else if record.len() == 200 {
            record[32..36].copy_from_slice(&0x0b1b_u32.to_be_bytes());
            record[36..40].copy_from_slice(&[0xc0, 0, 0x84, 0]);
            record[40..44].copy_from_slice(&[0xff, 0xff, 0x83, 0x92]);
        }
        patch(record, patches);
        self.send(&ib_mad((slid, qpn), OWN_LID, &mad));
    }

    fn step(&mut self, step: Step<'_>) {
        match step {
            Step::Any(frame) => self.peer.send(frame),
            Step::Answer { status, patches } => {
                self.absurd |= patches.iter().any(Option::is_some);
                self.answer(status, &patches, MANAGER, 1);
            }
            Step::Forged { kind, patches } => {
                let Some(asked) = self.asked.clone() else { return };
                let mut forged = asked.clone();
                let at = (kind % 3 == 2).then_some(&mut forged.payload[15]);
                if let Some(byte) = at {
                    *byte ^= 1;
                }
                self.asked = Some(forged);
                let (slid, qpn) = if kind % 3 == 0 { (FORGED, 1) } else { (MANAGER, 1) };
                let qpn = if kind % 3 == 1 { 0x66 } else { qpn };
                let [high, low] = FORGED.to_be_bytes();
                let lie = Patch { at: 40, bytes: [high, low] };
                self.answer(0, &[Some(lie), patches[0].filter(|p| p.at > 41)], slid, qpn);
                self.asked = Some(asked);
            }
            Step::Redirect { lid: to, qpn } => {
                let Some(asked) = self.asked.clone() else { return };
                self.absurd = true;
                let mut mad = asked.payload;
                mad[3..6].copy_from_slice(&[0x81, 0, 2]);
                mad[16..18].copy_from_slice(&[0, 1]);
                mad[56..].fill(0);
                mad[56 + 28..56 + 30].copy_from_slice(&lid(to).to_be_bytes());
                mad[56 + 35] = qpn;
                self.send(&ib_mad((MANAGER, 1), OWN_LID, &mad));
            }
            Step::Mad { from, class, method, attribute, grh, patches } => {
                let mut mad = [0; 256];
                mad[..4].copy_from_slice(&[1, [3, 7, 4, class][usize::from(class % 4)], 2, method]);
                mad[17] = attribute;
                patch(&mut mad, &patches);
                let mut packet = ib_mad((lid(from), 1), OWN_LID, &mad);
                packet.grh = grh.then(|| grh_of(peer_gid(from), self.gid));
                self.send(&packet);
            }
            Step::Cm { kind, from, patches } => {
                let ends = [peer_gid(from), self.gid].map(|gid| Ipv6Addr::from_bits(gid).into());
                let mut mad = match Cm::ALL[usize::from(kind) % Cm::ALL.len()] {
                    Cm::Req => Req::new(from.into(), PORT, ends).mad(),
                    kind => Mad::between(kind, 7, [1, 2]),
                };
                patch(&mut mad.0, &patches);
                let mut packet = ib_mad((lid(from), 1), OWN_LID, &mad.0);
                packet.grh = (from & 1 == 1).then(|| grh_of(peer_gid(from), self.gid));
                self.send(&packet);
            }
            Step::Arp { operation, from, qpn, gid, group, patches } => {
                let hardware = (u32::from(qpn), peer_gid(gid), host(from));
                let mut frame = ipoib_arp(operation.into(), hardware, OWN);
                patch(&mut frame, &patches);
                let to = if group { (BROADCAST_LID, GROUP_QPN) } else { (OWN_LID, self.link) };
                let mut packet = ib_datagram((PEER_LID, qpn.into()), to, 0x0b1b, &frame);
                let dgid = if group { BROADCAST_GID } else { self.gid };
                packet.grh = (group || from & 1 == 1).then(|| grh_of(peer_gid(gid), dgid));
                self.send(&packet);
            }
            Step::Smp { cable, set, attribute: what, modifier, patches } => {
                let what = [0x11, 0x14, 0x15, 0x16, 0x20, 2][usize::from(what % 6)];
                let how = if set { method::SET } else { method::GET };
                let mut smp = Smp::request(how, what, modifier.into(), 3);
                patch(&mut smp.0, &patches);
                if cable {
                    self.send(&smp_over_cable(&smp));
                } else {
                    self.send(&smp_by_lid(PEER_LID, OWN_LID, &smp));
                }
            }
            Step::Configure { state, reregister, patches } => {
                self.absurd |= patches.iter().any(Option::is_some);
                self.configure(state % 5, reregister, &patches);
            }
            Step::Resolve { to, asker } => self.resolve(to, asker),
            Step::Connect { to } => {
                let (now, to) = (self.rig.now(), self.address(to));
                let limit = Duration::from_secs(1);
                let (ep, port) = (self.ep, u64::from(PORT));
                let _ = self.ia.ep_reset(ep);
                let _ = self.ia.ep_connect(now, ep, to, port, limit, b"", Qos::BestEffort);
            }
            Step::Lie { rules } => {
                self.lies = true;
                // Queries of the virtual port and its agent, and of groups.
                change_answers(self.rig, rules.to_vec(), |opcode| {
                    matches!(opcode, 0x762 | 0x764 | 0x760 | 0x50d)
                });
            }
            Step::Events => self.events(),
            Step::Turn { millis } => {
                for _ in 0..10 {
                    self.turn(u64::from(millis) * 100_000 + 1);
                }
            }
        }
    }

    fn address(&self, code: u8) -> IpAddr {
        match code % 4 {
            0 => host(code).into(),
            1 => Ipv6Addr::from_bits(peer_gid(code)).into(),
            2 => Ipv6Addr::from_bits(0x0100 << 112 | u128::from(lid(code))).into(),
            _ => IpAddr::from([0xfd00, 0, 0, 7, 0, 0, 0, u16::from(code)]),
        }
    }

    fn resolve(&mut self, to: u8, asker: bool) {
        let (now, to) = (self.rig.now(), self.address(to));
        let provider = self.ia.provider_mut();
        let found = if asker { provider.resolve_asker(to, now) } else { provider.resolve(to, now) };
        if let Poll::Ready(Ok(path)) = found {
            let NextHop::Lid(hop) = path.next_hop else { panic!("{path:?}") };
            assert!((1..0xc000).contains(&hop.lid), "{path:?}");
            let asked_by_lid = to == IpAddr::V6(Ipv6Addr::from_bits(0x0100 << 112 | 0x66));
            assert!(hop.lid != FORGED || asked_by_lid || self.absurd, "{path:?}");
        }
    }

    fn events(&mut self) {
        for evd in self.evds.into_iter().chain([self.ia.async_evd()]) {
            for taken in 0.. {
                let Ok(event) = self.ia.evd_dequeue(evd) else { break };
                assert!(taken < 1000, "events without end: {event:?}");
                if let Event::ConnectionRequest { cr, .. } | Event::UdConnectionRequest { cr, .. } =
                    event
                {
                    let now = self.rig.now();
                    if self.ia.cr_accept(now, cr, Some(self.ep), b"").is_err() {
                        let _ = self.ia.cr_reject(now, cr, b"no");
                    }
                }
            }
        }
    }

    /// Nothing comes any more.
    fn end(&mut self) {
        for _ in 0..300 {
            self.turn(1_000_000);
        }
        self.events();
        let (mut at_once, mut last) = (0, None);
        for _ in 0..20 {
            let now = self.rig.now();
            let next = self.ia.advance(now);
            if next.work || next.deadline.is_some_and(|due| due <= now) {
                (at_once, last) = (at_once + 1, Some((now, next)));
            }
            self.rig.world.turn_by(1_000);
        }
        assert!(at_once < 10 || self.lies, "something is due without end: {last:?}");
        assert!(self.ia.lost().is_none() || self.lies, "{:?}", self.ia.lost());
        let _ = self.ia.provider().subnet_counters();
        let now: Instant = self.rig.now();
        let closed = self.ia.close(now, CloseFlag::Abrupt);
        assert!(closed.is_ok() || self.lies, "{closed:?}");
    }
}

fn grh_of(sgid: u128, dgid: u128) -> Grh {
    let [sgid, dgid] = [sgid, dgid].map(u128::to_be_bytes);
    Grh { tclass: 0, flow_label: 0, hop_limit: 0, sgid, dgid }
}
