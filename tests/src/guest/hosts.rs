//! Opens devices of either kind of host.

use anyhow::{Context, Result, anyhow, bail};
use vfio_host::{Address, Host, Opened, Options};

/// A part of the guest's tests, which runs on open devices.
pub(super) trait Part {
    /// Runs the part.
    fn run<H: Host>(&self, hosts: &mut [H]) -> Result<()>;
}

/// Opens the devices, which are all of one kind, and runs the part.
pub(super) fn with(addresses: &[Address], options: &Options, part: &impl Part) -> Result<()> {
    let (mut vfio, mut user) = (Vec::new(), Vec::new());
    for address in addresses {
        match vfio_host::open(address, options).map_err(|e| anyhow!("{e}"))? {
            Opened::Vfio(host) => vfio.push(host),
            Opened::User(host) => user.push(host),
        }
    }
    match (vfio.as_mut_slice(), user.as_mut_slice()) {
        (hosts, []) => part.run(hosts),
        ([], hosts) => part.run(hosts),
        _ => bail!("give devices of one kind"),
    }
}

/// Exactly two of them.
pub(super) fn two<H>(hosts: &mut [H]) -> Result<&mut [H; 2]> {
    hosts.try_into().ok().context("this takes two devices")
}
