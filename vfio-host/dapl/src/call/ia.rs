//! dat_ia_*(3).

use dat_core::{DatReturn, DatSubtype, DatType, Evd, EvdFlags};

use super::{call, ia_called};
use crate::abi::number::{
    DAT_IA_FIELD_ALL, DAT_PROVIDER_FIELD_ALL, EVD_ASYNC_EXISTS, EVD_OUT_OF_SCOPE,
};
use crate::abi::structs::{DatIaAttr, DatProviderAttr};
use crate::abi::{Boolean, Count, DatHandle, In, Out, Ret, code};
use crate::adapter::AsyncEvd;
use crate::log::{Level, say};
use crate::object::{Note, Object};
use crate::variant::Variant;

/// `DAT_CLOSE_ABRUPT_FLAG`, `DAT_CLOSE_GRACEFUL_FLAG`.
pub(super) const ABRUPT: u32 = 0;
const GRACEFUL: u32 = 1;

pub(super) extern "C" fn open<V: Variant>(
    name: In<std::ffi::c_char>,
    min_qlen: Count,
    async_evd: Out<DatHandle>,
    ia: Out<DatHandle>,
) -> Ret {
    call("dat_ia_open", || {
        let unknown = DatReturn::new(DatType::ProviderNotFound, DatSubtype::NameNotFound);
        let (adapter, called) =
            name.text().and_then(|name| V::providers().find(name)).ok_or(unknown)?;
        let wanted = async_evd.get().ok_or_else(|| code::bad_arg(3))?;
        if ia.is_null() {
            return Err(code::bad_arg(4).into());
        }
        let foreign = code::bad_handle(DatSubtype::InvalidHandleEvdAsync);
        let wanted = match wanted.0.addr() {
            0 => AsyncEvd::New(u32::try_from(min_qlen).map_err(|_| code::bad_arg(2))?),
            EVD_ASYNC_EXISTS => AsyncEvd::None,
            _ => AsyncEvd::Given(Object::find(wanted).ok_or(foreign)?),
        };
        if let AsyncEvd::Given(object) = wanted {
            let evd = object.name::<Evd>().map_err(|_| foreign)?;
            let param = object.adapter()?.with(|open| open.nic().evd_query(evd))?;
            if !param.flags.contains(EvdFlags::ASYNC) {
                return Err(foreign.into());
            }
        }
        let opened = adapter.enter(called, wanted).map_err(|error| {
            say(Level::Error, format_args!("dat_ia_open: {error}"));
            error.ret()
        })?;
        let nowhere = DatHandle(std::ptr::without_provenance_mut(EVD_OUT_OF_SCOPE));
        if let Note::Ia { async_evd: its, .. } = *opened.note() {
            async_evd.put(if its.is_null() { nowhere } else { its });
        }
        ia.put(opened.handle());
        Ok(())
    })
}

pub(super) extern "C" fn query<V: Variant>(
    ia: DatHandle,
    async_evd: Out<DatHandle>,
    ia_mask: u64,
    ia_attr: Out<DatIaAttr>,
    provider_mask: u64,
    provider_attr: Out<DatProviderAttr>,
) -> Ret {
    call("dat_ia_query", || {
        let ia = ia_called::<V>(ia)?;
        if ia_mask != 0 && ia_attr.is_null() {
            return Err(code::bad_arg(4).into());
        }
        if provider_mask != 0 && provider_attr.is_null() {
            return Err(code::bad_arg(6).into());
        }
        code::masked_at(3, ia_mask, DAT_IA_FIELD_ALL)?;
        code::masked_at(5, provider_mask, DAT_PROVIDER_FIELD_ALL)?;
        let mut name = c"";
        if let Note::Ia { name: its_name, async_evd: its, .. } = &*ia.note() {
            name = its_name;
            async_evd.put(*its);
        }
        ia.adapter()?.with(|open| {
            let address = &raw const open.adapter.address;
            let (of_ia, of_provider) = open.nic().query();
            let attr =
                DatIaAttr::new(name, &of_ia, address, &open.named.transport, &open.named.vendor);
            ia_attr.put_named(ia_mask, &attr);
            let attr = DatProviderAttr::new(&of_provider, V::LOCKED, &open.named.specific);
            provider_attr.put_named(provider_mask, &attr);
            Ok(())
        })
    })
}

pub(super) extern "C" fn close<V: Variant>(ia: DatHandle, flag: u32) -> Ret {
    call("dat_ia_close", || {
        let ia = ia_called::<V>(ia)?;
        let graceful = match flag {
            ABRUPT => false,
            GRACEFUL => true,
            _ => return Err(code::bad_arg(2).into()),
        };
        ia.adapter()?.leave(ia, graceful)
    })
}

pub(super) extern "C" fn ha_related<V: Variant>(
    _ia: DatHandle,
    _name: In<std::ffi::c_char>,
    _related: Out<Boolean>,
) -> Ret {
    code::NOT_SUPPORTED.raw()
}
