//! The C interface of uDAPL 2.0: types, numbers and layouts of `udat.h` on 64-bit Linux, and
//! conversions to and from `dat_core`.
//!
//! Structures have the header's field names and state the offset of each. A wrong offset does not
//! compile, and a test compares all of them with the headers of a distribution. C enumerations are
//! plain integers here, because a consumer may pass any number; the caller refuses numbers that
//! `dat_core` has no value for.
//!
//! * [`mod@pointer`], [`va_list`], [`sockaddr`] - pointers from consumers. All `unsafe` of this
//!   folder is in these.
//! * [`structs`], [`event`], [`table`] - layouts. [`layout`] - the macros that define them.
//! * [`own`] - the provider's own extension, `dat_dapldat.h`.
//! * [`code`] - `DAT_RETURN`. [`number`] - masks and enumerations.
//! * [`attr`], [`param`], [`named`] - attributes and parameters of objects, from and to `dat_core`.

#[macro_use]
pub(crate) mod layout;

pub(crate) mod attr;
pub(crate) mod code;
pub(crate) mod event;
pub(crate) mod named;
pub(crate) mod number;
pub(crate) mod own;
pub(crate) mod param;
pub(crate) mod pointer;
pub(crate) mod sockaddr;
pub(crate) mod structs;
pub(crate) mod table;
pub(crate) mod va_list;

#[cfg(test)]
mod tests;

pub(crate) use code::{Ret, SUCCESS};
pub(crate) use pointer::{DatHandle, In, List, Out};

/// `DAT_COUNT`.
pub(crate) type Count = i32;
/// `DAT_BOOLEAN`: 0 is false, everything else true.
pub(crate) type Boolean = u32;
/// `DAT_TIMEOUT`: microseconds.
pub(crate) type Timeout = u32;
/// `DAT_TIMEOUT_INFINITE`.
pub(crate) const TIMEOUT_INFINITE: Timeout = u32::MAX;
/// `DAT_VALUE_UNKNOWN`.
pub(crate) const VALUE_UNKNOWN: Count = -2;
