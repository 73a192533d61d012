//! The HCAs of a machine, as sysfs shows them without opening them.

use std::ops::RangeInclusive;

use serde::Serialize;
use vfio_host::PciAddress;
use vfio_host::sysfs::VFIO_PCI;

use super::failure::Failure;
use super::tree::Tree;

/// NVIDIA, formerly Mellanox.
const VENDOR: u64 = 0x15b3;
/// Base class of network controllers, in the class word of 24 bits.
const NETWORK: u64 = 0x02;

/// The PCI device IDs that the driver knows, with the names the vendor sells them under.
const NAMES: &[(u64, &str)] = &[
    (0x1013, "ConnectX-4"),
    (0x1014, "ConnectX-4 VF"),
    (0x1015, "ConnectX-4 Lx"),
    (0x1016, "ConnectX-4 Lx VF"),
    (0x1017, "ConnectX-5"),
    (0x1018, "ConnectX-5 VF"),
    (0x1019, "ConnectX-5 Ex"),
    (0x101a, "ConnectX-5 Ex VF"),
    (0x101b, "ConnectX-6"),
    (0x101c, "ConnectX-6 VF"),
    (0x101d, "ConnectX-6 Dx"),
    (0x101e, "ConnectX VF"),
    (0x101f, "ConnectX-6 Lx"),
    (0x1021, "ConnectX-7"),
    (0x1023, "ConnectX-8"),
    (0x1025, "ConnectX-9"),
    (0xa2d2, "BlueField"),
    (0xa2d3, "BlueField VF"),
    (0xa2d6, "BlueField-2"),
    (0xa2dc, "BlueField-3"),
    (0xa2df, "BlueField-4"),
];
/// Where the IDs of devices are that are not among them, but newer than ConnectX-4 or BlueField.
const NEWER: [RangeInclusive<u64>; 2] = [0x1013..=0x1fff, 0xa2d2..=0xa2ff];
/// The name of such a one.
pub(crate) const UNKNOWN: &str = "unknown mlx5 device";

/// Returns the name of a device ID.
pub(crate) fn name(id: u64) -> &'static str {
    NAMES.iter().find(|(known, _)| *known == id).map_or(UNKNOWN, |(_, name)| *name)
}

/// The PCI link of a device.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Link {
    /// The kernel's text, such as `8.0 GT/s PCIe`.
    pub(crate) speed: Option<String>,
    /// Lanes.
    pub(crate) width: Option<u64>,
    /// The highest speed of the device.
    pub(crate) max_speed: Option<String>,
    /// Lanes of the device.
    pub(crate) max_width: Option<u64>,
}

impl Link {
    /// Returns it as text: `8.0 GT/s x16`.
    pub(crate) fn words(&self) -> Option<String> {
        words(self.speed.as_deref()?, self.width?)
    }

    /// Returns the best link of the device, if the present one is worse.
    pub(crate) fn missed(&self) -> Option<String> {
        let rate = |speed: &Option<String>| -> Option<f64> {
            speed.as_ref()?.split_whitespace().next()?.parse().ok()
        };
        let slower = rate(&self.speed)? < rate(&self.max_speed)?;
        let narrower = self.width? < self.max_width?;
        if slower || narrower { words(self.max_speed.as_deref()?, self.max_width?) } else { None }
    }
}

fn words(speed: &str, width: u64) -> Option<String> {
    // An emulated or sleeping link has "Unknown".
    if !speed.starts_with(|first: char| first.is_ascii_digit()) || width == 0 {
        return None;
    }
    Some(format!("{} x{width}", speed.trim_end_matches(" PCIe")))
}

/// One HCA.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Hca {
    /// Its PCI address.
    #[serde(serialize_with = "text")]
    pub(crate) address: PciAddress,
    /// PCI device ID.
    pub(crate) device_id: u64,
    /// Product name.
    pub(crate) name: &'static str,
    /// Whether this driver supports it.
    pub(crate) supported: bool,
    /// The kernel driver bound to it.
    pub(crate) driver: Option<String>,
    /// Its IOMMU group.
    pub(crate) iommu_group: Option<u32>,
    /// Its PCI link.
    pub(crate) link: Link,
    /// Its NUMA node.
    pub(crate) numa_node: Option<u64>,
    /// Its firmware version, if the kernel driver shows it.
    pub(crate) firmware: Option<String>,
    /// Its board ID, if the kernel driver shows it.
    pub(crate) board: Option<String>,
    /// Network interfaces of its kernel driver.
    pub(crate) netdevs: Vec<String>,
    /// The physical function of a virtual function.
    pub(crate) physical_function: Option<String>,
    /// Number of enabled virtual functions.
    pub(crate) virtual_functions: u64,
}

