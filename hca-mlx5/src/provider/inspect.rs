//! Where the device writes what the driver only takes fields out of: for a test of a card, which
//! keeps whole entries.

use crate::device::Device;
use crate::net::gsi::Gsi;
use crate::platform::{Platform, Span};
use crate::provider::Mlx5;
use crate::verbs::cq::CqObject;

impl<
    'p,
    P: Platform,
    const QPS: usize,
    const CQS: usize,
    const KEYS: usize,
    const NEIGHBOURS: usize,
> Mlx5<'p, P, QPS, CQS, KEYS, NEIGHBOURS>
{
    /// The device beneath, for the questions of [`survey`](crate::device::survey).
    pub fn device_mut(&mut self) -> &mut Device<'p, P> {
        &mut self.device
    }

    /// Memory of the rings of completions, that of QP1 first: whole entries of 64 bytes, and what
    /// lies behind the last.
    pub fn completion_rings(&self) -> impl Iterator<Item = Span> + '_ {
        let own = self.gsi.as_ref().and_then(Gsi::ring);
        own.into_iter().chain(self.cqs.values().map(CqObject::memory))
    }

    /// The areas before received datagrams, in which the device leaves their network headers.
    pub fn datagram_headers(&self) -> impl Iterator<Item = Span> + '_ {
        self.gsi.iter().flat_map(Gsi::headers)
    }
}
