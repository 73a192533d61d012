//! One scenario's stage: its folder, its servers and its guests, under one deadline.
//!
//! A guest tells how it fares in lines that begin with `@@`. Whatever ends a scenario, everything
//! that it started ends with it.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use super::process::Process;
use crate::Options;
use crate::images::archive::Archive;
use crate::images::machine::Machine;
use crate::images::modules::Module;
use crate::images::programs::Programs;
use crate::images::stock::Stock;
use crate::matrix::mpi::Prefixes;

/// Lines of each output in the message of a failure.
const TAIL: usize = 30;
/// The guest's last word of its script, before it powers off.
const EXIT: &str = "@@exit ";
/// Seconds a server may take to be ready.
const READY: Duration = Duration::from_secs(10);
/// The console, and few messages for a guest that nobody watches.
const APPEND: &str = "console=ttyS0 loglevel=4 panic=-1 intel_iommu=on no_timer_check";
/// The same for a guest whose console is for talking: of the kernel it tells its end only.
const APPEND_STOCK: &str =
    "console=ttyS0 loglevel=1 panic=-1 intel_iommu=on net.ifnames=0 no_timer_check";

/// One process of a stage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Id(usize);

/// What a guest starts from.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) enum System {
    /// A small Linux with VFIO, which runs its script and powers off.
    #[default]
    Vfio,
    /// Stock Linux with its own drivers and programs, which runs the commands of its console. Its
    /// script is its configuration.
    Stock,
    /// A distribution as it is installed, which is the guest's archive and starts by itself.
    Installed,
}

/// What a guest is made of.
#[derive(Debug, Default)]
pub(crate) struct Guest<'g> {
    /// What it starts from.
    pub(crate) system: System,
    /// What it runs.
    pub(crate) script: &'g str,
    /// Sockets of the models that it gets, each behind a root port of its own: the first is
    /// 0000:01:00.0.
    pub(crate) devices: &'g [&'g Path],
    /// More options of QEMU.
    pub(crate) options: &'g [String],
    /// Parameters of modules, as `insmod` takes them.
    pub(crate) parameters: &'g [(&'g str, &'g str)],
    /// MiB of memory; 0 is the usual.
    pub(crate) memory: u32,
    /// An archive of more files, or of all.
    pub(crate) more: Option<&'g Path>,
}

/// A stage.
pub(crate) struct Stage<'m> {
    machine: &'m Machine,
    programs: &'m Programs,
    folder: PathBuf,
    processes: Vec<Process>,
    /// Processes that were ended on purpose.
    mortal: Vec<usize>,
    options: &'m Options,
}

impl<'m> Stage<'m> {
    /// An empty stage.
    pub(crate) fn new(
        machine: &'m Machine,
        programs: &'m Programs,
        name: &str,
        options: &'m Options,
    ) -> Result<Self> {
        // A socket's path has 107 characters at the most, so the folder is not below target/.
        let folder = std::env::temp_dir().join(format!("qemu-test-{}-{name}", std::process::id()));
        fs::create_dir_all(&folder).with_context(|| format!("{}", folder.display()))?;
        Ok(Self { machine, programs, folder, processes: Vec::new(), mortal: Vec::new(), options })
    }

