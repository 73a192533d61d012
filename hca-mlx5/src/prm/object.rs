//! Kinds of objects that faults name.

pub(crate) const QP: &str = "QP";
pub(crate) const SQ: &str = "SQ";
pub(crate) const RQ: &str = "RQ";
pub(crate) const CQ: &str = "CQ";
pub(crate) const EQ: &str = "EQ";
pub(crate) const MKEY: &str = "MKEY";
pub(crate) const PD: &str = "PD";
pub(crate) const UAR: &str = "UAR";
pub(crate) const TIR: &str = "TIR";
pub(crate) const TIS: &str = "TIS";
pub(crate) const FLOW_TABLE: &str = "flow table";
pub(crate) const FLOW_GROUP: &str = "flow group";
pub(crate) const FLOW_ENTRY: &str = "flow entry";
pub(crate) const TRANSPORT_DOMAIN: &str = "transport domain";
pub(crate) const PRIORITY: &str = "priority";
pub(crate) const PORT: &str = "port";
pub(crate) const VPORT: &str = "vport";
pub(crate) const CAPABILITY: &str = "capability";
pub(crate) const ROCE_ADDRESS: &str = "RoCE address";
pub(crate) const PAGES: &str = "pages";
pub(crate) const GEOMETRY_WORD: &str = "geometry word";
pub(crate) const REVISION: &str = "revision";
pub(crate) const MEMORY_KEYS: &str = "memory keys";
pub(crate) const PROTECTION_DOMAINS: &str = "protection domains";
pub(crate) const COMPLETION_QUEUES: &str = "completion queues";
pub(crate) const QUEUE_PAIRS: &str = "queue pairs";
pub(crate) const L2_ENTRY: &str = "L2 entry";
pub(crate) const REGISTER: &str = "register";
pub(crate) const COUNTERS: &str = "counter set";
pub(crate) const SRQ: &str = "SRQ";
pub(crate) const SHARED_QUEUES: &str = "shared receive queues";

/// No object in particular, or one that is yet to be made.
pub(crate) const NONE: &str = "";
