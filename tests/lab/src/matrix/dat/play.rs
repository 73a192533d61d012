//! Plays rows of the list between two places, one after the other, and keeps how they went.

use std::time::Instant;

use anyhow::{Context, Result, anyhow};

use super::ground::{self, Begun, Ground, Place};
use super::judge;
use super::kit::Kit;
use super::rows::{POINT, PORT, Play, Ready, Row, STAYS};

/// Seconds that a server may take to its end, or to its next client, after its client's end.
const AFTER: u64 = 20;

/// How often a row is played anew whose client came too early.
const ANEW: u32 = 2;

/// How a row went.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Outcome {
    /// Well, in so many seconds.
    Passed(f64),
    /// It did not, for this reason.
    Failed(String),
    /// It did not, as is known of the stock provider.
    Known(&'static str),
}

/// What the commands of a tier are told.
#[derive(Debug, Clone)]
pub(super) struct Names {
    /// The server's address of DAT.
    pub(super) peer: String,
    /// The server's address of TCP, seen from the client.
    pub(super) tcp: String,
    /// The host's port that leads to the guest's where the server meets its clients.
    pub(super) lead: Option<u16>,
    /// Counts are divided by it.
    pub(super) fewer: u32,
}

/// A player with two places.
pub(super) struct Player<'k, G> {
    /// Where it plays.
    pub(super) ground: G,
    kit: Option<&'k Kit>,
    server: Place,
    client: Place,
    names: Names,
    /// The server that stays from row to row.
    stays: Option<Begun>,
}

impl<'k, 'm, G: Ground<'m>> Player<'k, G> {
    /// Nothing runs yet.
    pub(super) fn new(
        ground: G,
        kit: Option<&'k Kit>,
        server: Place,
        client: Place,
        names: Names,
    ) -> Self {
        Self { ground, kit, server, client, names, stays: None }
    }

    /// Plays a row so often.
    pub(super) fn row(&mut self, row: &Row, loops: u32) -> Outcome {
        let start = Instant::now();
        for nth in 1..=loops {
            let mut played = self.once(row);
            for _ in 0..ANEW {
                match &played {
                    Err(error) if error.is::<judge::Early>() => {
                        println!("    {}: {error}; once more", row.name);
                        played = self.once(row);
                    }
                    Ok(()) | Err(_) => break,
                }
            }
            if let Err(error) = played {
                // Whatever is wrong with the server, the next row has a new one.
                if let Some(mut server) = self.stays.take() {
                    let _ = server.reap(&mut self.ground, 0);
                }
                let round = if loops > 1 { format!(" in round {nth}") } else { String::new() };
                println!("    {}: FAILED{round}: {error:#}", row.name);
                let text = format!("{error:#}");
                return Outcome::Failed(text.lines().next().unwrap_or_default().to_owned());
            }
        }
        let seconds = start.elapsed().as_secs_f64();
        println!("    {}: {seconds:.1} s", row.name);
        Outcome::Passed(seconds)
    }

    fn once(&mut self, row: &Row) -> Result<()> {
        match row.play(self.names.fewer)? {
            Play::Alone(command) => self.alone(row, &command),
            Play::Pair(server, client, ready) => self.pair(row, &server, &client, ready),
            Play::Call(command) => self.call(row, &command, false),
            Play::Quit(command) => self.call(row, &command, true),
        }
    }

    fn told(&self, command: &str) -> String {
        command.replace("{peer}", &self.names.peer).replace("{tcp}", &self.names.tcp)
    }

    fn begin(&mut self, place: &Place, role: &'static str, command: &str) -> Result<Begun> {
        ground::begin(&mut self.ground, self.kit, place, role, command)
            .with_context(|| format!("{role}: {command}"))
    }

    fn alone(&mut self, row: &Row, command: &str) -> Result<()> {
        let place = self.client.clone();
        let mut program = self.begin(&place, "client", command)?;
        let ended = program.reap(&mut self.ground, row.limit)?;
        judge::ended("it", program_of(command), &ended, row.says.as_ref())
            .with_context(|| format!("{command}\n{}\n---", ended.tail()))
            .map_err(first_cause)
    }

