//! Why a connection was rejected: the reason codes of the REJ message.

use core::fmt;

/// The reason in a REJ. Any code a peer sends is kept, known or not.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Reason(pub u16);

macro_rules! reasons {
    ($($name:ident = $code:literal, $text:literal;)*) => {
        impl Reason {
            $(#[doc = concat!("Code ", stringify!($code), ": ", $text, ".")]
            pub const $name: Self = Self($code);)*

            /// The reason in words; `None` for a code that has no meaning here.
            #[must_use]
            pub const fn text(self) -> Option<&'static str> {
                match self.0 {
                    $($code => Some($text),)*
                    _ => None,
                }
            }

            /// All reasons that have a meaning.
            pub const ALL: &'static [Self] = &[$(Self($code)),*];
        }
    };
}

reasons! {
    NO_QP = 1, "no queue pair available";
    NO_EEC = 2, "no end-to-end context available";
    NO_RESOURCES = 3, "no resources available";
    TIMEOUT = 4, "the peer gave up waiting";
    UNSUPPORTED = 5, "unsupported request";
    INVALID_COMM_ID = 6, "invalid communication ID";
    INVALID_COMM_INSTANCE = 7, "invalid communication instance";
    INVALID_SERVICE_ID = 8, "nobody listens on that service";
    INVALID_TRANSPORT = 9, "invalid transport service type";
    STALE = 10, "stale connection";
    RDC_DOES_NOT_EXIST = 11, "RDC does not exist";
    INVALID_GID = 12, "primary remote GID rejected";
    INVALID_LID = 13, "primary remote LID rejected";
    INVALID_SL = 14, "invalid primary service level";
    INVALID_TRAFFIC_CLASS = 15, "invalid primary traffic class";
    INVALID_HOP_LIMIT = 16, "invalid primary hop limit";
    INVALID_PACKET_RATE = 17, "invalid primary packet rate";
    INVALID_ALT_GID = 18, "alternate remote GID rejected";
    INVALID_ALT_LID = 19, "alternate remote LID rejected";
    INVALID_ALT_SL = 20, "invalid alternate service level";
    INVALID_ALT_TRAFFIC_CLASS = 21, "invalid alternate traffic class";
    INVALID_ALT_HOP_LIMIT = 22, "invalid alternate hop limit";
    INVALID_ALT_PACKET_RATE = 23, "invalid alternate packet rate";
    PORT_AND_CM_REDIRECT = 24, "port and CM redirected";
    PORT_REDIRECT = 25, "port redirected";
    INVALID_MTU = 26, "path MTU rejected";
    INSUFFICIENT_RESPONDER_RESOURCES = 27, "insufficient responder resources";
    CONSUMER = 28, "rejected by the peer's consumer";
    INVALID_RNR_RETRY = 29, "RNR retry count rejected";
    DUPLICATE_COMM_ID = 30, "duplicate local communication ID";
    INVALID_CLASS_VERSION = 31, "invalid class version";
    INVALID_FLOW_LABEL = 32, "invalid primary flow label";
    INVALID_ALT_FLOW_LABEL = 33, "invalid alternate flow label";
    VENDOR_OPTION = 35, "vendor option not supported";
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (CM reason {})", self.text().unwrap_or("unknown"), self.0)
    }
}

impl fmt::Debug for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Reason({}, {})", self.0, self.text().unwrap_or("unknown"))
    }
}
