//! The Endpoints of one side of a program, all on one Event Dispatcher.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use dat_core::{
    CompletionFlags, Cr, Ep, EpAttr, Evd, EvdFlags, Event, LmrTriplet, Psp, PspFlag, Pz,
};
use vfio_host::{Host, Nic};

use super::super::failure::Failure;
use super::super::out::note;
use super::super::signals;
use super::super::traffic::adapter::{self, SLICE, dat};
use super::super::traffic::memory::Memory;
use super::args::Patience;

/// No flags.
pub(super) const PLAIN: CompletionFlags = CompletionFlags::empty();

/// What Endpoints are made for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Makings {
    /// How many.
    pub(super) count: usize,
    /// Requests outstanding, each.
    pub(super) requests: u16,
    /// Receives outstanding, each.
    pub(super) receives: u16,
}

/// The Endpoints and what belongs to them.
#[derive(Debug)]
pub(super) struct Ends {
    /// Their zone.
    pub(super) pz: Pz,
    pub(super) evd: Evd,
    pub(super) eps: Vec<Ep>,
    psp: Option<Psp>,
    /// The program on the other side, for messages.
    pub(super) program: &'static str,
    /// Who is on the other side, as far as is known.
    pub(super) peer: String,
    /// Longest silence of the peer.
    pub(super) timeout: Duration,
    spin: bool,
}

impl Ends {
    /// Makes them, each by `create`, of attributes in which that much is said.
    pub(super) fn new<'s, 'p, H: Host>(
        nic: &mut Nic<'s, 'p, H>,
        makings: Makings,
        patience: &Patience,
        program: &'static str,
        create: impl Fn(&mut Nic<'s, 'p, H>, Pz, Evd, EpAttr) -> Result<Ep, dat_core::Error>,
    ) -> Result<Self, Failure> {
        let pz = nic.pz_create().map_err(|e| dat("dat_pz_create", e))?;
        let each = u32::from(makings.requests) + u32::from(makings.receives);
        let events = u32::try_from(makings.count).unwrap_or(u32::MAX).saturating_mul(each);
        let streams = EvdFlags::DTO | EvdFlags::CONNECTION | EvdFlags::CR;
        let evd = nic.evd_create(events, streams).map_err(|e| dat("dat_evd_create", e))?;
        let attr = EpAttr {
            max_request_dtos: makings.requests,
            max_recv_dtos: makings.receives,
            ..nic.ep_attr_default()
        };
        let eps = (0..makings.count)
            .map(|_| create(nic, pz, evd, attr).map_err(|e| dat("making an Endpoint", e)))
            .collect::<Result<Vec<_>, _>>()?;
        Ok(Self {
            pz,
            evd,
            eps,
            psp: None,
            program,
            peer: "the peer".into(),
            timeout: patience.timeout,
            spin: patience.poll,
        })
    }

    /// The Endpoint in that place.
    pub(super) fn ep(&self, link: usize) -> Result<Ep, Failure> {
        let ep = self.eps.get(link).copied();
        ep.ok_or_else(|| Failure::new(format!("there is no Endpoint {link}")))
    }

    /// Its place.
    pub(super) fn link(&self, ep: Ep) -> Result<usize, Failure> {
        let link = self.eps.iter().position(|other| *other == ep);
        link.ok_or_else(|| Failure::new("the device reported an Endpoint that does not exist"))
    }

    /// The number of one's queue pair.
    pub(super) fn qpn<H: Host>(&self, nic: &Nic<'_, '_, H>, link: usize) -> Result<u32, Failure> {
        let param = nic.ep_query(self.ep(link)?).map_err(|e| dat("dat_ep_query", e))?;
        let qp = param.qp.map(|qp| qp.number);
        qp.ok_or_else(|| Failure::new("an Endpoint has no queue pair"))
    }

