//! The client: says on the control connection what it wants, does it, and ends.

use std::net::SocketAddr;

use serde::Serialize;

use super::super::super::failure::Failure;
use super::super::super::out::{Out, progress};
use super::args::{Dapltest, Wish};
use super::control::Control;
use super::hub::Hub;
use super::leg;
use super::performance::{Track, place};
use super::stats::{Performed, Transacted};
use super::terms::{self, Terms, Whom};
use super::transaction::Threads;
use super::wire::{self, ClientInfo, Kind, ServerInfo};
use crate::Host;

/// What is told at the end.
#[derive(Debug, Serialize)]
#[serde(tag = "test", rename_all = "lowercase")]
pub(super) enum Told {
    Transaction(Transacted),
    Performance(Performed),
    Quit { peer: String },
}

impl Told {
    /// For people.
    pub(super) fn lines(&self) -> String {
        match self {
            Self::Transaction(test) => {
                let checked = if test.verified() { ", verified" } else { "" };
                format!("{}transaction test with {}{checked}\n", test.lines(), test.peer)
            }
            Self::Performance(test) => {
                format!("{}performance test with {}\n", test.lines(), test.peer)
            }
            Self::Quit { peer } => format!("{peer} was told to end\n"),
        }
    }
}

/// Does what is wished.
pub(super) async fn call<H: Host>(
    hub: &Hub<'_, '_, '_, H>,
    dapltest: &Dapltest,
    server: SocketAddr,
    wish: &Wish,
    out: Out,
) -> Result<Told, Failure> {
    hub.begin(false);
    let mut control = Control::new(hub)?;
    let told = tested(hub, &mut control, dapltest, server, wish, out).await;
    let freed = control.free(hub).await;
    hub.end(false);
    let told = told?;
    freed?;
    Ok(told)
}

async fn tested<'p, H: Host>(
    hub: &Hub<'_, '_, 'p, H>,
    control: &mut Control<'p, H>,
    dapltest: &Dapltest,
    server: SocketAddr,
    wish: &Wish,
    out: Out,
) -> Result<Told, Failure> {
    let ip = server.ip();
    let (name, device) = (ip.to_string(), hub.nic(|nic| nic.host().name().to_owned()));
    let labels = dapltest.labels(&name, &device);
    let peer = server.to_string();
    match wish {
        Wish::Quit => {
            let info = ClientInfo::new(Kind::Quit, 0);
            let command = wire::quit(labels, dapltest.debug);
            control.call(hub, server, info, &command).await?;
            Ok(Told::Quit { peer })
        }
        Wish::Transaction(command) => {
            terms::check(hub, command)?;
            let info = ClientInfo::new(Kind::Transaction, command.threads * command.eps);
            let answer = control.call(hub, server, info, &command.bytes(labels)).await?;
            let ServerInfo { order, first_port } = answer;
            let whom = Whom { server: false, peer: ip, order, first_port };
            let terms = Terms::new(command, whom);
            let rounds = u64::from(terms.iterations) * u64::from(terms.threads);
            let bar = progress(out, rounds, "dapltest");
            let mut threads = Threads::new(hub, &terms)?;
            hub.begin(terms.poll);
            let ran = threads.run(hub, &terms, &bar).await;
            hub.end(terms.poll);
            bar.finish_and_clear();
            let freed = threads.free(hub);
            let ran = ran?;
            freed?;
            Ok(Told::Transaction(Transacted::new(peer, command, &ran)))
        }
        Wish::Performance(command) => {
            let info = ClientInfo::new(Kind::Performance, 1);
            let answer = control.call(hub, server, info, &command.bytes(labels)).await?;
            let port = leg::port(answer.first_port, 0, ip)?;
            let mut track = Track::new(hub, *command, place(ip, port), false)?;
            let bar = progress(out, u64::from(command.iterations) * 2, "dapltest");
            let measured = track.call(hub, answer.order, &bar).await;
            bar.finish_and_clear();
            let freed = track.free(hub);
            let measured = measured?;
            freed?;
            Ok(Told::Performance(Performed::new(peer, command, &measured)))
        }
    }
}
