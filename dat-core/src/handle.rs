//! DAT handles: an index and a generation.
//!
//! A handle is a plain value. Each slot of a table counts its owners; the handle remembers the count, so that a handle to
//! an object that has been freed is recognised for ever, whatever lives in its slot by then. Counts start at a random
//! number per Interface Adapter, so that a handle of another adapter is recognised as well.

/// Index and generation of one object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Handle {
    pub(crate) index: u32,
    pub(crate) generation: u32,
}

impl Handle {
    pub(crate) const fn raw(self) -> u64 {
        (self.generation as u64) << 32 | self.index as u64
    }

    #[expect(
        clippy::cast_possible_truncation,
        reason = "the two halves of the word"
    )]
    pub(crate) const fn from_raw(raw: u64) -> Self {
        Self {
            index: raw as u32,
            generation: (raw >> 32) as u32,
        }
    }
}

macro_rules! handles {
    ($($(#[$doc:meta])* $name:ident;)*) => {
        $(
            $(#[$doc])*
            #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
            pub struct $name(pub(crate) Handle);

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
    /// An Endpoint.
    Ep;
    /// A Public Service Point.
    Psp;
    /// A Connection Request.
    Cr;
}
