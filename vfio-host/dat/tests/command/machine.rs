//! Machines as folders: trees of `/sys`, `/proc` and `/dev` that the real command runs against.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::golden;

static MACHINES: AtomicU32 = AtomicU32::new(0);

/// A machine in a folder, removed on drop.
pub(crate) struct Machine {
    root: PathBuf,
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.root);
    }
}

/// The result of a run of the command.
pub(crate) struct Run {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Run {
    pub(crate) fn of(output: Output) -> Self {
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        let run = Self {
            code: output.status.code().expect("the command ended by itself"),
            out: text(output.stdout),
            err: text(output.stderr),
        };
        for said in [&run.out, &run.err] {
            assert!(!said.contains("panicked") && !said.contains("RUST_BACKTRACE"), "{said}");
        }
        golden::seen(&run.out, &run.err);
        run
    }

    /// Standard output as JSON.
    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.out).unwrap_or_else(|e| panic!("{e}: {}", self.out))
    }
}

impl Machine {
    /// A machine with nothing in it: no HCA, no IOMMU, an ordinary user with 8 MiB of locked
    /// memory.
    pub(crate) fn bare() -> Self {
        let number = MACHINES.fetch_add(1, Ordering::Relaxed);
        let name = format!("machine-{}-{number}", std::process::id());
        let root = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        fs::create_dir_all(&root).unwrap();
        let machine = Self { root };
        fs::create_dir_all(machine.at("/sys/bus/pci/devices")).unwrap();
        machine.file("/sys/bus/pci/drivers_probe", "");
        machine.file("/proc/cmdline", "root=/dev/sda1 ro");
        machine.file("/proc/cpuinfo", "vendor_id\t: GenuineIntel\nflags\t\t: fpu vme\n");
        machine.user("0000000000000000");
        machine.memlock("8388608", "8388608");
        machine
    }

    /// A machine with VT-d, VFIO and huge pages, whose user may lock any amount of memory.
    pub(crate) fn ready() -> Self {
        let machine = Self::bare();
        machine.folder("/sys/class/iommu/dmar0");
        machine.folder("/sys/class/iommu/dmar1");
        machine.folder("/sys/bus/pci/drivers/vfio-pci");
        machine.folder("/sys/bus/pci/drivers/mlx5_core");
        machine.file("/sys/module/vfio_iommu_type1/parameters/dma_entry_limit", "65535");
        machine.public("/dev/vfio/vfio");
        let pages = "/sys/kernel/mm/hugepages/hugepages-2048kB";
        machine.file(&format!("{pages}/nr_hugepages"), "1024");
        machine.file(&format!("{pages}/free_hugepages"), "1000");
        machine.memlock("unlimited", "unlimited");
        machine
    }

    pub(crate) fn at(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }

    pub(crate) fn folder(&self, path: &str) {
        fs::create_dir_all(self.at(path)).unwrap();
    }

    pub(crate) fn file(&self, path: &str, text: &str) {
        let path = self.at(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, format!("{text}\n")).unwrap();
    }

    /// A device file that only its owner may open.
    pub(crate) fn private(&self, path: &str) {
        self.file(path, "");
        fs::set_permissions(self.at(path), fs::Permissions::from_mode(0o600)).unwrap();
    }

    /// A device file that everybody may open.
    pub(crate) fn public(&self, path: &str) {
        self.file(path, "");
        fs::set_permissions(self.at(path), fs::Permissions::from_mode(0o666)).unwrap();
    }

    pub(crate) fn text(&self, path: &str) -> String {
        fs::read_to_string(self.at(path)).unwrap()
    }

    pub(crate) fn link(&self, path: &str, to: &str) {
        let path = self.at(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let _ = fs::remove_file(&path);
        symlink(to, path).unwrap();
    }

    pub(crate) fn memlock(&self, soft: &str, hard: &str) {
        self.file(
            "/proc/self/limits",
            &format!(
                "Limit                     Soft Limit           Hard Limit           Units     \n\
                 Max processes             127                  127                  processes \n\
                 Max locked memory         {soft:<20} {hard:<20} bytes     "
            ),
        );
    }

    /// Sets the user of the process to the one that runs the test, with these capabilities.
    pub(crate) fn user(&self, capabilities: &str) {
        let meta = fs::metadata(&self.root).unwrap();
        let (uid, gid) = (meta.uid(), meta.gid());
        self.status(uid, gid, capabilities);
    }

    pub(crate) fn status(&self, uid: u32, gid: u32, capabilities: &str) {
        self.file(
            "/proc/self/status",
            &format!(
                "Name:\tdat\nUid:\t{uid}\t{uid}\t{uid}\t{uid}\nGid:\t{gid}\t{gid}\t{gid}\t{gid}\n\
                 Groups:\t{gid} \nCapEff:\t{capabilities}"
            ),
        );
    }

    /// A device in a group, with a driver or none.
    pub(crate) fn device(
        &self,
        address: &str,
        ids: (u16, u16),
        class: u32,
        group: u32,
        driver: Option<&str>,
    ) {
        let folder = format!("/sys/bus/pci/devices/{address}");
        let file = |name: &str, text: &str| self.file(&format!("{folder}/{name}"), text);
        file("vendor", &format!("{:#06x}", ids.0));
        file("device", &format!("{:#06x}", ids.1));
        file("class", &format!("{class:#08x}"));
        file("driver_override", "(null)");
        if let Some(driver) = driver {
            self.driver(address, driver);
        }
        self.link(
            &format!("{folder}/iommu_group"),
            &format!("../../../kernel/iommu_groups/{group}"),
        );
        self.folder(&format!("/sys/kernel/iommu_groups/{group}/devices/{address}"));
    }

    /// A ConnectX-5 Ex on a good link.
    pub(crate) fn hca(&self, address: &str, group: u32, driver: Option<&str>) {
        self.device(address, (0x15b3, 0x1019), 0x02_0000, group, driver);
        let folder = format!("/sys/bus/pci/devices/{address}");
        for (name, text) in [
            ("current_link_speed", "16.0 GT/s PCIe"),
            ("current_link_width", "16"),
            ("max_link_speed", "16.0 GT/s PCIe"),
            ("max_link_width", "16"),
            ("numa_node", "1"),
        ] {
            self.file(&format!("{folder}/{name}"), text);
        }
        if driver == Some("vfio-pci") {
            self.private(&format!("/dev/vfio/{group}"));
        }
    }

    /// A network interface of a device, with its verbs device.
    pub(crate) fn netdev(&self, address: &str, name: &str) {
        let folder = format!("/sys/bus/pci/devices/{address}");
        self.folder(&format!("{folder}/net/{name}"));
        self.folder(&format!("/sys/class/net/{name}"));
        self.file(&format!("{folder}/infiniband/mlx5_0/fw_ver"), "16.35.4030");
        self.file(&format!("{folder}/infiniband/mlx5_0/board_id"), "MT_0000000012");
    }

    pub(crate) fn driver(&self, address: &str, driver: &str) {
        let folder = format!("/sys/bus/pci/devices/{address}");
        // A folder of its own, as sysfs shows it through the link; the kernel's file for it is in
        // there.
        self.file(&format!("/sys/bus/pci/drivers/{driver}/unbind"), "");
        self.link(&format!("{folder}/driver"), &format!("../../drivers/{driver}"));
    }

    /// The command over this machine, to be given arguments.
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_dat"));
        command.args(args).arg("--root").arg(&self.root);
        command
    }

    pub(crate) fn run(&self, args: &[&str]) -> Run {
        Run::of(self.command(args).output().unwrap())
    }
}
