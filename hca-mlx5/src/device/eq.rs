//! Event queues: the ring, what its entries mean, its doorbells.
//!
//! PRM chapter "Event queues". The device writes entries (EQEs) into a ring in host memory; the
//! owner bit of an entry turns over at each pass, so an entry is new when its bit equals the parity
//! of the pass the reader is in. All entries are prefilled as old. The reader tells its position by
//! a doorbell, which also arms the queue's interrupt; an event that comes between the last look and
//! the arming raises the interrupt at once, because the doorbell carries the position.
//!
//! There are four, so that no kind of event waits for another to be read:
//! * commands: only there to wake a host that sleeps in
//!   [`Clock::relax`](crate::platform::Clock::relax); what it says is not needed, so it is read to
//!   its end by every command that returns, and no number of commands can overrun it;
//! * asynchronous events and completion events: read only as far as the driver's user takes them,
//!   so that none is lost. A user that does not look for a while, or a burst on the port, fills
//!   them and stops the reading;
//! * page requests: behind such a burst they would wait for the user, while the firmware waits for
//!   the pages. In a ring of their own they are answered by each `service`, and by a command
//!   refused for want of memory, independent of the other queues.
//!
//! It does not act. Page requests in particular are only decoded here; answering one takes
//! commands.

mod create;

#[cfg(test)]
mod tests;

use dat_core::provider::Fault;

use crate::device::health;
use crate::platform::{Fence, Platform, Span};
use crate::prm::eq::{
    EQE_DATA, EQE_SIZE, EqDoorbell, EqeHead, EqeTail, EventType, UAR_EQ_ARM, UAR_EQ_UPDATE,
};
use crate::prm::pages::PageRequestWord;

/// One event, as the rest of the driver gets it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// An armed completion queue has entries.
    Completion {
        /// The queue.
        cqn: u32,
    },
    /// Something happened to a queue pair (or a send or receive queue of its own; the numbers share
    /// one space).
    Qp {
        /// Its number.
        qpn: u32,
        /// The event.
        what: QpEvent,
    },
    /// Something happened to a shared receive queue.
    Shared {
        /// Its number.
        srqn: u32,
        /// It fell below its limit; it failed otherwise.
        limit: bool,
    },
    /// A completion queue failed.
    CqError {
        /// The queue.
        cqn: u32,
        /// 1 overrun, 2 access violation.
        syndrome: u8,
    },
    /// The port went up or down.
    Port {
        /// Its number, from 1.
        port: u8,
        /// The hint of the event; the truth is in the port registers.
        up: bool,
    },
    /// InfiniBand: something of the port changed, besides that it went up or down.
    Subnet(SubnetChange),
    /// The device reports trouble, and goes on.
    Warning(Fault),
    /// The device is lost.
    Dead(Fault),
}

/// What changed of a port in an InfiniBand subnet (Linux `MLX5_PORT_CHANGE_SUBTYPE_*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SubnetChange {
    /// The link is up, and waits for a subnet manager.
    Initialized,
    /// Its LID, or that of the subnet manager.
    Lid,
    /// Its P_Keys.
    PKey,
    /// Its GUIDs.
    Guid,
    /// The subnet manager asks that all is registered again.
    Reregister,
}

/// Event of a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QpEvent {
    /// First packet of the peer arrived in RTR.
    Established,
    /// The send queue is drained.
    Drained,
    /// The last receive of a queue in error was consumed.
    LastWqe,
    /// A work queue failed in the device.
    Catastrophic,
    /// The peer sent a request that is invalid here.
    InvalidRequest,
    /// The peer sent a request that the keys do not allow.
    AccessError,
}

/// The firmware wants pages, or offers some back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PageRequest {
    /// Of which function.
    pub(crate) function_id: u16,
    /// The function is a DPU's embedded CPU.
    pub(crate) embedded_cpu: bool,
    /// How many 4 KiB pages; negative to take back.
    pub(crate) count: i32,
}

/// One entry, decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Decoded {
    /// Goes on to the rest of the driver.
    Event(Event),
    /// Commands finished; a bit each. Nobody needs it: the ownership bit of the entry says so too,
    /// and never wrongly.
    Command(u32),
    /// Wants an answer by command.
    Pages(PageRequest),
    /// The firmware met an internal error: look at the health registers.
    Internal,
    /// Of no interest, or unknown.
    Other {
        /// The type.
        event_type: u8,
        /// Its detail.
        sub_type: u8,
    },
}

