//! The server: one client after the other on the control connection, their tests beside each other.
//!
//! A test is a task of its own from the moment at which its ports are open, and the server has ears
//! for the next client then. What goes wrong with a client, or in its test, is said, and is an end
//! of nothing but that.

use std::cell::{Cell, RefCell};
use std::net::IpAddr;

use dat_core::Cr;
use indicatif::ProgressBar;
use serde::Serialize;

use super::super::super::failure::Failure;
use super::super::super::out::{Out, note};
use super::super::super::signals;
use super::super::super::traffic::adapter::SIZES;
use super::args::Dapltest;
use super::control::Control;
use super::hub::{Hub, PROGRAM, Task, late};
use super::performance::{Track, place};
use super::stats::Transacted;
use super::terms::{self, Terms, Whom};
use super::transaction::Threads;
use super::wire::{ClientInfo, Kind, Order, Performance, ServerInfo, Transaction};
use crate::Host;

/// Ports of tests, behind that of the server, one for each connection that there is room for; then
/// they begin anew.
const PORTS: u16 = SIZES.eps;

/// What is told at the end.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(super) struct Served {
    /// Tests that went well.
    pub(super) tests: u64,
    /// Tests, and clients, that did not.
    pub(super) failed: u64,
}

/// What the server and its tests share.
pub(super) struct Serving<'t, 'h, 's, 'p, H: Host> {
    pub(super) hub: &'t Hub<'h, 's, 'p, H>,
    pub(super) dapltest: &'t Dapltest,
    pub(super) out: Out,
    pub(super) served: &'t Cell<Served>,
}

impl<H: Host> Clone for Serving<'_, '_, '_, '_, H> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<H: Host> Copy for Serving<'_, '_, '_, '_, H> {}

/// Tests to be begun.
type More<'t> = RefCell<Vec<Task<'t>>>;

/// What comes after a client.
enum After {
    /// The next.
    Next,
    /// The end, as the client wished.
    End,
}

