//! dat_rmr_*(3).

use dat_core::{CompletionFlags, Ep, Lmr, LmrTriplet, MemPriv, Pz, Rmr, VaType};

use super::call;
use crate::abi::structs::DatRmrParam;
use crate::abi::{DatHandle, In, Out, Ret, code};
use crate::object::Object;
use crate::variant::{Half, Variant};

pub(super) extern "C" fn create<V: Variant>(pz: DatHandle, rmr: Out<DatHandle>) -> Ret {
    make::<V>("dat_rmr_create", pz, rmr, false)
}

pub(super) extern "C" fn create_for_ep<V: Variant>(pz: DatHandle, rmr: Out<DatHandle>) -> Ret {
    make::<V>("dat_rmr_create_for_ep", pz, rmr, true)
}

fn make<V: Variant>(name: &str, pz: DatHandle, rmr: Out<DatHandle>, for_ep: bool) -> Ret {
    call(name, || {
        let object = Object::<V>::called(pz);
        if rmr.is_null() {
            return Err(code::bad_arg(2).into());
        }
        object.adapter()?.with(|open| {
            let pz = object.name::<Pz>()?;
            let made = if for_ep {
                open.nic().rmr_create_for_ep(pz)?
            } else {
                open.nic().rmr_create(pz)?
            };
            rmr.put(open.adopt(object, made));
            Ok(())
        })
    })
}

pub(super) extern "C" fn query<V: Variant>(
    rmr: DatHandle,
    mask: u32,
    param: Out<DatRmrParam>,
) -> Ret {
    call("dat_rmr_query", || {
        let object = Object::<V>::called(rmr);
        let rmr = object.name::<Rmr>()?;
        if param.is_null() {
            return Err(code::bad_arg(3).into());
        }
        let mask = u64::from(mask);
        code::masked(mask, crate::abi::number::DAT_RMR_FIELD_ALL)?;
        object.adapter()?.with(|open| {
            let found = open.nic().rmr_query(rmr)?;
            param.put_named(mask, &DatRmrParam::new(&found, &mut open.around(object)));
            Ok(())
        })
    })
}

pub(super) extern "C" fn bind<V: Variant>(
    rmr: DatHandle,
    lmr: DatHandle,
    triplet: In<LmrTriplet>,
    privileges: u32,
    va_type: u32,
    ep: DatHandle,
    cookie: u64,
    flags: u32,
    context: Out<u32>,
) -> Ret {
    call("dat_rmr_bind", || {
        let object = Object::<V>::called(rmr);
        let rmr = object.name::<Rmr>()?;
        let range = triplet.get().ok_or(code::bad_arg(3))?;
        let privileges = MemPriv::from_bits(privileges).ok_or(code::bad_arg(4))?;
        let va_type = super::lmr::va_type(va_type).ok_or(code::bad_arg(5))?;
        let flags = CompletionFlags::from_bits(flags).ok_or(code::bad_arg(8))?;
        let ep: Ep = object.sibling(ep)?;
        let adapter = object.adapter()?;
        // What unbinds names no memory.
        if range.len != 0 {
            let lmr: Lmr = object.sibling(lmr)?;
            let known = adapter.with(|open| open.nic().lmr_query(lmr))?;
            if known.lmr_context != range.context {
                return Err(code::bad_arg(3).into());
            }
        }
        let endpoint = adapter.object_of(ep);
        let quick = endpoint.filter(|_| va_type == VaType::Va).and_then(|endpoint| {
            endpoint.half.enter(V::LOCKED, |half| match half {
                Half::Ep(poster) => Some(poster.rmr_bind(rmr, &range, privileges, cookie, flags)),
                Half::Evd(_) | Half::Srq(_) => None,
            })
        });
        let bound = match quick.flatten() {
            Some(bound) => bound?,
            None => adapter.drive(|open| {
                open.home_named(Some(ep))?;
                let nic = open.nic();
                Ok(nic.rmr_bind_as(rmr, &range, privileges, va_type, ep, cookie, flags)?)
            })?,
        };
        context.put(bound);
        Ok(())
    })
}

pub(super) extern "C" fn free<V: Variant>(rmr: DatHandle) -> Ret {
    call("dat_rmr_free", || {
        let object = Object::<V>::called(rmr);
        object.adapter()?.drive(|open| {
            let rmr = object.name::<Rmr>()?;
            if let Some(ep) = open.nic().rmr_binder(rmr)? {
                // Whether its bind has been carried out shows in the completion queue.
                open.home_ep(ep)?;
            }
            open.nic().rmr_free(rmr)?;
            open.disown(object, rmr);
            Ok(())
        })
    })
}
