//! Layouts, in the notation of the kernel's interface header: ordered `name: width` lists.
//!
//! A layout is written as the PRM's tables read from top to bottom; offsets are the running sum of
//! the widths, computed at compile time, and the total is checked against the published size. A
//! width is a number of bits or the name of another layout, so a command frame can hold a context:
//!
//! ```text
//! layouts! {
//!     /// The 64-byte context of a thing.
//!     thing[64] { state: 4, reserved_at_4: 28, body: 480 }
//!     create_thing_in[80] { opcode: 16, uid: 16, reserved_at_20: 96, ctx: thing }
//! }
//! let context = create_thing_in::ctx.bytes(&input);
//! let state = thing::state.get(context);
//! ```
//!
//! Each layout is a module of its name with one [`Field`] constant per field and a [`Layout`] for
//! the whole. Reads beyond the end of a slice are zero and writes beyond it are dropped, because
//! the bytes come from a driver.

use core::fmt;

/// Where a field sits: bit position from the most significant bit of byte 0, and width in bits.
#[derive(Clone, Copy, Debug)]
pub struct Field {
    /// Bit offset, counted as the PRM counts: from the top of the first byte.
    pub bit: usize,
    /// Width in bits.
    pub width: usize,
    #[cfg(feature = "seeded")]
    name: Option<seeds::Name>,
}

impl PartialEq for Field {
    fn eq(&self, other: &Self) -> bool {
        (self.bit, self.width) == (other.bit, other.width)
    }
}

impl Eq for Field {}

impl Field {
    /// A field by position; those of a layout have their constants.
    pub const fn at(bit: usize, width: usize) -> Self {
        Self {
            bit,
            width,
            #[cfg(feature = "seeded")]
            name: None,
        }
    }

    /// The field where the layout it belongs to begins at the first bit of `outer`.
    #[must_use]
    pub const fn within(self, outer: Self) -> Self {
        Self { bit: outer.bit + self.bit, ..self }
    }

    /// Where the model takes it to be: as declared, but for a bug planted on purpose.
    #[cfg(not(feature = "seeded"))]
    #[inline]
    const fn taken(self) -> Self {
        self
    }

    /// The same, of a field that is about to be read.
    #[cfg(not(feature = "seeded"))]
    #[inline]
    const fn heeded(self) -> Self {
        self
    }

    /// Byte offset of the field's first bit.
    pub const fn byte(self) -> usize {
        self.bit / 8
    }

    /// Value of a field of up to 64 bits (the low 64 of a wider one); zero beyond the slice.
    pub fn get64(self, bytes: &[u8]) -> u64 {
        self.heeded().declared(bytes)
    }

    /// The same, where the field is declared to be: for observers that are no part of the device.
    pub(crate) fn declared(self, bytes: &[u8]) -> u64 {
        let end = self.bit + self.width;
        let first = if self.width > 64 { end - 64 } else { self.bit };
        let mut acc: u128 = 0;
        for at in first / 8..end.div_ceil(8) {
            acc = (acc << 8) | u128::from(bytes.get(at).copied().unwrap_or(0));
        }
        acc >>= (8 - end % 8) % 8;
        let mask = if end - first >= 64 { u64::MAX } else { (1 << (end - first)) - 1 };
        acc as u64 & mask
    }

    /// Value of a field of up to 32 bits.
    pub fn get(self, bytes: &[u8]) -> u32 {
        self.get64(bytes) as u32
    }

    /// Whether any bit of the field is set.
    pub fn is_set(self, bytes: &[u8]) -> bool {
        self.get64(bytes) != 0
    }

    /// Stores the low bits of `value`; nothing beyond the slice is touched.
    pub fn set64(self, bytes: &mut [u8], value: u64) {
        let field = self.taken();
        let end = field.bit + field.width;
        let first = end - field.width.min(64);
        for at in first / 8..end.div_ceil(8) {
            let Some(byte) = bytes.get_mut(at) else {
                continue;
            };
            // The field's bits of this byte, and the value's that belong there.
            let behind = ((at + 1) * 8).saturating_sub(end);
            let mask = (0xff >> first.saturating_sub(at * 8)) & (0xff << behind);
            let below = end.saturating_sub((at + 1) * 8);
            let part = ((value >> below) as u8) << behind;
            *byte = (*byte & !mask) | (part & mask);
        }
    }

    /// Stores the low bits of `value`.
    pub fn set(self, bytes: &mut [u8], value: u32) {
        self.set64(bytes, u64::from(value));
    }

    /// The bytes of a field that is made of whole bytes; shorter, or empty, when the slice ends
    /// within it.
    pub fn bytes(self, bytes: &[u8]) -> &[u8] {
        let field = self.heeded();
        let from = field.byte().min(bytes.len());
        let to = (field.byte() + field.width / 8).min(bytes.len());
        &bytes[from..to]
    }

    /// The same, to write.
    pub fn bytes_mut(self, bytes: &mut [u8]) -> &mut [u8] {
        let field = self.taken();
        let from = field.byte().min(bytes.len());
        let to = (field.byte() + field.width / 8).min(bytes.len());
        &mut bytes[from..to]
    }

    /// Everything from the field's first byte on: the variable tail of a command.
    pub fn tail(self, bytes: &[u8]) -> &[u8] {
        bytes.get(self.heeded().byte()..).unwrap_or(&[])
    }
}

/// One named entry of a layout.
#[derive(Clone, Copy)]
pub struct Entry {
    /// The PRM's name.
    pub name: &'static str,
    /// Position and width.
    pub field: Field,
    /// The layout inside it, when its width was given by name.
    pub inner: Option<&'static Layout>,
}

