//! Nodes one by one, and a small fabric with a small subnet manager.

mod agent;
mod fabric;
mod links;
mod route;
mod sweep;

use super::smp::{Smp, method};
use super::{Identity, Node};
use crate::ifc::subnet::smp as layout;

fn identity(node_guid: u64, description: &str) -> Identity {
    Identity {
        node_guid,
        system_guid: node_guid + 0x100,
        description: description.to_owned(),
        vendor_id: 0x02_c903,
        device_id: 4115,
    }
}

fn adapter(guid: u64) -> Node {
    Node::channel_adapter(identity(guid, "adapter"), 1)
}

fn get(attribute: u16, modifier: u32) -> Smp {
    Smp::request(method::GET, attribute, modifier, 7)
}

/// A Set with the data of an answer.
fn set_to(answer: &Smp) -> Smp {
    let mut smp = Smp::request(method::SET, answer.attribute(), answer.modifier(), 8);
    smp.data_mut().copy_from_slice(answer.data());
    layout::m_key.set64(&mut smp.0, answer.m_key());
    smp
}
