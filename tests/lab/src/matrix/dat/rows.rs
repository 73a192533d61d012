//! The list of programs, read from `programs.tsv`: what is run, where, and what both sides must
//! say.

use anyhow::{Context, Result, ensure};

use crate::matrix::program::Ready;

/// The list.
const LIST: &str = include_str!("programs.tsv");

/// Where both sides of a row run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tier {
    /// Two processes of the host, each with an HCA behind a socket.
    Host,
    /// Two processes of a guest, each with an HCA behind `/dev/vfio`.
    Guest,
    /// One on the host, the other in a guest, on the stock provider over Soft-RoCE.
    Wire,
    /// As on the host, over the provider that is safe for threads.
    Safe,
    /// As `Wire`, with the stock provider over mlx5_ib on InfiniBand.
    Subnet,
}

impl Tier {
    /// Those that a row is of unless its note says why not, in the order of their letters.
    #[cfg(test)]
    pub(super) const ALL: [Self; 3] = [Self::Host, Self::Guest, Self::Wire];

    /// Its name, which is that of the scenario that runs all its rows.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Host => "host",
            Self::Guest => "guest",
            Self::Wire => "wire",
            Self::Safe => "safe",
            Self::Subnet => "ib",
        }
    }

    /// Its letter in the list.
    fn letter(self) -> char {
        match self {
            Self::Host => 'A',
            Self::Guest => 'B',
            Self::Wire | Self::Subnet => 'C',
            Self::Safe => 'T',
        }
    }
}

/// A row of the list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Row {
    /// What it is called.
    pub(super) name: String,
    /// Letters of tiers; behind those of the selection of guests stands an asterisk.
    tiers: String,
    /// How often the whole run repeats it on the host.
    pub(super) loops: u32,
    /// Seconds it may take.
    pub(super) limit: u64,
    /// The program and the arguments of both sides.
    command: String,
    /// What each side must say, and how often.
    pub(super) says: Option<(usize, String)>,
    /// Why it is not everywhere, and what else there is to say.
    pub(super) note: String,
}

/// How a program is made a server and a client.
struct Kind {
    /// Its command begins so.
    begins: &'static str,
    /// The server's own words, at the end; `None`: it has another command.
    server: Option<&'static str>,
    /// The client's.
    client: &'static str,
    /// How one sees that the server serves.
    ready: Ready,
}

/// The TCP port where dtest and its relatives tell each other their addresses.
pub(super) const PORT: u16 = 15828;
/// What dapltest says whenever it waits for a client.
pub(super) const POINT: &str = "Service Point Ready";

/// Programs that are one of two.
const KINDS: [Kind; 5] = [
    Kind { begins: "dtest ", server: Some(""), client: " -h {tcp}", ready: Ready::Port(PORT) },
    Kind { begins: "dtestcm ", server: Some(""), client: " -h {tcp}", ready: Ready::Port(PORT) },
    Kind { begins: "dtestx ", server: Some(""), client: " -c -h {tcp}", ready: Ready::Port(PORT) },
    Kind {
        begins: "dtestsrq ",
        server: Some(""),
        client: " -h {peer}",
        ready: Ready::Says("ready on port"),
    },
    Kind { begins: "dapltest ", server: None, client: "", ready: Ready::Says(POINT) },
];

/// What a row is, for its player.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Plan {
    /// A program alone.
    Alone(String),
    /// A server and a client, and how one sees that the former serves.
    Pair(String, String, Ready),
    /// A client of the server that stays from row to row.
    Call(String),
    /// The client that ends it.
    Quit(String),
}

/// The server that stays from row to row.
pub(super) const STAYS: &str = "dapltest -T S -D hca";

impl Row {
    fn parse(line: &str) -> Result<Self> {
        let fields: Vec<&str> = line.split('\t').collect();
        let [name, tiers, loops, limit, command, says, note] = fields[..] else {
            anyhow::bail!("seven fields, not {}", fields.len());
        };
        let says = match says.split_once(" x ") {
            Some((times, text)) => Some((times.parse()?, text.to_owned())),
            None if says.is_empty() => None,
            None => Some((1, says.to_owned())),
        };
        Ok(Self {
            name: name.to_owned(),
            tiers: tiers.to_owned(),
            loops: loops.parse()?,
            limit: limit.parse()?,
            command: command.to_owned(),
            says,
            note: note.to_owned(),
        })
    }

    /// Whether it runs there.
    pub(super) fn is_of(&self, tier: Tier) -> bool {
        self.tiers.contains(tier.letter())
    }

    /// Whether a quick run includes it there: all on the host, where most take an instant, and a
    /// selection where guests take part.
    pub(super) fn quick(&self, tier: Tier) -> bool {
        match tier {
            Tier::Host | Tier::Safe => self.is_of(tier),
            Tier::Guest | Tier::Wire | Tier::Subnet => {
                self.tiers.contains(&format!("{}*", tier.letter()))
            }
        }
    }