/// A whole layout, for tests and for the coverage report.
#[derive(Clone, Copy)]
pub struct Layout {
    /// The PRM's name.
    pub name: &'static str,
    /// Size in bytes.
    pub bytes: usize,
    /// All entries in order, reserved ones included.
    pub entries: &'static [Entry],
}

impl fmt::Debug for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}[{}]", self.name, self.bytes)
    }
}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}:{}", self.name, self.field.bit, self.field.width)
    }
}

impl Layout {
    /// The field of that name; a dotted path enters nested layouts.
    pub fn field(&self, path: &str) -> Option<Field> {
        let (head, rest) = match path.split_once('.') {
            Some((head, rest)) => (head, Some(rest)),
            None => (path, None),
        };
        let entry = self.entries.iter().find(|e| e.name == head)?;
        let Some(rest) = rest else {
            return Some(entry.field);
        };
        Some(entry.inner?.field(rest)?.within(entry.field))
    }

    /// Every leaf by dotted path, reserved ones left out.
    pub fn leaves(&self) -> Vec<(String, Field)> {
        let mut out = Vec::new();
        for entry in self.entries.iter().filter(|e| !e.name.starts_with("reserved")) {
            match entry.inner {
                None => out.push((entry.name.to_owned(), entry.field)),
                Some(inner) => out.extend(
                    inner
                        .leaves()
                        .into_iter()
                        .map(|(name, f)| (format!("{}.{name}", entry.name), f.within(entry.field))),
                ),
            }
        }
        out
    }
}

/// Running sum of widths, at compile time.
#[doc(hidden)]
pub const fn place<const N: usize>(widths: [usize; N], bytes: usize) -> [Field; N] {
    let mut out = [Field::at(0, 0); N];
    let mut bit = 0;
    let mut i = 0;
    while i < N {
        out[i] = Field::at(bit, widths[i]);
        bit += widths[i];
        i += 1;
    }
    assert!(bit == bytes * 8, "the widths do not add up to the published size");
    out
}

/// Bits of a width given as a number or as a layout's name.
macro_rules! bits {
    ($n:literal) => {
        $n
    };
    ($n:ident) => {
        super::$n::LAYOUT.bytes * 8
    };
}
pub(crate) use bits;

/// The nested layout of a width given by name.
macro_rules! inner {
    ($n:literal) => {
        None
    };
    ($n:ident) => {
        Some(&super::$n::LAYOUT)
    };
}
pub(crate) use inner;

/// A field that knows what it is called, where bugs can be planted by name.
#[cfg(feature = "seeded")]
macro_rules! named {
    ($placed:expr, $layout:ident, $field:ident) => {
        $placed.called(stringify!($layout), stringify!($field))
    };
}
#[cfg(not(feature = "seeded"))]
macro_rules! named {
    ($placed:expr, $layout:ident, $field:ident) => {
        $placed
    };
}
pub(crate) use named;

/// Declares layouts; see the module's front page. Also defines `ALL`, the list of them.
macro_rules! layouts {
    ($($(#[$meta:meta])* $name:ident[$bytes:expr] { $($field:ident: $width:tt),* $(,)? })*) => {
        $(
            $(#[$meta])*
            #[expect(non_upper_case_globals, reason = "fields keep the PRM's spelling")]
            pub mod $name {
                #[expect(non_camel_case_types, reason = "fields keep the PRM's spelling")]
                enum Index { $($field),* }
                const PLACED: &[$crate::ifc::Field] =
                    &$crate::ifc::place([$($crate::ifc::bits!($width)),*], $bytes);
                $(
                    #[doc = concat!("Field `", stringify!($field), "`.")]
                    pub const $field: $crate::ifc::Field = $crate::ifc::named!(
                        PLACED[Index::$field as usize], $name, $field
                    );
                )*
                /// The whole layout.
                pub const LAYOUT: $crate::ifc::Layout = $crate::ifc::Layout {
                    name: stringify!($name),
                    bytes: $bytes,
                    entries: &[$($crate::ifc::Entry {
                        name: stringify!($field),
                        field: $field,
                        inner: $crate::ifc::inner!($width),
                    }),*],
                };
                /// Size in bytes.
                pub const BYTES: usize = $bytes;
            }
        )*
        /// Every layout of this file.
        pub const ALL: &[$crate::ifc::Layout] = &[$($name::LAYOUT),*];
    };
}

pub mod caps;
pub mod cmd;
pub mod congestion;
pub mod counters;
pub mod cq;
pub mod cqe;
pub mod eq;
pub mod flow;
pub mod hca;
pub mod mkey;
pub mod packet;
pub mod pages;
pub mod qp;
pub mod regs;
#[cfg(feature = "seeded")]
pub mod seeds;
pub mod subnet;
pub mod umem;
pub mod vport;
pub mod wq;
pub mod wqe;

/// Every layout of the device; those of subnet management ([`subnet`]) belong to no device.
pub fn all() -> Vec<Layout> {
    [
        cmd::ALL,
        caps::ALL,
        congestion::ALL,
        counters::ALL,
        cq::ALL,
        cqe::ALL,
        eq::ALL,
        flow::ALL,
        hca::ALL,
        mkey::ALL,
        packet::ALL,
        pages::ALL,
        qp::ALL,
        regs::ALL,
        umem::ALL,
        vport::ALL,
        wq::ALL,
        wqe::ALL,
    ]
    .concat()
}