    /// What a cell of the matrix must have in its name to run.
    pub(crate) fn cells(&self) -> Option<&'m str> {
        self.options.cells.as_deref()
    }

    /// Whether what takes long is to be shortened.
    pub(crate) fn is_short(&self) -> bool {
        self.options.short
    }

    /// Whether what is measured is to be written down.
    pub(crate) fn bless(&self) -> bool {
        self.options.bless
    }

    /// MPI libraries that the user has.
    pub(crate) fn mpi_prefixes(&self) -> &'m Prefixes {
        &self.options.prefixes
    }

    /// The Debian package that is tried.
    pub(crate) fn package(&self) -> Result<&'m Path> {
        self.options.package.as_deref().context("no package was named")
    }

    /// The modules of a guest's kernel, in the order of loading.
    pub(crate) fn modules(&self) -> &'m [Module] {
        &self.machine.modules
    }

    /// Stock Linux.
    pub(crate) fn stock(&self) -> Result<&'m Stock> {
        let stock = self.machine.stock.as_ref();
        stock.context("stock Linux was not prepared")
    }

    /// A file of the stage.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    fn add(&mut self, process: Process) -> Id {
        self.processes.push(process);
        Id(self.processes.len() - 1)
    }

    /// Starts the model's server and waits until it can be connected to.
    pub(crate) fn server(&mut self, name: &str, sockets: &[&Path], args: &[&str]) -> Result<Id> {
        let mut command = Command::new(self.programs.server());
        for socket in sockets {
            command.arg("--socket").arg(socket);
        }
        command.arg("--until-eof").args(args);
        command.args(self.options.notes.args()?);
        let process = Process::start(name, command, self.options.verbose)?;
        let id = self.add(process);
        self.expect(id, "ready", READY)?;
        Ok(id)
    }

    /// The emulator of all guests, with what it always needs.
    pub(crate) fn emulator(&self) -> Result<Command> {
        self.machine.qemu()
    }

    /// Starts any program on the host.
    pub(crate) fn start(&mut self, name: &str, command: Command) -> Result<Id> {
        let process = Process::start(name, command, self.options.verbose)?;
        let id = self.add(process);
        // Its end is for whoever started it to judge.
        self.mortal.push(id.0);
        Ok(id)
    }

    /// A program that was built for guests, which runs on the host as well.
    pub(crate) fn built(&self, name: &str) -> PathBuf {
        self.programs.folder.join(name)
    }

    /// The number of a process of the host.
    pub(crate) fn pid(&self, id: Id) -> u32 {
        self.processes[id.0].pid()
    }

    /// Everything that a process has printed so far, to each of its outputs.
    pub(crate) fn outputs(&self, id: Id) -> [Vec<String>; 2] {
        let process = &self.processes[id.0];
        [process.output(), process.complaints()]
    }

    /// Starts a guest's program on the host, for devices that are reached without a guest.
    pub(crate) fn program(&mut self, name: &str, args: &[&str]) -> Result<Id> {
        let mut command = Command::new(self.built(name));
        command.args(args);
        let process = Process::start(name, command, self.options.verbose)?;
        Ok(self.add(process))
    }

    /// Boots a guest of Linux.
    pub(crate) fn guest(&mut self, name: &str, guest: &Guest<'_>) -> Result<Id> {
        let initrd = self.path(&format!("{name}.cpio"));
        let mut command = self.qemu(guest)?;
        let (kernel, append) = match guest.system {
            System::Vfio => {
                let mut archive = self.initrd(guest)?;
                if let Some(more) = guest.more {
                    archive.extend(fs::read(more)?);
                }
                fs::write(&initrd, archive)?;
                (&self.machine.kernel, APPEND)
            }
            System::Stock => {
                let stock = self.stock()?;
                let mut archive = Archive::default();
                archive.file("conf", guest.script.as_bytes())?;
                archive.file("lab.sh", include_bytes!("lab.sh"))?;
                // Archives that follow one another are one.
                fs::copy(&stock.archive, &initrd)?;
                let mut file = fs::OpenOptions::new().append(true).open(&initrd)?;
                file.write_all(&archive.finish()?)?;
                if let Some(more) = guest.more {
                    file.write_all(&fs::read(more)?)?;
                }
                (&stock.kernel, APPEND_STOCK)
            }
            System::Installed => {
                fs::copy(guest.more.context("an installed system is an archive")?, &initrd)?;
                (&self.machine.kernel, APPEND)
            }
        };
        command.arg("-kernel").arg(kernel);
        command.arg("-initrd").arg(&initrd).arg("-append").arg(append);
        let process = Process::start(name, command, self.options.verbose)?;
        Ok(self.add(process))
    }

    /// Boots a guest of Linux of the usual make: a script, and devices.
    pub(crate) fn linux(&mut self, name: &str, script: &str, devices: &[&Path]) -> Result<Id> {
        let usual = Guest { script, devices, ..Guest::default() };
        self.guest(name, &usual)
    }

    /// Boots the image that needs no Linux. Its script is its command line.
    pub(crate) fn image(&mut self, name: &str, guest: &Guest<'_>) -> Result<Id> {
        let mut command = self.qemu(guest)?;
        command
            .arg("-kernel")
            .arg(&self.programs.image)
            .args(["-append", guest.script])
            .args(["-device", "isa-debug-exit,iobase=0xf4,iosize=4"]);
        let process = Process::start(name, command, self.options.verbose)?;
        Ok(self.add(process))
    }

    /// Boots firmware that is started as a kernel, on the console that the machine's own firmware
    /// gives it. Its script is its command line.
    pub(crate) fn firmware(&mut self, name: &str, image: &Path, guest: &Guest<'_>) -> Result<Id> {
        let mut command = self.qemu(guest)?;
        command.args(["-machine", "graphics=off"]);
        command.arg("-kernel").arg(image).args(["-append", guest.script]);
        let process = Process::start(name, command, self.options.verbose)?;
        Ok(self.add(process))
    }

    /// The machine of a guest: q35 under emulation with an IOMMU that vfio-pci accepts, and memory
    /// that a server in another process can map.
    fn qemu(&self, guest: &Guest<'_>) -> Result<Command> {
        let memory = if guest.memory == 0 { 512 } else { guest.memory };
        let mut command = self.machine.qemu()?;
        command
            .args(["-M", "q35", "-accel", "tcg", "-cpu", "qemu64", "-smp", "1"])
            .args(["-m", &format!("{memory}M")])
            .args(["-object", &format!("memory-backend-memfd,id=m,size={memory}M,share=on")])
            .args(["-machine", "memory-backend=m", "-nodefaults", "-display", "none"])
            .args(["-serial", "stdio", "-no-reboot"])
            .args(["-device", "intel-iommu,intremap=on,caching-mode=on"]);
        for (i, socket) in guest.devices.iter().enumerate() {
            command
                .arg("-device")
                .arg(format!("pcie-root-port,id=rp{i},chassis={0},slot={0}", i + 1))
                .arg("-device")
                .arg(device(socket, &format!("rp{i}"), "0.0", false)?);
        }
        command.args(guest.options);
        Ok(command)
    }

    fn initrd(&self, guest: &Guest<'_>) -> Result<Vec<u8>> {
        let mut archive = Archive::default();
        for folder in ["bin", "dev", "proc", "sys", "tmp", "modules"] {
            archive.folder(folder)?;
        }
        archive.device("dev/console", 5, 1)?;
        archive.file("bin/busybox", &self.machine.busybox)?;
        archive.link("bin/sh", "busybox")?;
        for (i, (name, bytes)) in self.machine.modules.iter().enumerate() {
            archive.file(&format!("modules/{i:02}-{name}.ko"), bytes)?;
        }
        for (module, parameters) in guest.parameters {
            archive.file(&format!("modules/{module}.parameters"), parameters.as_bytes())?;
        }
        for (name, bytes) in &self.programs.guest {
            archive.file(name, bytes)?;
        }
        archive.file("init", include_bytes!("init.sh"))?;
        archive.file("scenario", guest.script.as_bytes())?;
        archive.finish()
    }

    /// Waits for a line that contains `what`, and gives it. Whoever fails first fails the scenario:
    /// a guest whose script ends badly or whose kernel panics, a server that is gone.
    pub(crate) fn expect(&mut self, id: Id, what: &str, within: Duration) -> Result<String> {
        self.line(id, within, &format!("a line with \"{what}\""), |line| line.contains(what))
    }

    /// The next line that a process says, waiting a moment for it.
    pub(crate) fn next_line(&mut self, id: Id) -> Option<String> {
        self.processes[id.0].next_line()
    }

    /// Forgets what a process has said so far: what it may say is bounded.
    pub(crate) fn forget(&mut self, id: Id) {
        self.processes[id.0].forget();
    }

    /// As [`Stage::expect`], where it is no failure if the line does not come.
    pub(crate) fn peek(&mut self, id: Id, what: &str, within: Duration) -> Option<String> {
        let until = Instant::now() + within;
        loop {
            let gone = self.is_over(id);
            while let Some(line) = self.processes[id.0].next_line() {
                if line.contains(what) {
                    return Some(line);
                }
            }
            if gone || Instant::now() > until {
                return None;
            }
        }
    }

    /// Whether a process has ended.
    pub(crate) fn is_over(&mut self, id: Id) -> bool {
        self.processes[id.0].ended().is_some()
    }

    /// Waits until a guest's script has ended well and the guest is off.
    pub(crate) fn finish(&mut self, id: Id, within: Duration) -> Result<()> {
        self.line(id, within, "the end of its script", |line| line.starts_with(EXIT))?;
        let until = Instant::now() + Duration::from_secs(10);
        let process = &mut self.processes[id.0];
        if process.wait(until).is_none() {
            bail!("{} does not power off", process.name());
        }
        Ok(())
    }

    fn line(
        &mut self,
        id: Id,
        within: Duration,
        what: &str,
        fits: impl Fn(&str) -> bool,
    ) -> Result<String> {
        let until = Instant::now() + within;
        loop {
            let gone = self.processes[id.0].ended().is_some();
            while let Some(line) = self.processes[id.0].next_line() {
                if let Some(code) = line.strip_prefix(EXIT) {
                    if code != "0" {
                        return Err(self.fault(id, &format!("its script ended with {code}")));
                    }
                }
                if line.contains("Kernel panic") {
                    return Err(self.fault(id, &line));
                }
                if fits(&line) {
                    return Ok(line);
                }
            }
            if gone {
                let how = self.processes[id.0].ended();
                let how = how.map_or_else(String::new, |status| format!(" ({status})"));
                return Err(self.fault(id, &format!("ended{how} before {what}")));
            }
            for other in 0..self.processes.len() {
                if other != id.0
                    && !self.mortal.contains(&other)
                    && self.processes[other].ended().is_some_and(|s| !s.success())
                {
                    return Err(self.fault(Id(other), "ended while others needed it"));
                }
            }
            if Instant::now() > until {
                let why = format!("{what} did not come within {} s", within.as_secs());
                return Err(self.fault(id, &why));
            }
        }
    }

    /// What went wrong, with what everybody said last.
    fn fault(&mut self, id: Id, why: &str) -> anyhow::Error {
        // Nobody says more, and what was said has arrived.
        for process in &mut self.processes {
            process.kill();
        }
        let mut text = format!("{}: {why}", self.processes[id.0].name());
        text.push_str(&self.tails());
        anyhow::anyhow!(text)
    }

    /// Says a line to a guest or a server.
    pub(crate) fn say(&mut self, id: Id, line: &str) {
        self.processes[id.0].say(line);
    }

    /// Ends a process now.
    pub(crate) fn kill(&mut self, id: Id) {
        self.mortal.push(id.0);
        self.processes[id.0].kill();
    }

    /// How a process ended by itself; `None` if it does not.
    pub(crate) fn outcome(&mut self, id: Id, within: Duration) -> Option<ExitStatus> {
        self.mortal.push(id.0);
        self.processes[id.0].wait(Instant::now() + within)
    }

    /// What a process said on its standard error.
    pub(crate) fn complaints(&mut self, id: Id) -> Vec<String> {
        // Whoever has ended has said all.
        self.processes[id.0].kill();
        self.processes[id.0].complaints()
    }

    /// The last lines that everybody said.
    pub(crate) fn tails(&self) -> String {
        let tails = self.processes.iter().map(|process| process.tail(TAIL));
        tails.collect()
    }

    /// The last lines that a process said.
    pub(crate) fn tail(&self, id: Id) -> String {
        self.processes[id.0].tail(TAIL)
    }

    /// Waits until a process has ended well by itself.
    pub(crate) fn ended(&mut self, id: Id, within: Duration) -> Result<()> {
        match self.processes[id.0].wait(Instant::now() + within) {
            Some(status) if status.success() => Ok(()),
            Some(status) => Err(self.fault(id, &format!("ended with {status}"))),
            None => Err(self.fault(id, "does not end")),
        }
    }

    /// Asks a server to end by closing its standard input, and waits for it.
    pub(crate) fn hang_up(&mut self, id: Id, within: Duration) -> Result<()> {
        self.processes[id.0].hang_up();
        let end = self.processes[id.0].wait(Instant::now() + within);
        match end {
            Some(status) if status.success() => Ok(()),
            Some(status) => Err(self.fault(id, &format!("ended with {status}"))),
            None => Err(self.fault(id, "does not end though its input was closed")),
        }
    }

    /// The error that ends this scenario, with what everybody said last.
    pub(crate) fn failed(&mut self, id: Id, why: &str) -> anyhow::Error {
        self.fault(id, why)
    }

    /// Everything that a process printed.
    pub(crate) fn output(&self, id: Id) -> Vec<String> {
        self.processes[id.0].output()
    }
}

impl Drop for Stage<'_> {
    fn drop(&mut self) {
        // Guests before the servers whose devices they hold.
        while let Some(mut process) = self.processes.pop() {
            process.kill();
        }
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// The option value of a vfio-user device. Its socket is an object, so the whole is JSON.
pub(crate) fn device(
    socket: &Path,
    bus: &str,
    address: &str,
    multifunction: bool,
) -> Result<String> {
    let path = socket.to_str().context("a path that is no text")?;
    ensure!(
        path.len() < 108 && !path.contains(['"', '\\']),
        "{path} cannot be the path of a socket: set TMPDIR to a shorter one"
    );
    Ok(format!(
        r#"{{"driver":"vfio-user-pci","socket":{{"type":"unix","path":"{path}"}},"bus":"{bus}","addr":"{address}","multifunction":{multifunction}}}"#
    ))
}