    /// The next event, if one comes within `left` and not too long a time without a look at the
    /// rest of the world.
    pub(super) fn event<H: Host>(
        &self,
        nic: &mut Nic<'_, '_, H>,
        left: Duration,
    ) -> Result<Option<Event>, Failure> {
        adapter::next(nic, self.evd, left.min(SLICE), self.spin)
    }

    /// Posts a receive into `piece`.
    pub(super) fn recv<H: Host>(
        &self,
        nic: &mut Nic<'_, '_, H>,
        link: usize,
        piece: LmrTriplet,
        cookie: u64,
    ) -> Result<(), Failure> {
        nic.ep_post_recv(self.ep(link)?, &[piece], cookie, PLAIN)
            .map_err(|ret| dat("dat_ep_post_recv", ret))
    }

    /// From now on peers can ask for `port`.
    pub(super) fn listen<H: Host>(
        &mut self,
        nic: &mut Nic<'_, '_, H>,
        port: u16,
    ) -> Result<(), Failure> {
        let psp = nic
            .psp_create(port.into(), self.evd, PspFlag::Consumer)
            .map_err(|e| dat("dat_psp_create", e))?;
        self.psp = Some(psp);
        let ip = nic.query().0.ia_address;
        note(&format!(
            "dat: {} listens on {ip} port {port} for {}; Ctrl-C ends it",
            nic.host().name(),
            self.program
        ));
        Ok(())
    }

    /// From now on nobody can.
    pub(super) fn deafen<H: Host>(&mut self, nic: &mut Nic<'_, '_, H>) -> Result<(), Failure> {
        match self.psp.take() {
            Some(psp) => nic.psp_free(psp).map_err(|e| dat("dat_psp_free", e)),
            None => Ok(()),
        }
    }

    /// Accepts a request, or tells who asks that it is to send to this Endpoint. Event of a
    /// connection come later.
    pub(super) fn accept<H: Host>(
        &mut self,
        nic: &mut Nic<'_, '_, H>,
        cr: Cr,
        link: usize,
    ) -> Result<(), Failure> {
        let request = nic.cr_query(cr).map_err(|e| dat("dat_cr_query", e))?;
        self.peer = request.remote.to_string();
        nic.cr_accept(cr, Some(self.ep(link)?), &[]).map_err(|e| dat("dat_cr_accept", e))
    }

    /// Gives everything back, and the memory that was used with it.
    pub(super) fn free<'p, H: Host>(
        mut self,
        nic: &mut Nic<'_, 'p, H>,
        memory: impl IntoIterator<Item = Memory<'p, H>>,
    ) -> Result<(), Failure> {
        let mut first = self.deafen(nic);
        for ep in &self.eps {
            first = first.and(nic.ep_free(*ep).map_err(|e| dat("dat_ep_free", e)));
        }
        for memory in memory {
            first = first.and(memory.free(nic));
        }
        first = first.and(nic.evd_free(self.evd).map_err(|e| dat("dat_evd_free", e)));
        first.and(nic.pz_free(self.pz).map_err(|e| dat("dat_pz_free", e)))
    }
}

/// Nothing has come in so much time.
pub(super) fn late(what: &str, limit: Duration) -> Failure {
    Failure::new(format!("{what} did not come within {} s", limit.as_secs_f64()))
}

/// `program` does not run where it should.
pub(super) fn unserved(server: SocketAddr, program: &str) -> Failure {
    let (ip, port) = (server.ip(), server.port());
    Failure::new(format!("{ip} is there, but nothing listens on its port {port}"))
        .remedy(format!("start {program} there, or give the port that it has"))
}

/// An address where nobody is.
pub(super) fn lost(ip: IpAddr) -> Failure {
    Failure::new(format!("{ip} does not answer")).remedy(
        "is it up, is its address right, is it in the same network and VLAN (--ip, --vlan, --gateway)?",
    )
}

/// Fails if somebody asked for the end.
pub(super) fn interrupted(what: &str) -> Result<(), Failure> {
    if signals::asked() {
        return Err(Failure::new(format!("interrupted while waiting for {what}")));
    }
    Ok(())
}
