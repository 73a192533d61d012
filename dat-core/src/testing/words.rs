//! The words of the loop provider's failures.

use crate::types::fault::Fault;
use crate::types::fault::Object;
use crate::types::fault::Part;
use crate::types::fault::Vocabulary;

pub(super) const QP: Object = Object(1);
pub(super) const CQ: Object = Object(2);
pub(super) const PD: Object = Object(3);
pub(super) const MKEY: Object = Object(4);
pub(super) const PORT: Object = Object(5);
pub(super) const SHARED: Object = Object(6);

const OBJECTS: [&str; 7] = ["", "QP", "CQ", "PD", "MKEY", "port", "SRQ"];
const OPERATIONS: [&str; 19] = [
    "",
    "set_net",
    "pd_create",
    "pd_destroy",
    "mr_create",
    "mr_destroy",
    "mw_create",
    "mw_destroy",
    "cq_create",
    "cq_resize",
    "cq_destroy",
    "qp_create",
    "qp_modify",
    "qp_destroy",
    "close",
    "counters",
    "shared_create",
    "shared_arm",
    "shared_destroy",
];

/// The number by which a fault carries the name of a call.
pub(super) fn command(operation: &str) -> u16 {
    let place = OPERATIONS.iter().position(|name| *name == operation);
    place.and_then(|n| u16::try_from(n).ok()).unwrap_or(0)
}

pub(super) static READ: Vocabulary = Vocabulary::new(read);

fn read(fault: &Fault, part: Part) -> &'static str {
    let name = match part {
        Part::Operation => OPERATIONS.get(usize::from(fault.command())),
        Part::Object => OBJECTS.get(usize::from(fault.object_kind().0)),
        Part::Cause | Part::Advice => None,
    };
    name.copied().unwrap_or_default()
}