impl<'t, 'p: 't, H: Host> Serving<'t, '_, '_, 'p, H> {
    /// Serves until a client or a Ctrl-C ends it, or none comes.
    pub(super) async fn run(self, more: &More<'t>) -> Result<(), Failure> {
        let Self { hub, dapltest, .. } = self;
        let port = dapltest.port;
        let mut control = Control::new(hub)?;
        let point = hub.listen(port, None)?;
        let (ip, name) = hub.nic(|nic| (nic.query().0.ia_address, nic.host().name().to_owned()));
        note(&format!("dat: {name} listens on {ip} port {port} for {PROGRAM}; Ctrl-C ends it"));
        let mut next = port + 1;
        let ended = loop {
            control.post(hub)?;
            self.out.say(&format!("Dapltest: Service Point Ready - {name}"))?;
            let asked = loop {
                let asked = hub.asked(port, dapltest.patience.wait).await;
                // While a test is under way there is no hurry for the next.
                if asked.is_some() || signals::asked() || hub.busy() == 0 {
                    break asked;
                }
            };
            let Some((cr, peer)) = asked else {
                break if signals::asked() {
                    Ok(())
                } else {
                    Err(late("a dapltest client", dapltest.patience.wait, "a client"))
                };
            };
            hub.begin(false);
            let after = self.meet(more, &mut control, cr, peer, &mut next).await;
            let renewed = control.renew(hub).await;
            hub.end(false);
            renewed?;
            match after {
                Ok(After::Next) => {}
                Ok(After::End) => break Ok(()),
                Err(failure) => self.failed(&format!("a client at {peer}"), &failure),
            }
        };
        hub.close(&point)?;
        while hub.busy() > 0 {
            // Each of its waits has an end, so this has one.
            let _ = hub.holds("the end of all tests", "a client", || hub.busy() == 0).await;
        }
        control.free(hub).await?;
        ended
    }

    fn failed(self, who: &str, failure: &Failure) {
        note(&format!("dat: {who}: {failure}"));
        let mut served = self.served.get();
        served.failed += 1;
        self.served.set(served);
    }

    /// Hears what a client wants and sees to it.
    async fn meet(
        self,
        more: &More<'t>,
        control: &mut Control<'p, H>,
        cr: Cr,
        peer: IpAddr,
        next: &mut u16,
    ) -> Result<After, Failure> {
        let Self { hub, .. } = self;
        let Some((info, command)) = control.take(hub, cr, peer).await? else {
            return Ok(After::Next);
        };
        let answer =
            |first_port: u16| ServerInfo { order: Order::Little, first_port: first_port.into() };
        match info.kind {
            Kind::Quit => {
                control.answer(hub, answer(*next)).await?;
                return Ok(After::End);
            }
            Kind::Transaction => {
                let command = Transaction::read(&command)?;
                terms::check(hub, &command)?;
                let connections = command.threads * command.eps;
                let first = self.ports(next, connections)?;
                let whom = Whom { server: true, peer, order: info.order, first_port: first.into() };
                let terms = Terms::new(&command, whom);
                let threads = Threads::new(hub, &terms)?;
                // From here on the ports are open, and the test's own affair.
                self.begin(more, Box::pin(self.transaction(threads, terms, command)));
                control.answer(hub, answer(first)).await?;
            }
            Kind::Performance => {
                let command = Performance::read(&command)?;
                let first = self.ports(next, 1)?;
                let track = Track::new(hub, command, place(peer, first), true)?;
                self.begin(more, Box::pin(self.performance(track, info, peer)));
                control.answer(hub, answer(first)).await?;
            }
        }
        Ok(After::Next)
    }

    fn begin(self, more: &More<'t>, task: Task<'t>) {
        more.borrow_mut().push(task);
        self.hub.stir();
    }

    /// The first of so many ports that follow each other.
    fn ports(self, next: &mut u16, count: u32) -> Result<u16, Failure> {
        let base = self.dapltest.port;
        let count = u16::try_from(count).unwrap_or(u16::MAX);
        let last = base.saturating_add(PORTS);
        let fits = |first: u16| first.checked_add(count).filter(|end| *end <= last);
        let (first, end) = match (fits(*next), base.checked_add(1)) {
            (Some(end), _) => (*next, end),
            (None, Some(first)) => (
                first,
                fits(first).ok_or_else(|| {
                    Failure::new(format!("there are no {count} ports behind {base}"))
                        .remedy("start the server with a smaller -n")
                })?,
            ),
            (None, None) => (*next, *next),
        };
        *next = end;
        Ok(first)
    }

    async fn transaction(
        self,
        mut threads: Threads<'p, H>,
        terms: Terms,
        command: Transaction,
    ) -> Result<(), Failure> {
        let Self { hub, .. } = self;
        hub.begin(terms.poll);
        let ran = threads.run(hub, &terms, &ProgressBar::hidden()).await;
        let freed = threads.free(hub);
        hub.end(terms.poll);
        let peer = terms.peer.to_string();
        match ran.and_then(|ran| freed.map(|()| ran)) {
            Ok(ran) => {
                let told = Transacted::new(peer, &command, &ran);
                self.well(&format!(
                    "Server: Transaction Test Finished for this client: {}, {}",
                    told.peer,
                    told.brief()
                ))
            }
            Err(failure) => {
                self.failed(&format!("the transaction test with {peer}"), &failure);
                Ok(())
            }
        }
    }

    async fn performance(
        self,
        mut track: Track<'p, H>,
        info: ClientInfo,
        peer: IpAddr,
    ) -> Result<(), Failure> {
        let Self { hub, .. } = self;
        hub.begin(false);
        let ended = track.serve(hub, info.order).await;
        let freed = track.free(hub);
        hub.end(false);
        match ended.and(freed) {
            Ok(()) => self.well(&format!("Server: Finished performance test: {peer}")),
            Err(failure) => {
                self.failed(&format!("the performance test with {peer}"), &failure);
                Ok(())
            }
        }
    }

    fn well(self, words: &str) -> Result<(), Failure> {
        let mut served = self.served.get();
        served.tests += 1;
        self.served.set(served);
        self.out.say(words)
    }
}
