//! DAT handles: an index and a generation.
//!
//! A handle is a plain value. Each slot of a table counts its owners; the handle remembers the
//! count, so that a handle to an object that has been freed is recognised for ever, whatever is
//! in its slot by then. Counts start at a random number per Interface Adapter, so that a handle of
//! another adapter is recognised as well.

use core::num::NonZeroU64;

/// Index and generation of one object, in one word that is never 0: a handle and its absence both
/// travel in a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Handle(NonZeroU64);

#[expect(clippy::cast_possible_truncation, reason = "the two halves of the word")]
impl Handle {
    /// A bit beside the index that every handle has, so that none is 0. In the lower half it is an
    /// immediate operand.
    const MARK: u64 = 1 << 30;

    pub(crate) const fn new(index: u32, generation: u32) -> Self {
        Self::from_raw((generation as u64) << 32 | index as u64)
    }

    pub(crate) const fn index(self) -> u32 {
        (self.0.get() & !Self::MARK) as u32
    }

    pub(crate) const fn generation(self) -> u32 {
        (self.0.get() >> 32) as u32
    }

    pub(crate) const fn raw(self) -> u64 {
        self.0.get()
    }

    #[inline(always)]
    pub(crate) const fn from_raw(raw: u64) -> Self {
        // It has the mark, so it is not 0: the compiler knows as well.
        Self(match NonZeroU64::new(raw | Self::MARK) {
            Some(word) => word,
            None => NonZeroU64::MAX,
        })
    }
}

macro_rules! handles {
    ($($(#[$doc:meta])* $name:ident;)*) => {
        $(
            $(#[$doc])*
            #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
            pub struct $name(pub(crate) Handle);

            impl From<$name> for Handle {
                fn from(handle: $name) -> Self {
                    handle.0
                }
            }

            impl $name {
                /// The handle as one word, for a table of another language.
                #[must_use]
                pub const fn raw(self) -> u64 {
                    self.0.raw()
                }

                /// The handle of that word. Any word will do: a wrong one is refused where it is used.
                #[must_use]
                pub const fn from_raw(raw: u64) -> Self {
                    Self(Handle::from_raw(raw))
                }

                /// Its place among those of its kind, below their greatest number: for a table beside this one.
                #[must_use]
                pub const fn index(self) -> u32 {
                    self.0.index()
                }
            }
        )*
    };
}

handles! {
    /// A Protection Zone.
    Pz;
    /// A Local Memory Region.
    Lmr;
    /// A Remote Memory Region.
    Rmr;
    /// An Event Dispatcher.
    Evd;
    /// A Consumer Notification Object.
    Cno;
    /// An Endpoint.
    Ep;
    /// A Public Service Point.
    Psp;
    /// A Connection Request.
    Cr;
    /// A Shared Receive Queue.
    Srq;
    /// A Reserved Service Point.
    Rsp;
    /// A Common Service Point.
    Csp;
}

/// `DAT_HANDLE_TYPE`, with the numbers of uDAPL.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum HandleType {
    /// A Connection Request.
    Cr = 0,
    /// An Endpoint.
    Ep = 1,
    /// An Event Dispatcher.
    Evd = 2,
    /// The Interface Adapter.
    Ia = 3,
    /// A Local Memory Region.
    Lmr = 4,
    /// A Public Service Point.
    Psp = 5,
    /// A Protection Zone.
    Pz = 6,
    /// A Remote Memory Region.
    Rmr = 7,
    /// A Reserved Service Point.
    Rsp = 8,
    /// A Consumer Notification Object.
    Cno = 9,
    /// A Shared Receive Queue.
    Srq = 10,
    /// A Common Service Point.
    Csp = 11,
}

/// A handle of any kind: what the calls take that serve objects of every kind. Each handle converts
/// into it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AnyHandle {
    /// The Interface Adapter that is asked.
    Ia,
    /// A Consumer Notification Object.
    Cno(Cno),
    /// A Connection Request.
    Cr(Cr),
    /// An Endpoint.
    Ep(Ep),
    /// An Event Dispatcher.
    Evd(Evd),
    /// A Local Memory Region.
    Lmr(Lmr),
    /// A Public Service Point.
    Psp(Psp),
    /// A Protection Zone.
    Pz(Pz),
    /// A Remote Memory Region.
    Rmr(Rmr),
    /// A Reserved Service Point.
    Rsp(Rsp),
    /// A Shared Receive Queue.
    Srq(Srq),
    /// A Common Service Point.
    Csp(Csp),
}

macro_rules! any {
    ($($kind:ident),*) => {
        $(
            impl From<$kind> for AnyHandle {
                fn from(handle: $kind) -> Self {
                    Self::$kind(handle)
                }
            }
        )*
    };
}

any!(Cno, Cr, Csp, Ep, Evd, Lmr, Psp, Pz, Rmr, Rsp, Srq);
