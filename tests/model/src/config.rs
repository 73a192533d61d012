//! Configuration of a device.

use crate::cards::Card;
use crate::facts::Facts;
use crate::host::Nanos;
use crate::replay::Recording;
use std::sync::Arc;

/// Physical or virtual function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Personality {
    /// Owns the port: MAC and GUIDs from its own flash, port registers writable.
    Pf,
    /// A function handed out by somebody else's PF: no MAC, no GUID until set, PF-only commands
    /// refused.
    Vf,
}

/// Which set of capabilities it starts from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Profile {
    /// The capabilities that a ConnectX-4 with firmware 14.12.1220 reported.
    Big,
    /// The least that stock Linux brings up as an RDMA-capable network interface.
    Small,
}

/// What the port speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkLayer {
    /// Ethernet, with RoCE.
    Ethernet,
    /// InfiniBand: frames on the wire begin with an LRH and end with a VCRC.
    InfiniBand,
}

/// Everything that distinguishes one device from another. [`Config::default`] is a ConnectX-4 PF
/// that answers at once; change single fields with struct update.
#[derive(Clone, Debug)]
pub struct Config {
    /// Physical or virtual.
    pub personality: Personality,
    /// PCI device id; of a VF, its own.
    pub device_id: u16,
    /// Capability set.
    pub profile: Profile,
    /// Memory windows and UMR from a driver's own queues (the real profile's firmware had none).
    pub umr: bool,
    /// Capabilities that differ from the profile, by the PRM's name, of other blocks than the
    /// general one as `roce_cap.l3_type`: what the card could do and what it is set to at power-on.
    pub general_caps: Vec<(&'static str, u32)>,
    /// Source of every random choice.
    pub seed: u64,
    /// Do what real cards do: random latencies, completions out of order, events apart from
    /// status, slow page return.
    pub hardware_like: bool,
    /// Time from doorbell to completion of a command, when not `hardware_like`.
    pub command_latency: Nanos,
    /// Time after a reset during which `initializing` reads 1.
    pub init_time: Nanos,
    /// The permanent MAC of a PF.
    pub mac: [u8; 6],
    /// MSI-X vectors.
    pub vectors: u16,
    /// The MSI-X table in the BAR and the capability's enable bit rule which interrupts leave.
    /// Off when the host intercepts both, as VFIO does.
    pub msix_in_bar: bool,
    /// Pages asked for before SET_HCA_CAP.
    pub boot_pages: u32,
    /// Pages asked for before INIT_HCA, or what follows from the capabilities set.
    pub init_pages: Option<u32>,
    /// Answer to the query for regular pages; negative on ConnectX-7.
    pub regular_pages: i32,
    /// Link state after reset.
    pub link_up: bool,
    /// What the port speaks; `mlxconfig LINK_TYPE`.
    pub link: LinkLayer,
    /// Whether the port has its MAC and GUIDs from power-on. A virtual function has them once its
    /// owner has given it some.
    pub addressed: bool,
    /// The kind of card, if it is another than the profile's.
    pub card: Option<&'static Card>,
    /// What silicon may do either way.
    pub facts: Facts,
    /// What a recorded card said of itself: wins over the card and the profile.
    pub recording: Option<Arc<Recording>>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            personality: Personality::Pf,
            device_id: 0x1013,
            profile: Profile::Big,
            umr: true,
            general_caps: Vec::new(),
            seed: 1,
            hardware_like: false,
            command_latency: 0,
            init_time: 0,
            mac: [0x02, 0xc9, 0x03, 0x00, 0x00, 0x01],
            vectors: 32,
            msix_in_bar: false,
            boot_pages: 6,
            init_pages: None,
            regular_pages: 0,
            link_up: true,
            link: LinkLayer::Ethernet,
            addressed: true,
            card: None,
            facts: Facts::default(),
            recording: None,
        }
    }
}

impl Config {
    /// The same card as a virtual function.
    pub fn vf() -> Self {
        Self {
            personality: Personality::Vf,
            device_id: 0x1014,
            addressed: false,
            ..Self::default()
        }
    }

    /// The same card with an InfiniBand port.
    pub fn infiniband() -> Self {
        Self { link: LinkLayer::InfiniBand, ..Self::default() }
    }

    /// The small profile, with the few pages such a card would need.
    pub fn small() -> Self {
        Self { profile: Profile::Small, ..Self::default() }
    }
}
