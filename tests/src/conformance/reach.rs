//! Helpers of the cases of memory: attempts at memory of the other side, and connections made anew
//! after a refused one.

use dat_core::{DtoStatus, EpState, Event, LmrTriplet, MemPriv, Rmr, RmrTriplet, VaType};

use super::adapters::{Adapters, Side};
use super::means::{End, Mem, NONE};

/// Kind of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Try {
    /// An RDMA read.
    Read,
    /// An RDMA write.
    Write,
}

impl<S: Side> Adapters<'_, S> {
    /// Tries an access from `end`, and says how it ended.
    #[track_caller]
    pub fn reach(&mut self, end: &End, what: Try, local: LmrTriplet, to: RmrTriplet) -> DtoStatus {
        let ia = &mut self[end.side];
        match what {
            Try::Read => ia.ep_post_rdma_read(end.ep, &[local], 77, &to, NONE),
            Try::Write => ia.ep_post_rdma_write(end.ep, &[local], 77, &to, NONE),
        }
        .unwrap();
        let dto = self.dto(end.side, end.request);
        assert_eq!((dto.ep, dto.cookie), (end.ep, 77));
        dto.status
    }

    /// As [`Adapters::reach`]; a refused attempt has the connection broken, and it is made anew.
    /// Whether it was allowed.
    #[track_caller]
    pub fn allowed(
        &mut self,
        ends: &[End; 2],
        what: Try,
        local: LmrTriplet,
        to: RmrTriplet,
    ) -> bool {
        match self.reach(&ends[0], what, local, to) {
            DtoStatus::Success => true,
            DtoStatus::ErrRemoteAccess => {
                self.mend(ends);
                false
            }
            other => panic!("{what:?} at {to:?}: {other:?}"),
        }
    }

    /// Waits until both have come out of a broken connection, and connects them anew. What was not
    /// dequeued is lost.
    #[track_caller]
    pub fn mend(&mut self, ends: &[End; 2]) {
        self.until(|ias| {
            let over = |end| ias.state(end) == EpState::Disconnected;
            ends.iter().all(over).then_some(())
        });
        for end in ends {
            for evd in [end.recv, end.request, end.conn] {
                while self.look(end.side, evd).is_some() {}
            }
            self[end.side].ep_reset(end.ep).unwrap();
        }
        self.connect(&ends[0], &ends[1]);
    }

    /// Binds, waits for it, and gives what a peer names the range by.
    #[track_caller]
    pub fn bind(&mut self, end: &End, rmr: Rmr, range: &LmrTriplet, rights: MemPriv) -> RmrTriplet {
        self.bind_as(end, rmr, range, rights, VaType::Va)
    }

    /// The same with a type of addresses.
    #[track_caller]
    pub fn bind_as(
        &mut self,
        end: &End,
        rmr: Rmr,
        range: &LmrTriplet,
        rights: MemPriv,
        va_type: VaType,
    ) -> RmrTriplet {
        let bound = self[end.side].rmr_bind_as(rmr, range, rights, va_type, end.ep, 5, NONE);
        let context = bound.unwrap();
        self.bound(end, rmr, 5);
        RmrTriplet {
            addr: if va_type == VaType::Va { range.addr } else { 0 },
            len: range.len,
            context,
        }
    }

    /// The next event, which has to be the success of that bind.
    #[track_caller]
    pub fn bound(&mut self, end: &End, rmr: Rmr, cookie: u64) {
        let event = self.event(end.side, end.request);
        let status = DtoStatus::Success;
        let bind = Event::RmrBind { rmr, cookie, status };
        assert_eq!(event, bind);
    }

    /// Two connected Endpoints, with memory of every right in the zone of each.
    #[track_caller]
    pub fn armed(&mut self) -> ([End; 2], [Mem; 2]) {
        let ends = self.connected();
        let mems = [0, 1].map(|side| {
            let mem = self.mem(side, ends[side].pz, 8192, MemPriv::ALL);
            self.fill(&mem, 0, &pattern(side, 8192));
            mem
        });
        (ends, mems)
    }
}

/// Bytes unlike those of the other side.
#[must_use]
pub fn pattern(side: usize, len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 7 + i / 251 + side * 101) as u8).collect()
}
