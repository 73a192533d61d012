//! `DAT_RETURN`: class, type and subtype in one word.
//!
//! Bits 31..30 are the class, 29..16 the type, 15..0 the subtype; the numbers are those of
//! `dat_error.h`, so that a C provider passes them on untouched. Success is `Ok` here, so every
//! value carries the error class: consumers compare the type alone, and a value without its class
//! bit would look like success to some of them.
//!
//! [`Error`] adds what the device said, for the calls of the control path. The data path returns
//! the bare word.

use core::fmt;

use crate::types::fault::{Fault, FaultKind};

macro_rules! numbered {
    ($(#[$doc:meta])* $name:ident: $repr:ty { $($variant:ident = $number:literal, $words:literal;)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr($repr)]
        pub enum $name {
            $(#[doc = $words] $variant = $number,)*
        }

        impl $name {
            /// Every value, in numeric order.
            pub const ALL: &[Self] = &[$(Self::$variant,)*];

            /// The value of that number.
            #[must_use]
            pub const fn from_number(number: $repr) -> Option<Self> {
                match number {
                    $($number => Some(Self::$variant),)*
                    _ => None,
                }
            }

            /// Its number.
            #[must_use]
            pub const fn number(self) -> $repr {
                self as $repr
            }

            /// What it means.
            #[must_use]
            pub const fn words(self) -> &'static str {
                match self {
                    $(Self::$variant => $words,)*
                }
            }
        }
    };
}

numbered! {
    /// The type of a `DAT_RETURN`: what went wrong.
    DatType: u16 {
        Abort = 0x1, "the operation was aborted";
        ConnQualInUse = 0x2, "the connection qualifier is in use";
        InsufficientResources = 0x3, "not enough resources";
        InternalError = 0x4, "an internal error of the provider";
        InvalidHandle = 0x5, "the handle is stale, foreign or of another kind";
        InvalidParameter = 0x6, "a parameter is out of range";
        InvalidState = 0x7, "the object is in a state that does not allow the call";
        LengthError = 0x8, "the length does not fit";
        ModelNotSupported = 0x9, "this provider does not support that";
        ProviderNotFound = 0xa, "no such provider";
        PrivilegesViolation = 0xb, "a memory privilege is missing or the context is unknown";
        ProtectionViolation = 0xc, "the Protection Zones differ";
        QueueEmpty = 0xd, "the queue is empty";
        QueueFull = 0xe, "the queue is full";
        TimeoutExpired = 0xf, "the timeout expired";
        ProviderAlreadyRegistered = 0x10, "the provider is registered already";
        ProviderInUse = 0x11, "the provider is in use";
        InvalidAddress = 0x12, "the address cannot be used";
        InterruptedCall = 0x13, "the call was interrupted";
        ConnQualUnavailable = 0x14, "no connection qualifier is free";
        ReservedLmr = 0x15, "the LMR is reserved";
        PortInUse = 0x16, "the port is in use";
        CommNotSupported = 0x17, "the communication type is not supported";
        ExtensionBase = 0x1000, "an error of an extension";
        NotImplemented = 0x3fff, "not implemented";
    }
}

numbered! {
    /// The subtype of a `DAT_RETURN`: to what, or why.
    DatSubtype: u16 {
        None = 0, "nothing further";
        Interrupted = 1, "interrupted";
        ResourceMemory = 2, "memory";
        ResourceDevice = 3, "the device";
        ResourceTep = 4, "transport endpoints";
        ResourceTevd = 5, "transport event dispatchers";
        ResourceProtectionDomain = 6, "protection domains";
        ResourceMemoryRegion = 7, "memory regions";
        ResourceErrorHandler = 8, "error handlers";
        ResourceCredits = 9, "credits of the queue";
        ResourceSrq = 10, "shared receive queues";
        InvalidHandleIa = 11, "the handle of the IA";
        InvalidHandleEp = 12, "the handle of the EP";
        InvalidHandleLmr = 13, "the handle of the LMR";
        InvalidHandleRmr = 14, "the handle of the RMR";
        InvalidHandlePz = 15, "the handle of the PZ";
        InvalidHandlePsp = 16, "the handle of the PSP";
        InvalidHandleRsp = 17, "the handle of the RSP";
        InvalidHandleCr = 18, "the handle of the CR";
        InvalidHandleCno = 19, "the handle of the CNO";
        InvalidHandleEvdCr = 20, "the handle of the CR EVD";
        InvalidHandleEvdRequest = 21, "the handle of the request EVD";
        InvalidHandleEvdRecv = 22, "the handle of the receive EVD";
        InvalidHandleEvdConn = 23, "the handle of the connect EVD";
        InvalidHandleEvdAsync = 24, "the handle of the async EVD";
        InvalidHandleSrq = 25, "the handle of the SRQ";
        InvalidHandleCsp = 26, "the handle of the CSP";
        InvalidHandle1 = 27, "handle 1";
        InvalidHandle2 = 28, "handle 2";
        InvalidHandle3 = 29, "handle 3";
        InvalidHandle4 = 30, "handle 4";
        InvalidHandle5 = 31, "handle 5";
        InvalidHandle6 = 32, "handle 6";
        InvalidHandle7 = 33, "handle 7";
        InvalidHandle8 = 34, "handle 8";
        InvalidHandle9 = 35, "handle 9";
        InvalidHandle10 = 36, "handle 10";
        InvalidArg1 = 37, "argument 1";
        InvalidArg2 = 38, "argument 2";
        InvalidArg3 = 39, "argument 3";
        InvalidArg4 = 40, "argument 4";
        InvalidArg5 = 41, "argument 5";
        InvalidArg6 = 42, "argument 6";
        InvalidArg7 = 43, "argument 7";
        InvalidArg8 = 44, "argument 8";
        InvalidArg9 = 45, "argument 9";
        InvalidArg10 = 46, "argument 10";
        InvalidStateEpUnconnected = 47, "the EP is UNCONNECTED";
        InvalidStateEpActConnPending = 48, "the EP is in ACTIVE_CONNECTION_PENDING";
        InvalidStateEpPassConnPending = 49, "the EP is in PASSIVE_CONNECTION_PENDING";
        InvalidStateEpTentConnPending = 50, "the EP is in TENTATIVE_CONNECTION_PENDING";
        InvalidStateEpConnected = 51, "the EP is CONNECTED";
        InvalidStateEpDisconnected = 52, "the EP is DISCONNECTED";
        InvalidStateEpReserved = 53, "the EP is RESERVED";
        InvalidStateEpComplPending = 54, "the EP is in COMPLETION_PENDING";
        InvalidStateEpDiscPending = 55, "the EP is in DISCONNECT_PENDING";
        InvalidStateEpProviderControl = 56, "the EP is under the provider's control";
        InvalidStateEpNotReady = 57, "the EP lacks a PZ or an EVD";
        InvalidStateEpRecvWatermark = 58, "the EP's receive watermark";
        InvalidStateEpPz = 59, "the EP's PZ";
        InvalidStateEpEvdRequest = 60, "the EP's request EVD";
        InvalidStateEpEvdRecv = 61, "the EP's receive EVD";
        InvalidStateEpEvdConnect = 62, "the EP's connect EVD";
        InvalidStateEpUnconfigured = 63, "the EP is not configured";
        InvalidStateEpUnconfReserved = 64, "the EP is reserved and not configured";
        InvalidStateEpUnconfPassive = 65, "the EP is passive and not configured";
        InvalidStateEpUnconfTentative = 66, "the EP is tentative and not configured";
        InvalidStateCnoInUse = 67, "the CNO is in use";
        InvalidStateCnoDead = 68, "the CNO is DEAD";
        InvalidStateEvdOpen = 69, "the EVD is OPEN";
        InvalidStateEvdEnabled = 70, "the EVD is ENABLED";
        InvalidStateEvdDisabled = 71, "the EVD is DISABLED";
        InvalidStateEvdWaitable = 72, "the EVD is WAITABLE";
        InvalidStateEvdUnwaitable = 73, "the EVD is UNWAITABLE";
        InvalidStateEvdInUse = 74, "the EVD is in use";
        InvalidStateEvdConfigNotify = 75, "the EVD is CONFIG NOTIFY";
        InvalidStateEvdConfigSolicited = 76, "the EVD is CONFIG SOLICITED";
        InvalidStateEvdConfigThreshold = 77, "the EVD is CONFIG THRESHOLD";
        InvalidStateEvdWaiter = 78, "the EVD is WAITER";
        InvalidStateEvdAsync = 79, "the EVD is ASYNC";
        InvalidStateIaInUse = 80, "the IA is in use";
        InvalidStateLmrInUse = 81, "the LMR is in use";
        InvalidStateLmrFree = 82, "the LMR is FREE";
        InvalidStatePzInUse = 83, "the PZ is in use";
        InvalidStatePzFree = 84, "the PZ is FREE";
        InvalidStateSrqOperational = 85, "the SRQ is OPERATIONAL";
        InvalidStateSrqError = 86, "the SRQ is ERROR";
        InvalidStateSrqInUse = 87, "the SRQ is in use";
        InvalidStateSrqShutdown = 88, "the SRQ is SHUTDOWN";
        PrivilegesRead = 89, "privilege of the operation: read";
        PrivilegesWrite = 90, "privilege of the operation: write";
        PrivilegesRdmaRead = 91, "privilege of the operation: RDMA read";
        PrivilegesRdmaWrite = 92, "privilege of the operation: RDMA write";
        ProtectionRead = 93, "zone of the operation: read";
        ProtectionWrite = 94, "zone of the operation: write";
        ProtectionRdmaRead = 95, "zone of the operation: RDMA read";
        ProtectionRdmaWrite = 96, "zone of the operation: RDMA write";
        AddressUnsupported = 97, "the address is unsupported";
        AddressUnreachable = 98, "the address is unreachable";
        AddressMalformed = 99, "the address is malformed";
        NameNotFound = 100, "no provider of that name";
        MajorNotFound = 101, "no provider of that major version";
        MinorNotFound = 102, "no provider of that minor version";
        ThreadSafetyNotFound = 103, "no provider of that thread safety";
    }
}

/// One `DAT_RETURN` that is not success.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct DatReturn(u32);

impl DatReturn {
    /// The class bits of an error.
    pub const CLASS_ERROR: u32 = 0x8000_0000;
    /// An EVD had nothing to give.
    pub const QUEUE_EMPTY: Self = Self::new(DatType::QueueEmpty, DatSubtype::None);

    /// Type and subtype, with the error class.
    #[must_use]
    pub const fn new(ty: DatType, subtype: DatSubtype) -> Self {
        Self(Self::CLASS_ERROR | (ty.number() as u32) << 16 | subtype.number() as u32)
    }

    /// A type with no subtype.
    #[must_use]
    pub const fn of(ty: DatType) -> Self {
        Self::new(ty, DatSubtype::None)
    }

    /// The word as C consumers see it.
    #[must_use]
    pub const fn raw(self) -> u32 {
        self.0
    }

    /// What went wrong.
    #[must_use]
    pub const fn ty(self) -> DatType {
        match DatType::from_number((self.0 >> 16 & 0x3fff) as u16) {
            Some(ty) => ty,
            None => DatType::InternalError,
        }
    }

    /// To what, or why.
    #[must_use]
    pub const fn subtype(self) -> DatSubtype {
        match DatSubtype::from_number((self.0 & 0xffff) as u16) {
            Some(subtype) => subtype,
            None => DatSubtype::None,
        }
    }
}

impl fmt::Debug for DatReturn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}/{:?} ({:#010x})", self.ty(), self.subtype(), self.0)
    }
}

