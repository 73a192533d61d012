//! One raw Ethernet port of the function: frames out, frames in.
//!
//! Neighbour discovery ([`neigh`](super::neigh)) is the only user: RoCEv2 packets never pass here,
//! the device takes them to their queue pairs before any flow table is asked. So the port is small:
//! a send queue behind a TIS, a receive queue behind a TIR, both completing into one completion
//! queue, and a flow table that picks the few destination MACs that matter. Frames of more than
//! [`FRAME_MAX`] bytes are none of ours and are dropped on both ways.
//!
//! PRM chapters "Raw Ethernet" and "Flow steering". Everything is made in one go and undone in the
//! reverse order, also from half way. What it does not do: checksums, segmentation, more than one
//! queue, promiscuous mode, VLAN offloads.

mod config;
mod rx;
mod steer;
mod tx;

#[cfg(test)]
mod tests;

use core::fmt;

use dat_core::provider::{Completion, CompletionQueue as _, Direction, Fault, FaultKind, Status};

use crate::data::Cq;
use crate::device::{Device, note, page_list};
use crate::platform::{Platform, Reach, Span};
use crate::prm::At;
use crate::prm::caps::timestamps;
use crate::prm::cmd::{InputHead, Opcode};
use crate::prm::object;
use crate::prm::rq::RqContext;
use crate::prm::sq::{
    InlineMode, ModifyQueueIn, QueueState, SQ_CONTEXT, SQ_PAGES, SQ_WQ, SqContext, WQ_CYCLIC,
    WqContext,
};
use crate::prm::tir::{CREATE_TIR_IN, DIRECT, TIR_CONTEXT, TirContext};
use crate::prm::tis::{CREATE_TIS_IN, TIS_CONTEXT, TisContext};
use crate::verbs::cq::{self, CqObject};
use crate::verbs::memory;
use config::PAGE;
pub use config::{Config, FRAME_MAX, GROUPS_MAX};
use dat_core::fault;
use heapless::Vec;
use rx::Rx;
use steer::Steering;
use tx::Tx;

/// Most entries of its completion queue in use at one time.
const CQ_ENTRIES: u32 = rx::SLOTS as u32 + tx::SLOTS as u32;
/// Where things lie in the port's piece of the arena, which is page aligned.
mod place {
    pub(super) const RQ_RING: usize = 0;
    pub(super) const SQ_RING: usize = 0x1000;
    pub(super) const RQ_RECORD: usize = 0x1800;
    pub(super) const SQ_RECORD: usize = 0x1840;
    pub(super) const TX_BUFFERS: usize = 0x2000;
    /// Takes what is too long.
    pub(super) const OVERFLOW: usize = 0x3000;
    pub(super) const RX_BUFFERS: usize = 0x4000;
    pub(super) const END: usize = 0x8000;
}

/// Counts of frames, which wrap around.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Frames sent, as the device confirmed.
    pub sent: u32,
    /// Frames received.
    pub received: u32,
    /// Received frames that were too long for us, dropped.
    pub long: u32,
}

/// The ends of the three queues.
struct Ends<'p, P: Platform> {
    cq: Cq<'p, P>,
    tx: Tx<'p, P>,
    rx: Rx<'p, P>,
}

/// No queue's number: those have 24 bits.
const NONE: u32 = u32::MAX;

/// A raw Ethernet port.
pub struct Port<'p, P: Platform> {
    platform: &'p P,
    cq: Option<CqObject>,
    memory: Option<Span>,
    /// The other objects, in the order of making: number, and the command that destroys each.
    made: Vec<(Opcode, u32), 5>,
    /// Numbers of the queues; [`NONE`] while there are none.
    rqn: u32,
    sqn: u32,
    steering: Steering,
    /// Present while the port is up.
    ends: Option<Ends<'p, P>>,
    fault: Option<Fault>,
    counters: Counters,
}

impl<P: Platform> fmt::Debug for Port<'_, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Port")
            .field("sqn", &self.sqn)
            .field("rqn", &self.rqn)
            .field("fault", &self.fault)
            .field("counters", &self.counters)
            .finish_non_exhaustive()
    }
}

impl<'p, P: Platform> Port<'p, P> {
    /// A port that is down.
    pub(crate) fn new(platform: &'p P) -> Self {
        Self {
            platform,
            cq: None,
            memory: None,
            made: Vec::new(),
            rqn: NONE,
            sqn: NONE,
            steering: Steering::default(),
            ends: None,
            fault: None,
            counters: Counters::default(),
        }
    }

