//! dat_pz_*(3).

use dat_core::Pz;

use super::{call, ia_called};
use crate::abi::structs::DatPzParam;
use crate::abi::{DatHandle, Out, Ret, code};
use crate::object::Object;
use crate::variant::Variant;

pub(super) extern "C" fn create<V: Variant>(ia: DatHandle, pz: Out<DatHandle>) -> Ret {
    call("dat_pz_create", || {
        let ia = ia_called::<V>(ia)?;
        if pz.is_null() {
            return Err(code::bad_arg(2).into());
        }
        ia.adapter()?.with(|open| {
            let made = open.nic().pz_create()?;
            pz.put(open.adopt(ia, made));
            Ok(())
        })
    })
}

pub(super) extern "C" fn query<V: Variant>(
    pz: DatHandle,
    mask: u32,
    param: Out<DatPzParam>,
) -> Ret {
    call("dat_pz_query", || {
        let object = Object::<V>::called(pz);
        object.name::<Pz>()?;
        if param.is_null() {
            return Err(code::bad_arg(3).into());
        }
        let mask = u64::from(mask);
        code::masked(mask, crate::abi::number::DAT_PZ_FIELD_ALL)?;
        object.adapter()?.with(|open| {
            param.put_named(mask, &DatPzParam::new(&mut open.around(object)));
            Ok(())
        })
    })
}

pub(super) extern "C" fn free<V: Variant>(pz: DatHandle) -> Ret {
    call("dat_pz_free", || {
        let object = Object::<V>::called(pz);
        object.adapter()?.with(|open| {
            let pz = object.name::<Pz>()?;
            open.nic().pz_free(pz)?;
            open.disown(object, pz);
            Ok(())
        })
    })
}
