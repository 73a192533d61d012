//! Stock Linux: a distribution's kernel for all hardware, its drivers and its programs, as an
//! archive that guests start from. Nothing in it is ours but the first process.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Component, Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, anyhow};

use super::archive::Archive;
use super::packages::{self, Tree};
use super::{machine, modules, vmlinux};

/// Drivers, with all that they need; loaded at the start in this order.
const MODULES: [&str; 16] = [
    "virtio_pci",
    "virtio_net",
    "e1000",
    "8021q",
    "crc32_generic",
    "configfs",
    "ib_uverbs",
    "ib_umad",
    "rdma_cm",
    "rdma_ucm",
    "rdma_rxe",
    "mlx5_core",
    "mlx5_ib",
    "ib_ipoib",
    "vfio_iommu_type1",
    "vfio_pci",
];
/// What the kernel must have been built with.
const OPTIONS: [&str; 6] =
    ["PVH", "SERIAL_8250_CONSOLE", "DEVTMPFS", "MLX5_CORE_EN", "MLX5_INFINIBAND", "RDMA_RXE"];
/// Programs.
const PROGRAMS: &[&str] = &[
    "cmtime",
    "devlink",
    "ethtool",
    "ib_atomic_bw",
    "ib_atomic_lat",
    "ib_read_bw",
    "ib_read_lat",
    "ib_send_bw",
    "ib_send_lat",
    "ib_write_bw",
    "ib_write_lat",
    "ibnetdiscover",
    "ibstat",
    "ibping",
    "ibroute",
    "ibv_asyncwatch",
    "ibv_devices",
    "ibv_devinfo",
    "ibv_rc_pingpong",
    "ibv_srq_pingpong",
    "ibv_uc_pingpong",
    "ibv_ud_pingpong",
    "ip",
    "iperf3",
    "lspci",
    "mckey",
    "opensm",
    "perfquery",
    "ping",
    "rdma",
    "rping",
    "saquery",
    "sminfo",
    "smpquery",
    "tc",
    "ucmatose",
    "udaddy",
];
/// What programs load by name while they run: verbs providers, their registration, and what ends a
/// thread; and libraries that programs of an older release still name.
const LOADED: [&str; 7] = [
    "usr/lib/x86_64-linux-gnu/libibverbs/libmlx5-rdmav34.so",
    "usr/lib/x86_64-linux-gnu/libibverbs/librxe-rdmav34.so",
    "usr/lib/x86_64-linux-gnu/libgcc_s.so.1",
    "usr/lib/x86_64-linux-gnu/libpthread.so.0",
    "usr/lib/x86_64-linux-gnu/libdl.so.2",
    "etc/libibverbs.d/mlx5.driver",
    "etc/libibverbs.d/rxe.driver",
];

/// DAT's programs, registry and provider over rdma_cm, and what has a program print line by line:
/// it may be ended at any time. They are of an older release, and run with the libraries of the
/// others.
const DAPL: [&str; 8] = [
    "usr/bin/dapltest",
    "usr/bin/dtest",
    "usr/bin/dtestcm",
    "usr/bin/dtestsrq",
    "usr/bin/dtestx",
    "usr/lib/x86_64-linux-gnu/libdat2.so.2",
    "usr/lib/x86_64-linux-gnu/libdaplofa.so.2",
    "usr/libexec/coreutils/libstdbuf.so",
];

/// Stock Linux of a version.
#[derive(Debug)]
pub(crate) struct Stock {
    /// The kernel's version, in full.
    pub(crate) version: String,
    /// The kernel, an ELF file.
    pub(crate) kernel: PathBuf,
    /// The archive with drivers, programs and the first process.
    pub(crate) archive: PathBuf,
    /// Where the programs are from.
    userland: Tree,
}

impl Stock {
    /// The one that was made before below `folder`, or a new one.
    pub(crate) fn find(
        folder: &Path,
        version: &str,
        tool: &dyn Fn(&str) -> Result<Command>,
    ) -> Result<Self> {
        let (_, recipe) =
            packages::KERNELS.iter().find(|(name, _)| *name == version).ok_or_else(|| {
                let known = packages::KERNELS.each_ref().map(|(name, _)| *name);
                anyhow!("there is no kernel {version}: {} are known", known.join(", "))
            })?;
        let tree = packages::tree(folder, recipe)?;
        let root = tree.root();
        // Where a release keeps its modules depends on its age.
        let places = [root.join("usr/lib/modules"), root.join("lib/modules")];
        let place = places.iter().find(|place| place.is_dir());
        let place = place.context("a kernel without modules")?;
        let (image, drivers) = machine::fitting(&root.join("boot"), place, &OPTIONS)?
            .ok_or_else(|| anyhow!("the kernel in {} lacks an option", root.display()))?;
        let userland = packages::tree(folder, &packages::USERLAND)?;
        let dapl = packages::tree(folder, &packages::DAPL)?;

        let stock = Self {
            version: drivers.file_name().unwrap_or_default().to_string_lossy().into(),
            kernel: folder.join(format!("vmlinux-{version}")),
            archive: folder.join(format!("stock-{version}.cpio")),
            userland,
        };
        let mark = folder.join(format!("stock-{version}.recipe"));
        let init = include_bytes!("../guest/stock-init.sh");
        let recipe = format!(
            "{} {} {MODULES:?} {PROGRAMS:?} {LOADED:?} {} {DAPL:?}\n{}",
            stock.version,
            stock.userland.made()?,
            dapl.made()?,
            String::from_utf8_lossy(init)
        );
        if fs::read_to_string(&mark).is_ok_and(|made| made == recipe) {
            return Ok(stock);
        }
        println!("  archive of Linux {} and its programs", stock.version);
        let bytes = fs::read(&image).with_context(|| format!("{}", image.display()))?;
        fs::write(&stock.kernel, vmlinux::extract(&bytes, tool)?)?;
        let mut archive = Archive::default();
        for folder in ["dev", "proc", "sys", "tmp", "run", "root"] {
            archive.folder(folder)?;
        }
        archive.device("dev/console", 5, 1)?;
        archive.file("init", init)?;
        programs(&mut archive, &stock.userland)?;
        for file in DAPL {
            add(&mut archive, dapl.root(), Path::new(file))?;
        }
        let drivers = modules::in_order(&drivers, &MODULES, tool)?;
        for (i, (name, bytes)) in drivers.iter().enumerate() {
            archive.file(&format!("modules/{i:02}-{name}.ko"), bytes)?;
        }
        fs::write(&stock.archive, archive.finish()?)?;
        fs::write(&mark, recipe)?;
        Ok(stock)
    }

