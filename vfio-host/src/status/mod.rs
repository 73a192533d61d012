//! What an open adapter is doing, for another process: `dat top` and others.
//!
//! The kernel knows nothing of an adapter that a process drives itself, so the process tells. After
//! [`Nic::serve_status`](crate::Nic::serve_status) it listens on a UNIX socket in [`folder`]. A
//! client that connects there gets one JSON document, a [`Snapshot`], and the end of the stream;
//! nothing is read from it. The socket is the user's own. A snapshot is made by the thread that drives the adapter,
//! when it does so next, and sent by another; between two of them nothing is counted or stored.
//!
//! [`running`] finds the adapters of this machine and asks each. [`listen`] is for what happens while
//! somebody listens: the adapter's commands, connections and faults, if the program has given
//! [`traced`] to its driver.

mod server;
mod trace;

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder};
use std::io::{self, Read};
use std::net::IpAddr;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use dat_core::provider::Provider;
use dat_core::{EpCounter, Ia, IaCounter};
use serde::{Deserialize, Serialize};

pub(crate) use server::Server;
pub use trace::{Datagram, traced};

/// Longest wait for a snapshot: a program that sleeps is woken, one that computes is not.
pub(crate) const PATIENCE: Duration = Duration::from_secs(1);
/// Most bytes of a snapshot that are read.
const MOST: u64 = 64 << 20;

/// An adapter at one moment, as `dat connections --json` prints it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Snapshot {
    /// Process that drives it.
    pub pid: u32,
    /// Name of that process.
    pub program: String,
    /// The device.
    pub device: String,
    /// Its address in the network.
    pub address: IpAddr,
    /// Seconds since it was opened.
    pub open_seconds: f64,
    /// Why the device is lost, if it is.
    pub lost: Option<String>,
    /// Connection qualifiers that it listens on.
    pub listens: Vec<u64>,
    /// Counters of the adapter that are not 0, by their names: those of [`IaCounter`].
    pub counters: BTreeMap<String, u64>,
    /// Its Endpoints.
    pub endpoints: Vec<Endpoint>,
}

/// An Endpoint at that moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Endpoint {
    /// Number of its queue pair; `None` until it has one.
    pub queue_pair: Option<u32>,
    /// Its state, as [`EpState`](dat_core::EpState) names it.
    pub state: String,
    /// The peer, once there is one.
    pub peer: Option<IpAddr>,
    /// The peer's port: of its service point on the active side.
    pub peer_port: u16,
    /// Own port.
    pub port: u16,
    /// It is for datagrams.
    pub datagrams: bool,
    /// Requests posted and not completed.
    pub requests: u32,
    /// How many it may have.
    pub most_requests: u16,
    /// Receives posted and not completed; `None` if another thread has them.
    pub receives: Option<u32>,
    /// How many it may have.
    pub most_receives: u16,
    /// Counters that are not 0, by their names: those of [`EpCounter`].
    pub counters: BTreeMap<String, u64>,
}

impl Endpoint {
    /// Returns the sum of the counters named, 0 for those that are not there.
    #[must_use]
    pub fn sum(&self, names: &[EpCounter]) -> u64 {
        names.iter().filter_map(|name| self.counters.get(name.name())).sum()
    }
}

/// What [`running`] found at one socket.
#[derive(Debug)]
pub enum Found {
    /// An adapter.
    Adapter(Box<Snapshot>),
    /// The process is there and does not answer: it has not driven its adapter for
    /// some time, or is stopped.
    Silent {
        /// Process that drives it.
        pid: u32,
        /// What it said instead, or what went wrong.
        why: String,
    },
}

/// Makes a snapshot, but for what belongs to the host.
pub(crate) fn snapshot<P: Provider>(ia: &mut Ia<'_, P>, device: &str, open: Duration) -> Snapshot {
    let eps: Vec<_> = ia.eps().collect();
    let endpoints = eps.into_iter().filter_map(|ep| {
        let param = ia.ep_query(ep).ok()?;
        let outstanding = ia.ep_outstanding(ep).ok()?;
        let counts = ia.ep_query_counters(ep, false).ok()?;
        Some(Endpoint {
            queue_pair: param.qp.map(|qp| qp.number),
            state: format!("{:?}", param.state),
            peer: param.remote,
            peer_port: param.remote_port,
            port: param.local_port,
            datagrams: param.datagrams,
            requests: outstanding.requests,
            most_requests: param.attr.max_request_dtos,
            receives: outstanding.receives,
            most_receives: param.attr.max_recv_dtos,
            counters: named(EpCounter::ALL.map(EpCounter::name), counts),
        })
    });
    let endpoints = endpoints.collect();
    let psps = ia.psps().filter_map(|psp| Some(ia.psp_query(psp).ok()?.conn_qual));
    let mut listens: Vec<u64> = psps.collect();
    listens.sort_unstable();
    let program = std::env::current_exe().ok();
    let program = program.as_deref().and_then(Path::file_name).unwrap_or_default();
    // A lost device has no counters any more.
    let counters = ia.ia_query_counters(false).map_or_else(
        |_| BTreeMap::new(),
        |counts| named(IaCounter::ALL.map(IaCounter::name), counts),
    );
    Snapshot {
        pid: std::process::id(),
        program: program.to_string_lossy().into_owned(),
        device: device.to_owned(),
        address: ia.query().0.ia_address,
        open_seconds: open.as_secs_f64(),
        lost: ia.lost().map(ToString::to_string),
        listens,
        counters,
        endpoints,
    }
}

