//! What this process may do, as `/proc/self` says.

use super::tree::{Rights, Tree};

/// `CAP_DAC_OVERRIDE`: permission bits do not count.
const DAC_OVERRIDE: u32 = 1;
/// `CAP_IPC_LOCK`: the limit of locked memory does not count.
const IPC_LOCK: u32 = 14;

/// Limit of locked memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Memlock {
    /// What holds now, in bytes; `None` for no limit.
    pub(crate) soft: Option<u64>,
    /// What the process may raise it to.
    pub(crate) hard: Option<u64>,
}

/// Who this process is.
#[derive(Clone, Debug, Default)]
pub(crate) struct Process {
    uid: Option<u32>,
    gids: Vec<u32>,
    capabilities: u64,
}

impl Process {
    /// As `/proc/self/status` says.
    pub(crate) fn new(tree: &Tree) -> Self {
        let status = tree.text("/proc/self/status").unwrap_or_default();
        let line = |name: &str| {
            status
                .lines()
                .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
                .unwrap_or_default()
        };
        // Real, effective, saved, file system: files ask for the last.
        let last = |name| line(name).split_whitespace().nth(3)?.parse().ok();
        let mut gids: Vec<u32> =
            line("Groups").split_whitespace().filter_map(|gid| gid.parse().ok()).collect();
        gids.extend(last("Gid"));
        Self {
            uid: last("Uid"),
            gids,
            capabilities: u64::from_str_radix(line("CapEff").trim(), 16).unwrap_or(0),
        }
    }

    fn has(&self, capability: u32) -> bool {
        self.capabilities >> capability & 1 == 1
    }

    /// The limit of locked memory does not count for it.
    pub(crate) fn locks_freely(&self) -> bool {
        self.has(IPC_LOCK)
    }

    /// It may read and write that file; `None` if who it is is not known.
    pub(crate) fn may_use(&self, file: &Rights) -> Option<bool> {
        if self.has(DAC_OVERRIDE) {
            return Some(true);
        }
        let class = if self.uid? == file.uid {
            6
        } else if self.gids.contains(&file.gid) {
            3
        } else {
            0
        };
        Some(file.mode >> class & 0o6 == 0o6)
    }

    /// Its user's number, for words.
    pub(crate) fn user(&self) -> String {
        self.uid.map_or_else(|| "this user".into(), |uid| format!("user {uid}"))
    }
}

/// The limit of locked memory, as `/proc/self/limits` says.
pub(crate) fn memlock(tree: &Tree) -> Option<Memlock> {
    let limits = tree.text("/proc/self/limits")?;
    let rest = limits.lines().find_map(|line| line.strip_prefix("Max locked memory"))?;
    let mut numbers = rest.split_whitespace();
    let mut next = || match numbers.next()? {
        "unlimited" => Some(None),
        bytes => bytes.parse().ok().map(Some),
    };
    Some(Memlock { soft: next()?, hard: next()? })
}