    /// An archive with Python and rdma-core's own tests in it, which stand in `/tests`.
    pub(crate) fn python(&self) -> Result<Vec<u8>> {
        let root = self.userland.root();
        let real = fs::read_link(root.join("usr/bin/python3"))?;
        let library = Path::new("usr/lib").join(&real);
        let mut files = BTreeSet::from([Path::new("usr/bin").join(&real)]);
        for place in [&library, Path::new("usr/lib/python3/dist-packages/pyverbs")] {
            below(root, place, &mut files)?;
        }
        // What the interpreter's own tests are made of.
        files.retain(|file| !file.starts_with(library.join("test")));
        let mut needed = BTreeSet::new();
        for file in &files {
            let name = file.to_string_lossy();
            if name.contains(".so") || name.starts_with("usr/bin") {
                needed.extend(self.userland.libraries(file)?);
            }
        }
        files.extend(needed);
        let mut archive = Archive::default();
        for file in &files {
            add(&mut archive, root, file)?;
        }
        archive.link("usr/bin/python3", real.to_str().context("no text")?)?;
        let tests = root.join("usr/share/doc/rdma-core/tests");
        for entry in fs::read_dir(&tests).with_context(|| format!("{}", tests.display()))? {
            let entry = entry?;
            let name = format!("tests/{}", entry.file_name().to_string_lossy());
            archive.file(&name, &fs::read(entry.path())?)?;
        }
        // A test asks a program for what a file says.
        archive.link("usr/bin/cat", "busybox")?;
        archive.file("tests/one.py", include_bytes!("../matrix/linux/one.py"))?;
        archive.finish()
    }
}

/// All files below a folder of the tree.
pub(super) fn below(root: &Path, folder: &Path, files: &mut BTreeSet<PathBuf>) -> Result<()> {
    let path = root.join(folder);
    for entry in fs::read_dir(&path).with_context(|| format!("{}", path.display()))? {
        let entry = entry?;
        let name = folder.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            below(root, &name, files)?;
        } else {
            files.insert(name);
        }
    }
    Ok(())
}

/// Programs and the libraries that they need, where the distribution has them.
fn programs(archive: &mut Archive, tree: &Tree) -> Result<()> {
    let mut files: BTreeSet<PathBuf> = LOADED.iter().map(PathBuf::from).collect();
    files.insert(Path::new(Tree::LOADER).into());
    files.insert("usr/bin/busybox".into());
    for name in PROGRAMS {
        let places = ["usr/bin", "usr/sbin"].map(|place| Path::new(place).join(name));
        let found = places.into_iter().find(|path| tree.root().join(path).exists());
        files.insert(found.ok_or_else(|| anyhow!("no package has the program {name}"))?);
    }
    let mut needed = BTreeSet::new();
    for file in &files {
        needed.extend(tree.libraries(file)?);
    }
    files.extend(needed);
    for file in &files {
        add(archive, tree.root(), file)?;
    }
    archive.link("lib64", "usr/lib64")?;
    archive.link("bin/sh", "../usr/bin/busybox")?;
    archive.link("bin/busybox", "../usr/bin/busybox")
}

/// A file of the tree under its own name, with what it links to.
fn add(archive: &mut Archive, root: &Path, file: &Path) -> Result<()> {
    let name = file.to_str().context("a name that is no text")?;
    if archive.has(name) {
        return Ok(());
    }
    let path = root.join(file);
    let Ok(to) = fs::read_link(&path) else {
        let bytes = fs::read(&path).with_context(|| format!("{}", path.display()))?;
        return archive.file(name, &bytes);
    };
    archive.link(name, to.to_str().context("a link to what is no text")?)?;
    let mut real = file.parent().unwrap_or(Path::new("")).to_path_buf();
    for part in to.components() {
        match part {
            Component::ParentDir => {
                real.pop();
            }
            Component::RootDir => real.clear(),
            Component::Normal(part) => real.push(part),
            Component::CurDir | Component::Prefix(_) => {}
        }
    }
    add(archive, root, &real)
}
