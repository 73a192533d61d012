//! The HCAs of a machine, as its kernel shows them without anybody opening them.

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
    (0xa2d2, "BlueField"),
    (0xa2d3, "BlueField VF"),
    (0xa2d6, "BlueField-2"),
    (0xa2dc, "BlueField-3"),
];

/// The PCI link of a device.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Link {
    /// As the kernel words it, such as `8.0 GT/s PCIe`.
    pub(crate) speed: Option<String>,
    /// Lanes.
    pub(crate) width: Option<u64>,
    /// The best that the device can do.
    pub(crate) max_speed: Option<String>,
    /// Its lanes.
    pub(crate) max_width: Option<u64>,
}

impl Link {
    /// For a person: `8.0 GT/s x16`.
    pub(crate) fn words(&self) -> Option<String> {
        words(self.speed.as_deref()?, self.width?)
    }

    /// What it could be, if that is more than it is.
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
    // "Unknown" is what an emulated or a sleeping link has.
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
    /// What it is sold as.
    pub(crate) name: &'static str,
    /// This driver knows it.
    pub(crate) supported: bool,
    /// The kernel driver bound to it.
    pub(crate) driver: Option<String>,
    /// Its IOMMU group.
    pub(crate) iommu_group: Option<u32>,
    /// Its PCI link.
    pub(crate) link: Link,
    /// Its NUMA node.
    pub(crate) numa_node: Option<u64>,
    /// Its firmware, where the kernel driver says it.
    pub(crate) firmware: Option<String>,
    /// Its board, where the kernel driver says it.
    pub(crate) board: Option<String>,
    /// Network interfaces of its kernel driver.
    pub(crate) netdevs: Vec<String>,
    /// Of a virtual function, its physical one.
    pub(crate) physical_function: Option<String>,
    /// Virtual functions switched on.
    pub(crate) virtual_functions: u64,
}

fn text<S: serde::Serializer>(value: &PciAddress, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(value)
}

/// Folder of a PCI device.
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
        let known = NAMES.iter().find(|(id, _)| *id == device_id);
        let speed = |name: &str| tree.text(&at(name));
        let width = |name: &str| tree.number(&at(name));
        let verbs = tree.names(&at("infiniband")).into_iter().next();
        let verb = |name: &str| tree.text(&at(&format!("infiniband/{}/{name}", verbs.as_ref()?)));
        Some(Self {
            address,
            device_id,
            name: known.map_or("not an mlx5 device", |(_, name)| name),
            supported: known.is_some(),
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

    /// It is bound to vfio-pci.
    pub(crate) fn on_vfio(&self) -> bool {
        self.driver.as_deref() == Some(VFIO_PCI)
    }
}

/// All HCAs of the machine, by address.
pub(crate) fn all(tree: &Tree) -> Vec<Hca> {
    let names = tree.names("/sys/bus/pci/devices");
    let addresses = names.iter().filter_map(|name| name.parse().ok());
    addresses.filter_map(|address| Hca::read(tree, address)).collect()
}

/// The HCA at an address.
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
