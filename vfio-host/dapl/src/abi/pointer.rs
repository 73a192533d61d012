//! What a C consumer hands over by address.
//!
//! Values of these types come into being as arguments of a DAT call, and as fields of structures
//! that such arguments point at. That an address is null, or good for the call, is what DAT asks of
//! the consumer; no provider can tell otherwise. So it is stated here once, and the calls read and
//! write through these types without saying it again.

#![expect(
    unsafe_code,
    reason = "addresses that a consumer of another language hands over are followed here"
)]

use core::ffi::{CStr, c_char, c_void};
use core::fmt;

use dat_core::{LmrTriplet, RmrTriplet};

use super::layout::Fields;

/// A handle as C has it: the address of an object of this library, or whatever else a consumer
/// passes. It is only looked at by the registry of objects, which knows its own.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(transparent)]
pub(crate) struct DatHandle(pub(crate) *mut c_void);

// SAFETY: a handle is a name; to follow it is the business of the registry of objects, which has
// locks of its own.
unsafe impl Send for DatHandle {}
// SAFETY: as above.
unsafe impl Sync for DatHandle {}

impl DatHandle {
    /// `DAT_HANDLE_NULL`.
    pub(crate) const NULL: Self = Self(core::ptr::null_mut());

    /// Whether it names nothing.
    pub(crate) fn is_null(self) -> bool {
        self.0.is_null()
    }
}

impl fmt::Debug for DatHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:p}", self.0)
    }
}

/// Types of which every pattern of bits is a value.
///
/// # Safety
/// That is so.
pub(crate) unsafe trait Plain: Copy {}

macro_rules! plain {
    ($($ty:ty),* $(,)?) => {
        $(
            // SAFETY: it consists of integers and raw addresses.
            unsafe impl Plain for $ty {}
        )*
    };
}

plain!(u8, u16, u32, i32, u64, usize, DatHandle, LmrTriplet, RmrTriplet);
plain!(
    super::structs::DatComm,
    super::structs::DatEpAttr,
    super::structs::DatEpParam,
    super::structs::DatSrqAttr,
    super::structs::DatIbAddrHandle,
    super::structs::DatSharedMemory,
    super::event::SoftwareHead,
    super::sockaddr::SockAddr,
    [u8; 4],
    [u8; 40],
);

/// Structures that others begin with.
///
/// # Safety
/// `T` has the same fields in the same places, as far as this one goes.
pub(crate) unsafe trait Head<T>: Copy {}

// SAFETY: number, handle and data; their places are asserted beside the two.
unsafe impl Head<super::event::DatEvent> for super::event::DtoHead {}
// SAFETY: as above; the data of a software event is an address.
unsafe impl Head<super::event::DatEvent> for super::event::SoftwareHead {}

/// The address of a value that a call reads; null, if there is none.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct In<T>(pub(crate) *const T);

impl<T: Plain> In<T> {
    /// The value, if there is one.
    #[inline(always)]
    pub(crate) fn get(self) -> Option<T> {
        if self.0.is_null() {
            return None;
        }
        // SAFETY: it is not null, so the consumer has put a value there for the time of the call;
        // any bits are one. It need not be aligned: consumers keep such things in packed
        // messages.
        Some(unsafe { self.0.read_unaligned() })
    }
}

impl<T> In<T> {
    /// The beginning of the value, if there is one.
    pub(crate) fn head<H: Head<T> + Plain>(self) -> Option<H> {
        In(self.0.cast::<H>()).get()
    }
}

impl In<c_char> {
    /// The text, if there is one.
    pub(crate) fn text(&self) -> Option<&CStr> {
        if self.0.is_null() {
            return None;
        }
        // SAFETY: it is not null, so the consumer has a text there for the time of the call, and
        // ended it.
        Some(unsafe { CStr::from_ptr(self.0) })
    }
}

/// The address of a place that a call fills; null, if the consumer does not want to know.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct Out<T>(pub(crate) *mut T);

impl<T: Copy> Out<T> {
    /// Whether the consumer does not want to know.
    pub(crate) fn is_null(self) -> bool {
        self.0.is_null()
    }