impl fmt::Display for DatReturn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.ty().words())?;
        let subtype = self.subtype();
        if subtype == DatSubtype::None { Ok(()) } else { write!(f, ": {}", subtype.words()) }
    }
}

impl core::error::Error for DatReturn {}

/// Why a control call was refused: the DAT word, and what the device said if it was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Error {
    ret: DatReturn,
    fault: Option<Fault>,
}

impl Error {
    /// An error that the device had no part in.
    #[must_use]
    pub const fn new(ty: DatType, subtype: DatSubtype) -> Self {
        Self { ret: DatReturn::new(ty, subtype), fault: None }
    }

    /// The word for a DAT consumer.
    #[must_use]
    pub const fn ret(&self) -> DatReturn {
        self.ret
    }

    /// The device's own account.
    #[must_use]
    pub const fn fault(&self) -> Option<Fault> {
        self.fault
    }
}

impl From<Error> for DatReturn {
    fn from(error: Error) -> Self {
        error.ret()
    }
}

impl From<DatReturn> for Error {
    fn from(ret: DatReturn) -> Self {
        Self { ret, fault: None }
    }
}

impl From<Fault> for Error {
    fn from(fault: Fault) -> Self {
        let (ty, subtype) = match fault.kind {
            FaultKind::Resources => (DatType::InsufficientResources, DatSubtype::ResourceDevice),
            FaultKind::BadParameter => (DatType::InvalidParameter, DatSubtype::None),
            FaultKind::BadState => (DatType::InvalidState, DatSubtype::None),
            FaultKind::Unsupported => (DatType::ModelNotSupported, DatSubtype::None),
            FaultKind::Unreachable => (DatType::InvalidAddress, DatSubtype::AddressUnreachable),
            FaultKind::Timeout | FaultKind::Gone | FaultKind::Nonsense => {
                (DatType::InternalError, DatSubtype::None)
            }
        };
        Self { ret: DatReturn::new(ty, subtype), fault: Some(fault) }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.ret(), f)?;
        match self.fault() {
            Some(fault) => write!(f, ": {fault}"),
            None => Ok(()),
        }
    }
}

