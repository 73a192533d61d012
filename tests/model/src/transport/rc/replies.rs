//! Pending replies of a responder: acknowledgements and response data in order, and those that it
//! must be able to repeat.
//!
//! Replies stand in a queue because a READ may need thousands of packets: they go out in bursts,
//! and nothing younger overtakes them. Acknowledgements that meet in the queue merge.
//! Reference: IBTA volume 1, 9.7.5.

use std::collections::VecDeque;

use super::super::host::{Access, Host, Nanos, QpAttr, RemoteAddress, RemoteFault};
use super::super::packetize::Draft;
use super::super::psn;
use super::super::timing::Pace;
use crate::wire::frame::{Aeth, Extended};
use crate::wire::opcode::Opcode;

/// A positive acknowledgement without end-to-end credits.
pub(crate) const ACK: u8 = 0x1f;
/// RNR NAK; the timer code is added.
pub(crate) const NAK_RNR: u8 = 0x20;
/// PSN sequence error.
pub(crate) const NAK_SEQUENCE: u8 = 0x60;
/// Invalid request.
pub(crate) const NAK_INVALID_REQUEST: u8 = 0x61;
/// Remote access error.
pub(crate) const NAK_ACCESS: u8 = 0x62;
/// Remote operational error.
pub(crate) const NAK_OPERATION: u8 = 0x63;

/// Pending replies at most: a peer that overruns this gets no more answers until it waits.
const QUEUE_LIMIT: usize = 1024;

/// READ response data still to send.
#[derive(Clone, Copy, Debug)]
struct ReadReply {
    psn: u32,
    at: RemoteAddress,
    left: u32,
    msn: u32,
    /// Nothing of it has been sent.
    fresh: bool,
    /// An answer given before: it does not count against the peer's limit.
    again: bool,
}

#[derive(Clone, Copy, Debug)]
enum Reply {
    /// ACK or any NAK.
    Verdict {
        psn: u32,
        syndrome: u8,
        msn: u32,
    },
    Read(ReadReply),
    Atomic {
        psn: u32,
        old: u64,
        msn: u32,
    },
}

/// A READ or atomic executed before, for when its request comes again.
#[derive(Clone, Copy, Debug)]
enum Executed {
    Read { psn: u32, packets: u32, at: RemoteAddress, len: u32 },
    Atomic { psn: u32, old: u64 },
}

/// The replies of one responder.
#[derive(Debug, Default)]
pub(crate) struct Replies {
    queue: VecDeque<Reply>,
    /// The newest at the back; as many as the peer may have open.
    executed: VecDeque<Executed>,
    /// The port's share.
    pace: Pace,
}

