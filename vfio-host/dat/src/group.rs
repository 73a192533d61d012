//! IOMMU groups: the smallest set of devices that the IOMMU can tell apart, and so all or nothing.
//!
//! Which member stands in the way is the library's to say: it refuses to open a device for the same
//! reason.

use serde::Serialize;
use vfio_host::sysfs::Function;

use super::hca::folder;
use super::tree::Tree;

/// Base class of bridges.
const BRIDGE: u64 = 0x06;

/// One device of a group.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Member {
    /// Its PCI address.
    pub(crate) address: String,
    /// The driver bound to it.
    pub(crate) driver: Option<String>,
    /// It keeps the group from being used.
    pub(crate) blocks: bool,
    /// What it is, by vendor and device.
    pub(crate) kind: String,
}

impl Member {
    fn new(tree: &Tree, function: Function, blocks: bool) -> Self {
        let folder = folder(&function.address);
        let word = |name: &str| tree.number(&format!("{folder}/{name}")).unwrap_or(0);
        let kind = if word("class") >> 16 == BRIDGE {
            "bridge".into()
        } else {
            format!("{:04x}:{:04x}", word("vendor"), word("device"))
        };
        Self { address: function.address.to_string(), driver: function.driver, blocks, kind }
    }

    /// For a person.
    pub(crate) fn words(&self) -> String {
        let driver = match &self.driver {
            Some(driver) => format!("driver {driver}"),
            None => "no driver".into(),
        };
        let blocks = if self.blocks { ", in the way" } else { "" };
        format!("{} ({}, {driver}{blocks})", self.address, self.kind)
    }
}

/// The devices of a group.
pub(crate) fn members(tree: &Tree, group: u32) -> Vec<Member> {
    let kernel = tree.kernel();
    let blocking = kernel.in_the_way(group);
    kernel
        .members(group)
        .into_iter()
        .map(|function| {
            let blocks = blocking.contains(&function);
            Member::new(tree, function, blocks)
        })
        .collect()
}

/// The command that makes a group of these members usable, if one stands in the way.
pub(crate) fn mend(members: &[Member]) -> Option<String> {
    let blocking: Vec<&str> = members
        .iter()
        .filter(|member| member.blocks)
        .map(|member| member.address.as_str())
        .collect();
    if blocking.is_empty() {
        return None;
    }
    Some(format!("sudo dat bind {}", blocking.join(" ")))
}