/// Decodes the parts of an entry that carry meaning.
pub(crate) fn decode(head: EqeHead, data: &[u8; 28]) -> Decoded {
    let word = |at: usize| {
        let word = data.get(at..).and_then(<[u8]>::first_chunk);
        word.map_or(0, |word| u32::from_be_bytes(*word))
    };
    let number = word(0x18) & 0xff_ffff;
    let other = Decoded::Other { event_type: head.event_type(), sub_type: head.event_sub_type() };
    let Some(event_type) = EventType::from_code(head.event_type()) else {
        return other;
    };
    let qp = |what| Decoded::Event(Event::Qp { qpn: number, what });
    match event_type {
        EventType::Completion => Decoded::Event(Event::Completion { cqn: number }),
        EventType::CommunicationEstablished => qp(QpEvent::Established),
        EventType::SendQueueDrained => qp(QpEvent::Drained),
        EventType::LastWqe => qp(QpEvent::LastWqe),
        EventType::WqCatastrophic => qp(QpEvent::Catastrophic),
        EventType::WqInvalidRequest => qp(QpEvent::InvalidRequest),
        EventType::WqAccessError => qp(QpEvent::AccessError),
        EventType::SrqLimit | EventType::SrqCatastrophic => {
            Decoded::Event(Event::Shared { srqn: number, limit: event_type == EventType::SrqLimit })
        }
        EventType::CqError => {
            let [.., syndrome] = word(8).to_be_bytes();
            Decoded::Event(Event::CqError { cqn: word(0) & 0xff_ffff, syndrome })
        }
        EventType::PortChange => {
            let [port, ..] = word(8).to_be_bytes();
            let port = port >> 4;
            match head.event_sub_type() {
                1 => Decoded::Event(Event::Port { port, up: false }),
                4 => Decoded::Event(Event::Port { port, up: true }),
                5 => Decoded::Event(Event::Subnet(SubnetChange::Initialized)),
                6 => Decoded::Event(Event::Subnet(SubnetChange::Lid)),
                7 => Decoded::Event(Event::Subnet(SubnetChange::PKey)),
                8 => Decoded::Event(Event::Subnet(SubnetChange::Guid)),
                9 => Decoded::Event(Event::Subnet(SubnetChange::Reregister)),
                _ => other,
            }
        }
        EventType::Command => Decoded::Command(word(0)),
        EventType::PageRequest => {
            let request = PageRequestWord(word(0));
            // All pages of the function are free already: there is nothing to answer.
            if request.release_all() {
                return other;
            }
            Decoded::Pages(PageRequest {
                function_id: request.function_id(),
                embedded_cpu: request.embedded_cpu(),
                count: 0_i32.wrapping_add_unsigned(word(4)),
            })
        }
        EventType::InternalError => Decoded::Internal,
        EventType::PathMigrated
        | EventType::PathMigrationFailed
        | EventType::NicVportChange
        | EventType::PortModule
        | EventType::Temperature => other,
    }
}

/// One event queue.
#[derive(Debug)]
pub(crate) struct EventQueue {
    span: Span,
    log_size: u8,
    number: u8,
    /// BAR offset of the page with its doorbells.
    doorbells: usize,
    /// Free-running position of the reader.
    consumer: u32,
    /// The position written to the device last.
    acknowledged: u32,
    /// The position at which it was armed last.
    armed: Option<u32>,
}

impl EventQueue {
    /// Its number, for completion queue contexts.
    pub(crate) fn number(&self) -> u8 {
        self.number
    }

    /// The next entry, if there is one.
    #[inline(always)]
    pub(crate) fn next<P: Platform>(&mut self, platform: &P) -> Option<Decoded> {
        let mut data = [0; 28];
        let head = self.take(platform, &mut data)?;
        Some(decode(head, &data))
    }

    /// Takes the next entry: its head, and its data to `data`.
    #[inline(never)]
    fn take<P: Platform>(&mut self, platform: &P, data: &mut [u8; 28]) -> Option<EqeHead> {
        let index = self.consumer & ((1 << self.log_size) - 1);
        let at = self.span.offset + EQE_SIZE * index as usize;
        let tail = EqeTail(u32::from_be(platform.memory().load32(at + EQE_SIZE - 4)));
        let odd_pass = self.consumer >> self.log_size & 1 == 1;
        if tail.owner() != odd_pass {
            return None;
        }
        // ORDER: the load of the owner bit precedes those of the entry.
        platform.fence(Fence::AfterOwnership);
        let head = EqeHead(u32::from_be(platform.memory().load32(at)));
        platform.memory().read_bytes(at + EQE_DATA, data);
        self.consumer = self.consumer.wrapping_add(1);
        // The device counts entries as free only when the position is written to it.
        if self.consumer.wrapping_sub(self.acknowledged) >= 1 << (self.log_size - 2) {
            self.ring(platform, UAR_EQ_UPDATE);
        }
        Some(head)
    }

    /// Tells the position and asks for an interrupt at the next event; nothing to do if no entry
    /// was read since the last time, for then the queue is armed.
    pub(crate) fn arm<P: Platform>(&mut self, platform: &P) {
        if self.armed != Some(self.consumer) {
            self.ring(platform, UAR_EQ_ARM);
            self.armed = Some(self.consumer);
        }
    }

    /// Reads as many entries as it holds, whatever they are: for a queue that serves to wake and no
    /// more. Returns whether there were any.
    pub(crate) fn read_out<P: Platform>(&mut self, platform: &P) -> bool {
        let before = self.consumer;
        for _ in 0..1u32 << self.log_size {
            if self.take(platform, &mut [0; 28]).is_none() {
                break;
            }
        }
        self.consumer != before
    }

    fn ring<P: Platform>(&mut self, platform: &P, doorbell: usize) {
        let mut word = EqDoorbell::default();
        word.set_eqn(self.number);
        word.set_consumer_index(self.consumer & 0xff_ffff);
        // ORDER: the loads of the entries precede the doorbell that lets the device overwrite them.
        platform.fence(Fence::AfterOwnership);
        // ORDER: the prefill of a new ring, if this is its first doorbell, precedes it too.
        platform.fence(Fence::BeforeDoorbell);
        health::write(platform, self.doorbells + doorbell, word.0);
        platform.fence(Fence::AfterDoorbell);
        self.acknowledged = self.consumer;
    }
}
