//! Handles, addresses and private data that events and parameters refer to, for C consumers of one
//! Interface Adapter.

use dat_core::{AnyHandle, Cr, Ep, LookUp};

use super::Open;
use crate::abi::event::Surroundings;
use crate::abi::sockaddr::SockAddr;
use crate::abi::structs::DatIbAddrHandle;
use crate::abi::{Count, DatHandle};
use crate::object::Object;
use crate::variant::Variant;

/// The open adapter, seen from one Interface Adapter.
pub(crate) struct Around<'o, V: Variant> {
    open: &'o mut Open<V>,
    ia: &'static Object<V>,
}

impl<V: Variant> Open<V> {
    /// Returns the surroundings of an object.
    pub(crate) fn around(&mut self, object: &'static Object<V>) -> Around<'_, V> {
        Around { open: self, ia: object.ia() }
    }
}

impl<V: Variant> Surroundings for Around<'_, V> {
    fn handle(&mut self, of: AnyHandle) -> DatHandle {
        if of == AnyHandle::Ia {
            return crate::registry::ia_handle(self.ia.handle());
        }
        let known = self.open.adapter.handle_of_any(of);
        if !known.is_null() {
            return known;
        }
        // A peer's request creates these objects.
        if let AnyHandle::Cr(cr) = of {
            return self.open.adopt(self.ia, cr);
        }
        if let AnyHandle::Ep(ep) = of {
            if self.open.nic().ep_query(ep).is_ok() {
                return self.open.adopt(self.ia, ep);
            }
        }
        known
    }

    fn private_data(&mut self, ep: Ep) -> (Count, *const u8) {
        let Some(object) = self.open.adapter.object_of(ep) else {
            return (0, std::ptr::null());
        };
        match self.open.nic().ep_private_data(ep) {
            Ok(bytes) if !bytes.is_empty() => {
                let at = object.keep(bytes);
                (Count::try_from(bytes.len()).unwrap_or(0), at)
            }
            Ok(_) | Err(_) => (0, std::ptr::null()),
        }
    }

    fn local_address(&mut self) -> *const SockAddr {
        &raw const self.open.adapter.address
    }

    fn qualifier(&mut self, port: u64) -> u64 {
        self.open.qualifiers.of(port)
    }

    /// Moves the answer to the consumer and frees it in `dat_core`.
    fn answer(&mut self, ep: Ep, of: LookUp) -> (Count, *const u8, DatIbAddrHandle) {
        const NOTHING: (Count, *const u8, DatIbAddrHandle) =
            (0, std::ptr::null(), DatIbAddrHandle::NONE);
        let object = self.open.adapter.object_of(ep);
        let (nic, addresses) = self.open.nic_and_addresses();
        let answer = match nic.ep_ud_answer(ep, of) {
            Ok(found) => match (found.address, object) {
                (Ok(to), _) => addresses.keep(ep, to, found.private_data),
                (Err(_), Some(object)) => {
                    let at = object.keep(found.private_data);
                    let size = Count::try_from(found.private_data.len()).unwrap_or(0);
                    (size, at, DatIbAddrHandle::NONE)
                }
                (Err(_), None) => NOTHING,
            },
            Err(_) => NOTHING,
        };
        // Cannot fail: the answer exists.
        let _ = nic.ud_cm_free(ep, of);
        answer
    }

    fn asker(&mut self, cr: Cr) -> DatIbAddrHandle {
        let Ok(request) = self.open.nic().cr_query(cr) else {
            return DatIbAddrHandle::NONE;
        };
        DatIbAddrHandle {
            ia_addr: SockAddr::new(request.remote, request.remote_port),
            qpn: request.asker.map_or(0, |asker| asker.qpn),
            ..DatIbAddrHandle::NONE
        }
    }

    fn accepted(&mut self, ep: Ep) -> (Count, *const u8, DatIbAddrHandle) {
        self.open.addresses.accepted(ep)
    }
}
