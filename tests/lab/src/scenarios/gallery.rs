//! The image without an operating system on every machine that it is made for: three CPUs without
//! firmware, and as an application of UEFI on two. Each serves `dat ping` and `dat perf` of the
//! host; in the long form it also polls, and calls a `dat listen` of the host.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::guest::stage::{Guest, Id, Stage, device};
use crate::images::packages::{self, LIBRARIES, Tree};
use crate::images::programs;
use crate::images::toolchain::Toolchain;

/// A machine.
struct Machine {
    name: &'static str,
    /// Target of the image; none is the one that every guest may have.
    target: Option<&'static str>,
    /// The emulator of the tree; none is that of all guests.
    emulator: Option<&'static str>,
    options: &'static [&'static str],
    /// Firmware, in the tree's `usr/share`.
    firmware: Option<&'static str>,
    /// Whether it takes interrupts.
    interrupts: bool,
    /// Where its random numbers come from.
    entropy: &'static str,
}

const MACHINES: [Machine; 5] = [
    Machine {
        name: "x86_64",
        target: None,
        emulator: None,
        options: &["-cpu", "max"],
        firmware: None,
        interrupts: true,
        entropy: "RDRAND",
    },
    Machine {
        name: "aarch64",
        target: Some("aarch64-unknown-none"),
        emulator: Some("qemu-system-aarch64"),
        options: &["-M", "virt,gic-version=2", "-cpu", "max"],
        firmware: None,
        interrupts: true,
        entropy: "RNDR",
    },
    Machine {
        name: "riscv64",
        target: Some("riscv64gc-unknown-none-elf"),
        emulator: Some("qemu-system-riscv64"),
        options: &["-M", "virt,aia=aplic-imsic", "-cpu", "max", "-bios", "none"],
        firmware: None,
        interrupts: true,
        entropy: "Zkr",
    },
    Machine {
        name: "uefi-x86_64",
        target: Some("x86_64-unknown-uefi"),
        emulator: None,
        options: &["-M", "q35", "-cpu", "max", "-device", "virtio-rng-pci"],
        firmware: Some("ovmf/OVMF.fd"),
        interrupts: false,
        entropy: "EFI_RNG_PROTOCOL",
    },
    Machine {
        name: "uefi-aarch64",
        target: Some("aarch64-unknown-uefi"),
        emulator: Some("qemu-system-aarch64"),
        options: &["-M", "virt", "-cpu", "max", "-device", "virtio-rng-pci"],
        firmware: Some("qemu-efi-aarch64/QEMU_EFI.fd"),
        interrupts: false,
        entropy: "EFI_RNG_PROTOCOL",
    },
];

/// The last words of an image on which all went well.
const WELL: &str = "dat-metal: result ok";
/// What UEFI firmware says when it has the machine again and looks for what to boot next.
const FIRMWARE: &str = "BdsDxe: ";
/// From the start of QEMU until the image listens, with firmware under emulation.
const BOOT: Duration = Duration::from_secs(120);
/// A test, and the end of an image.
const TEST: Duration = Duration::from_secs(30);
/// Words of the machine's memory, as a server in another process can map it.
const MEMORY: [&str; 12] = [
    "-smp",
    "1",
    "-m",
    "256M",
    "-object",
    "memory-backend-memfd,id=m,size=256M,share=on",
    "-machine",
    "memory-backend=m",
    "-nodefaults",
    "-display",
    "none",
    "-no-reboot",
];

pub(super) fn run(stage: &mut Stage<'_>) -> Result<String> {
    let folder = crate::folder()?;
    let found = packages::tree(&folder, &packages::MACHINES)
        .and_then(|tree| Ok((tree, Toolchain::find()?)));
    let (tree, toolchain) = match found {
        Ok(found) => found,
        Err(error) => return Ok(format!("SKIPPED: {error:#}")),
    };
    let start = Instant::now();
    let targets: Vec<&str> = MACHINES.iter().filter_map(|machine| machine.target).collect();
    programs::metal(&toolchain, &targets)?;
    let built = start.elapsed().as_secs();
    let [a, b] = ["a", "b"].map(|name| stage.path(name));
    let server = stage.server("model", &[&a, &b], &[])?;
    let mut said = Vec::new();
    for machine in &MACHINES {
        let start = Instant::now();
        serves(stage, &tree, &toolchain, machine, [&a, &b], "irq=msix")?;
        if !stage.is_short() {
            if machine.interrupts {
                serves(stage, &tree, &toolchain, machine, [&a, &b], "irq=poll")?;
            }
            calls(stage, &tree, &toolchain, machine, [&a, &b])?;
        }
        said.push(format!("{} {} s", machine.name, start.elapsed().as_secs()));
    }
    stage.hang_up(server, Duration::from_secs(5))?;
    let what = if stage.is_short() { "serve" } else { "serve and call" };
    Ok(format!(
        "{what} ping, write and read with verified contents: {}; built in {built} s",
        said.join(", ")
    ))
}

