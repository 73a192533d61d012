//! dat_srq_*(3).

use dat_core::{DatReturn, LmrTriplet, Srq};

use super::{call, ia_called};
use crate::abi::structs::{DatSrqAttr, DatSrqParam};
use crate::abi::{Count, DatHandle, In, List, Out, Ret, SUCCESS, code};
use crate::object::Object;
use crate::variant::{Half, Variant};

pub(super) extern "C" fn create<V: Variant>(
    ia: DatHandle,
    pz: DatHandle,
    attr: In<DatSrqAttr>,
    srq: Out<DatHandle>,
) -> Ret {
    call("dat_srq_create", || {
        let ia = ia_called::<V>(ia)?;
        let attr = attr.get().and_then(|attr| attr.read());
        if srq.is_null() {
            return Err(code::bad_arg(4).into());
        }
        ia.adapter()?.with(|open| {
            let pz = ia.sibling(pz)?;
            let attr = attr.ok_or(code::bad_arg(3))?;
            let made = open.nic().srq_create(pz, &attr)?;
            srq.put(open.adopt(ia, made));
            Ok(())
        })
    })
}

pub(super) extern "C" fn free<V: Variant>(srq: DatHandle) -> Ret {
    call("dat_srq_free", || {
        let object = Object::<V>::called(srq);
        object.adapter()?.with(|open| {
            let srq = object.name::<Srq>()?;
            open.home(object)?;
            open.nic().srq_free(srq)?;
            open.disown(object, srq);
            Ok(())
        })
    })
}

pub(super) extern "C" fn post_recv<V: Variant>(
    srq: DatHandle,
    count: Count,
    segments: List<LmrTriplet>,
    cookie: u64,
) -> Ret {
    let object = Object::<V>::called(srq);
    let Some(segments) = segments.values(count) else {
        return code::bad_arg(3).raw();
    };
    let quick = object.half.enter(V::LOCKED, |half| match half {
        Half::Srq(poster) => Some(poster.post_recv(segments, cookie)),
        Half::Ep(_) | Half::Evd(_) => None,
    });
    match quick.flatten() {
        Some(Ok(())) => SUCCESS,
        Some(Err(why)) => why.raw(),
        None => call("dat_srq_post_recv", || {
            object.adapter()?.with(|open| {
                let srq = object.name::<Srq>()?;
                open.nic().srq_post_recv(srq, segments, cookie)?;
                open.send_out(object);
                Ok(())
            })
        }),
    }
}

pub(super) extern "C" fn query<V: Variant>(
    srq: DatHandle,
    mask: u32,
    param: Out<DatSrqParam>,
) -> Ret {
    call("dat_srq_query", || {
        let object = Object::<V>::called(srq);
        let srq = object.name::<Srq>()?;
        if param.is_null() {
            return Err(code::bad_arg(3).into());
        }
        let mask = u64::from(mask);
        code::masked(mask, crate::abi::number::DAT_SRQ_FIELD_ALL)?;
        object.adapter()?.with(|open| {
            let found = open.nic().srq_query(srq)?;
            param.put_named(mask, &DatSrqParam::new(&found, &mut open.around(object)));
            Ok(())
        })
    })
}

/// A number of receives as `dat_core` has it.
fn receives(count: Count) -> Result<u16, DatReturn> {
    u16::try_from(count).map_err(|_| code::bad_arg(2))
}

pub(super) extern "C" fn resize<V: Variant>(srq: DatHandle, receives_wanted: Count) -> Ret {
    call("dat_srq_resize", || {
        let object = Object::<V>::called(srq);
        object.adapter()?.with(|open| {
            let srq = object.name::<Srq>()?;
            open.home(object)?;
            open.nic().srq_resize(srq, receives(receives_wanted)?)
        })
    })
}

pub(super) extern "C" fn set_lw<V: Variant>(srq: DatHandle, low_watermark: Count) -> Ret {
    call("dat_srq_set_lw", || {
        let object = Object::<V>::called(srq);
        object.adapter()?.drive(|open| {
            let srq = object.name::<Srq>()?;
            open.home(object)?;
            open.nic().srq_set_lw(srq, receives(low_watermark)?)
        })
    })
}