    /// Makes what a port is made of. When it returns, frames come and go; when it fails, all that
    /// was made is gone again.
    pub(crate) fn open(
        &mut self,
        device: &mut Device<'p, P>,
        config: &Config<'_>,
    ) -> Result<(), Fault> {
        self.fault = None;
        let built = self.build(device, config);
        if let Err(fault) = built {
            match fault.kind {
                // The device may still complete the command that timed out, and then use the queue.
                FaultKind::Timeout | FaultKind::Gone | FaultKind::Nonsense => {
                    if let Some(memory) = self.memory.take() {
                        device.disown(memory);
                    }
                }
                FaultKind::Resources
                | FaultKind::BadParameter
                | FaultKind::BadState
                | FaultKind::Unsupported
                | FaultKind::Unreachable => {}
            }
            // The first failure is the one to tell; what cannot be undone stays with the device.
            let _ = self.close(device);
        }
        built
    }

    /// Frames come and go.
    pub(crate) fn works(&self) -> bool {
        self.ends.is_some() && self.fault.is_none()
    }

    /// Its completion queue, by which its events come, if that has this number.
    pub(crate) fn cq(&self, cqn: u32) -> Option<&CqObject> {
        self.cq.as_ref().filter(|cq| cq.cqn.0 == cqn)
    }

    /// `number` is that of its send or receive queue.
    #[must_use]
    pub fn owns(&self, number: u32) -> bool {
        number == self.sqn || number == self.rqn
    }

    /// Returns the counts.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Why it no longer works, if so: destroy it and make it anew.
    #[must_use]
    pub fn fault(&self) -> Option<Fault> {
        self.fault
    }

    /// Takes note that the device said by an event that one of its queues failed.
    pub(crate) fn fail(&mut self, fault: Fault) {
        self.fault.get_or_insert(fault);
    }

    /// Sends one frame: header, VLAN tag and all, without frame check sequence. Short ones are
    /// padded.
    pub fn send(&mut self, frame: &[u8]) -> Result<(), Fault> {
        match (self.fault, self.ends.as_mut()) {
            (Some(fault), _) => Err(fault),
            (None, Some(ends)) => ends.tx.send(frame),
            (None, None) => {
                Err(fault!(BadState, "send a frame", "the port is down", "make the port anew"))
            }
        }
    }

    /// The next received frame and its length, if one is there that fits `to`; call until `None`.
    /// Takes `left` completions at most, and counts it down. Also processes completions of sends,
    /// so a caller that only sends must call it now and then, too.
    pub fn recv(&mut self, to: &mut [u8], left: &mut usize) -> Option<usize> {
        while let Some(rest) = left.checked_sub(1) {
            let completion = self.ends.as_mut()?.cq.poll()?;
            *left = rest;
            if let Some(len) = self.completed(&completion, to) {
                return Some(len);
            }
        }
        None
    }

    /// Asks for one event when the next frame has come or gone; what came before raises it at once.
    pub fn arm(&mut self) {
        if let Some(ends) = self.ends.as_mut() {
            ends.cq.arm(false);
        }
    }

    fn completed(&mut self, completion: &Completion, to: &mut [u8]) -> Option<usize> {
        let Ends { tx, rx, .. } = self.ends.as_mut()?;
        if completion.status != Status::Success {
            let fault = failure(completion, self.sqn, self.rqn);
            self.fault.get_or_insert(fault);
            return None;
        }
        let (expected, object) = match completion.direction {
            Direction::Send => (tx.completed(completion.token), (object::SQ, self.sqn)),
            Direction::Recv => (rx.expects(completion.token), (object::RQ, self.rqn)),
        };
        if !expected {
            let fault = fault!(
                Nonsense,
                "Ethernet completion",
                "it names an entry that is not next in turn",
                "make the port anew"
            );
            self.fault.get_or_insert(fault.of(object.0, object.1));
            return None;
        }
        match completion.direction {
            Direction::Send => {
                self.counters.sent = self.counters.sent.wrapping_add(1);
                None
            }
            Direction::Recv => {
                let len = rx.take(completion.len, to);
                let counter = match len {
                    Some(_) => &mut self.counters.received,
                    None => &mut self.counters.long,
                };
                *counter = counter.wrapping_add(1);
                len
            }
        }
    }

