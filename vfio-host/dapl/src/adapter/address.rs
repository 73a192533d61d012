//! Destinations of datagrams. C consumers have a token for each, in the field for the address of a
//! `struct ibv_ah`.

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

/// The addresses that Endpoints of an adapter have found.
#[derive(Debug, Default)]
pub(crate) struct Addresses {
    places: Vec<Address>,
}

impl Addresses {
    /// Stores the destination that an Endpoint has found. Returns its private data and address
    /// handle; none if there are too many.
    pub(crate) fn keep(
        &mut self,
        ep: Ep,
        to: Destination,
        private: &[u8],
    ) -> (Count, *const u8, DatIbAddrHandle) {
        const NONE: (Count, *const u8, DatIbAddrHandle) =
            (0, std::ptr::null(), DatIbAddrHandle::NONE);
        let free = self.places.iter().position(|address| address.found.is_none());
        let place = free.unwrap_or(self.places.len());
        if place >= 1 << PLACE {
            return NONE;
        }
        if free.is_none() {
            self.places.push(Address { turn: 0, found: None });
        }
        let Some(address) = self.places.get_mut(place) else {
            return NONE;
        };
        // Never 0, so that no token is 0.
        address.turn = address.turn.wrapping_add(1).max(1);
        let private: Box<[u8]> = private.into();
        let size = Count::try_from(private.len()).unwrap_or(0);
        let at = private.as_ptr();
        address.found = Some((ep, to, private));
        let word = place | (address.turn as usize) << PLACE;
        let handle = DatIbAddrHandle {
            ah: std::ptr::without_provenance_mut(word),
            qpn: to.qpn,
            ia_addr: SockAddr::new(to.path.remote, 0),
        };
        (size, at, handle)
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
        for address in &mut self.places {
            address.found.take_if(|(ep, ..)| *ep == gone);
        }
    }
}