fn named<const N: usize>(names: [&'static str; N], counts: [u64; N]) -> BTreeMap<String, u64> {
    let all = names.into_iter().zip(counts);
    all.filter(|(_, count)| *count != 0).map(|(name, count)| (name.to_owned(), count)).collect()
}

/// Returns the folder of this user's sockets: `$DAT_STATUS_DIR`, else `/run/dat` of root, else `dat`
/// in the user's folder below `/run/user`, else `dat-UID` in the folder for temporary files.
#[must_use]
pub fn folder() -> PathBuf {
    if let Some(folder) = std::env::var_os("DAT_STATUS_DIR") {
        return folder.into();
    }
    let user = rustix::process::geteuid();
    if user.is_root() && Path::new("/run").is_dir() {
        return "/run/dat".into();
    }
    let own = PathBuf::from(format!("/run/user/{}", user.as_raw()));
    if own.is_dir() {
        return own.join("dat");
    }
    std::env::temp_dir().join(format!("dat-{}", user.as_raw()))
}

/// Makes the folder, unless it is there; it must be a folder of this user that nobody else can write.
fn make_folder(folder: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(0o700).create(folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        Ok(()) | Err(_) => {}
    }
    let there = fs::symlink_metadata(folder)?;
    let own = there.uid() == rustix::process::geteuid().as_raw();
    if there.is_dir() && own && there.mode() & 0o022 == 0 {
        return Ok(());
    }
    Err(io::Error::other(format!(
        "{} is not a folder that only this user can write",
        folder.display()
    )))
}

/// Asks every adapter that has a socket in `folder`, in the order of their processes. Sockets of
/// processes that are gone are passed over.
#[must_use]
pub fn running(folder: &Path) -> Vec<Found> {
    let mut sockets: Vec<(u32, PathBuf)> = fs::read_dir(folder)
        .into_iter()
        .flatten()
        .filter_map(|entry| {
            let path = entry.ok()?.path();
            Some((server::process_of(&path, "sock")?, path))
        })
        .collect();
    sockets.sort();
    sockets.into_iter().filter_map(|(pid, path)| ask(pid, &path)).collect()
}

/// Connects to what the adapters of a process do from now on: a line for each activity, of seconds,
/// severity and words, behind which [`Datagram`] finds one; and empty lines in between. A process with several adapters tells the same at
/// each.
pub fn listen(folder: &Path, pid: u32) -> io::Result<UnixStream> {
    let entries = fs::read_dir(folder).into_iter().flatten();
    let mut paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
    let socket = paths.find(|path| server::process_of(path, "trace") == Some(pid));
    let none = || io::Error::other(format!("it has no socket in {}", folder.display()));
    UnixStream::connect(socket.ok_or_else(none)?)
}

/// Returns the answer; `None` if nobody listens there.
fn ask(pid: u32, path: &Path) -> Option<Found> {
    let mut stream = UnixStream::connect(path).ok()?;
    let answer = (|| {
        // Longer than the other side waits, so that its own words come.
        stream.set_read_timeout(Some(2 * PATIENCE))?;
        let mut text = Vec::new();
        stream.by_ref().take(MOST).read_to_end(&mut text)?;
        io::Result::Ok(text)
    })();
    let silent = |why: String| Found::Silent { pid, why };
    Some(match answer {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
            silent(format!("nothing came for {} s; it may be stopped", 2 * PATIENCE.as_secs()))
        }
        Err(error) => silent(error.to_string()),
        Ok(text) => match serde_json::from_slice(&text) {
            Ok(snapshot) => Found::Adapter(Box::new(snapshot)),
            Err(_) => silent(String::from_utf8_lossy(&text).trim().to_owned()),
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_that_others_can_write_is_refused() {
        use std::os::unix::fs::PermissionsExt;
        let place = tempfile::tempdir().unwrap();
        let folder = place.path().join("status");
        make_folder(&folder).unwrap();
        make_folder(&folder).unwrap();
        assert_eq!(fs::metadata(&folder).unwrap().mode() & 0o777, 0o700);
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o777)).unwrap();
        let error = make_folder(&folder).unwrap_err().to_string();
        assert!(error.contains("only this user"), "{error}");
        let link = place.path().join("link");
        std::os::unix::fs::symlink(place.path(), &link).unwrap();
        assert!(make_folder(&link).is_err());
    }

    #[test]
    fn a_socket_without_a_process_is_passed_over() {
        let place = tempfile::tempdir().unwrap();
        let socket = place.path().join("12.0.sock");
        drop(std::os::unix::net::UnixListener::bind(&socket).unwrap());
        fs::write(place.path().join("other"), "").unwrap();
        assert!(running(place.path()).is_empty());
        assert!(running(&place.path().join("none")).is_empty());
    }
}
