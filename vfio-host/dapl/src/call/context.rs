//! dat_set_consumer_context(3), dat_get_consumer_context(3), dat_get_handle_type(3).

use std::sync::atomic::Ordering;

use dat_core::{DatReturn, DatSubtype};

use super::call;
use crate::abi::{DatHandle, Out, Ret, code};
use crate::object::Object;
use crate::variant::Variant;

/// The handle is of nothing that lives.
const STALE: DatReturn = code::bad_handle(DatSubtype::InvalidHandle1);

pub(super) extern "C" fn set<V: Variant>(handle: DatHandle, context: u64) -> Ret {
    call("dat_set_consumer_context", || {
        let object = Object::<V>::called(handle);
        object.handle_type().ok_or(STALE)?;
        object.context.store(context, Ordering::Relaxed);
        Ok(())
    })
}

pub(super) extern "C" fn get<V: Variant>(handle: DatHandle, context: Out<u64>) -> Ret {
    call("dat_get_consumer_context", || {
        let object = Object::<V>::called(handle);
        object.handle_type().ok_or(STALE)?;
        if context.is_null() {
            return Err(code::bad_arg(2).into());
        }
        context.put(object.context.load(Ordering::Relaxed));
        Ok(())
    })
}

pub(super) extern "C" fn handle_type<V: Variant>(handle: DatHandle, ty: Out<u32>) -> Ret {
    call("dat_get_handle_type", || {
        let found = Object::<V>::called(handle).handle_type().ok_or(STALE)?;
        if ty.is_null() {
            return Err(code::bad_arg(2).into());
        }
        ty.put(found as u32);
        Ok(())
    })
}
