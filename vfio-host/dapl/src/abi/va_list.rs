//! `va_list`: the arguments of `dat_extension_op`, as the calling conventions of the two processors
//! have them.
//!
//! Rust has no such type yet. All arguments of the extensions are integers and addresses, so only
//! the registers and the stack of those are read. On both processors a function gets the address of
//! the structure.

#![expect(unsafe_code, reason = "reads arguments where the calling convention has stored them")]

use core::ffi::c_void;
use core::fmt;

use super::pointer::{In, List, Out};

/// Words that the integer registers hold after a call with variable arguments has saved them.
#[cfg(target_arch = "x86_64")]
#[repr(C)]
struct Tag {
    /// Bytes of the save area that have been read; 48 is its end.
    gp_offset: u32,
    fp_offset: u32,
    overflow_arg_area: *const u64,
    reg_save_area: *const c_void,
}

/// Of the procedure call standard for the Arm 64-bit architecture.
#[cfg(target_arch = "aarch64")]
#[repr(C)]
struct Tag {
    stack: *const u64,
    gr_top: *const c_void,
    vr_top: *const c_void,
    /// Bytes from the next word below `gr_top`; not negative, when none is left.
    gr_offs: i32,
    vr_offs: i32,
}

#[cfg(target_arch = "x86_64")]
const _: () = assert!(size_of::<Tag>() == 24);
#[cfg(target_arch = "aarch64")]
const _: () = assert!(size_of::<Tag>() == 32);

/// The remaining arguments, a parameter of `handle_extendedop`.
#[repr(transparent)]
pub(crate) struct VaList(*mut Tag);

impl fmt::Debug for VaList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "VaList({:p})", self.0)
    }
}

impl VaList {
    #[cfg(target_arch = "x86_64")]
    fn place(tag: &mut Tag) -> *const u64 {
        const END: u32 = 48;
        if tag.gp_offset < END {
            let at = tag.reg_save_area.wrapping_byte_add(tag.gp_offset as usize);
            tag.gp_offset += 8;
            at.cast()
        } else {
            let at = tag.overflow_arg_area;
            tag.overflow_arg_area = at.wrapping_add(1);
            at
        }
    }

    #[cfg(target_arch = "aarch64")]
    fn place(tag: &mut Tag) -> *const u64 {
        if tag.gr_offs < 0 {
            let at = tag.gr_top.wrapping_byte_offset(tag.gr_offs as isize);
            tag.gr_offs += 8;
            at.cast()
        } else {
            let at = tag.stack;
            tag.stack = at.wrapping_add(1);
            at
        }
    }

    /// Returns the next argument, as a word.
    pub(crate) fn word(&mut self) -> u64 {
        // SAFETY: the caller of handle_extendedop made the structure, and nothing else uses it
        // until that returns.
        let tag = unsafe { &mut *self.0 };
        let at = Self::place(tag);
        // SAFETY: each argument of an operation is read once, in order: the macros of the header
        // pass them all.
        unsafe { at.read_unaligned() }
    }

    /// Returns the next argument, of 32 bits.
    #[expect(clippy::cast_possible_truncation, reason = "what is above is not defined")]
    pub(crate) fn word32(&mut self) -> u32 {
        self.word() as u32
    }

    /// Returns the next argument, a `DAT_COUNT`.
    pub(crate) fn count(&mut self) -> i32 {
        0_i32.wrapping_add_unsigned(self.word32())
    }

    fn address<T>(&mut self) -> *mut T {
        #[expect(clippy::cast_possible_truncation, reason = "an address is a word")]
        let address = self.word() as usize;
        core::ptr::with_exposed_provenance_mut(address)
    }

    /// Returns the next argument, the address of an input.
    pub(crate) fn input<T>(&mut self) -> In<T> {
        In(self.address::<T>().cast_const())
    }

    /// Returns the next argument, the address of a list.
    pub(crate) fn list<T>(&mut self) -> List<T> {
        List(self.address::<T>().cast_const())
    }

    /// Returns the next argument, the address of an output.
    pub(crate) fn output<T>(&mut self) -> Out<T> {
        Out(self.address())
    }
}

/// Has the function `run` of a library of C call `to` with arguments.
#[cfg(test)]
pub(crate) fn run_in(library: &std::path::Path, to: extern "C" fn(VaList) -> u64) -> u64 {
    use std::os::unix::ffi::OsStrExt;
    let path = std::ffi::CString::new(library.as_os_str().as_bytes()).unwrap();
    // SAFETY: a library without constructors.
    let opened = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW) };
    assert!(!opened.is_null());
    // SAFETY: it was just opened.
    let run = unsafe { libc::dlsym(opened, c"run".as_ptr()) };
    assert!(!run.is_null());
    // SAFETY: that is the type that the test has written it with.
    let run: extern "C" fn(extern "C" fn(VaList) -> u64) -> u64 =
        unsafe { core::mem::transmute(run) };
    run(to)
}
