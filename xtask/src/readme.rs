//! `cargo xtask readme`: README's commands as they are printed, in clean roots of Debian 12 and 13.
//!
//! The sources are copied into a root, what README names is installed there, and each command of its
//! blocks runs in a shell, in order. Debian 12's own compiler is too old: README sends its users to
//! rustup, for whose toolchain the machine's own stands in.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use dat_lab::images::roots::Root;
use dat_lab::run;

use crate::package;

/// The longest time to the first `dat ping`, from a copy of the sources on.
const GOAL: Duration = Duration::from_secs(300);
/// Where the sources stand in a root.
const SOURCES: &str = "/root/dat";
/// Where the machine's toolchain stands, for a release whose own is too old.
const TOOLCHAIN: &str = "/root/toolchain";
/// Releases, and whether the machine's toolchain stands in for rustup's.
const RELEASES: [(&str, bool); 2] = [("bookworm", true), ("trixie", false)];
/// What README leaves to a run of its own: half an hour.
const LEFT_OUT: &str = "cargo xtask test";

/// What to run.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Only on this release (bookworm, trixie)
    #[arg(long, value_name = "SUITE")]
    only: Option<String>,
    /// Only the commands up to `dat ping`, without the demo
    #[arg(long)]
    ping: bool,
}

/// Runs README on each release and says how long the first ping took.
pub(crate) fn readme(options: &Options) -> Result<()> {
    let text = std::fs::read_to_string(run::root().join("README.md"))?;
    let readme = Readme::of(&text)?;
    let mut slow = Vec::new();
    for (suite, stand_in) in RELEASES {
        if options.only.as_deref().is_some_and(|only| only != suite) {
            continue;
        }
        let took = on(suite, stand_in, &readme, options.ping).with_context(|| suite.to_owned())?;
        println!("{suite}: {} s to the first dat ping", took.as_secs());
        if took > GOAL {
            slow.push(suite);
        }
    }
    ensure!(slow.is_empty(), "more than {} s to the first ping: {slow:?}", GOAL.as_secs());
    Ok(())
}

/// The commands of README.
#[derive(Debug, Default, PartialEq)]
struct Readme {
    /// What is installed first.
    install: Vec<String>,
    /// The commands of the block that ends with `dat ping`.
    ping: Vec<String>,
    /// All others.
    others: Vec<String>,
}

impl Readme {
    /// Of blocks without a language: those are commands.
    fn of(text: &str) -> Result<Self> {
        let mut readme = Self::default();
        let mut block: Option<Vec<String>> = None;
        for line in text.lines() {
            match (&mut block, line) {
                (None, "```") => block = Some(Vec::new()),
                (None, line) if line.starts_with("```") => block = Some(vec![String::new()]),
                (Some(lines), "```") => {
                    // The first line of a block of code is empty.
                    if lines.first().is_some_and(|line| !line.is_empty()) {
                        readme.block(lines);
                    }
                    block = None;
                }
                (Some(lines), line) => lines.push(command(line).to_owned()),
                (None, _) => {}
            }
        }
        ensure!(!readme.install.is_empty() && !readme.ping.is_empty(), "README has lost a block");
        Ok(readme)
    }

    fn block(&mut self, lines: &[String]) {
        let lines = lines.iter().filter(|line| !line.is_empty() && *line != LEFT_OUT);
        if lines.clone().any(|line| line.starts_with("dat ping")) {
            self.ping.extend(lines.cloned());
            return;
        }
        for line in lines {
            match line.strip_prefix("sudo ").filter(|line| line.starts_with("apt install")) {
                Some(install) => self.install.push(install.to_owned()),
                None => self.others.push(line.clone()),
            }
        }
    }
}

/// A line without its comment.
fn command(line: &str) -> &str {
    line.split("  #").next().unwrap_or(line).trim()
}

fn on(suite: &str, stand_in: bool, readme: &Readme, only_ping: bool) -> Result<Duration> {
    let target = run::target()?;
    let mut root = Root::fresh(&target, &format!("readme-{suite}"), suite, &["ca-certificates"])?;
    package::copy_sources(&root.folder().join(SOURCES.trim_start_matches('/')))?;
    let mut path = String::new();
    if stand_in {
        let mut sysroot = Command::new("rustc");
        sysroot.args(["--print", "sysroot"]).current_dir(run::root());
        let sysroot = run::silent(sysroot)?;
        println!("  {suite}: the toolchain of this machine stands in for rustup's");
        root = root.with(Path::new(sysroot.trim()), Path::new(TOOLCHAIN));
        path = format!("export PATH={TOOLCHAIN}/bin:$PATH\n");
    }
    for line in &readme.install {
        // With rustup's toolchain only the linker comes from Debian.
        let line = if stand_in { line.replace(" cargo ", " ") } else { line.clone() };
        root.run(&format!("apt-get update -qq; {} -y -qq", line.replace("apt ", "apt-get ")))?;
    }
    let start = Instant::now();
    let session = session(&path, &readme.ping);
    println!("  $ {}", readme.ping.join("\n  $ "));
    let said = run::silent(root.command(&session))?;
    let took = start.elapsed();
    ensure!(said.contains("round trips"), "no ping: {said}");
    if !only_ping {
        for line in &readme.others {
            println!("  $ {line}");
            run::silent(root.command(&self::session(&path, std::slice::from_ref(line))))?;
        }
    }
    std::fs::remove_dir_all(root.folder())?;
    Ok(took)
}

/// A shell that one types these lines into: a program in the background has a second to start.
fn session(path: &str, lines: &[String]) -> String {
    let mut script = format!("set -e\n{path}cd {SOURCES}\n");
    for line in lines {
        script.push_str(line);
        script.push_str(if line.ends_with('&') { "\nsleep 1\n" } else { "\n" });
    }
    // The shell's own end would leave those in the background.
    script.push_str("kill $(jobs -p) 2>/dev/null || true\n");
    script
}

#[cfg(test)]
mod tests {
    use super::Readme;

    #[test]
    fn blocks_without_a_language_are_commands() {
        let text = "```\nsudo apt install cargo gcc  # all\ncargo xtask demo\ncargo xtask test  # long\n```\n\
                    ```rust\nlet x = 1;\n```\n```\ncargo build\nmodel &\ndat ping x\n```\n";
        let readme = Readme::of(text).unwrap();
        assert_eq!(readme.install, ["apt install cargo gcc"]);
        assert_eq!(readme.others, ["cargo xtask demo"]);
        assert_eq!(readme.ping, ["cargo build", "model &", "dat ping x"]);
    }
}
