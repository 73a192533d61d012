//! What a guest is run with: a QEMU that speaks vfio-user, a kernel with its VFIO modules, a static
//! busybox.
//!
//! Each is the one that the user names, else the machine's own if it will do, else the one of the
//! unpacked tree.

use std::cell::OnceCell;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, anyhow, ensure};

use super::iommufd::Build;
use super::modules::{self, Module};
use super::stock::Stock;
use super::{packages, packages::Tree, vmlinux};

/// The device that the whole test hangs on.
const DEVICE: &str = "vfio-user-pci";
/// The modules of a guest with VFIO.
const MODULES: [&str; 2] = ["vfio_iommu_type1", "vfio_pci"];
/// What a kernel must have been built with to be a guest here.
const OPTIONS: [&str; 8] = [
    "PVH",
    "SERIAL_8250_CONSOLE",
    "BLK_DEV_INITRD",
    "DEVTMPFS",
    "INTEL_IOMMU",
    "IRQ_REMAP",
    "VFIO_PCI",
    "VFIO_IOMMU_TYPE1",
];

/// What guests are run with.
#[derive(Debug)]
pub(crate) struct Machine {
    qemu: Vec<OsString>,
    options: Vec<OsString>,
    modules_of_qemu: Option<PathBuf>,
    /// The kernel, an ELF file.
    pub(crate) kernel: PathBuf,
    /// The kernel's modules, unpacked, in the order of loading.
    pub(crate) modules: Vec<Module>,
    /// A static busybox.
    pub(crate) busybox: Vec<u8>,
    /// Stock Linux, where it was asked for.
    pub(crate) stock: Option<Stock>,
}

impl Machine {
    /// Finds everything, or fetches it into `folder`; and stock Linux of a version, if one is
    /// named. Guests of VFIO have the kernel of `build`, if there is one.
    pub(crate) fn find(folder: &Path, stock: Option<&str>, build: Option<&Build>) -> Result<Self> {
        fs::create_dir_all(folder)?;
        let finder = Finder { folder, tree: OnceCell::new() };
        let (qemu, of_tree) = finder.qemu()?;
        let mut options: Vec<OsString> = Vec::new();
        let mut modules_of_qemu = None;
        if of_tree {
            let root = finder.tree()?.root();
            for data in ["usr/share/qemu", "usr/share/seabios"] {
                options.extend(["-L".into(), root.join(data).into()]);
            }
            modules_of_qemu = Some(root.join("usr/lib/x86_64-linux-gnu/qemu"));
        }
        // So that no guest outlives a test that was killed.
        if probe(&qemu, &["-run-with", "help"]).contains("exit-with-parent") {
            options.extend(["-run-with".into(), "exit-with-parent=on".into()]);
        }
        let tool = |name: &str| finder.tool(name);
        let (image, kernel, modules) = if let Some(build) = build {
            let kernel = build.build()?;
            (kernel.clone(), kernel, Vec::new())
        } else {
            let (image, modules) = finder.kernel()?;
            let bytes = fs::read(&image).with_context(|| format!("{}", image.display()))?;
            let kernel = folder.join("vmlinux");
            let elf =
                vmlinux::extract(&bytes, tool).with_context(|| format!("{}", image.display()))?;
            fs::write(&kernel, elf)?;
            (image, kernel, modules::in_order(&modules, &MODULES, &tool)?)
        };
        println!("  QEMU    {}", shown(&qemu));
        println!("  kernel  {}", image.display());
        let stock = stock.map(|version| Stock::find(folder, version, &tool));
        Ok(Self {
            qemu,
            options,
            modules_of_qemu,
            kernel,
            modules,
            busybox: finder.busybox()?,
            stock: stock.transpose()?,
        })
    }

    /// A QEMU with what it always needs; the caller adds the guest.
    pub(crate) fn qemu(&self) -> Result<Command> {
        let mut command = command(&self.qemu)?;
        command.args(&self.options);
        if let Some(folder) = &self.modules_of_qemu {
            command.env("QEMU_MODULE_DIR", folder);
        }
        Ok(command)
    }
}

fn command(words: &[OsString]) -> Result<Command> {
    let (program, args) = words.split_first().context("an empty command")?;
    let mut command = Command::new(program);
    command.args(args);
    Ok(command)
}

/// The program of a command that may run under a loader.
fn shown(words: &[OsString]) -> String {
    let last = words.last().cloned().unwrap_or_default();
    last.to_string_lossy().into_owned()
}

/// What a program prints to both outputs.
fn probe(words: &[OsString], args: &[&str]) -> String {
    let out = command(words).map(|mut command| command.args(args).output());
    match out {
        Ok(Ok(out)) => {
            let mut text = String::from_utf8_lossy(&out.stdout).into_owned();
            text.push_str(&String::from_utf8_lossy(&out.stderr));
            text
        }
        _ => String::new(),
    }
}

/// A QEMU that has the device tells its options.
fn has_device(words: &[OsString]) -> bool {
    probe(words, &["-device", &format!("{DEVICE},help")]).contains(&format!("{DEVICE} options"))
}

