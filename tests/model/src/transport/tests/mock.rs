//! A device around one engine: memory, keys, queues and records of all that was asked of it.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;

use crate::transport::Engine;
use crate::transport::host::*;
use crate::wire::frame::{Bth, DEFAULT_PKEY, Extended, Network, Packet};
use crate::wire::opcode::{Opcode, Service};

pub(super) const LKEY: u32 = 0x10;
pub(super) const BAD_LKEY: u32 = 0xbad;
pub(super) const RKEY: u32 = 0x2001;
pub(super) const NO_ATOMIC: u32 = 0x2101;
/// Remote VAs are offsets into the memory plus this.
pub(super) const VA: u64 = 0x7000_0000_0000;

pub(super) fn addr(n: u8) -> RoceAddress {
    RoceAddress { mac: [2, 0, 0, 0, 0, n], vlan: None, ip: IpAddr::from([10, 0, 0, n]), v1: false }
}

#[derive(Debug)]
pub(super) struct Mock {
    pub(super) now: Nanos,
    pub(super) address: RoceAddress,
    pub(super) memory: Vec<u8>,
    pub(super) keys: HashMap<u32, bool>,
    pub(super) sq: HashMap<u16, Result<SendWqe, BadWqe>>,
    pub(super) sq_tail: u16,
    pub(super) rq: VecDeque<Result<RecvWqe, (u16, Syndrome)>>,
    pub(super) rq_tail: u16,
    pub(super) sent: Vec<SendCompletion>,
    pub(super) received: Vec<RecvCompletion>,
    pub(super) errors: Vec<QpState>,
    pub(super) events: Vec<QpEvent>,
    pub(super) frames: VecDeque<Vec<u8>>,
    /// Names of local work and first packets, in the order they ran.
    pub(super) log: Vec<String>,
    pub(super) umr_result: Result<(), Syndrome>,
    /// The XRC shared queue that is there.
    pub(super) pool: Option<u32>,
}

impl Mock {
    fn at(&self, at: RemoteAddress, len: usize, access: Access) -> Result<usize, RemoteFault> {
        let atomic = *self.keys.get(&at.rkey).ok_or(RemoteFault::Access)?;
        if access == Access::Atomic && !atomic {
            return Err(RemoteFault::Access);
        }
        let offset = at.va.checked_sub(VA).ok_or(RemoteFault::Access)? as usize;
        let end = offset.checked_add(len).ok_or(RemoteFault::Access)?;
        if end > self.memory.len() { Err(RemoteFault::Access) } else { Ok(offset) }
    }

    /// Bytes of memory the segments stand for, one index each.
    fn places(&self, list: &[DataSegment], at: u32, len: usize) -> Result<Vec<usize>, Syndrome> {
        if list.iter().any(|s| s.lkey != LKEY) {
            return Err(Syndrome::LocalProtection);
        }
        let all = list.iter().flat_map(|s| s.addr..s.addr + u64::from(s.len));
        let places: Vec<usize> = all.skip(at as usize).take(len).map(|a| a as usize).collect();
        if places.len() < len { Err(Syndrome::LocalLength) } else { Ok(places) }
    }
}

