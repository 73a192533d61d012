//! Destinations of datagrams. C consumers have a token for each, in the field for the address of a
//! `struct ibv_ah`.

use std::collections::{BTreeMap, VecDeque};

use dat_core::Ep;
use dat_core::provider::Destination;

use crate::abi::Count;
use crate::abi::sockaddr::SockAddr;
use crate::abi::structs::DatIbAddrHandle;

/// Bits of a token that are the index; the bits above count the reuses of the index.
const PLACE: u32 = 20;

#[derive(Debug)]
struct Address {
    /// Number of uses of the index, so that each use has another token.
    turn: u32,
    /// The Endpoint that found it, the destination, and the private data of the answer.
    found: Option<(Ep, Destination, Box<[u8]>)>,
}

/// What a consumer learns of a peer: size and address of its private data, and where it is.
type Found = (Count, *const u8, DatIbAddrHandle);

/// The addresses that Endpoints of an adapter have found.
#[derive(Debug, Default)]
pub(crate) struct Addresses {
    places: Vec<Address>,
    /// Endpoints that peers were given, the places of these peers, in the order of the events that
    /// say so.
    accepted: VecDeque<(Ep, Option<usize>)>,
}

impl Addresses {
    /// Stores the destination that an Endpoint has found. Returns its private data and address
    /// handle; none if there are too many.
    pub(crate) fn keep(&mut self, ep: Ep, to: Destination, private: &[u8]) -> Found {
        let place = self.store(ep, to, private);
        place.map_or(Self::NONE, |place| self.found(place))
    }

    /// Stores one that was given the Endpoint, or that there is nothing to know of it, for
    /// [`Addresses::accepted`].
    pub(crate) fn accept(&mut self, ep: Ep, asker: Option<(Destination, Box<[u8]>)>) {
        let place = asker.and_then(|(to, private)| self.store(ep, to, &private));
        self.accepted.push_back((ep, place));
    }

    /// Returns the oldest that was given the Endpoint and not returned yet.
    pub(crate) fn accepted(&mut self, ep: Ep) -> Found {
        let at = self.accepted.iter().position(|(given, _)| *given == ep);
        let given = at.and_then(|at| self.accepted.remove(at));
        let place = given.and_then(|(_, place)| place);
        place.map_or(Self::NONE, |place| self.found(place))
    }

    const NONE: Found = (0, std::ptr::null(), DatIbAddrHandle::NONE);

    /// Returns the place of a destination that is stored now.
    fn store(&mut self, ep: Ep, to: Destination, private: &[u8]) -> Option<usize> {
        let free = self.places.iter().position(|address| address.found.is_none());
        let place = free.unwrap_or(self.places.len());
        if place >= 1 << PLACE {
            return None;
        }
        if free.is_none() {
            self.places.push(Address { turn: 0, found: None });
        }
        let address = self.places.get_mut(place)?;
        // Never 0, so that no token is 0.
        address.turn = address.turn.wrapping_add(1).max(1);
        address.found = Some((ep, to, private.into()));
        Some(place)
    }

    fn found(&self, place: usize) -> Found {
        let Some(Address { turn, found: Some((_, to, private)) }) = self.places.get(place) else {
            return Self::NONE;
        };
        let handle = DatIbAddrHandle {
            ah: std::ptr::without_provenance_mut(place | (*turn as usize) << PLACE),
            qpn: to.qpn,
            ia_addr: SockAddr::new(to.path.remote, 0),
        };
        (Count::try_from(private.len()).unwrap_or(0), private.as_ptr(), handle)
    }

    fn place(&mut self, handle: &DatIbAddrHandle) -> Option<&mut Address> {
        let word = handle.ah.addr();
        let place = self.places.get_mut(word & ((1 << PLACE) - 1))?;
        (place.turn as usize == word >> PLACE).then_some(place)
    }

    /// Returns the destination of an address handle. The consumer may have replaced its QPN.
    pub(crate) fn find(&mut self, handle: &DatIbAddrHandle) -> Option<Destination> {
        let (_, to, _) = self.place(handle)?.found.as_ref()?;
        Some(Destination { qpn: handle.qpn, ..*to })
    }

    /// Removes a destination. Returns whether there was one.
    pub(crate) fn free(&mut self, handle: &DatIbAddrHandle) -> bool {
        self.place(handle).is_some_and(|address| address.found.take().is_some())
    }

    /// Removes the destinations of a freed Endpoint.
    pub(crate) fn forget(&mut self, gone: Ep) {
        self.accepted.retain(|(ep, _)| *ep != gone);
        for address in &mut self.places {
            address.found.take_if(|(ep, ..)| *ep == gone);
        }
    }
}

/// Connection Qualifiers of service points that are more than their ports.
#[derive(Debug, Default)]
pub(crate) struct Qualifiers(BTreeMap<u64, u64>);

impl Qualifiers {
    /// A service point was made with it.
    pub(crate) fn given(&mut self, conn_qual: u64) {
        let port = conn_qual & u64::from(u16::MAX);
        if port != conn_qual {
            self.0.insert(port, conn_qual);
        }
    }

    /// The service point of a port is gone.
    pub(crate) fn gone(&mut self, port: u64) {
        self.0.remove(&port);
    }

    /// Returns what the service point of a port was made with.
    pub(crate) fn of(&self, port: u64) -> u64 {
        self.0.get(&port).copied().unwrap_or(port)
    }
}