impl core::error::Error for Error {
    /// What the device said, which the text of the error ends with.
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        self.fault.as_ref().map(|fault| fault as _)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_carries_the_error_class_and_reads_back() {
        for &ty in DatType::ALL {
            for &subtype in DatSubtype::ALL {
                let word = DatReturn::new(ty, subtype);
                assert_eq!(word.raw() >> 30, 2);
                assert_eq!((word.ty(), word.subtype()), (ty, subtype));
            }
        }
    }

    #[test]
    fn numbers_are_those_of_the_header() {
        assert_eq!(DatSubtype::ALL.len(), 104);
        assert_eq!(DatReturn::QUEUE_EMPTY.raw(), 0x800d_0000);
        assert_eq!(DatReturn::of(DatType::NotImplemented).raw(), 0xbfff_0000);
        for (subtype, number) in [
            (DatSubtype::InvalidHandleEp, 12),
            (DatSubtype::InvalidHandleCsp, 26),
            (DatSubtype::InvalidHandle1, 27),
            (DatSubtype::InvalidArg10, 46),
            (DatSubtype::InvalidStateEpUnconnected, 47),
            (DatSubtype::InvalidStateEpNotReady, 57),
            (DatSubtype::InvalidStateEpUnconfTentative, 66),
            (DatSubtype::InvalidStateEvdUnwaitable, 73),
            (DatSubtype::InvalidStateEvdInUse, 74),
            (DatSubtype::InvalidStateEvdWaiter, 78),
            (DatSubtype::InvalidStateIaInUse, 80),
            (DatSubtype::InvalidStateSrqShutdown, 88),
            (DatSubtype::PrivilegesRead, 89),
            (DatSubtype::ProtectionRead, 93),
            (DatSubtype::AddressMalformed, 99),
            (DatSubtype::ThreadSafetyNotFound, 103),
        ] {
            assert_eq!(subtype.number(), number);
        }
    }
}
