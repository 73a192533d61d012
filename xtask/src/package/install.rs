//! The package where a user has it: installed in clean roots of Debian, used there, and removed.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use dat_lab::images::packages::codename;
use dat_lab::images::roots::Root;
use dat_lab::run;

use super::deb::{Deb, NAME, libraries};

/// Releases that it is tried on, the oldest first, with the packages of each that use the provider.
const RELEASES: [(&str, &[&str]); 2] =
    [("bookworm", &["dapl2-utils", "libdapl2"]), ("trixie", &[])];
/// Where the package stands in a root.
const INSIDE: &str = "/mnt/package.deb";

/// Two models, a listener and a ping; then the programs' own words on themselves.
const PING: &str = r#"set -e
mlx5-model --socket /tmp/a --socket /tmp/b > /tmp/model &
model=$!
for _ in $(seq 300); do if grep -q ready /tmp/model; then break; fi; sleep 0.1; done
dat listen vfio-user:/tmp/a --ip 192.168.7.1/24 --count 1 > /tmp/listen 2>&1 &
listener=$!
timeout 60 dat ping vfio-user:/tmp/b 192.168.7.1 --ip 192.168.7.2/24 --count 1000
wait $listener
dat --version
test -s /usr/share/man/man1/dat-ping.1.gz
bash -n /usr/share/bash-completion/completions/dat
kill $model
"#;

/// The stock program over the stock registry, with the provider of the package.
const DTEST: &str = r#"set -e
mlx5-model --socket /tmp/a --socket /tmp/b > /tmp/model &
model=$!
for _ in $(seq 300); do if grep -q ready /tmp/model; then break; fi; sleep 0.1; done
dat conf vfio-user:/tmp/a --ip 192.168.7.1/24 --name hca --library @LIBRARY@ > /tmp/a.conf
dat conf vfio-user:/tmp/b --ip 192.168.7.2/24 --name hca --library @LIBRARY@ > /tmp/b.conf
DAT_OVERRIDE=/tmp/a.conf timeout 120 dtest -P hca -b 4096 -B 100 > /tmp/server 2>&1 &
server=$!
sleep 2
DAT_OVERRIDE=/tmp/b.conf timeout 120 dtest -P hca -b 4096 -B 100 -h 127.0.0.1
wait $server
kill $model
"#;

/// Installs, uses and removes the package on each release whose libraries are not too old for it.
pub(super) fn install(deb: &Deb) -> Result<()> {
    let own = codename()?;
    let from = RELEASES.iter().position(|(suite, _)| *suite == own).with_context(|| {
        format!("the package was built on {own}: its libraries may be too new for the roots")
    })?;
    for (suite, users) in &RELEASES[from..] {
        on(suite, users, deb).with_context(|| format!("on {suite}"))?;
    }
    Ok(())
}

fn on(suite: &str, users: &[&str], deb: &Deb) -> Result<()> {
    let root = Root::fresh(&run::target()?, &format!("package-{suite}"), suite, users)?;
    let root = root.with(deb.path(), Path::new(INSIDE));
    // The first look makes the folders that are mounted on.
    root.run("true")?;
    let before: BTreeSet<_> = root.files()?.into_iter().collect();
    root.run(&format!("dpkg -i {INSIDE}"))?;
    let added = root.files()?.len().saturating_sub(before.len());
    let said = root.run(PING)?;
    ensure!(said.contains("1000 round trips"), "no ping: {said}");
    if !users.is_empty() {
        let library = format!("{}/libdapldat.so", libraries()?);
        let said = root.run(&DTEST.replace("@LIBRARY@", &library))?;
        ensure!(said.contains("PASSED"), "dtest: {said}");
    }
    root.run(&format!("dpkg -P {NAME}"))?;
    let after: BTreeSet<_> = root.files()?.into_iter().collect();
    let left: Vec<_> = before.symmetric_difference(&after).collect();
    let left: Vec<_> = left.into_iter().filter(|file| !is_dpkgs(file)).collect();
    if !left.is_empty() {
        bail!("removal leaves or takes: {left:?}");
    }
    let programs = if users.is_empty() { "dat ping" } else { "dat ping, dtest" };
    println!("{suite}: installed ({added} files), {programs}, removed without a trace");
    Ok(())
}

/// dpkg's own notes: it keeps the state before the last change.
fn is_dpkgs(file: &str) -> bool {
    ["var/lib/dpkg/status-old", "var/lib/dpkg/available", "var/lib/dpkg/lock"].contains(&file)
}