impl Replies {
    /// When there is something to send; a time in the past means at once.
    pub(crate) fn deadline(&self) -> Option<Nanos> {
        (!self.queue.is_empty()).then(|| self.pace.resume().unwrap_or(0))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Drops all pending replies (the QP is in error).
    pub(crate) fn clear(&mut self) {
        self.queue.clear();
    }

    /// READs whose data has not all been sent a first time.
    pub(crate) fn open_reads(&self) -> usize {
        self.queue.iter().filter(|r| matches!(r, Reply::Read(read) if !read.again)).count()
    }

    /// Queues an ACK or NAK.
    pub(crate) fn verdict(&mut self, psn: u32, syndrome: u8, msn: u32) {
        match self.queue.back_mut() {
            // One acknowledgement stands for all before it; a NAK says no more the second time.
            Some(Reply::Verdict { psn: at, syndrome: same, msn: count }) if *same == syndrome => {
                (*at, *count) = (psn, msn);
            }
            Some(_) | None => self.push(Reply::Verdict { psn, syndrome, msn }),
        }
    }

    /// Queues the data of a READ that is executed for the first time.
    pub(crate) fn read(
        &mut self,
        psn: u32,
        (at, len): (RemoteAddress, u32),
        msn: u32,
        attr: &QpAttr,
    ) {
        let packets = psn::packets(len, attr.mtu);
        let executed = Executed::Read { psn, packets, at, len };
        self.remember(executed, attr);
        self.push(Reply::Read(read_reply(psn, (at, len), msn, false)));
    }

    /// Queues the result of an atomic that was just executed.
    pub(crate) fn atomic(&mut self, psn: u32, old: u64, msn: u32, attr: &QpAttr) {
        self.remember(Executed::Atomic { psn, old }, attr);
        self.push(Reply::Atomic { psn, old, msn });
    }

    /// A READ request came again, perhaps for the rest of it only. One that does not fit what
    /// was executed, or is too old, is not answered.
    pub(crate) fn replay_read(
        &mut self,
        psn: u32,
        (at, len): (RemoteAddress, u32),
        msn: u32,
        attr: &QpAttr,
    ) {
        let known = self.executed.iter().find_map(|e| match *e {
            Executed::Read { psn: first, packets, at: old, len: whole } => {
                let skipped = psn::distance(first, psn);
                let offset = u64::from(skipped) * u64::from(attr.mtu);
                let fits = skipped < packets
                    && at.rkey == old.rkey
                    && at.va == old.va.wrapping_add(offset)
                    && offset + u64::from(len) <= u64::from(whole);
                fits.then_some((first, packets))
            }
            Executed::Atomic { .. } => None,
        });
        let Some((first, packets)) = known else {
            return;
        };
        let new = read_reply(psn, (at, len), msn, true);
        // The peer has gone back to this PSN and will request all later READ data again. It would
        // drop the pending rest of those READs, which would delay the data it wants.
        self.queue.retain(|r| {
            !matches!(r, Reply::Read(read)
                if psn::distance(first, read.psn) >= packets && psn::place(read.psn, psn) == psn::Place::Ahead)
        });
        // If the same READ is still being answered, it is taken up there and not twice.
        let running = self.queue.iter_mut().find_map(|r| match r {
            Reply::Read(read) if psn::distance(first, read.psn) < packets => Some(read),
            Reply::Read(_) | Reply::Verdict { .. } | Reply::Atomic { .. } => None,
        });
        match running {
            Some(read) => *read = ReadReply { again: read.again, ..new },
            None => self.push(Reply::Read(new)),
        }
    }

    /// An atomic request came again: its result is sent again, and nothing is executed.
    pub(crate) fn replay_atomic(&mut self, psn: u32, msn: u32) {
        let known = self.executed.iter().find_map(|e| match *e {
            Executed::Atomic { psn: at, old } if at == psn => Some(old),
            Executed::Atomic { .. } | Executed::Read { .. } => None,
        });
        if let Some(old) = known {
            self.push(Reply::Atomic { psn, old, msn });
        }
    }

    fn remember(&mut self, executed: Executed, attr: &QpAttr) {
        self.executed.push_back(executed);
        while self.executed.len() > usize::from(attr.max_dest_rd_atomic) {
            self.executed.pop_front();
        }
    }

    fn push(&mut self, reply: Reply) {
        if self.queue.len() < QUEUE_LIMIT {
            self.queue.push_back(reply);
        }
    }

    /// Sends a burst of pending replies. An error means that a READ's memory is gone: the NAK is
    /// sent, and nothing behind it.
    pub(crate) fn drain(&mut self, attr: &QpAttr, host: &mut dyn Host) -> Result<(), RemoteFault> {
        while let Some(front) = self.queue.front_mut() {
            if !self.pace.admit(host.now(), attr.mtu) {
                break;
            }
            let (draft, finished) = match front {
                Reply::Verdict { psn, syndrome, msn } => {
                    (verdict_draft(*psn, *syndrome, *msn), true)
                }
                Reply::Atomic { psn, old, msn } => {
                    let mut draft = Draft::new(Opcode::AtomicAck, *psn);
                    draft.ext.aeth = Some(Aeth { syndrome: ACK, msn: *msn });
                    draft.ext.atomic_ack = Some(*old);
                    (draft, true)
                }
                Reply::Read(read) => match read.next(attr, host) {
                    Ok(draft) => (draft, read.left == 0),
                    Err(fault) => {
                        verdict_draft(read.psn, nak_of(fault), read.msn).send(attr, host);
                        self.queue.clear();
                        return Err(fault);
                    }
                },
            };
            draft.send(attr, host);
            if finished {
                self.queue.pop_front();
            }
        }
        Ok(())
    }
}

/// The NAK code a fault calls for.
pub(crate) fn nak_of(fault: RemoteFault) -> u8 {
    match fault {
        RemoteFault::Access => NAK_ACCESS,
        RemoteFault::Operation => NAK_OPERATION,
    }
}

fn verdict_draft(psn: u32, syndrome: u8, msn: u32) -> Draft {
    Draft {
        ext: Extended { aeth: Some(Aeth { syndrome, msn }), ..Extended::default() },
        ..Draft::new(Opcode::Ack, psn)
    }
}

fn read_reply(psn: u32, (at, left): (RemoteAddress, u32), msn: u32, again: bool) -> ReadReply {
    ReadReply { psn, at, left, msn, fresh: true, again }
}

impl ReadReply {
    /// The next packet. The key is asked again for each: it may vanish in between.
    fn next(&mut self, attr: &QpAttr, host: &mut dyn Host) -> Result<Draft, RemoteFault> {
        let len = self.left.min(attr.mtu);
        let mut payload = vec![0; len as usize];
        if self.again {
            host.retransmitted();
        }
        if len > 0 {
            host.remote_read(attr.qpn, self.at, &mut payload, Access::Read)?;
        }
        let last = self.left == len;
        let opcode = match (self.fresh, last) {
            (true, true) => Opcode::ReadOnly,
            (true, false) => Opcode::ReadFirst,
            (false, true) => Opcode::ReadLast,
            (false, false) => Opcode::ReadMiddle,
        };
        let mut draft = Draft { payload, ..Draft::new(opcode, self.psn) };
        if opcode != Opcode::ReadMiddle {
            draft.ext.aeth = Some(Aeth { syndrome: ACK, msn: self.msn });
        }
        self.psn = psn::add(self.psn, 1);
        self.at.va = self.at.va.wrapping_add(len.into());
        self.left -= len;
        self.fresh = false;
        Ok(draft)
    }
}
