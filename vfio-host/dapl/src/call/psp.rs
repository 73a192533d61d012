//! dat_psp_*(3).

use dat_core::{Evd, Psp, PspFlag};

use super::{call, ia_called, port};
use crate::abi::structs::DatPspParam;
use crate::abi::{DatHandle, Out, Ret, code};
use crate::object::Object;
use crate::variant::Variant;

/// `DAT_PSP_FLAGS`, if the number is one.
fn flag(number: u32) -> Option<PspFlag> {
    match number {
        0 => Some(PspFlag::Consumer),
        1 => Some(PspFlag::Provider),
        _ => None,
    }
}

pub(super) extern "C" fn create<V: Variant>(
    ia: DatHandle,
    conn_qual: u64,
    evd: DatHandle,
    flags: u32,
    psp: Out<DatHandle>,
) -> Ret {
    call("dat_psp_create", || {
        let ia = ia_called::<V>(ia)?;
        let port = port(conn_qual);
        let flag = flag(flags).ok_or(code::bad_arg(4))?;
        if psp.is_null() {
            return Err(code::bad_arg(5).into());
        }
        ia.adapter()?.with(|open| {
            let evd: Evd = ia.sibling(evd).map_err(|_| code::EVD_CR)?;
            let made = open.nic().psp_create(port, evd, flag)?;
            open.qualifiers.given(conn_qual);
            psp.put(open.adopt(ia, made));
            Ok(())
        })
    })
}

pub(super) extern "C" fn create_any<V: Variant>(
    ia: DatHandle,
    conn_qual: Out<u64>,
    evd: DatHandle,
    flags: u32,
    psp: Out<DatHandle>,
) -> Ret {
    call("dat_psp_create_any", || {
        let ia = ia_called::<V>(ia)?;
        if conn_qual.is_null() {
            return Err(code::bad_arg(2).into());
        }
        let flag = flag(flags).ok_or(code::bad_arg(4))?;
        if psp.is_null() {
            return Err(code::bad_arg(5).into());
        }
        ia.adapter()?.with(|open| {
            let evd: Evd = ia.sibling(evd).map_err(|_| code::EVD_CR)?;
            let (made, found) = open.nic().psp_create_any(evd, flag)?;
            conn_qual.put(found);
            psp.put(open.adopt(ia, made));
            Ok(())
        })
    })
}

pub(super) extern "C" fn query<V: Variant>(
    psp: DatHandle,
    mask: u32,
    param: Out<DatPspParam>,
) -> Ret {
    call("dat_psp_query", || {
        let object = Object::<V>::called(psp);
        let psp = object.name::<Psp>()?;
        if param.is_null() {
            return Err(code::bad_arg(3).into());
        }
        let mask = u64::from(mask);
        code::masked(mask, crate::abi::number::DAT_PSP_FIELD_ALL)?;
        object.adapter()?.with(|open| {
            let found = open.nic().psp_query(psp)?;
            param.put_named(mask, &DatPspParam::new(&found, &mut open.around(object)));
            Ok(())
        })
    })
}

pub(super) extern "C" fn free<V: Variant>(psp: DatHandle) -> Ret {
    call("dat_psp_free", || {
        let object = Object::<V>::called(psp);
        object.adapter()?.with(|open| {
            let psp = object.name::<Psp>()?;
            let port = open.nic().psp_query(psp)?.conn_qual;
            open.nic().psp_free(psp)?;
            open.qualifiers.gone(port);
            open.disown(object, psp);
            Ok(())
        })
    })
}
