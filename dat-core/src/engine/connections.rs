//! The connections of an adapter: the connection manager, and whom each of its connections
//! belongs to.

use heapless::Deque;

use crate::cm::Cm;
use crate::cm::event::{SidrReply, Transmit};
use crate::cm::params::ConnId;
use crate::cm::wire::reason::Reason;
use crate::cm::wire::sidr::SidrStatus;
use crate::objects::Objects;
use crate::provider::Destination;
use crate::types::handle::{Cr, Ep};

/// Datagrams whose way is still being looked up. More wait in the connection manager.
const WAITING: usize = 4;

/// Whom a connection of the connection manager belongs to.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Owner {
    /// Nobody any more: its end is of no interest.
    Nobody,
    /// An Endpoint.
    Ep(Ep),
    /// A request that has not been answered.
    Cr(Cr),
    /// A look-up of an Endpoint for datagrams.
    LookUp(Ep, ConnId),
}

/// The connection manager, and whom its connections belong to.
#[derive(Debug)]
pub(crate) struct Connections<'s> {
    pub(crate) cm: Cm<'s>,
    /// By the index of a connection.
    pub(crate) owners: &'s mut [Owner],
    /// Datagrams whose path is being resolved.
    pub(crate) waiting: Deque<Transmit, WAITING>,
    /// Some of these found no room in the device.
    pub(crate) crowded: bool,
}

impl Connections<'_> {
    pub(crate) fn own(&mut self, conn: ConnId, owner: Owner) {
        if let Some(place) = self.owners.get_mut(conn.index()) {
            *place = owner;
        }
    }

    pub(crate) fn owner(&self, objects: &Objects<'_>, conn: ConnId) -> Owner {
        let owner = self.owners.get(conn.index()).copied().unwrap_or(Owner::Nobody);
        let current = match owner {
            Owner::Nobody => None,
            Owner::Ep(ep) => objects.eps.get(ep.0).and_then(|control| control.conn),
            Owner::Cr(cr) => objects.crs.get(cr.0).and_then(|control| control.conn),
            Owner::LookUp(ep, of) => objects.eps.get(ep.0).map(|_| of),
        };
        if current == Some(conn) { owner } else { Owner::Nobody }
    }

    /// Questions that wait for an answer.
    pub(super) fn questions(&self) -> usize {
        let waits =
            |owner: &&Owner| matches!(owner, Owner::LookUp(_, conn) if self.cm.sidr_asks(*conn));
        self.owners.iter().filter(waits).count()
    }

    /// What a reply says.
    pub(crate) fn address(&self, reply: &SidrReply) -> Result<Destination, Reason> {
        match self.cm.sidr_path(reply.conn) {
            Some(path) if reply.status == SidrStatus::VALID => {
                Ok(Destination { path, qpn: reply.qpn, qkey: reply.q_key })
            }
            Some(_) | None => Err(reply.status.reason()),
        }
    }

    /// Ends the questions of an Endpoint; and lets the answers go, if it is said.
    pub(super) fn end_look_ups(&mut self, ep: Ep, answers: bool) {
        for index in 0..self.owners.len() {
            if let Some(&Owner::LookUp(owner, conn)) = self.owners.get(index)
                && owner == ep
                && (answers || self.cm.sidr_kept(conn).is_none())
            {
                self.cm.sidr_end(conn);
            }
        }
    }

    /// Puts a datagram off.
    pub(super) fn put_off(&mut self, transmit: Transmit) {
        // A stranger's answer must not stand in the way of a connection: it gets half of the room,
        // and where that is taken it is dropped. The stranger will ask again, if it exists.
        let strangers = self.waiting.iter().filter(|other| other.conn.is_none()).count();
        if transmit.conn.is_some() || strangers < WAITING / 2 {
            // There is room: the caller looked, or has just taken it out.
            let _ = self.waiting.push_back(transmit);
        }
    }
}