    fn build(&mut self, device: &mut Device<'p, P>, config: &Config<'_>) -> Result<(), Fault> {
        let memory = self.platform.alloc(place::END, PAGE, Reach::ReadWrite).ok_or_else(|| {
            fault!(
                Resources,
                "Ethernet port",
                "no room in the arena",
                "enlarge the arena by 32 KiB"
            )
        })?;
        self.memory = Some(memory);
        let at = |place: usize| memory.offset.wrapping_add(place);
        let mut addresses = [0; place::END / PAGE];
        for (index, to) in addresses.iter_mut().enumerate() {
            *to = page(self.platform, at(index * PAGE))?;
        }
        const {
            use place::{OVERFLOW, RQ_RING, RX_BUFFERS, SQ_RING, TX_BUFFERS};
            assert!(RQ_RING == 0 && SQ_RING == PAGE && TX_BUFFERS == 2 * PAGE);
            assert!(OVERFLOW == 3 * PAGE && RX_BUFFERS == 4 * PAGE);
        }
        let [rq_ring, sq_ring, tx_page, overflow, rx_pages @ ..] = addresses;
        let inside = |iova: u64, offset: usize| iova.wrapping_add((offset % PAGE) as u64);

        let (cq_object, cq) = cq::create(device, CQ_ENTRIES, false)?;
        self.cq = Some(cq_object);
        let cqn = cq_object.cqn.0;

        let domain = self.make(
            device,
            Opcode::AllocTransportDomain,
            Opcode::DeallocTransportDomain,
            &mut InputHead::new().0,
        )?;

        let mut input = [0; CREATE_TIS_IN];
        TisContext(At::<_, TIS_CONTEXT>(&mut input)).set_transport_domain(domain);
        let tis = self.make(device, Opcode::CreateTis, Opcode::DestroyTis, &mut input)?;

        let mut input = [0; SQ_PAGES + 8];
        let mut rq = RqContext(At::<_, SQ_CONTEXT>(&mut input));
        if config.reserved {
            rq.set_rlky(true);
        }
        rq.set_vsd(true);
        rq.set_ts_format(timestamps(device.caps().general.rq_ts_format()));
        rq.set_flush_in_error_en(true);
        rq.set_cqn(cqn);
        let ring = Ring {
            pages: rq_ring,
            record: inside(sq_ring, place::RQ_RECORD),
            log_stride: rx::LOG_STRIDE,
            log_slots: rx::LOG_SLOTS,
        };
        ring.describe(&mut input, config.pd);
        let rqn = self.make(device, Opcode::CreateRq, Opcode::DestroyRq, &mut input)?;
        self.rqn = rqn;

        let inline = InlineMode::from_code(device.identity().min_wqe_inline_mode);
        let mut tx = Tx::new(
            self.platform,
            &tx::Place {
                ring: at(place::SQ_RING),
                record: at(place::SQ_RECORD),
                buffers: at(place::TX_BUFFERS),
                iova: tx_page,
                lkey: config.lkey,
                uar: device.uar().offset,
            },
            inline,
        );
        let mut input = [0; SQ_PAGES + 8];
        let mut sq = SqContext(At::<_, SQ_CONTEXT>(&mut input));
        if config.reserved {
            sq.set_rlky(true);
        }
        sq.set_flush_in_error_en(true);
        sq.set_ts_format(timestamps(device.caps().general.sq_ts_format()));
        sq.set_min_wqe_inline_mode(inline as u8);
        sq.set_cqn(cqn);
        sq.set_tis_lst_sz(1);
        sq.set_tis_num_0(tis);
        WqContext(At::<_, WQ>(&mut input)).set_uar_page(device.uar().number);
        let ring = Ring {
            pages: sq_ring,
            record: inside(sq_ring, place::SQ_RECORD),
            log_stride: tx::LOG_STRIDE,
            log_slots: tx.log_blocks(),
        };
        ring.describe(&mut input, config.pd);
        let sqn = self.make(device, Opcode::CreateSq, Opcode::DestroySq, &mut input)?;
        self.sqn = sqn;
        tx.name(sqn);

        let mut input = [0; CREATE_TIR_IN];
        let mut tir = TirContext(At::<_, TIR_CONTEXT>(&mut input));
        const { assert!(DIRECT == 0) }
        tir.set_inline_rqn(rqn);
        tir.set_transport_domain(domain);
        let tir = self.make(device, Opcode::CreateTir, Opcode::DestroyTir, &mut input)?;

        ready(device, Opcode::ModifyRq, rqn)?;
        ready(device, Opcode::ModifySq, sqn)?;
        let rx = Rx::new(
            self.platform,
            &rx::Place {
                ring: at(place::RQ_RING),
                record: at(place::RQ_RECORD),
                buffers: at(place::RX_BUFFERS),
                pages: rx_pages,
                overflow,
                lkey: config.lkey,
            },
        )
        .ok_or(memory::unseen())?;
        self.ends = Some(Ends { cq, tx, rx });
        self.steering.start(device, config, tir)
    }