/// The image serves three tests of the host.
fn serves(
    stage: &mut Stage<'_>,
    tree: &Tree,
    toolchain: &Toolchain,
    machine: &Machine,
    [own, host]: [&Path; 2],
    interrupts: &str,
) -> Result<()> {
    let line = format!("ip=192.168.7.1/24 serve=3 timeout=120 {interrupts}");
    let image = start(stage, tree, toolchain, machine, own, &line)?;
    let source = stage.expect(image, "entropy: ", BOOT)?;
    ensure!(source.contains(machine.entropy), "{}: {source}", machine.name);
    let sleeps = machine.interrupts && interrupts == "irq=msix";
    let how = if sleeps { "interrupts: MSI-X" } else { "interrupts: none, polling" };
    stage.expect(image, how, TEST)?;
    stage.expect(image, "listening on", TEST)?;
    let device = format!("vfio-user:{}", host.display());
    for test in [&["ping"][..], &["perf", "--kind", "write"], &["perf", "--kind", "read"]] {
        let (verb, more) = test.split_first().context("no test")?;
        let mut args = vec![*verb, &device, "192.168.7.1", "--ip", "192.168.7.2/24"];
        args.extend(more);
        args.extend(["--count", if stage.is_short() { "200" } else { "5000" }]);
        let caller = stage.program("dat", &args)?;
        stage.expect(caller, "verified", TEST)?;
        stage.ended(caller, TEST)?;
    }
    for kind in ["ping", "write", "read"] {
        stage.expect(image, &format!("served 192.168.7.2: {kind}, "), TEST)?;
    }
    if sleeps {
        let counts = stage.expect(image, "interrupts: ", TEST)?;
        ensure!(!counts.contains(" 0 of completions"), "{}: {counts}", machine.name);
    }
    ends(stage, machine, image)
}

/// The image calls a listener of the host.
fn calls(
    stage: &mut Stage<'_>,
    tree: &Tree,
    toolchain: &Toolchain,
    machine: &Machine,
    [own, host]: [&Path; 2],
) -> Result<()> {
    let device = format!("vfio-user:{}", host.display());
    let args = ["listen", &device, "--ip", "192.168.7.2/24", "--count", "3"];
    let listener = stage.program("dat", &args)?;
    // It says so on its standard error.
    let until = Instant::now() + TEST;
    while !stage.outputs(listener)[1].iter().any(|line| line.contains("listens on")) {
        if stage.is_over(listener) || Instant::now() > until {
            return Err(stage.failed(listener, "does not listen"));
        }
        thread::sleep(Duration::from_millis(20));
    }
    let line = "ip=192.168.7.1/24 peer=192.168.7.2 test=all count=500 timeout=120";
    let image = start(stage, tree, toolchain, machine, own, line)?;
    for kind in ["ping", "write", "read"] {
        stage.expect(
            image,
            &format!("{kind} with 192.168.7.2: 500 of 4096 bytes verified"),
            BOOT,
        )?;
    }
    ends(stage, machine, image)?;
    stage.ended(listener, TEST)
}

/// The image ends well: the machine is off, or firmware has it again.
fn ends(stage: &mut Stage<'_>, machine: &Machine, image: Id) -> Result<()> {
    stage.expect(image, WELL, TEST)?;
    if machine.firmware.is_none() {
        return stage.ended(image, TEST);
    }
    stage.expect(image, FIRMWARE, TEST)?;
    stage.kill(image);
    Ok(())
}

fn start(
    stage: &mut Stage<'_>,
    tree: &Tree,
    toolchain: &Toolchain,
    machine: &Machine,
    socket: &Path,
    line: &str,
) -> Result<Id> {
    let Some(target) = machine.target else {
        let options: Vec<String> = machine.options.iter().map(ToString::to_string).collect();
        let devices = &[socket];
        let guest =
            Guest { script: line, devices, options: &options, memory: 256, ..Guest::default() };
        return stage.image(machine.name, &guest);
    };
    let mut command = match machine.emulator {
        Some(program) => emulator(tree, program)?,
        None => stage.emulator()?,
    };
    command.args(["-accel", "tcg"]).args(machine.options).args(MEMORY).args(["-serial", "stdio"]);
    if let Some(firmware) = machine.firmware {
        command.arg("-bios").arg(tree.root().join("usr/share").join(firmware));
    }
    command.args(["-device", "pcie-root-port,id=rp0,chassis=1,slot=1", "-device"]);
    command.arg(device(socket, "rp0", "0.0", false)?);
    command.arg("-kernel").arg(programs::metal_of(toolchain, target)).args(["-append", line]);
    stage.start(machine.name, command)
}

/// An emulator of the tree.
fn emulator(tree: &Tree, program: &str) -> Result<Command> {
    let words: Vec<OsString> = tree.command(program);
    let (loader, args) = words.split_first().context("an empty command")?;
    let mut command = Command::new(loader);
    let modules: PathBuf = tree.root().join(LIBRARIES).join("qemu");
    command.args(args).arg("-L").arg(tree.root().join("usr/share/qemu"));
    command.args(["-run-with", "exit-with-parent=on"]).env("QEMU_MODULE_DIR", modules);
    Ok(command)
}
