//! The tests of the matrix: a table for each group where a pair of tools is enough, a function where
//! something has to happen in between.

mod dapl;
mod netdev;
pub(super) mod trouble;

use std::sync::LazyLock;

use anyhow::{Context, Result, bail};

use super::lab::Lab;
use super::side::Pairing;

/// A row of the table.
#[derive(Clone, Copy)]
pub(crate) struct Test {
    /// What it is called.
    pub(crate) name: &'static str,
    /// It is part of the small selection, which everybody runs: not what takes its time waiting,
    /// nor what another row of the selection does as well.
    pub(crate) quick: bool,
    /// What is done.
    pub(crate) how: How,
}

/// What a test does.
#[derive(Clone, Copy)]
pub(crate) enum How {
    /// A program on each side.
    Tools(Tools),
    /// What it says itself; and why it cannot be done with our side, if that is so.
    Own(fn(&mut Lab<'_, '_>, Pairing) -> Result<()>, Ours),
}

/// A server and a client, as [`Pairing::fill`] reads them.
#[derive(Clone, Copy)]
pub(crate) struct Tools {
    /// The server's command; nothing, if the client finds all that it needs.
    pub(crate) server: &'static str,
    /// The client's command.
    pub(crate) client: &'static str,
    /// The same for our side, as arguments of `dat`, or of the program that begins them.
    pub(crate) ours: Ours,
    /// Where the server listens, TCP or connection manager; 0 where one cannot see.
    pub(crate) port: u16,
    /// How the client must end.
    pub(crate) ends: Ends,
    /// What the client must say; nothing, if its status says all. Our side's status always does.
    pub(crate) says: &'static str,
    /// The server goes on for ever.
    pub(crate) endless: bool,
    /// What all wires do meanwhile, as the model's `impair` takes it.
    pub(crate) impairment: &'static str,
    /// Seconds that the client may take.
    pub(crate) limit: u64,
}

/// Whether our side can take part.
#[derive(Clone, Copy)]
pub(crate) enum Ours {
    /// As these commands: server and client.
    Can(&'static str, &'static str),
    /// As the test's own function says.
    Does,
    /// The same as a server; not as a client, for this reason.
    Serves(&'static str),
    /// It cannot, for this reason.
    Cannot(&'static str),
}

/// How a client ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ends {
    /// Well.
    Well,
    /// With a complaint.
    Badly,
}

/// What most have.
const TOOLS: Tools = Tools {
    server: "",
    client: "",
    ours: Ours::Cannot(""),
    port: 0,
    ends: Ends::Well,
    says: "",
    endless: false,
    impairment: "",
    limit: 30,
};

#[expect(clippy::panic, reason = "the tables are part of the program, and a test reads them")]
static TESTS: LazyLock<Vec<Test>> = LazyLock::new(|| {
    let groups: [(&'static str, &[Test]); 5] = [
        (include_str!("netdev.tsv"), netdev::TESTS),
        (include_str!("verbs.tsv"), &[]),
        (include_str!("cm.tsv"), dapl::TESTS),
        (include_str!("perf.tsv"), &[]),
        (include_str!("trouble.tsv"), trouble::TESTS),
    ];
    let mut tests = Vec::new();
    for (table, others) in groups {
        let rows = table.lines().filter(|row| !row.starts_with('#'));
        let read = |row| Test::parse(row).unwrap_or_else(|error| panic!("{row}: {error:#}"));
        tests.extend(rows.map(read));
        tests.extend_from_slice(others);
    }
    tests
});

/// All rows, in the order of the page.
pub(crate) fn tests() -> impl Iterator<Item = &'static Test> {
    TESTS.iter()
}

impl Test {
    /// Reads a row: name, `*` if it is part of the small selection, port, seconds, server, client,
    /// what the client must say, how both end and what the wires do, our server and client.
    /// Without a client of ours, the field before it says why.
    fn parse(row: &'static str) -> Result<Self> {
        let fields: Vec<&str> = row.split('\t').collect();
        let [name, quick, port, limit, server, client, says, how, ours, our_client] = fields[..]
        else {
            bail!("ten fields, not {}", fields.len());
        };
        let can = !our_client.is_empty();
        let ours = if can { Ours::Can(ours, our_client) } else { Ours::Cannot(ours) };
        let (port, limit) = (port.parse()?, limit.parse()?);
        let mut tools = Tools { server, client, ours, port, limit, says, ..TOOLS };
        for word in how.split("; ").filter(|word| !word.is_empty()) {
            match word {
                "fails" => tools.ends = Ends::Badly,
                "endless" => tools.endless = true,
                _ => tools.impairment = word.strip_prefix("impair ").context(word)?,
            }
        }
        Ok(Self { name, quick: quick == "*", how: How::Tools(tools) })
    }

    /// Why a pairing cannot do it.
    pub(crate) fn cannot(&self, pairing: Pairing) -> Option<&'static str> {
        let ours = match &self.how {
            How::Tools(tools) => &tools.ours,
            How::Own(_, ours) => ours,
        };
        match ours {
            Ours::Cannot(reason) if pairing.has_ours() => Some(reason),
            Ours::Serves(reason) if pairing.client.is_ours() && !pairing.server.is_ours() => {
                Some(reason)
            }
            Ours::Cannot(_) | Ours::Serves(_) | Ours::Can(..) | Ours::Does => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{How, Ours, tests};
    use std::collections::BTreeSet;

    #[test]
    fn rows_have_names_of_their_own_and_reasons() {
        let mut names = BTreeSet::new();
        for test in tests() {
            assert!(names.insert(test.name), "{} is there twice", test.name);
            let (How::Tools(super::Tools { ours, .. }) | How::Own(_, ours)) = &test.how;
            if let Ours::Cannot(reason) | Ours::Serves(reason) = ours {
                assert!(!reason.is_empty(), "{}: why can our side not?", test.name);
            }
        }
    }
}
