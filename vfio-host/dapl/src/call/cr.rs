//! dat_cr_*(3).

use dat_core::{Cr, Ep, Error};

use super::{call, port};
use crate::abi::sockaddr::SockAddr;
use crate::abi::structs::DatCrParam;
use crate::abi::{Count, DatHandle, List, Out, Ret, code};
use crate::adapter::Open;
use crate::object::Object;
use crate::variant::Variant;

pub(super) extern "C" fn query<V: Variant>(
    cr: DatHandle,
    mask: u32,
    param: Out<DatCrParam>,
) -> Ret {
    call("dat_cr_query", || {
        let object = Object::<V>::called(cr);
        let cr = object.name::<Cr>()?;
        if param.is_null() {
            return Err(code::bad_arg(3).into());
        }
        let mask = u64::from(mask);
        code::masked(mask, crate::abi::number::DAT_CR_FIELD_ALL)?;
        object.adapter()?.with(|open| {
            let found = open.nic().cr_query(cr)?;
            let remote = object.keep_peer(SockAddr::new(found.remote, found.remote_port));
            let private_data = (object.keep(found.private_data), found.private_data.len());
            let (port, ep) = (found.remote_port, found.local_ep);
            let around = &mut open.around(object);
            param.put_named(mask, &DatCrParam::new(remote, port, private_data, ep, around));
            Ok(())
        })
    })
}

/// What a request is for, fetched home: its own Endpoint, or the one that is named.
fn fetch<V: Variant>(open: &mut Open<V>, cr: Cr, ep: Option<Ep>) -> Result<Option<Ep>, Error> {
    let own = open.nic().cr_query(cr)?.local_ep;
    if let Some(ep) = own.or(ep) {
        open.home_ep(ep)?;
    }
    Ok(own)
}

pub(super) extern "C" fn accept<V: Variant>(
    cr: DatHandle,
    ep: DatHandle,
    size: Count,
    data: List<u8>,
) -> Ret {
    call("dat_cr_accept", || {
        let object = Object::<V>::called(cr);
        let data = data.values(size).ok_or(code::bad_arg(3))?;
        object.adapter()?.drive(|open| {
            let cr = object.name::<Cr>()?;
            let ep = object.sibling_or_none(ep)?;
            fetch(open, cr, ep)?;
            open.nic().cr_accept(cr, ep, data)?;
            open.disown(object, cr);
            Ok(())
        })
    })
}

pub(super) extern "C" fn reject<V: Variant>(cr: DatHandle, size: Count, data: List<u8>) -> Ret {
    call("dat_cr_reject", || {
        let object = Object::<V>::called(cr);
        let data = data.values(size).ok_or(code::bad_arg(2))?;
        object.adapter()?.drive(|open| {
            let cr = object.name::<Cr>()?;
            let own = fetch(open, cr, None)?;
            open.nic().cr_reject(cr, data)?;
            leave(open, object, cr, own);
            Ok(())
        })
    })
}

pub(super) extern "C" fn handoff<V: Variant>(cr: DatHandle, conn_qual: u64) -> Ret {
    call("dat_cr_handoff", || {
        let object = Object::<V>::called(cr);
        object.name::<Cr>()?;
        let port = port(conn_qual, 2)?;
        object.adapter()?.drive(|open| {
            let cr = object.name::<Cr>()?;
            let own = fetch(open, cr, None)?;
            let now = open.nic().now();
            open.nic().cr_handoff(now, cr, port)?;
            leave(open, object, cr, own);
            Ok(())
        })
    })
}

/// A request is over, and with it an Endpoint that was made for it.
fn leave<V: Variant>(open: &mut Open<V>, object: &'static Object<V>, cr: Cr, own: Option<Ep>) {
    open.disown(object, cr);
    if let Some(ep) = own {
        forget_ep(open, ep);
    }
}

/// Ends the object of an Endpoint that was not the consumer's own, if `dat_core` has let it go.
pub(super) fn forget_ep<V: Variant>(open: &mut Open<V>, ep: Ep) {
    if open.nic().ep_query(ep).is_err()
        && let Some(object) = open.adapter.object_of(ep)
    {
        open.disown(object, ep);
    }
}
