//! dat_rsp_*(3).

use dat_core::{Evd, Rsp};

use super::cr::forget_ep;
use super::{call, ia_called, port};
use crate::abi::structs::DatRspParam;
use crate::abi::{DatHandle, Out, Ret, code};
use crate::object::Object;
use crate::variant::Variant;

pub(super) extern "C" fn create<V: Variant>(
    ia: DatHandle,
    conn_qual: u64,
    ep: DatHandle,
    evd: DatHandle,
    rsp: Out<DatHandle>,
) -> Ret {
    call("dat_rsp_create", || {
        let ia = ia_called::<V>(ia)?;
        let port = port(conn_qual);
        if rsp.is_null() {
            return Err(code::bad_arg(5).into());
        }
        ia.adapter()?.with(|open| {
            let ep = ia.sibling_or_none(ep)?;
            let evd: Evd = ia.sibling(evd).map_err(|_| code::EVD_CR)?;
            let made = open.nic().rsp_create(port, ep, evd)?;
            open.qualifiers.given(conn_qual);
            rsp.put(open.adopt(ia, made));
            Ok(())
        })
    })
}

pub(super) extern "C" fn query<V: Variant>(
    rsp: DatHandle,
    mask: u32,
    param: Out<DatRspParam>,
) -> Ret {
    call("dat_rsp_query", || {
        let object = Object::<V>::called(rsp);
        let rsp = object.name::<Rsp>()?;
        if param.is_null() {
            return Err(code::bad_arg(3).into());
        }
        let mask = u64::from(mask);
        code::masked(mask, crate::abi::number::DAT_RSP_FIELD_ALL)?;
        object.adapter()?.with(|open| {
            let found = open.nic().rsp_query(rsp)?;
            param.put_named(mask, &DatRspParam::new(&found, &mut open.around(object)));
            Ok(())
        })
    })
}

pub(super) extern "C" fn free<V: Variant>(rsp: DatHandle) -> Ret {
    call("dat_rsp_free", || {
        let object = Object::<V>::called(rsp);
        object.adapter()?.drive(|open| {
            let rsp = object.name::<Rsp>()?;
            let found = open.nic().rsp_query(rsp)?;
            let (ep, port) = (found.ep, found.conn_qual);
            // The Endpoint is freed too, if it was made with the service point.
            open.recall_ep(ep)?;
            let now = open.nic().now();
            open.nic().rsp_free(now, rsp)?;
            open.qualifiers.gone(port);
            open.disown(object, rsp);
            forget_ep(open, ep);
            Ok(())
        })
    })
}
