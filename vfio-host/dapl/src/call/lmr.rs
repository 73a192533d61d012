//! dat_lmr_*(3).

use std::sync::Arc;

use dat_core::provider::Region;
use dat_core::{Lmr, LmrTriplet, MemPriv, Pz, VaType};

use super::{call, ia_called};
use crate::abi::number::{
    DAT_LMR_FIELD_ALL, DAT_MEM_TYPE_SHARED_VIRTUAL, DAT_VA_TYPE_VA, DAT_VA_TYPE_ZB,
};
use crate::abi::structs::{DatLmrParam, DatRegionDescription};
use crate::abi::{Count, DatHandle, In, List, Out, Ret, code};
use crate::adapter::{Ask, LmrAsk, Reply};
use crate::object::{Note, Object};
use crate::variant::Variant;

/// `DAT_VA_TYPE`, if the number is one.
pub(super) fn va_type(number: u32) -> Option<VaType> {
    match number {
        DAT_VA_TYPE_VA => Some(VaType::Va),
        DAT_VA_TYPE_ZB => Some(VaType::Zb),
        _ => None,
    }
}

/// The arguments of an LMR, and the memory that was lent for it.
#[derive(Clone)]
pub(crate) struct Made {
    mem_type: u32,
    region: DatRegionDescription,
    /// The name of shared memory, copied: the consumer's is valid only during the call that
    /// creates the LMR.
    name: Option<Arc<[u8; 40]>>,
    lent: Region,
}

impl Made {
    pub(crate) fn new<V: Variant>(ask: &LmrAsk<V>, lent: Region) -> Self {
        Self { mem_type: ask.mem_type, region: ask.region, name: ask.name.clone(), lent }
    }

    /// Returns the description as the consumer gave it, with the copied name.
    fn region(&self) -> DatRegionDescription {
        match &self.name {
            Some(name) => {
                DatRegionDescription { shared_memory_id: In(Arc::as_ptr(name)), ..self.region }
            }
            None => self.region,
        }
    }
}

impl std::fmt::Debug for Made {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.lent.fmt(f)
    }
}

pub(super) extern "C" fn create<V: Variant>(
    ia: DatHandle,
    mem_type: u32,
    region: DatRegionDescription,
    length: u64,
    pz: DatHandle,
    privileges: u32,
    va: u32,
    lmr: Out<DatHandle>,
    lmr_context: Out<u32>,
    rmr_context: Out<u32>,
    registered_length: Out<u64>,
    registered_address: Out<u64>,
) -> Ret {
    call("dat_lmr_create", || {
        let ia = ia_called::<V>(ia)?;
        let pz: Pz = ia.sibling(pz)?;
        // Consumers rely on sending from any registered memory, which all other providers allow.
        let privileges =
            MemPriv::from_bits(privileges).ok_or(code::bad_arg(6))? | MemPriv::LOCAL_READ;
        let va_type = va_type(va).ok_or(code::bad_arg(7))?;
        if lmr.is_null() {
            return Err(code::bad_arg(8).into());
        }
        let name = match mem_type {
            DAT_MEM_TYPE_SHARED_VIRTUAL => {
                let name = region.shared_memory_id.get();
                Some(Arc::new(name.ok_or(code::bad_arg(3))?))
            }
            _ => None,
        };
        let ask = LmrAsk { ia, pz, mem_type, region, length, name, privileges, va_type };
        if let Reply::Lmr(handle, made) = ia.adapter()?.together(Ask::LmrCreate(ask))? {
            lmr.put(handle);
            lmr_context.put(made.lmr_context);
            rmr_context.put(made.rmr_context);
            registered_length.put(made.region.len);
            registered_address.put(made.base());
        }
        Ok(())
    })
}

/// Returns the memory that was lent for an LMR.
pub(crate) fn lent<V: Variant>(object: &Object<V>) -> Option<Region> {
    match &*object.note() {
        Note::Lmr(made) => Some(made.lent),
        Note::None | Note::Bytes(_) | Note::Ia { .. } | Note::Csp(_) | Note::Agent(_) => None,
    }
}

/// Returns the arguments of an LMR.
fn made<V: Variant>(object: &Object<V>) -> Option<Made> {
    match &*object.note() {
        Note::Lmr(made) => Some(made.clone()),
        Note::None | Note::Bytes(_) | Note::Ia { .. } | Note::Csp(_) | Note::Agent(_) => None,
    }
}

pub(super) extern "C" fn query<V: Variant>(
    lmr: DatHandle,
    mask: u32,
    param: Out<DatLmrParam>,
) -> Ret {
    call("dat_lmr_query", || {
        let object = Object::<V>::called(lmr);
        let lmr = object.name::<Lmr>()?;
        if param.is_null() {
            return Err(code::bad_arg(3).into());
        }
        let mask = u64::from(mask);
        code::masked(mask, DAT_LMR_FIELD_ALL)?;
        object.adapter()?.with(|open| {
            let found = open.nic().lmr_query(lmr)?;
            let made = made(object).ok_or(code::bad_arg(1))?;
            let of = (made.mem_type, made.region());
            param.put_named(mask, &DatLmrParam::new(&found, of, &mut open.around(object)));
            Ok(())
        })
    })
}

pub(super) extern "C" fn free<V: Variant>(lmr: DatHandle) -> Ret {
    call("dat_lmr_free", || {
        let object = Object::<V>::called(lmr);
        object.adapter()?.together(Ask::LmrFree(object)).map(drop)
    })
}

pub(super) extern "C" fn sync_rdma_read<V: Variant>(
    ia: DatHandle,
    list: List<LmrTriplet>,
    count: u64,
) -> Ret {
    sync::<V>("dat_lmr_sync_rdma_read", ia, list, count, true)
}

pub(super) extern "C" fn sync_rdma_write<V: Variant>(
    ia: DatHandle,
    list: List<LmrTriplet>,
    count: u64,
) -> Ret {
    sync::<V>("dat_lmr_sync_rdma_write", ia, list, count, false)
}

fn sync<V: Variant>(
    name: &str,
    ia: DatHandle,
    list: List<LmrTriplet>,
    count: u64,
    read: bool,
) -> Ret {
    call(name, || {
        let ia = ia_called::<V>(ia)?;
        let count = Count::try_from(count).map_err(|_| code::bad_arg(3))?;
        let segments = list.values(count).ok_or(code::bad_arg(2))?;
        ia.adapter()?.with(|open| {
            let nic = open.nic();
            let done = if read {
                nic.lmr_sync_rdma_read(segments)
            } else {
                nic.lmr_sync_rdma_write(segments)
            };
            Ok(done?)
        })
    })
}