    /// Fills the place, if there is one.
    #[inline(always)]
    pub(crate) fn put(self, value: T) {
        if !self.0.is_null() {
            // SAFETY: it is not null, so the consumer has a place of that type there for the time
            // of the call.
            unsafe { self.0.write_unaligned(value) };
        }
    }

    /// Fills the beginning of the place, if there is one: what has to be quick leaves the rest as
    /// it is.
    #[inline(always)]
    pub(crate) fn put_head<H: Head<T>>(self, head: H) {
        Out(self.0.cast::<H>()).put(head);
    }
}

impl<T: Fields> Out<T> {
    /// Fills the fields that the mask of a query names, if there is a place, and leaves the others
    /// alone; a list brings its number. Bytes between fields are not touched.
    pub(crate) fn put_named(self, mask: u64, value: &T) {
        if self.0.is_null() {
            return;
        }
        let mask = mask | (mask & T::LISTS) >> 1;
        let from = core::ptr::from_ref(value).cast::<u8>();
        let to = self.0.cast::<u8>();
        for bit in (0..u64::BITS as usize).filter(|bit| mask >> bit & 1 != 0) {
            let Some((at, len)) = T::named(bit) else {
                continue;
            };
            if at + len > size_of::<T>() {
                continue;
            }
            let (from, to) = (from.wrapping_byte_add(at), to.wrapping_byte_add(at));
            // SAFETY: both ranges lie inside a `T`, as was just looked at: one in `value`, the
            // other in the consumer's place, which is there for the time of the call.
            // The provider's own value is no part of that place.
            unsafe { core::ptr::copy_nonoverlapping(from, to, len) };
        }
    }
}

impl<T: Plain> Out<T> {
    /// What is in the place before, of an argument that goes in as well as out.
    pub(crate) fn get(self) -> Option<T> {
        In(self.0.cast_const()).get()
    }

    /// Fills as many places as the list is long.
    pub(crate) fn put_all(self, values: &[T]) {
        if !self.0.is_null() {
            // SAFETY: it is not null, so the consumer has room for all that the call gives; nobody
            // else has it meanwhile.
            unsafe { core::ptr::copy_nonoverlapping(values.as_ptr(), self.0, values.len()) };
        }
    }
}

/// The address of the first of several values, whose number is another argument.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct List<T>(pub(crate) *const T);

impl<T: Plain> List<T> {
    /// The value of a list of one; `None` for an address of null or that no value can have.
    #[inline(always)]
    pub(crate) fn one(&self) -> Option<&[T; 1]> {
        if !self.0.is_aligned() {
            return None;
        }
        // SAFETY: it is null, or aligned and the consumer has a value there, and leaves it for the
        // time of the call.
        unsafe { self.0.cast::<[T; 1]>().as_ref() }
    }

    /// The values; `count` is the argument that goes with the address. `None` for a number below 0,
    /// and for an address of null or that no value can have, if there are any.
    #[inline(always)]
    pub(crate) fn values(&self, count: i32) -> Option<&[T]> {
        if count == 0 {
            return Some(&[]);
        }
        let count = usize::try_from(count).ok()?;
        if self.0.is_null() || !self.0.is_aligned() {
            return None;
        }
        // SAFETY: it is not null and aligned, so the consumer has that many values there, and
        // leaves them for the time of the call.
        Some(unsafe { core::slice::from_raw_parts(self.0, count) })
    }
}

macro_rules! shown {
    ($($name:ident),*) => {
        $(
            impl<T> fmt::Debug for $name<T> {
                fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                    write!(f, "{:p}", self.0)
                }
            }
        )*
    };
}

shown!(In, Out, List);

macro_rules! shared {
    ($($name:ty),*) => {
        $(
            // SAFETY: the addresses in it are of texts that are never changed, or names that only the consumer follows.
            unsafe impl Send for $name {}
            // SAFETY: as above.
            unsafe impl Sync for $name {}
        )*
    };
}

shared!(
    super::structs::DatNamedAttr,
    super::structs::DatOsWaitProxyAgent,
    super::structs::DatSharedMemory,
    super::table::DatProvider
);
