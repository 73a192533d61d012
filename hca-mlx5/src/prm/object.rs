//! Kinds of objects that faults name.

use dat_core::provider::Object;

macro_rules! objects {
    ($($name:ident = $number:literal, $text:literal;)*) => {
        $(
            #[doc = concat!("`", $text, "`.")]
            pub(crate) const $name: Object = Object($number);
        )*

        /// Their names in the same order; number 0 is none.
        pub(super) const NAMES: &str = concat!("\0", $($text, "\0"),*);
        const _: () = {
            let mut count = 0;
            $(
                count += 1;
                assert!(count == $number, "the numbers are places");
            )*
        };
    };
}

objects! {
    QP = 1, "QP";
    SQ = 2, "SQ";
    RQ = 3, "RQ";
    CQ = 4, "CQ";
    EQ = 5, "EQ";
    MKEY = 6, "MKEY";
    PD = 7, "PD";
    UAR = 8, "UAR";
    TIR = 9, "TIR";
    TIS = 10, "TIS";
    FLOW_TABLE = 11, "flow table";
    FLOW_GROUP = 12, "flow group";
    FLOW_ENTRY = 13, "flow entry";
    TRANSPORT_DOMAIN = 14, "transport domain";
    PORT = 15, "port";
    VPORT = 16, "vport";
    CAPABILITY = 17, "capability";
    ROCE_ADDRESS = 18, "RoCE address";
    PAGES = 19, "pages";
    GEOMETRY_WORD = 20, "geometry word";
    REVISION = 21, "revision";
    MEMORY_KEYS = 22, "memory keys";
    PROTECTION_DOMAINS = 23, "protection domains";
    COMPLETION_QUEUES = 24, "completion queues";
    QUEUE_PAIRS = 25, "queue pairs";
    L2_ENTRY = 26, "L2 entry";
    REGISTER = 27, "register";
    COUNTERS = 28, "counter set";
    SRQ = 29, "SRQ";
    SHARED_QUEUES = 30, "shared receive queues";
}

/// No object in particular.
pub(crate) const NONE: Object = Object::NONE;
/// One that is yet to be made: it has neither number nor name.
pub(crate) const NEW: Object = Object(u8::MAX);