    /// Makes an object that `end` ends.
    fn make(
        &mut self,
        device: &mut Device<'p, P>,
        op: Opcode,
        end: Opcode,
        input: &mut [u8],
    ) -> Result<u32, Fault> {
        let number = device.make(op, input)?;
        let _ = self.made.push((end, number));
        Ok(number)
    }

    /// Undoes all of it, and goes on to the end even if a step fails; tells the first failure.
    /// Memory the device may still use is not given back to the arena.
    pub(crate) fn close(&mut self, device: &mut Device<'p, P>) -> Result<(), Fault> {
        self.ends = None;
        (self.sqn, self.rqn) = (NONE, NONE);
        let mut first = self.steering.stop(device);
        let mut ended = Ok(());
        while let Some((op, number)) = self.made.pop() {
            note(&mut ended, device.end(op, number));
        }
        note(&mut first, ended);
        if let Some(cq) = &self.cq {
            note(&mut first, cq::end(device, cq));
        }
        self.cq = None;
        if let Some(memory) = self.memory.take() {
            match ended {
                Ok(()) => self.platform.free(memory),
                // A queue that could not be destroyed may still be written by the device.
                Err(_) => device.disown(memory),
            }
        }
        first
    }
}

/// Where the `wq` part stands in CREATE_SQ and CREATE_RQ.
const WQ: usize = SQ_CONTEXT + SQ_WQ;

/// Ring of a send or receive queue.
struct Ring {
    /// Device address of its page.
    pages: u64,
    /// Device address of its doorbell record.
    record: u64,
    log_stride: u8,
    log_slots: u8,
}

impl Ring {
    /// Writes what CREATE_SQ and CREATE_RQ have in common.
    #[inline(never)]
    fn describe(&self, input: &mut [u8; SQ_PAGES + 8], pd: u32) {
        let mut wq = WqContext(At::<_, WQ>(&mut *input));
        wq.set_wq_type(WQ_CYCLIC);
        wq.set_pd(pd);
        wq.set_dbr_addr(self.record);
        wq.set_log_wq_stride(self.log_stride);
        wq.set_log_wq_sz(self.log_slots);
        crate::prm::put(input, SQ_PAGES, &self.pages.to_be_bytes());
    }
}

/// Device address of a page of the arena.
fn page<P: Platform>(platform: &P, offset: usize) -> Result<u64, Fault> {
    page_list::page(platform, offset).ok_or(fault!(
        BadParameter,
        "Ethernet port",
        "the arena is not page aligned for the device",
        "map the arena in whole, aligned pages"
    ))
}

/// Takes a send or receive queue from Reset to Ready.
fn ready<P: Platform>(device: &mut Device<'_, P>, op: Opcode, number: u32) -> Result<(), Fault> {
    let mut input = [0; SQ_PAGES];
    // From the state with number 0.
    const { assert!(QueueState::Reset as u8 == 0) }
    ModifyQueueIn(&mut input).set_number(number);
    // The state stands at the same place in both contexts.
    SqContext(At::<_, SQ_CONTEXT>(&mut input)).set_state(QueueState::Ready as u8);
    device.run(op, number, &mut input)
}

/// Returns the fault of an error completion.
fn failure(completion: &Completion, sqn: u32, rqn: u32) -> Fault {
    let (object, number) = match completion.direction {
        Direction::Send => (object::SQ, sqn),
        Direction::Recv => (object::RQ, rqn),
    };
    fault!(
        BadState,
        "Ethernet completion",
        "the queue failed and no longer carries frames",
        "make the port anew"
    )
    .of(object, number)
    .with_answer(completion.syndrome, completion.vendor.into())
}
