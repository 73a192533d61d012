//! Where datagrams go: what C consumers have is a word that stands for it, in the place of the
//! address of a `struct ibv_ah`.

use dat_core::Ep;
use dat_core::provider::Destination;

use crate::abi::Count;
use crate::abi::sockaddr::SockAddr;
use crate::abi::structs::DatIbAddrHandle;

/// Bits of a word that are the place; above them is how often that was used.
const PLACE: u32 = 20;

#[derive(Debug)]
struct Address {
    /// How often the place was used: another word each time.
    turn: u32,
    /// Who found it, what, and the words that came with it.
    found: Option<(Ep, Destination, Box<[u8]>)>,
}

/// The addresses that Endpoints of an adapter have found.
#[derive(Debug, Default)]
pub(crate) struct Addresses {
    places: Vec<Address>,
}

impl Addresses {
    /// Keeps what an Endpoint has found, and gives the private data and the address handle for it;
    /// none, if there are too many.
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
        // Never 0, so that no word is.
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

    /// What an address handle stands for. The consumer may have put another QPN into it.
    pub(crate) fn find(&mut self, handle: &DatIbAddrHandle) -> Option<Destination> {
        let (_, to, _) = self.place(handle)?.found.as_ref()?;
        Some(Destination { qpn: handle.qpn, ..*to })
    }

    /// Forgets an address; whether there was one.
    pub(crate) fn free(&mut self, handle: &DatIbAddrHandle) -> bool {
        self.place(handle).is_some_and(|address| address.found.take().is_some())
    }

    /// Forgets what an Endpoint that is no more has found.
    pub(crate) fn forget(&mut self, gone: Ep) {
        for address in &mut self.places {
            address.found.take_if(|(ep, ..)| *ep == gone);
        }
    }
}