fn text<S: serde::Serializer>(value: &PciAddress, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(value)
}

/// Returns the sysfs folder of a PCI device.
pub(crate) fn folder(address: &PciAddress) -> String {
    format!("/sys/bus/pci/devices/{address}")
}

impl Hca {
    fn read(tree: &Tree, address: PciAddress) -> Option<Self> {
        let folder = folder(&address);
        let at = |name: &str| format!("{folder}/{name}");
        let vendor = tree.number(&at("vendor"))?;
        let class = tree.number(&at("class"))?;
        if vendor != VENDOR || class >> 16 != NETWORK {
            return None;
        }
        let device_id = tree.number(&at("device"))?;
        let known = NAMES.iter().find(|(id, _)| *id == device_id).map(|(_, name)| *name);
        let newer = NEWER.iter().any(|ids| ids.contains(&device_id)).then_some(UNKNOWN);
        let name = known.or(newer);
        let speed = |name: &str| tree.text(&at(name));
        let width = |name: &str| tree.number(&at(name));
        let verbs = tree.names(&at("infiniband")).into_iter().next();
        let verb = |name: &str| tree.text(&at(&format!("infiniband/{}/{name}", verbs.as_ref()?)));
        Some(Self {
            address,
            device_id,
            name: name.unwrap_or("not an mlx5 device"),
            supported: name.is_some(),
            driver: tree.link(&at("driver")),
            iommu_group: tree.link(&at("iommu_group")).and_then(|name| name.parse().ok()),
            link: Link {
                speed: speed("current_link_speed"),
                width: width("current_link_width"),
                max_speed: speed("max_link_speed"),
                max_width: width("max_link_width"),
            },
            // -1 where the machine has no nodes.
            numa_node: tree.number(&at("numa_node")),
            firmware: verb("fw_ver"),
            board: verb("board_id"),
            netdevs: tree.names(&at("net")),
            physical_function: tree.link(&at("physfn")),
            virtual_functions: tree.number(&at("sriov_numvfs")).unwrap_or(0),
        })
    }

    /// Returns whether it is bound to vfio-pci.
    pub(crate) fn on_vfio(&self) -> bool {
        self.driver.as_deref() == Some(VFIO_PCI)
    }
}

/// Returns all HCAs of the machine, ordered by address.
pub(crate) fn all(tree: &Tree) -> Vec<Hca> {
    let names = tree.names("/sys/bus/pci/devices");
    let addresses = names.iter().filter_map(|name| name.parse().ok());
    addresses.filter_map(|address| Hca::read(tree, address)).collect()
}

/// Returns the HCA at an address.
pub(crate) fn one(tree: &Tree, address: PciAddress) -> Result<Hca, Failure> {
    let folder = folder(&address);
    if !tree.exists(&folder) {
        return Err(Failure::new(format!("{address}: there is no such PCI device"))
            .remedy("dat list shows what there is"));
    }
    let hca = Hca::read(tree, address).ok_or_else(|| {
        let word = |name: &str| {
            let text = tree.text(&format!("{folder}/{name}"));
            text.map_or("?".into(), |text| text.trim_start_matches("0x").to_owned())
        };
        Failure::new(format!(
            "{address}: this is no NVIDIA/Mellanox network controller, but {}:{} of class {}",
            word("vendor"),
            word("device"),
            word("class")
        ))
        .remedy("dat list shows the HCAs of this machine")
    })?;
    if hca.supported {
        return Ok(hca);
    }
    Err(Failure::new(format!("{address}: 15b3:{:04x} is no mlx5 device", hca.device_id))
        .remedy("ConnectX-4 and later and BlueField are"))
}
