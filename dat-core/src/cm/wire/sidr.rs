//! SIDR_REQ and SIDR_REP: the queue pair of a service for datagrams is looked up ("service ID
//! resolution").
//!
//! Neither makes a connection, so neither has communication IDs: the request ID, chosen by the
//! requester, stands in both.

use crate::cm::wire::field::view;
use crate::cm::wire::header::{Header, MAD_LEN, WireError};
use crate::cm::wire::reason::Reason;
use crate::cm::wire::service::ServiceId;

view! {
    /// View of a SIDR_REQ.
    SidrReq, attribute 0x17, private data 216 at 16;
    /// Request ID of the sender.
    request_id set_request_id: u32 = 0, 0, 32;
    /// P_Key.
    p_key set_p_key: u16 = 4, 0, 16;
    /// Service asked for.
    service_id set_service_id: u64 = 8, 0, 64;
}

impl SidrReq<&[u8; MAD_LEN]> {
    /// A request ID of 0 is none.
    pub fn check(&self) -> Result<(), WireError> {
        if self.request_id() == 0 {
            return Err(WireError::Field);
        }
        Ok(())
    }
}

/// A SIDR_REQ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SidrReqRepr {
    /// Request ID of the sender, not 0.
    pub request_id: u32,
    /// P_Key that the datagrams will carry.
    pub p_key: u16,
    /// Service asked for.
    pub service: ServiceId,
    /// Private data; an IP CM service has the [`IpHeader`](crate::cm::wire::ip::IpHeader) in
    /// front.
    pub private_data: [u8; 216],
}

impl SidrReqRepr {
    /// Reads a SIDR_REQ. A request ID of 0 is none: [`WireError::Field`].
    pub fn parse(req: &SidrReq<&[u8; MAD_LEN]>) -> Result<Self, WireError> {
        req.check()?;
        Ok(Self {
            request_id: req.request_id(),
            p_key: req.p_key(),
            service: ServiceId(req.service_id()),
            private_data: req.private_data(),
        })
    }

    /// Writes it.
    #[must_use]
    #[inline(never)]
    pub fn emit(&self, transaction: u64) -> [u8; MAD_LEN] {
        let mut mad = Header::emit(transaction, SidrReq::<()>::ATTRIBUTE);
        let mut req = SidrReq::new_unchecked(&mut mad);
        req.set_request_id(self.request_id);
        req.set_p_key(self.p_key);
        req.set_service_id(self.service.0);
        req.set_private_data(&self.private_data);
        mad
    }
}

view! {
    /// View of a SIDR_REP. The class port information of a redirection is left out: nobody here follows one.
    SidrRep, attribute 0x18, private data 136 at 96;
    /// Request ID of the receiver.
    request_id set_request_id: u32 = 0, 0, 32;
    /// Whether the service is there.
    status set_status: u8 = 4, 0, 8;
    /// Valid bytes of the additional information.
    info_len set_info_len: u8 = 5, 0, 8;
    /// Queue pair of the service.
    qpn set_qpn: u32 = 8, 0, 24;
    /// Service answered for.
    service_id set_service_id: u64 = 12, 0, 64;
    /// Q_Key of that queue pair.
    q_key set_q_key: u32 = 20, 0, 32;
}

/// Whether a service is there. Any code a peer sends is kept, known or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SidrStatus(pub u8);

impl SidrStatus {
    /// It is: queue pair and Q_Key are valid.
    pub const VALID: Self = Self(0);
    /// Nobody listens on it.
    pub const UNSUPPORTED_SERVICE: Self = Self(1);
    /// The peer's consumer refused.
    pub const REJECTED: Self = Self(2);
    /// There is no queue pair for it.
    pub const NO_QP: Self = Self(3);
    /// It is elsewhere.
    pub const REDIRECT: Self = Self(4);
    /// The class version is not known over there.
    pub const UNSUPPORTED_VERSION: Self = Self(5);

    /// The reason with which a connection would have been refused.
    #[must_use]
    pub const fn reason(self) -> Reason {
        match self {
            Self::UNSUPPORTED_SERVICE => Reason::INVALID_SERVICE_ID,
            Self::REJECTED => Reason::CONSUMER,
            Self::NO_QP => Reason::NO_QP,
            Self::REDIRECT => Reason::PORT_AND_CM_REDIRECT,
            Self::UNSUPPORTED_VERSION => Reason::INVALID_CLASS_VERSION,
            Self(_) => Reason::UNSUPPORTED,
        }
    }

    /// Returns the status that is nearest to a reason for which a connection is refused.
    #[must_use]
    pub const fn of(reason: Reason) -> Self {
        match reason {
            Reason::INVALID_SERVICE_ID => Self::UNSUPPORTED_SERVICE,
            Reason::NO_QP | Reason::NO_RESOURCES => Self::NO_QP,
            Reason::INVALID_CLASS_VERSION => Self::UNSUPPORTED_VERSION,
            Reason(_) => Self::REJECTED,
        }
    }
}

impl SidrRep<&[u8; MAD_LEN]> {
    /// A request ID of 0 is none, and a service that is there has a queue pair.
    pub fn check(&self) -> Result<(), WireError> {
        if self.request_id() == 0 || (self.status() == SidrStatus::VALID.0 && self.qpn() < 2) {
            return Err(WireError::Field);
        }
        Ok(())
    }
}

/// A SIDR_REP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SidrRepRepr {
    /// Request ID of the receiver, not 0.
    pub request_id: u32,
    /// Whether the service is there.
    pub status: SidrStatus,
    /// Queue pair of the service; above 1 if the status says that it is there.
    pub qpn: u32,
    /// Service answered for.
    pub service: ServiceId,
    /// Q_Key of that queue pair.
    pub q_key: u32,
    /// Private data.
    pub private_data: [u8; 136],
}

impl SidrRepRepr {
    /// Reads a SIDR_REP. [`WireError::Field`] for a request ID of 0, and for a service that is
    /// there with no queue pair.
    pub fn parse(rep: &SidrRep<&[u8; MAD_LEN]>) -> Result<Self, WireError> {
        rep.check()?;
        Ok(Self {
            request_id: rep.request_id(),
            status: SidrStatus(rep.status()),
            qpn: rep.qpn(),
            service: ServiceId(rep.service_id()),
            q_key: rep.q_key(),
            private_data: rep.private_data(),
        })
    }

    /// Writes it.
    #[must_use]
    #[inline(never)]
    pub fn emit(&self, transaction: u64) -> [u8; MAD_LEN] {
        let mut mad = Header::emit(transaction, SidrRep::<()>::ATTRIBUTE);
        let mut rep = SidrRep::new_unchecked(&mut mad);
        rep.set_request_id(self.request_id);
        rep.set_status(self.status.0);
        rep.set_qpn(self.qpn);
        rep.set_service_id(self.service.0);
        rep.set_q_key(self.q_key);
        rep.set_private_data(&self.private_data);
        mad
    }
}