impl Host for Mock {
    fn now(&self) -> Nanos {
        self.now
    }
    fn fetch_send(&mut self, _: u32, index: u16) -> Option<Result<SendWqe, BadWqe>> {
        (index != self.sq_tail).then(|| self.sq[&index].clone())
    }
    fn take_recv(&mut self, _: u32, _: Option<u32>) -> Option<Result<RecvWqe, (u16, Syndrome)>> {
        self.rq.pop_front()
    }
    fn pool_check(&mut self, _: u32, pool: u32) -> Result<(), RemoteFault> {
        if self.pool == Some(pool) { Ok(()) } else { Err(RemoteFault::Access) }
    }
    fn gather(
        &mut self,
        _: u32,
        from: &[DataSegment],
        offset: u32,
        buf: &mut [u8],
    ) -> Result<(), Syndrome> {
        let places = self.places(from, offset, buf.len())?;
        buf.iter_mut().zip(places).for_each(|(b, at)| *b = self.memory[at]);
        Ok(())
    }
    fn scatter(
        &mut self,
        _: u32,
        to: &[DataSegment],
        offset: u32,
        bytes: &[u8],
    ) -> Result<(), Syndrome> {
        let places = self.places(to, offset, bytes.len())?;
        bytes.iter().zip(places).for_each(|(b, at)| self.memory[at] = *b);
        Ok(())
    }
    fn remote_check(
        &mut self,
        _: u32,
        at: RemoteAddress,
        len: u64,
        access: Access,
    ) -> Result<(), RemoteFault> {
        assert_ne!(len, 0, "zero-length accesses are not checked");
        self.at(at, len as usize, access).map(|_| ())
    }
    fn remote_read(
        &mut self,
        _: u32,
        at: RemoteAddress,
        buf: &mut [u8],
        access: Access,
    ) -> Result<(), RemoteFault> {
        let start = self.at(at, buf.len(), access)?;
        buf.copy_from_slice(&self.memory[start..start + buf.len()]);
        Ok(())
    }
    fn remote_write(
        &mut self,
        _: u32,
        at: RemoteAddress,
        bytes: &[u8],
        access: Access,
    ) -> Result<(), RemoteFault> {
        let start = self.at(at, bytes.len(), access)?;
        self.memory[start..start + bytes.len()].copy_from_slice(bytes);
        Ok(())
    }
    fn remote_invalidate(&mut self, _: u32, rkey: u32) -> Result<(), RemoteFault> {
        // In this device, RKEY is an ordinary region and may not be invalidated by a peer.
        if rkey == RKEY || self.keys.remove(&rkey).is_none() {
            return Err(RemoteFault::Access);
        }
        Ok(())
    }
    fn umr(&mut self, _: u32, wqe: &UmrWqe) -> Result<(), Syndrome> {
        self.log.push(format!("umr {:#x}", wqe.mkey));
        self.umr_result
    }
    fn local_invalidate(&mut self, _: u32, key: u32) -> Result<(), Syndrome> {
        self.log.push(format!("invalidate {key:#x}"));
        Ok(())
    }
    fn roce_address(&self, index: u16) -> Option<RoceAddress> {
        (index == 0).then_some(self.address)
    }
    fn complete_send(&mut self, _: u32, completion: SendCompletion) {
        self.sent.push(completion);
    }
    fn complete_recv(&mut self, _: u32, completion: RecvCompletion) {
        self.received.push(completion);
    }
    fn qp_error(&mut self, _: u32, state: QpState) {
        self.errors.push(state);
    }
    fn event(&mut self, _: u32, event: QpEvent) {
        self.events.push(event);
    }
    fn transmit(&mut self, frame: Vec<u8>) {
        let packet = Packet::parse(&frame).expect("own frames are well formed");
        self.log.push(format!("{:?}", packet.bth.opcode));
        self.frames.push_back(frame);
    }
}

/// An engine with its device.
#[derive(Debug)]
pub(super) struct Peer {
    pub(super) engine: Engine,
    pub(super) host: Mock,
    pub(super) attr: QpAttr,
}

impl Peer {
    /// Station `n` of a pair (1 and 2), in RTS, PSN 100 from 1 and 200 from 2.
    pub(super) fn new(n: u8) -> Self {
        Self::with(n, |_| {})
    }

    pub(super) fn with(n: u8, change: impl FnOnce(&mut QpAttr)) -> Self {
        let other = 3 - n;
        let mut attr = QpAttr {
            qpn: 0x100 + u32::from(n),
            state: QpState::Rts,
            remote_qpn: 0x100 + u32::from(other),
            sq_psn: 100 * u32::from(n),
            rq_psn: 100 * u32::from(other),
            path: Path::Roce(RocePath {
                dmac: addr(other).mac,
                dst: addr(other).ip,
                udp_sport: 0xc123,
                ..RocePath::default()
            }),
            max_rd_atomic: 4,
            max_dest_rd_atomic: 4,
            remote_read: true,
            remote_write: true,
            remote_atomic: true,
            min_rnr_nak: 1,
            qkey: 0x1111,
            ..QpAttr::default()
        };
        change(&mut attr);
        let mut engine = Engine::new();
        engine.configure(&attr);
        let host = Mock {
            now: 0,
            address: addr(n),
            memory: vec![0; 1 << 18],
            keys: HashMap::from([(RKEY, true), (NO_ATOMIC, false)]),
            sq: HashMap::new(),
            sq_tail: 0,
            rq: VecDeque::new(),
            rq_tail: 0,
            sent: Vec::new(),
            received: Vec::new(),
            errors: Vec::new(),
            events: Vec::new(),
            frames: VecDeque::new(),
            log: Vec::new(),
            umr_result: Ok(()),
            pool: None,
        };
        Self { engine, host, attr }
    }

    /// Posts without ringing; returns the index.
    pub(super) fn queue(&mut self, operation: Operation, change: impl FnOnce(&mut SendWqe)) -> u16 {
        let index = self.host.sq_tail;
        let mut wqe = SendWqe {
            index,
            bbs: 1,
            opcode: 0x0a,
            signaled: true,
            fence: Fence::None,
            solicited: false,
            operation,
            av: None,
            xrc_srqn: None,
        };
        change(&mut wqe);
        let bbs = wqe.bbs;
        self.host.sq.insert(index, Ok(wqe));
        self.host.sq_tail = index.wrapping_add(bbs);
        index
    }

