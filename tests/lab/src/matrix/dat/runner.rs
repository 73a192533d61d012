//! Runs rows of the list between two places, one after the other, and keeps their outcomes.

use anyhow::{Context, Error, Result, anyhow};

use super::environment::{self, Place, loaded};
use super::kit::Kit;
use super::known;
use super::rows::{POINT, PORT, Plan, Row, STAYS};
use crate::matrix::judge;
use crate::matrix::outcome::{Outcome, attempt};
use crate::matrix::program::{Environment, Program, Ready};

/// Seconds that a server may take to its end, or to its next client, after its client's end.
const AFTER: u64 = 20;

/// Seconds in which a server serves.
const READY: u64 = 20;

/// How often a row runs again whose client came too early; or that failed though nothing of this
/// workspace takes part: Linux has at times given a service point's number to something else.
const ANEW: u32 = 2;

/// What a server over the stock provider says at times through no fault of its client: Linux has
/// given its service point's number to something else, or dapl has not yet let go of one
/// (docs/dat-programs.md). Such a row runs again, too.
const STOCK: [&str; 2] = ["DAT_CONN_QUAL_IN_USE", "DAT_INVALID_STATE_IA_IN_USE"];

/// Arguments that a tier fills into the commands.
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

/// Runs rows between two places.
pub(super) struct Runner<'p, 'k, G> {
    /// Where it runs programs.
    env: &'p mut G,
    kit: Option<&'k Kit>,
    server: Place,
    client: Place,
    names: Names,
    /// The server that stays from row to row.
    stays: Option<Program>,
}

impl<'p, 'k, 'm, G: Environment<'m>> Runner<'p, 'k, G> {
    /// Nothing runs yet.
    pub(super) fn new(
        env: &'p mut G,
        kit: Option<&'k Kit>,
        server: Place,
        client: Place,
        names: Names,
    ) -> Self {
        Self { env, kit, server, client, names, stays: None }
    }

    /// Runs a row so often.
    pub(super) fn row(&mut self, row: &Row, loops: u32) -> Outcome {
        let mut done = 0;
        let stock = self.kit.is_none() && known(&row.name).is_none();
        let served_by_stock = self.kit.is_some() && self.is_stock_server();
        let repeats = |error: &Error| {
            let said = format!("{error:#}");
            let of_stock = served_by_stock && STOCK.iter().any(|fault| said.contains(fault));
            stock || of_stock || error.is::<judge::Early>()
        };
        let outcome = attempt(&row.name, 1 + ANEW * loops, repeats, || {
            while done < loops {
                self.once(row).with_context(|| format!("round {} of {loops}", done + 1))?;
                done += 1;
            }
            Ok(())
        });
        if outcome.is_failed() {
            if let Some(mut server) = self.stays.take() {
                // Whatever is wrong with the server, the next row has a new one.
                let _ = server.reap(self.env, 0);
            }
        }
        outcome
    }

    /// Whether the server is in a guest, and the client is not.
    fn is_stock_server(&self) -> bool {
        matches!((&self.server, &self.client), (Place::Guest(..), Place::Host(..)))
    }

    fn once(&mut self, row: &Row) -> Result<()> {
        match row.plan(self.names.fewer)? {
            Plan::Alone(command) => self.alone(row, &command),
            Plan::Pair(server, client, ready) => self.pair(row, &server, &client, ready),
            Plan::Call(command) => self.call(row, &command, false),
            Plan::Quit(command) => self.call(row, &command, true),
        }
    }

    fn filled(&self, command: &str) -> String {
        command.replace("{peer}", &self.names.peer).replace("{tcp}", &self.names.tcp)
    }

    fn begin(&mut self, place: &Place, role: &'static str, command: &str) -> Result<Program> {
        environment::begin(self.env, self.kit, place, role, command)
            .with_context(|| format!("{role}: {command}"))
    }

    fn alone(&mut self, row: &Row, command: &str) -> Result<()> {
        let place = self.client.clone();
        let mut program = self.begin(&place, "client", command)?;
        let ended = program.reap(self.env, row.limit)?;
        judge::ended("it", program_of(command), &ended, row.says.as_ref())
            .with_context(|| format!("{command}\n{}\n---", ended.tail()))
            .map_err(first_cause)
    }

    fn pair(&mut self, row: &Row, server: &str, client: &str, ready: Ready) -> Result<()> {
        let (here, there) = (self.server.clone(), self.client.clone());
        let client = self.filled(client);
        let program = program_of(&client).to_owned();
        let mut serving = self.begin(&here, "server", server)?;
        let ready_in_time = serving.ready_within(self.env, ready, READY);
        if let Err(error) = ready_in_time.and_then(|()| loaded(&serving, self.env)) {
            serving.reap(self.env, 0)?;
            return Err(error);
        }
        if let (Some(to), Ready::Port(_)) = (self.names.lead, ready) {
            environment::lead(to).with_context(|| format!("port {PORT}"))?;
        }
        let called = self.begin(&there, "client", &client);
        let called = called.and_then(|mut it| it.reap_beside(self.env, row.limit, &serving));
        // A server whose client failed would wait for ever.
        let well = called.as_ref().is_ok_and(|it| it.status == Some(0));
        let served = serving.reap(self.env, if well { AFTER } else { 1 })?;
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
        let client = self.filled(client);
        if self.stays.is_none() {
            let mut server = self.begin(&here, "server", STAYS)?;
            let ready = server.says(self.env, POINT, AFTER);
            if let Err(error) = ready.and_then(|_| loaded(&server, self.env)) {
                server.reap(self.env, 0)?;
                return Err(error.context("the server"));
            }
            self.stays = Some(server);
        }
        let mut called = self.begin(&there, "client", &client)?;
        let server = self.stays.as_mut().context("no server")?;
        let called = called.reap_beside(self.env, row.limit, server)?;
        let mut said = Vec::new();
        let judged =
            judge::ended("the client", "dapltest", &called, row.says.as_ref()).and_then(|()| {
                if last {
                    let ended = server.reap(self.env, AFTER)?;
                    said = ended.lines.clone();
                    return judge::ended("the server", "dapltest", &ended, None);
                }
                said = server
                    .says(self.env, POINT, AFTER)
                    .context("the server takes no other client")?;
                judge::lines("the server", "dapltest", &said, None)
            });
        if judged.is_err() {
            said.extend(server.new_lines(self.env).unwrap_or_default());
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
    pub(super) fn end(mut self) -> Result<()> {
        if let Some(mut server) = self.stays.take() {
            server.reap(self.env, 0)?;
        }
        Ok(())
    }
}

/// An error whose first line is its cause, and whose rest are what the sides said.
fn first_cause(error: Error) -> Error {
    let cause = error.root_cause().to_string();
    anyhow!("{cause}\n{error}")
}

/// The program of a command.
fn program_of(command: &str) -> &str {
    command.split_whitespace().next().unwrap_or_default()
}