    fn pair(&mut self, row: &Row, server: &str, client: &str, ready: Ready) -> Result<()> {
        let (here, there) = (self.server.clone(), self.client.clone());
        let client = self.told(client);
        let program = program_of(&client).to_owned();
        let mut serving = self.begin(&here, "server", server)?;
        if let Err(error) = serving.ready(&mut self.ground, ready) {
            serving.reap(&mut self.ground, 0)?;
            return Err(error);
        }
        if let (Some(to), Ready::Port) = (self.names.lead, ready) {
            ground::lead(to).with_context(|| format!("port {PORT}"))?;
        }
        let called = self.begin(&there, "client", &client);
        let called =
            called.and_then(|mut it| it.reap_beside(&mut self.ground, row.limit, &serving));
        // A server whose client failed would wait for ever.
        let well = called.as_ref().is_ok_and(|it| it.status == Some(0));
        let served = serving.reap(&mut self.ground, if well { AFTER } else { 1 })?;
        let called = called?;
        judge::in_time(&program, &called)?;
        judge::ended("the client", &program, &called, row.says.as_ref())
            .and_then(|()| judge::ended("the server", &program, &served, row.says.as_ref()))
            .with_context(|| {
                format!("\n--- {client}\n{}\n--- {server}\n{}\n---", called.tail(), served.tail())
            })
            .map_err(first_cause)
    }

    /// A client of the server that stays; `last`: it has the server end.
    fn call(&mut self, row: &Row, client: &str, last: bool) -> Result<()> {
        let (here, there) = (self.server.clone(), self.client.clone());
        let client = self.told(client);
        if self.stays.is_none() {
            let mut server = self.begin(&here, "server", STAYS)?;
            let ready = server.says(&mut self.ground, POINT, AFTER);
            if let Err(error) = ready.and_then(|_| server.loaded(&mut self.ground)) {
                server.reap(&mut self.ground, 0)?;
                return Err(error.context("the server"));
            }
            self.stays = Some(server);
        }
        let mut called = self.begin(&there, "client", &client)?;
        let server = self.stays.as_mut().context("no server")?;
        let called = called.reap_beside(&mut self.ground, row.limit, server)?;
        let mut said = Vec::new();
        let judged =
            judge::ended("the client", "dapltest", &called, row.says.as_ref()).and_then(|()| {
                if last {
                    let ended = server.reap(&mut self.ground, AFTER)?;
                    said = ended.lines.clone();
                    return judge::ended("the server", "dapltest", &ended, None);
                }
                said = server
                    .says(&mut self.ground, POINT, AFTER)
                    .context("the server takes no other client")?;
                judge::lines("the server", "dapltest", &said, None)
            });
        if judged.is_err() {
            said.extend(server.news(&mut self.ground).unwrap_or_default());
        } else if last {
            self.stays = None;
        }
        judged
            .with_context(|| {
                let from = said.len().saturating_sub(25);
                format!(
                    "\n--- {client}\n{}\n--- {STAYS}\n{}\n---",
                    called.tail(),
                    said.get(from..).unwrap_or_default().join("\n")
                )
            })
            .map_err(first_cause)
    }

    /// Ends what still runs.
    pub(super) fn end(mut self) -> Result<G> {
        if let Some(mut server) = self.stays.take() {
            server.reap(&mut self.ground, 0)?;
        }
        Ok(self.ground)
    }
}

/// An error whose first line is its cause, and whose rest are what the sides said.
fn first_cause(error: anyhow::Error) -> anyhow::Error {
    let cause = error.root_cause().to_string();
    anyhow!("{cause}\n{error}")
}

/// The program of a command.
fn program_of(command: &str) -> &str {
    command.split_whitespace().next().unwrap_or_default()
}