/// Where a program stands in the search path.
fn in_path(name: &str) -> Option<PathBuf> {
    std::env::split_paths(&std::env::var_os("PATH")?)
        .map(|folder| folder.join(name))
        .find(|path| path.is_file())
}

struct Finder<'f> {
    folder: &'f Path,
    tree: OnceCell<Tree>,
}

impl Finder<'_> {
    fn tree(&self) -> Result<&Tree> {
        if self.tree.get().is_none() {
            // Only this thread is here.
            let _ = self.tree.set(packages::tree(self.folder, &packages::QEMU)?);
        }
        self.tree.get().context("no tree")
    }

    /// QEMU, and whether it is the tree's.
    fn qemu(&self) -> Result<(Vec<OsString>, bool)> {
        if let Some(named) = std::env::var_os("QEMU") {
            let words = vec![named];
            ensure!(
                has_device(&words),
                "$QEMU ({}) has no {DEVICE}: it takes QEMU 10.1 or newer",
                shown(&words)
            );
            return Ok((words, false));
        }
        if let Some(path) = in_path("qemu-system-x86_64") {
            let words = vec![path.into()];
            if has_device(&words) {
                return Ok((words, false));
            }
        }
        let words = self.tree()?.command("qemu-system-x86_64");
        ensure!(has_device(&words), "the unpacked QEMU has no {DEVICE}");
        Ok((words, true))
    }

    /// The kernel's image and the folder of its modules.
    fn kernel(&self) -> Result<(PathBuf, PathBuf)> {
        if let Some(named) = std::env::var_os("KERNEL") {
            let image = PathBuf::from(named);
            let modules = match std::env::var_os("KERNEL_MODULES") {
                Some(folder) => folder.into(),
                None => {
                    let bytes = fs::read(&image)
                        .with_context(|| format!("$KERNEL: {}", image.display()))?;
                    Path::new("/lib/modules").join(vmlinux::version(&bytes)?)
                }
            };
            ensure!(
                modules.is_dir(),
                "$KERNEL's modules are not in {}: name their folder in $KERNEL_MODULES",
                modules.display()
            );
            return Ok((image, modules));
        }
        if let Some(own) = fitting(Path::new("/boot"), Path::new("/lib/modules"), &OPTIONS)? {
            return Ok(own);
        }
        let root = self.tree()?.root();
        fitting(&root.join("boot"), &root.join("usr/lib/modules"), &OPTIONS)?
            .ok_or_else(|| anyhow!("the unpacked kernel cannot be a guest"))
    }

    /// A program for this run: the machine's, or the tree's.
    fn tool(&self, name: &str) -> Result<Command> {
        match in_path(name) {
            Some(path) => Ok(Command::new(path)),
            None => command(&self.tree()?.command(name)),
        }
    }

    fn busybox(&self) -> Result<Vec<u8>> {
        for path in ["/bin/busybox", "/usr/bin/busybox"] {
            if let Ok(bytes) = fs::read(path) {
                if is_static(&bytes) {
                    return Ok(bytes);
                }
            }
        }
        let path = self.tree()?.root().join("usr/bin/busybox");
        fs::read(&path).with_context(|| format!("{}", path.display()))
    }
}

/// A program without an interpreter runs where no library is.
fn is_static(elf: &[u8]) -> bool {
    let interpreter = b"/ld-linux";
    elf.starts_with(b"\x7fELF")
        && !elf
            .get(..4096)
            .is_some_and(|head| head.windows(interpreter.len()).any(|w| w == interpreter))
}

/// The newest kernel of a folder that has the options and can be a guest, with its modules.
pub(crate) fn fitting(
    boot: &Path,
    modules: &Path,
    options: &[&str],
) -> Result<Option<(PathBuf, PathBuf)>> {
    let Ok(entries) = fs::read_dir(boot) else {
        return Ok(None);
    };
    let mut found = Vec::new();
    for entry in entries {
        let name = entry?.file_name().to_string_lossy().into_owned();
        let Some(version) = name.strip_prefix("vmlinuz-") else {
            continue;
        };
        let Ok(config) = fs::read_to_string(boot.join(format!("config-{version}"))) else {
            continue;
        };
        let set = |option: &&str| {
            let start = format!("CONFIG_{option}=");
            config.lines().any(|line| line.starts_with(&start))
        };
        let image = boot.join(&name);
        // A kernel that only root may read is no kernel for a test that everybody may run.
        if options.iter().all(set)
            && modules.join(version).is_dir()
            && fs::File::open(&image).is_ok()
        {
            found.push((numbers(version), image, modules.join(version)));
        }
    }
    found.sort();
    Ok(found.pop().map(|(_, image, modules)| (image, modules)))
}

/// The numbers of a version, for comparing.
fn numbers(version: &str) -> Vec<u32> {
    version.split(|c: char| !c.is_ascii_digit()).filter_map(|n| n.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::numbers;

    #[test]
    fn kernels_are_compared_by_number() {
        assert!(numbers("6.12.9+deb13-cloud-amd64") > numbers("6.1.0-44-amd64"));
        assert!(numbers("6.12.107+deb13-amd64") > numbers("6.12.94+deb13-amd64"));
    }
}
