//! REP: the passive side accepts, and says what its queue pair is.

use crate::cm::wire::field::view;
use crate::cm::wire::header::{Header, MAD_LEN, WireError};

view! {
    /// View of a REP.
    Rep, attribute 0x13, private data 196 at 36;
    /// Communication ID of the sender.
    local_id set_local_id: u32 = 0, 0, 32;
    /// Communication ID of the receiver.
    remote_id set_remote_id: u32 = 4, 0, 32;
    /// Q_Key, for datagrams only.
    q_key set_q_key: u32 = 8, 0, 32;
    /// Queue pair of the sender.
    qpn set_qpn: u32 = 12, 0, 24;
    /// End-to-end context, for reliable datagrams only.
    eecn set_eecn: u32 = 16, 0, 24;
    /// First PSN the sender expects.
    starting_psn set_starting_psn: u32 = 20, 0, 24;
    /// Reads the sender answers at a time.
    responder_resources set_responder_resources: u8 = 24, 0, 8;
    /// Reads the sender will have outstanding.
    initiator_depth set_initiator_depth: u8 = 25, 0, 8;
    /// How long the sender may take to acknowledge, as a code.
    target_ack_delay set_target_ack_delay: u8 = 26, 0, 5;
    /// Whether the alternate path was accepted; see [`FAILOVER_UNSUPPORTED`].
    failover set_failover: u8 = 26, 5, 2;
    /// End-to-end flow control.
    flow_control set_flow_control: bool = 26, 7, 1;
    /// RNR retries the receiver shall make.
    rnr_retry set_rnr_retry: u8 = 27, 0, 3;
    /// The queue pair of the sender uses a shared receive queue.
    srq set_srq: bool = 27, 3, 1;
    /// GUID of the sender's adapter.
    guid set_guid: u64 = 28, 0, 64;
}

/// [`Rep::failover`]: alternate paths are not supported (IBTA volume 1, 12.7.33).
pub(crate) const FAILOVER_UNSUPPORTED: u8 = 1;

impl Rep<&[u8; MAD_LEN]> {
    /// One without a queue pair or an ID is none.
    pub fn check(&self) -> Result<(), WireError> {
        if self.qpn() <= 1 || self.local_id() == 0 {
            return Err(WireError::Field);
        }
        Ok(())
    }
}

/// A REP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RepRepr {
    /// Communication ID of the sender, not 0.
    pub local_id: u32,
    /// Communication ID of the receiver.
    pub remote_id: u32,
    /// Queue pair of the sender, 24 bits, above 1.
    pub qpn: u32,
    /// First PSN the sender expects, 24 bits.
    pub starting_psn: u32,
    /// Reads the sender answers at a time.
    pub responder_resources: u8,
    /// Reads the sender will have outstanding.
    pub initiator_depth: u8,
    /// How long the sender may take to acknowledge: a code of 5 bits.
    pub target_ack_delay: u8,
    /// RNR retries the receiver shall make, 3 bits.
    pub rnr_retry: u8,
    /// End-to-end flow control.
    pub flow_control: bool,
    /// The queue pair of the sender uses a shared receive queue.
    pub srq: bool,
    /// GUID of the sender's adapter.
    pub guid: u64,
    /// Private data.
    pub private_data: [u8; 196],
}

impl RepRepr {
    /// Reads a REP; one without a queue pair or an ID is none.
    pub fn parse(rep: &Rep<&[u8; MAD_LEN]>) -> Result<Self, WireError> {
        rep.check()?;
        Ok(Self {
            local_id: rep.local_id(),
            remote_id: rep.remote_id(),
            qpn: rep.qpn(),
            starting_psn: rep.starting_psn(),
            responder_resources: rep.responder_resources(),
            initiator_depth: rep.initiator_depth(),
            target_ack_delay: rep.target_ack_delay(),
            rnr_retry: rep.rnr_retry(),
            flow_control: rep.flow_control(),
            srq: rep.srq(),
            guid: rep.guid(),
            private_data: rep.private_data(),
        })
    }

    /// Writes it.
    #[must_use]
    #[inline(never)]
    pub fn emit(&self, transaction: u64) -> [u8; MAD_LEN] {
        let mut mad = Header::emit(transaction, Rep::<()>::ATTRIBUTE);
        let mut rep = Rep::new_unchecked(&mut mad);
        rep.set_local_id(self.local_id);
        rep.set_remote_id(self.remote_id);
        rep.set_qpn(self.qpn);
        rep.set_starting_psn(self.starting_psn);
        rep.set_responder_resources(self.responder_resources);
        rep.set_initiator_depth(self.initiator_depth);
        rep.set_target_ack_delay(self.target_ack_delay);
        rep.set_rnr_retry(self.rnr_retry);
        rep.set_flow_control(self.flow_control);
        rep.set_srq(self.srq);
        rep.set_guid(self.guid);
        rep.set_private_data(&self.private_data);
        mad
    }
}
