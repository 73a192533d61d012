//! Pointers from C consumers.
//!
//! Values of these types are arguments of DAT calls, or fields of structures that such arguments
//! point to. DAT requires that the consumer passes null or an address that is valid for the call;
//! no provider can check that. This module relies on it in one place, so that the calls need no
//! `unsafe`.

#![expect(unsafe_code, reason = "dereferences addresses from C consumers")]

use core::ffi::{CStr, c_char, c_void};
use core::fmt;
use core::ptr::NonNull;

use dat_core::{LmrTriplet, RmrTriplet};

use super::layout::Fields;

/// A handle as C has it: the address of an object of this library, or any other address that a
/// consumer passes. Only the table of objects interprets it.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(transparent)]
pub(crate) struct DatHandle(pub(crate) *mut c_void);

// SAFETY: a handle is only a number; the table of objects, which has its own locks, dereferences
// it.
unsafe impl Send for DatHandle {}
// SAFETY: as above.
unsafe impl Sync for DatHandle {}

impl DatHandle {
    /// `DAT_HANDLE_NULL`.
    pub(crate) const NULL: Self = Self(core::ptr::null_mut());

    /// Returns whether it is null.
    pub(crate) fn is_null(self) -> bool {
        self.0.is_null()
    }
}

impl fmt::Debug for DatHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:p}", self.0)
    }
}

/// Types for which every bit pattern is valid.
///
/// # Safety
/// Every bit pattern must be a valid value.
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
    super::own::Rdma,
    super::own::Message,
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

/// The address of a value that a call reads, or null.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct In<T>(pub(crate) *const T);

impl<T: Plain> In<T> {
    /// Reads the value; `None` if null.
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
    /// Reads the beginning of the value; `None` if null.
    pub(crate) fn head<H: Head<T> + Plain>(self) -> Option<H> {
        In(self.0.cast::<H>()).get()
    }
}

impl In<c_char> {
    /// Returns the text; `None` if null.
    pub(crate) fn text(&self) -> Option<&CStr> {
        if self.0.is_null() {
            return None;
        }
        // SAFETY: it is not null, so the consumer has a terminated text there for the time of the
        // call.
        Some(unsafe { CStr::from_ptr(self.0) })
    }
}

/// The address where a call stores a result, or null if the consumer does not want it.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct Out<T>(pub(crate) *mut T);

impl<T: Copy> Out<T> {
    /// Returns whether it is null.
    pub(crate) fn is_null(self) -> bool {
        self.0.is_null()
    }

    /// Returns the list that begins there; `None` if null.
    pub(crate) fn list(self) -> Option<OutList<T>> {
        NonNull::new(self.0).map(OutList)
    }

    /// Stores a value, unless null.
    #[inline(always)]
    pub(crate) fn put(self, value: T) {
        if !self.0.is_null() {
            // SAFETY: it is not null, so the consumer has memory for that type there for the time
            // of the call.
            unsafe { self.0.write_unaligned(value) };
        }
    }

    /// Stores the beginning of a value, unless null. The fast path leaves the rest unchanged.
    #[inline(always)]
    pub(crate) fn put_head<H: Head<T>>(self, head: H) {
        Out(self.0.cast::<H>()).put(head);
    }
}

impl<T: Fields> Out<T> {
    /// Stores the fields that the mask of a query selects, unless null, and for a list also its
    /// length. Other fields and padding stay unchanged.
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
            // SAFETY: both ranges lie inside a `T`, as was just checked: one in `value`, the other
            // in the consumer's memory, which is valid for the time of the call and does not
            // overlap `value`.
            unsafe { core::ptr::copy_nonoverlapping(from, to, len) };
        }
    }
}

impl<T: Plain> Out<T> {
    /// Reads the present value, of an argument that is both input and output.
    pub(crate) fn get(self) -> Option<T> {
        In(self.0.cast_const()).get()
    }

    /// Stores a list of values, unless null.
    pub(crate) fn put_all(self, values: &[T]) {
        if let Some(list) = self.list() {
            values.iter().enumerate().for_each(|(n, value)| list.at(n).put(*value));
        }
    }
}

/// The address of a list that a call fills; its length is another argument.
#[derive(Clone, Copy)]
pub(crate) struct OutList<T>(NonNull<T>);

impl<T: Copy> OutList<T> {
    /// Returns the address of an element.
    pub(crate) fn at(self, n: usize) -> Out<T> {
        Out(self.0.as_ptr().wrapping_add(n))
    }

    /// Stores the beginning of an element, as [`Out::put_head`] does.
    #[inline(always)]
    pub(crate) fn put_head<H: Head<T>>(self, n: usize, head: H) {
        let to = self.0.as_ptr().wrapping_add(n).cast::<H>();
        // SAFETY: it is not null, so the consumer has memory for all elements of the call there,
        // of which this is one.
        unsafe { to.write_unaligned(head) };
    }
}

/// The address of a list; its length is another argument.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct List<T>(pub(crate) *const T);

impl<T: Plain> List<T> {
    /// Returns the value of a list of one; `None` for a null or misaligned address.
    #[inline(always)]
    pub(crate) fn one(&self) -> Option<&[T; 1]> {
        if !self.0.is_aligned() {
            return None;
        }
        // SAFETY: it is null, or it is aligned and the consumer has a value there, unchanged for
        // the time of the call.
        unsafe { self.0.cast::<[T; 1]>().as_ref() }
    }

    /// Returns `count` values. `None` for a negative count, and for a null or misaligned address
    /// unless the count is 0.
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
