//! dat_lmr_*(3).

use std::sync::Arc;

use dat_core::provider::Region;
use dat_core::{DatReturn, DatType, Error, Lmr, LmrTriplet, MemPriv, Memory, Pz, VaType};
use vfio_host::Reach;

use super::{call, ia_called};
use crate::abi::number::{
    DAT_LMR_FIELD_ALL, DAT_MEM_TYPE_LMR, DAT_MEM_TYPE_SHARED_VIRTUAL, DAT_MEM_TYPE_VIRTUAL,
    DAT_VA_TYPE_VA, DAT_VA_TYPE_ZB,
};
use crate::abi::structs::{DatLmrParam, DatRegionDescription};
use crate::abi::{Count, DatHandle, In, List, Out, Ret, code};
use crate::adapter::Open;
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

/// What an LMR was made of, as the consumer said it, and which memory was lent for it.
#[derive(Clone)]
pub(crate) struct Made {
    mem_type: u32,
    region: DatRegionDescription,
    /// The name of shared memory. The consumer's own is there for the time of the call that makes
    /// the LMR, this for as long as that lives.
    name: Option<Arc<[u8; 40]>>,
    lent: Region,
}

impl Made {
    /// Returns the description as the consumer gave it, with the name where it lasts.
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

/// What the device needs to do with memory of those privileges.
fn reach(privileges: MemPriv) -> Reach {
    let written = MemPriv::LOCAL_WRITE | MemPriv::REMOTE_WRITE | MemPriv::REMOTE_ATOMIC;
    if privileges.intersects(written) { Reach::ReadWrite } else { Reach::Read }
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
        // Consumers take it for granted that whatever is registered can be sent: so it is with
        // every other provider.
        let privileges =
            MemPriv::from_bits(privileges).ok_or(code::bad_arg(6))? | MemPriv::LOCAL_READ;
        let va_type = va_type(va).ok_or(code::bad_arg(7))?;
        if lmr.is_null() {
            return Err(code::bad_arg(8).into());
        }
        let named = |addr| Region { addr, len: length };
        let name = match mem_type {
            DAT_MEM_TYPE_SHARED_VIRTUAL => {
                let name = region.shared_memory_id.get();
                Some(Arc::new(name.ok_or(code::bad_arg(3))?))
            }
            _ => None,
        };
        ia.adapter()?.with(|open| {
            let of = match mem_type {
                DAT_MEM_TYPE_VIRTUAL | DAT_MEM_TYPE_SHARED_VIRTUAL => {
                    named(region.virtual_address.addr() as u64)
                }
                DAT_MEM_TYPE_LMR => {
                    let other: Lmr = ia.sibling(DatHandle(region.virtual_address))?;
                    open.nic().lmr_query(other)?.region
                }
                _ => return Err(code::bad_arg(2).into()),
            };
            if of.len == 0 {
                return Err(DatReturn::of(DatType::LengthError).into());
            }
            if of.addr == 0 || of.addr.checked_add(of.len).is_none() {
                return Err(code::bad_arg(3).into());
            }
            let memory = match &name {
                Some(name) => {
                    open.lend_shared(of, name)?;
                    Memory::SharedVirtual(of, name)
                }
                None => {
                    open.lend(of, reach(privileges))?;
                    Memory::Virtual(of)
                }
            };
            let made = open.nic().lmr_create_from(pz, memory, privileges, va_type);
            let made = match made {
                Ok(made) => made,
                Err(error) => {
                    open.take_back(of);
                    return Err(error);
                }
            };
            let handle = open.adopt(ia, made.lmr);
            if let Some(object) = Object::<V>::find(handle) {
                let lent = of;
                *object.note() = Note::Lmr(Made { mem_type, region, name, lent });
            }
            lmr.put(handle);
            lmr_context.put(made.lmr_context);
            rmr_context.put(made.rmr_context);
            registered_length.put(made.region.len);
            registered_address.put(made.base());
            Ok(())
        })
    })
}

/// What an LMR was made of.
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
        object.adapter()?.with(|open| {
            let lmr = object.name::<Lmr>()?;
            end(open, object, lmr)
        })
    })
}

/// Ends an LMR and what was lent for it.
pub(crate) fn end<V: Variant>(
    open: &mut Open<V>,
    object: &'static Object<V>,
    lmr: Lmr,
) -> Result<(), Error> {
    open.nic().lmr_free(lmr)?;
    if let Some(made) = made(object) {
        open.take_back(made.lent);
    }
    open.disown(object, lmr);
    Ok(())
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
