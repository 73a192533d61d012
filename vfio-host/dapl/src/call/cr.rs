//! dat_cr_*(3).

use std::task::Poll;

use dat_core::provider::Destination;
use dat_core::{Cr, Ep, Error, UdAsker};

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

/// Recalls the queues of the Endpoint for a request: its own, or `ep`. Returns the own one.
fn fetch<V: Variant>(open: &mut Open<V>, cr: Cr, ep: Option<Ep>) -> Result<Option<Ep>, Error> {
    let own = open.nic().cr_query(cr)?.local_ep;
    if let Some(ep) = own.or(ep) {
        open.recall_ep(ep)?;
    }
    Ok(own)
}

/// Returns what the Endpoint that is given for a look-up learns of the asker: nothing if the way to
/// it is not known. `None` for a request for a connection.
fn asked<V: Variant>(open: &mut Open<V>, cr: Cr) -> Option<Option<(Destination, Box<[u8]>)>> {
    let request = open.nic().cr_query(cr).ok().filter(|request| request.looks_up)?;
    // Of a peer of another make the queue pair is unknown: the consumer may fill it in.
    let UdAsker { qpn, qkey } = request.asker.unwrap_or(UdAsker { qpn: 0, qkey: super::ep::QKEY });
    let (remote, private) = (request.remote, request.private_data.into());
    let now = open.nic().now();
    match open.nic().ud_address(now, remote, qpn, qkey) {
        Poll::Ready(Ok(to)) => Some(Some((to, private))),
        Poll::Ready(Err(_)) | Poll::Pending => Some(None),
    }
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
        object.adapter()?.with(|open| {
            let cr = object.name::<Cr>()?;
            let ep = object.sibling_or_none(ep)?;
            fetch(open, cr, ep)?;
            let given = ep.and_then(|ep| Some((ep, asked(open, cr)?)));
            open.nic().cr_accept(cr, ep, data)?;
            if let Some((ep, asker)) = given {
                open.addresses.accept(ep, asker);
            }
            open.disown(object, cr);
            // The next drive answers all requests that were accepted until then, together.
            open.poke();
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
        let port = port(conn_qual);
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

/// Frees the object of a finished request, and of an Endpoint that was made for it.
fn leave<V: Variant>(open: &mut Open<V>, object: &'static Object<V>, cr: Cr, own: Option<Ep>) {
    open.disown(object, cr);
    if let Some(ep) = own {
        forget_ep(open, ep);
    }
}

/// Frees the object of an Endpoint that the consumer did not create, if `dat_core` has freed it.
pub(super) fn forget_ep<V: Variant>(open: &mut Open<V>, ep: Ep) {
    if open.nic().ep_query(ep).is_err() {
        if let Some(object) = open.adapter.object_of(ep) {
            open.disown(object, ep);
        }
    }
}
