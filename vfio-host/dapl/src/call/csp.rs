//! dat_csp_* (2.0).

use dat_core::{Comm, Csp, Evd};

use super::{call, ia_called};
use crate::abi::sockaddr::{SockAddr, SockAddrPtr};
use crate::abi::structs::{DatComm, DatCspParam};
use crate::abi::{DatHandle, In, Out, Ret, code};
use crate::object::{Note, Object};
use crate::variant::Variant;

/// What a Common Service Point was made with, as C has it.
#[derive(Clone, Copy)]
pub(crate) struct Made {
    comm: DatComm,
    address: SockAddr,
}

impl std::fmt::Debug for Made {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.address.fmt(f)
    }
}

pub(super) extern "C" fn create<V: Variant>(
    ia: DatHandle,
    comm: In<DatComm>,
    address: SockAddrPtr,
    evd: DatHandle,
    csp: Out<DatHandle>,
) -> Ret {
    call("dat_csp_create", || {
        let ia = ia_called::<V>(ia)?;
        let comm = comm.get().ok_or(code::bad_arg(2))?;
        let address = address.get().ok_or(code::bad_arg(3))?;
        if csp.is_null() {
            return Err(code::bad_arg(5).into());
        }
        ia.adapter()?.with(|open| {
            let evd: Evd = ia.sibling(evd).map_err(|_| code::EVD_CR)?;
            let spoken = Comm { domain: comm.domain, kind: comm.r#type, protocol: comm.protocol };
            let made = open.nic().csp_create(spoken, address, evd)?;
            let handle = open.adopt(ia, made);
            if let Some(object) = Object::<V>::find(handle) {
                let address = SockAddr::new(address.ip(), address.port());
                *object.note() = Note::Csp(Box::new(Made { comm, address }));
            }
            csp.put(handle);
            Ok(())
        })
    })
}

pub(super) extern "C" fn query<V: Variant>(
    csp: DatHandle,
    mask: u32,
    param: Out<DatCspParam>,
) -> Ret {
    call("dat_csp_query", || {
        let object = Object::<V>::called(csp);
        let csp = object.name::<Csp>()?;
        if param.is_null() {
            return Err(code::bad_arg(3).into());
        }
        let mask = u64::from(mask);
        code::masked(mask, crate::abi::number::DAT_CSP_FIELD_ALL)?;
        object.adapter()?.with(|open| {
            let evd = open.nic().csp_query(csp)?.evd;
            let (comm, address) = match &*object.note() {
                Note::Csp(made) => (&raw const made.comm, &raw const made.address),
                Note::None | Note::Bytes(_) | Note::Ia { .. } | Note::Lmr(_) | Note::Agent(_) => {
                    (std::ptr::null(), std::ptr::null())
                }
            };
            param.put_named(mask, &DatCspParam::new(comm, address, evd, &mut open.around(object)));
            Ok(())
        })
    })
}

pub(super) extern "C" fn free<V: Variant>(csp: DatHandle) -> Ret {
    call("dat_csp_free", || {
        let object = Object::<V>::called(csp);
        object.adapter()?.with(|open| {
            let csp = object.name::<Csp>()?;
            open.nic().csp_free(csp)?;
            open.disown(object, csp);
            Ok(())
        })
    })
}