    /// What is run. Counts in braces are divided by `fewer`, where a whole run would take too long.
    pub(super) fn plan(&self, fewer: u32) -> Result<Plan> {
        let command = counts(&self.command, fewer)?;
        let kind = KINDS.iter().find(|kind| command.starts_with(kind.begins));
        let kind = kind.with_context(|| format!("no program of ours: {command}"))?;
        if let Some(server) = kind.server {
            let (server, client) = (format!("{command}{server}"), kind.client);
            return Ok(Plan::Pair(server, format!("{command}{client}"), kind.ready));
        }
        // The kind of test has to come first.
        let mut words = command.splitn(4, ' ');
        let (Some(program), Some(option), Some(test)) = (words.next(), words.next(), words.next())
        else {
            anyhow::bail!("which test? {command}");
        };
        let rest = words.next().unwrap_or_default();
        let called = format!("{program} {option} {test} -s {{peer}} -D hca {rest}");
        Ok(match test {
            "F" | "L" => Plan::Alone(command),
            "Q" => Plan::Quit(called.trim_end().to_owned()),
            _ => Plan::Call(called),
        })
    }

    /// Its command as the documentation has it.
    pub(super) fn shown(&self) -> String {
        self.command.replace(['{', '}'], "")
    }
}

/// Numbers in braces, divided, but never below what the program would do in an instant.
fn counts(command: &str, fewer: u32) -> Result<String> {
    const LEAST: u32 = 64;
    let mut out = String::new();
    let mut rest = command;
    while let Some((before, after)) = rest.split_once('{') {
        let (number, behind) = after.split_once('}').context("no end of a count")?;
        let number: u32 = number.parse()?;
        let count = (number / fewer.max(1)).max(LEAST.min(number));
        out.push_str(&format!("{before}{count}"));
        rest = behind;
    }
    out.push_str(rest);
    Ok(out)
}

/// All rows.
pub(super) fn rows() -> Result<Vec<Row>> {
    let lines = LIST.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
    let rows = lines.map(|line| Row::parse(line).with_context(|| format!("programs.tsv: {line}")));
    let rows: Vec<Row> = rows.collect::<Result<_>>()?;
    ensure!(!rows.is_empty(), "programs.tsv has no rows");
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn rows_have_names_of_their_own_and_say_why_they_are_not_everywhere() {
        let mut names = BTreeSet::new();
        for row in rows().unwrap() {
            assert!(names.insert(row.name.clone()), "{} is there twice", row.name);
            row.plan(1).unwrap();
            for tier in Tier::ALL {
                let why = row.note.contains(&format!("{}: ", tier.letter()));
                assert_ne!(row.is_of(tier), why, "{}: {tier:?}", row.name);
            }
        }
    }

    #[test]
    fn a_server_that_stays_is_ended_by_the_last_of_its_clients() {
        let rows = rows().unwrap();
        let plans: Vec<Plan> = rows.iter().map(|row| row.plan(1).unwrap()).collect();
        let last_call = plans.iter().rposition(|plan| matches!(plan, Plan::Call(_)));
        let quit = plans.iter().position(|plan| matches!(plan, Plan::Quit(_)));
        assert!(last_call < quit, "{last_call:?} {quit:?}");
        for tier in Tier::ALL {
            assert!(rows[quit.unwrap()].is_of(tier));
        }
    }

    #[test]
    fn a_quick_run_has_every_program_in_each_tier_and_ends_the_server() {
        let rows = rows().unwrap();
        for tier in Tier::ALL {
            let quick: Vec<&Row> = rows.iter().filter(|row| row.quick(tier)).collect();
            for kind in &KINDS {
                let has = quick.iter().any(|row| row.command.starts_with(kind.begins));
                assert!(has, "{tier:?}: {}", kind.begins);
            }
            let quit = |row: &&Row| matches!(row.plan(1), Ok(Plan::Quit(_)));
            assert!(quick.iter().any(quit), "{tier:?}");
        }
    }

    #[test]
    fn commands_are_made_for_each_side() {
        let row = |command: &str| {
            let line = format!("n\tA B* C\t1\t60\t{command}\t4 x PASSED\t");
            Row::parse(&line).unwrap()
        };
        let dtest = row("dtestx -P hca");
        assert_eq!(dtest.says, Some((4, "PASSED".into())));
        assert!(dtest.quick(Tier::Host) && dtest.quick(Tier::Guest) && !dtest.quick(Tier::Wire));
        assert_eq!(
            dtest.plan(1).unwrap(),
            Plan::Pair(
                "dtestx -P hca".into(),
                "dtestx -P hca -c -h {tcp}".into(),
                Ready::Port(PORT)
            )
        );
        assert_eq!(
            row("dapltest -T T -i {4096} -w 1").plan(16).unwrap(),
            Plan::Call("dapltest -T T -s {peer} -D hca -i 256 -w 1".into())
        );
        assert_eq!(
            row("dapltest -T Q").plan(1).unwrap(),
            Plan::Quit("dapltest -T Q -s {peer} -D hca".into())
        );
    }
}