    pub(super) fn post(&mut self, operation: Operation) -> u16 {
        let index = self.queue(operation, |_| {});
        self.ring();
        index
    }

    pub(super) fn ring(&mut self) {
        self.engine.on_doorbell(&mut self.host);
    }

    pub(super) fn post_recv(&mut self, at: u64, len: u32) -> u16 {
        let index = self.host.rq_tail;
        self.host.rq.push_back(Ok(RecvWqe { index, segments: vec![local(at, len)], pool: None }));
        self.host.rq_tail = index.wrapping_add(1);
        index
    }

    /// Packets sent since the last call.
    pub(super) fn take(&mut self) -> Vec<Packet> {
        self.host.frames.drain(..).map(|f| Packet::parse(&f).unwrap()).collect()
    }

    /// Delivers a packet as from the other station, and returns what is answered.
    pub(super) fn deliver(&mut self, packet: &Packet) -> Vec<Packet> {
        // Through bytes, so that what a parser refuses cannot be tested by accident.
        let packet = Packet::parse(&packet.build()).unwrap();
        self.engine.on_packet(&mut self.host, &packet.into());
        self.take()
    }

    /// Delivers all, returns all answers.
    pub(super) fn deliver_all(&mut self, packets: &[Packet]) -> Vec<Packet> {
        packets.iter().flat_map(|p| self.deliver(p)).collect()
    }

    /// A packet as the other station would send it to this one.
    pub(super) fn incoming(&self, opcode: Opcode, psn: u32) -> Packet {
        let path = roce(&self.attr.path);
        Packet {
            net: Network {
                dmac: self.host.address.mac,
                smac: path.dmac,
                vlan: None,
                src: path.dst,
                dst: self.host.address.ip,
                tclass: 0,
                hop_limit: 64,
                flow_label: 0,
                ident: 1,
                udp_sport: 0xc000,
                v1: false,
            },
            bth: Bth {
                service: Service::Rc,
                opcode,
                solicited: false,
                migrated: true,
                pkey: DEFAULT_PKEY,
                fecn: false,
                becn: false,
                dest_qp: self.attr.qpn,
                ack_req: true,
                psn,
            },
            ext: Extended::default(),
            payload: Vec::new(),
            grh: [0; 40],
        }
    }

    /// Moves time to the deadline and runs the timer.
    pub(super) fn expire(&mut self) {
        let due = self.engine.next_deadline().expect("a timer runs");
        self.host.now = self.host.now.max(due);
        self.engine.on_timer(&mut self.host);
    }

    pub(super) fn send_results(&self) -> Vec<(u16, Result<(), Syndrome>)> {
        self.host.sent.iter().map(|c| (c.index, c.result)).collect()
    }

    pub(super) fn recv_results(&self) -> Vec<(u16, Result<u32, Syndrome>)> {
        self.host.received.iter().map(|c| (c.index, c.result.map(|r| r.byte_len))).collect()
    }
}

/// A path as one of RoCE.
pub(super) fn roce(path: &Path) -> RocePath {
    match path {
        Path::Roce(path) => *path,
        Path::Ib(_) => panic!("a path of RoCE"),
    }
}

pub(super) fn local(at: u64, len: u32) -> DataSegment {
    DataSegment { len, lkey: LKEY, addr: at }
}

pub(super) fn remote(offset: u64) -> RemoteAddress {
    RemoteAddress { pool: None, va: VA + offset, rkey: RKEY }
}

pub(super) fn send(bytes: &[u8]) -> Operation {
    Operation::Send { trailer: Trailer::None, data: Payload::Inline(bytes.to_vec()) }
}

pub(super) fn send_from(at: u64, len: u32) -> Operation {
    Operation::Send { trailer: Trailer::None, data: Payload::Segments(vec![local(at, len)]) }
}

pub(super) fn write_from(at: u64, len: u32, to: u64) -> Operation {
    Operation::Write {
        remote: remote(to),
        imm: None,
        data: Payload::Segments(vec![local(at, len)]),
    }
}

pub(super) fn read_into(at: u64, len: u32, from: u64) -> Operation {
    Operation::Read { remote: remote(from), into: vec![local(at, len)] }
}

pub(super) fn fetch_add(at: u64, from: u64, add: u64) -> Operation {
    Operation::FetchAdd { remote: remote(from), add, into: vec![local(at, 8)] }
}

/// Opcode and PSN, and the AETH syndrome where there is one.
pub(super) fn brief(packets: &[Packet]) -> Vec<(Opcode, u32, Option<u8>)> {
    packets.iter().map(|p| (p.bth.opcode, p.bth.psn, p.ext.aeth.map(|a| a.syndrome))).collect()
}
