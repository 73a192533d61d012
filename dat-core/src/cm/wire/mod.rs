//! The datagrams of connection management: one MAD of 256 bytes each, sent from QP1 to QP1.
//!
//! Every message has two types. A *view* ([`Req`], [`Rep`], ...) lays names over 256 bytes and can
//! show any nonsense; its getters and setters never panic. A *repr* ([`ReqRepr`], [`RepRepr`], ...)
//! can only hold a sane message; `parse` makes one of a view or says what is wrong, `emit` writes
//! one. `parse(emit(x)) == x` for all reprs.
//!
//! Layouts: IBTA volume 1, chapter 12.6 (messages), 13.4 (header), annex A11 (IP CM service).
//!
//! Not here: LAP and APR (alternate paths do not exist on RoCE).

pub(crate) mod disconnect;
pub(crate) mod field;
pub(crate) mod header;
pub(crate) mod ip;
pub(crate) mod mra;
pub(crate) mod reason;
pub(crate) mod rej;
pub(crate) mod rep;
pub(crate) mod req;
pub(crate) mod rtu;
pub(crate) mod service;
pub(crate) mod sidr;

pub use crate::cm::wire::disconnect::{Drep, DrepRepr, Dreq, DreqRepr};
pub use crate::cm::wire::header::{About, Header, MAD_LEN, WireError};
pub use crate::cm::wire::ip::{IP_HEADER_LEN, IpHeader};
pub use crate::cm::wire::mra::{Mra, MraRepr};
pub use crate::cm::wire::reason::Reason;
pub use crate::cm::wire::rej::{ARI_LEN, Ari, Rej, RejRepr};
pub use crate::cm::wire::rep::{Rep, RepRepr};
pub use crate::cm::wire::req::{Req, ReqRepr};
pub use crate::cm::wire::rtu::{Rtu, RtuRepr};
pub use crate::cm::wire::service::ServiceId;
pub use crate::cm::wire::sidr::{SidrRep, SidrRepRepr, SidrReq, SidrReqRepr, SidrStatus};

pub(super) use crate::cm::wire::field::copy;

/// It is the first message of an exchange: a REQ or a SIDR_REQ.
pub(crate) fn asks(mad: &[u8; MAD_LEN]) -> bool {
    Header::new_checked(mad).is_ok_and(|header| {
        matches!(header.attribute(), Req::<()>::ATTRIBUTE | SidrReq::<()>::ATTRIBUTE)
    })
}

/// The name of a message of the connection manager.
pub(crate) fn name(mad: &[u8; MAD_LEN]) -> &'static str {
    match Header::new_checked(mad).map(|header| header.attribute()) {
        Ok(Req::<()>::ATTRIBUTE) => "REQ",
        Ok(Mra::<()>::ATTRIBUTE) => "MRA",
        Ok(Rej::<()>::ATTRIBUTE) => "REJ",
        Ok(Rep::<()>::ATTRIBUTE) => "REP",
        Ok(Rtu::<()>::ATTRIBUTE) => "RTU",
        Ok(Dreq::<()>::ATTRIBUTE) => "DREQ",
        Ok(Drep::<()>::ATTRIBUTE) => "DREP",
        Ok(SidrReq::<()>::ATTRIBUTE) => "SIDR_REQ",
        Ok(SidrRep::<()>::ATTRIBUTE) => "SIDR_REP",
        Ok(_) | Err(_) => "a message",
    }
}

/// Any message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message {
    /// Connection request.
    Req(ReqRepr),
    /// Message receipt acknowledgement.
    Mra(MraRepr),
    /// Rejection.
    Rej(RejRepr),
    /// Reply to a request.
    Rep(RepRepr),
    /// Ready to use.
    Rtu(RtuRepr),
    /// Disconnection request.
    Dreq(DreqRepr),
    /// Reply to a disconnection request.
    Drep(DrepRepr),
    /// A service for datagrams is looked up.
    SidrReq(SidrReqRepr),
    /// Answer to that.
    SidrRep(SidrRepRepr),
}

impl Message {
    /// Transaction ID and message of a MAD.
    pub fn parse(mad: &[u8; MAD_LEN]) -> Result<(u64, Self), WireError> {
        let header = Header::new_checked(mad)?;
        let message = match header.attribute() {
            Req::<()>::ATTRIBUTE => Self::Req(ReqRepr::parse(&Req::new_checked(mad)?)?),
            Mra::<()>::ATTRIBUTE => Self::Mra(MraRepr::parse(&Mra::new_checked(mad)?)),
            Rej::<()>::ATTRIBUTE => Self::Rej(RejRepr::parse(&Rej::new_checked(mad)?)),
            Rep::<()>::ATTRIBUTE => Self::Rep(RepRepr::parse(&Rep::new_checked(mad)?)?),
            Rtu::<()>::ATTRIBUTE => Self::Rtu(RtuRepr::parse(&Rtu::new_checked(mad)?)),
            Dreq::<()>::ATTRIBUTE => Self::Dreq(DreqRepr::parse(&Dreq::new_checked(mad)?)),
            Drep::<()>::ATTRIBUTE => Self::Drep(DrepRepr::parse(&Drep::new_checked(mad)?)),
            SidrReq::<()>::ATTRIBUTE => {
                Self::SidrReq(SidrReqRepr::parse(&SidrReq::new_checked(mad)?)?)
            }
            SidrRep::<()>::ATTRIBUTE => {
                Self::SidrRep(SidrRepRepr::parse(&SidrRep::new_checked(mad)?)?)
            }
            other => return Err(WireError::Attribute(other)),
        };
        Ok((header.transaction(), message))
    }

    /// The MAD that says it.
    #[must_use]
    pub fn emit(&self, transaction: u64) -> [u8; MAD_LEN] {
        match self {
            Self::Req(repr) => repr.emit(transaction),
            Self::Mra(repr) => repr.emit(transaction),
            Self::Rej(repr) => repr.emit(transaction),
            Self::Rep(repr) => repr.emit(transaction),
            Self::Rtu(repr) => repr.emit(transaction),
            Self::Dreq(repr) => repr.emit(transaction),
            Self::Drep(repr) => repr.emit(transaction),
            Self::SidrReq(repr) => repr.emit(transaction),
            Self::SidrRep(repr) => repr.emit(transaction),
        }
    }
}
