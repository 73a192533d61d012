//! `dat listen`: serves tests, several at a time, until the requested number is done or Ctrl-C.

use dat_core::{DatReturn, Evd, EvdFlags, Event, PspFlag};
use serde::Serialize;
use vfio_host::{Host, Nic};

use super::super::args::Listen;
use super::super::failure::Failure;
use super::super::out::{Out, note};
use super::super::{End, signals};
use super::adapter::{self, SLICE, Task, dat, trouble};
use super::session::{Outcome, Report, Session};

/// Largest number of tests at a time.
pub(super) const SESSIONS: usize = 8;
/// Length of the queue of connection requests.
const REQUESTS: u32 = 32;
/// Largest number of events taken from one dispatcher in a row.
const BURST: usize = 64;

/// The result.
#[derive(Debug, Default, Serialize)]
struct Served {
    /// No session failed.
    ok: bool,
    sessions: Vec<Report>,
    /// Number of further sessions beyond the [`KEPT`] first.
    more: u64,
}

/// Largest number of sessions in the result.
const KEPT: usize = 1000;

pub(crate) fn run(listen: &Listen, out: &Out) -> Result<End, Failure> {
    let served = adapter::with(&listen.adapter, Serve { listen, out })?;
    if out.json() {
        out.result(&served, "")?;
    }
    Ok(if served.ok { End::Ok } else { End::Failed })
}

struct Serve<'a> {
    listen: &'a Listen,
    out: &'a Out,
}

impl Task for Serve<'_> {
    type Report = Served;

    fn run<'p, H: Host>(self, nic: &mut Nic<'_, 'p, H>) -> Result<Served, Failure> {
        let Self { listen, out } = self;
        let requests =
            nic.evd_create(REQUESTS, EvdFlags::CR).map_err(|e| dat("dat_evd_create", e))?;
        let psp = nic
            .psp_create(listen.port.into(), requests, PspFlag::Consumer)
            .map_err(|e| dat("dat_psp_create", e))?;
        let ip = nic.query().0.ia_address;
        note(&format!(
            "dat: {} listens on {ip} port {}; Ctrl-C ends it",
            nic.host().name(),
            listen.port
        ));
        let mut server = Server {
            requests,
            spin: listen.poll,
            left: listen.count,
            sessions: Vec::new(),
            served: Served { ok: true, ..Served::default() },
        };
        while !signals::asked() && !server.done() {
            server.turn(nic, out)?;
        }
        // Ends the running tests and rejects queued requests.
        for session in std::mem::take(&mut server.sessions) {
            server.finish(nic, session, out)?;
        }
        while let Ok(Event::ConnectionRequest { cr, .. }) = nic.evd_dequeue(requests) {
            let _ = nic.cr_reject(cr, &super::hello::refusal("the listener is shutting down"));
        }
        nic.psp_free(psp).map_err(|e| dat("dat_psp_free", e))?;
        nic.evd_free(requests).map_err(|e| dat("dat_evd_free", e))?;
        Ok(server.served)
    }
}

struct Server<'p, H: Host> {
    requests: Evd,
    spin: bool,
    /// Tests left to accept; `None` for no limit.
    left: Option<u64>,
    sessions: Vec<Session<'p, H>>,
    served: Served,
}

impl<'p, H: Host> Server<'p, H> {
    fn done(&self) -> bool {
        self.left == Some(0) && self.sessions.is_empty()
    }

    /// Waits for events and processes all that are pending.
    fn turn(&mut self, nic: &mut Nic<'_, 'p, H>, out: &Out) -> Result<(), Failure> {
        self.wait(nic)?;
        for session in &mut self.sessions {
            for _ in 0..BURST {
                match nic.evd_dequeue(session.evd()) {
                    Ok(event) => session.event(nic, event),
                    Err(DatReturn::QUEUE_EMPTY) => break,
                    Err(ret) => return Err(dat("dat_evd_dequeue", ret)),
                }
            }
            session.check_silence();
        }
        while let Some(over) = self.sessions.iter().position(Session::over) {
            let session = self.sessions.swap_remove(over);
            self.finish(nic, session, out)?;
        }
        while let Ok(event) = nic.evd_dequeue(self.requests) {
            if let Event::ConnectionRequest { cr, .. } = event {
                let taken = if self.left == Some(0) {
                    Err("the listener serves no more tests")
                } else if self.sessions.len() >= SESSIONS {
                    Err("too many tests are running; try again later")
                } else {
                    Ok(())
                };
                let session = Session::answer(nic, cr, taken)?;
                if let (Some(left), Some(_)) = (&mut self.left, &session) {
                    *left -= 1;
                }
                self.sessions.extend(session);
            }
        }
        Ok(())
    }

    fn wait(&self, nic: &mut Nic<'_, 'p, H>) -> Result<(), Failure> {
        if self.spin && !self.sessions.is_empty() {
            nic.advance();
            return trouble(nic).map_or(Ok(()), Err);
        }
        let mut evds = vec![self.requests];
        evds.extend(self.sessions.iter().map(Session::evd));
        adapter::wait(nic, &evds, SLICE)
    }

    fn finish(
        &mut self,
        nic: &mut Nic<'_, 'p, H>,
        session: Session<'p, H>,
        out: &Out,
    ) -> Result<(), Failure> {
        let report = session.finish(nic)?;
        out.say(&report.to_string())?;
        if matches!(report.outcome, Outcome::Failed(_)) {
            self.served.ok = false;
        }
        if self.served.sessions.len() < KEPT {
            self.served.sessions.push(report);
        } else {
            self.served.more += 1;
        }
        Ok(())
    }
}
