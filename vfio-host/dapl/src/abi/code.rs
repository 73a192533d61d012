//! `DAT_RETURN`: what every call returns.

use dat_core::{DatReturn, DatSubtype, DatType};

/// `DAT_RETURN`.
pub(crate) type Ret = u32;

/// `DAT_SUCCESS`.
pub(crate) const SUCCESS: Ret = 0;

/// `INVALID_PARAMETER` of the argument at that place, counted from 1.
pub(crate) const fn bad_arg(place: u16) -> DatReturn {
    let first = DatSubtype::InvalidArg1.number();
    let subtype = match DatSubtype::from_number(first + place - 1) {
        Some(subtype) if place >= 1 && place <= 10 => subtype,
        _ => DatSubtype::None,
    };
    DatReturn::new(DatType::InvalidParameter, subtype)
}

/// `INVALID_HANDLE`, of what kind.
pub(crate) const fn bad_handle(subtype: DatSubtype) -> DatReturn {
    DatReturn::new(DatType::InvalidHandle, subtype)
}

/// A handle that is of no Event Dispatcher for requests.
pub(crate) const EVD_CR: DatReturn = bad_handle(DatSubtype::InvalidHandleEvdCr);

/// Refuses a mask, the second argument of a query, with bits that name no field.
pub(crate) fn masked(mask: u64, all: u64) -> Result<(), DatReturn> {
    masked_at(2, mask, all)
}

/// Refuses a mask, the argument at that place, with bits that name no field.
pub(crate) fn masked_at(place: u16, mask: u64, all: u64) -> Result<(), DatReturn> {
    if mask & !all == 0 { Ok(()) } else { Err(bad_arg(place)) }
}

/// `MODEL_NOT_SUPPORTED`.
pub(crate) const NOT_SUPPORTED: DatReturn = DatReturn::of(DatType::ModelNotSupported);
/// `NOT_IMPLEMENTED`.
pub(crate) const NOT_IMPLEMENTED: DatReturn = DatReturn::of(DatType::NotImplemented);
