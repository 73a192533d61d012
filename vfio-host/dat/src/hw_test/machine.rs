//! Step 1: the machine, and the function as its bus shows it.

use super::super::args::HwTest;
use super::super::failure::Failure;
use super::super::hca::folder;
use super::super::tree::Tree;
use super::report::{Report, skip};
use serde_json::json;
use vfio_host::pci::ConfigSpace;
use vfio_host::{Address, Host};

/// Lines of the kernel log that are kept.
const TAIL: usize = 200;
/// What a line of the kernel log must have to be kept.
const ABOUT: &[&str] =
    &["mlx5", "vfio", "AER", "DMAR", "IOMMU", "iommu", "AMD-Vi", "arm-smmu", "pcieport"];
/// The PCI Express capability, and the extended ones that are looked at.
const EXPRESS: u8 = 0x10;
const AER: u16 = 0x01;
const SERIAL: u16 = 0x03;
const ATS: u16 = 0x0f;
/// Bytes of what each has that is looked at.
const SERIAL_LEN: usize = 8;

/// The bytes of configuration space.
struct Config<'b>(&'b [u8]);

impl Config<'_> {
    fn u8(&self, at: usize) -> usize {
        self.0.get(at).map_or(0, |byte| usize::from(*byte))
    }

    fn u16(&self, at: usize) -> usize {
        self.u8(at) | self.u8(at + 1) << 8
    }

    /// Returns where a capability of the list is.
    fn capability(&self, id: u8) -> Option<usize> {
        let mut at = self.u8(0x34) & 0xfc;
        // A list is not longer than the space for it, whatever it says.
        for _ in 0..48 {
            if at < 0x40 {
                return None;
            }
            if self.u8(at) == usize::from(id) {
                return Some(at);
            }
            at = self.u8(at + 1) & 0xfc;
        }
        None
    }

    /// Returns where an extended capability is.
    fn extended(&self, id: u16) -> Option<usize> {
        let mut at = 0x100;
        for _ in 0..960 {
            if at < 0x100 {
                return None;
            }
            if self.u16(at) == usize::from(id) {
                return Some(at);
            }
            at = self.u16(at + 2) >> 4 & 0xffc;
        }
        None
    }
}

/// Writes configuration space and what stands in it in words. The serial number of the capability
/// for one is replaced.
pub(super) fn config_space(report: &Report, when: &str, space: &ConfigSpace) {
    let mut bytes = space.bytes().to_vec();
    let config = Config(&bytes);
    let mut said = Vec::new();
    if let Some(at) = config.capability(EXPRESS) {
        let (can, control) = (config.u8(at + 4) & 7, config.u16(at + 8));
        said.push(("MPS supported", (128 << can).to_string()));
        said.push(("MPS", (128 << (control >> 5 & 7)).to_string()));
        said.push(("MRRS", (128 << (control >> 12 & 7)).to_string()));
        said.push(("relaxed ordering", (control >> 4 & 1).to_string()));
        let link = config.u16(at + 0x12);
        said.push(("link speed", (link & 15).to_string()));
        said.push(("link width", (link >> 4 & 63).to_string()));
    }
    if let Some(at) = config.extended(ATS) {
        said.push(("ATS enabled", (config.u16(at + 6) >> 15).to_string()));
    }
    if let Some(at) = config.extended(AER) {
        let word = |at| config.u16(at) | config.u16(at + 2) << 16;
        said.push(("AER uncorrectable", format!("{:08x}", word(at + 4))));
        said.push(("AER correctable", format!("{:08x}", word(at + 16))));
    }
    let serial = config.extended(SERIAL).map(|at| at + 4);
    if let Some(number) = serial.and_then(|at| bytes.get_mut(at..at + SERIAL_LEN)) {
        report.names(|names| {
            if names.hides() {
                number.copy_from_slice(&[1, 0, 0, 0, 0, 0, 0, 2]);
            }
        });
    }
    report.bytes("config", bytes, json!({ "when": when }));
    for (name, value) in said {
        report.machine(&format!("{when}: {name}"), &value);
    }
}

/// Describes the machine.
pub(super) fn run<H: Host>(
    args: &HwTest,
    tree: &Tree,
    report: &Report,
    host: &H,
) -> Result<(), Failure> {
    report.check(1, "machine", || {
        let field = |name: &str| {
            let text = tree.text("/proc/cpuinfo")?;
            let line = text.lines().find(|line| line.starts_with(name))?;
            Some(line.split_once(':')?.1.trim().to_owned())
        };
        report
            .machine("CPU", &field("model name").or_else(|| field("CPU part")).unwrap_or_default());
        report.machine("architecture", std::env::consts::ARCH);
        let text = |path: &str| tree.text(path).unwrap_or_default();
        report.machine("kernel", &text("/proc/sys/kernel/osrelease"));
        let page = text("/proc/self/smaps");
        let page = page.lines().find_map(|line| line.strip_prefix("KernelPageSize:"));
        report.machine("page size", page.unwrap_or("").trim());
        report.machine("IOMMU", &tree.names("/sys/class/iommu").join(", "));
        if let Some(Address::Pci(address)) = args.device {
            let group = tree.link(&format!("{}/iommu_group", folder(&address)));
            let ranges = group.and_then(|group| {
                tree.text(&format!("/sys/kernel/iommu_groups/{group}/reserved_regions"))
            });
            report.machine("reserved ranges of the IOMMU", &ranges.unwrap_or_default());
            report.machine("lockdown", &text("/sys/kernel/security/lockdown"));
        }
        let maps = host.maps();
        let last = maps.iter().map(|map| map.iova + map.len).max().unwrap_or(0);
        report.machine("mapped", &format!("{} ranges below {last:#x}", maps.len()));
        report.machine("interrupt vectors", &host.vectors().to_string());
        Ok(String::new())
    })?;
    report.check(1, "configuration-space", || {
        config_space(report, "before", &host.config_space()?);
        Ok(String::new())
    })?;
    report.check(1, "kernel-log", || kernel_log(args, tree, report))?;
    Ok(())
}

/// Keeps the end of the kernel log, as far as it is about this.
pub(super) fn kernel_log(args: &HwTest, tree: &Tree, report: &Report) -> super::report::Finding {
    let Some(Address::Pci(address)) = args.device else {
        return skip("a device behind a socket has no part in the kernel log");
    };
    let output = std::process::Command::new("dmesg").output();
    let log = match output {
        Ok(output) if output.status.success() => {
            String::from_utf8_lossy(&output.stdout).into_owned()
        }
        Ok(_) | Err(_) => match tree.text("/var/log/kern.log") {
            Some(log) => log,
            None => return skip("dmesg may not read the kernel log: run it as root"),
        },
    };
    let own = address.to_string();
    let about = |line: &&str| line.contains(&own) || ABOUT.iter().any(|word| line.contains(word));
    let mut lines: Vec<&str> = log.lines().filter(about).collect();
    let kept = lines.split_off(lines.len().saturating_sub(TAIL));
    for line in &kept {
        report.machine("kernel log", &super::names::blank_macs(line));
    }
    Ok(format!("{} lines", kept.len()))
}
