//! Layouts of the mlx5 programmer's reference manual (PRM), and of InfiniBand's management
//! datagrams (`mad`, `smp`, `sa`): data only, no input or output, no decisions.
//!
//! # Notation
//! Mailboxes and contexts are written with `layout!`, one line a field, in the manual's own terms:
//! the byte offset of the big-endian dword, then the bits inside it.
//! ```text
//! layout! {
//!     /// What it is.
//!     EqContext, 64;
//!     0x00[31:28] status, set_status: u8;         bits 31..28 of the dword at byte 0x00
//!     0x00[18] ec, set_ec: bool;                  one bit
//!     0x38(64) dbr_addr, set_dbr_addr: u64;       64 bits from byte 0x38 on, big-endian
//! }
//! ```
//! The macro turns that into absolute bit positions of `bitfield!`'s `MSB0 [u8]` form (position is
//! `8 * offset + 31 - bit`) and refuses, when compiling, a field that leaves its dword or the
//! layout. Field names are the manual's, so that the `FIELDS` table of each layout can be held
//! against any other notation of the same layout by name.
//!
//! Entries the device writes at data-path rate (CQE, EQE) and WQEs are read and built one
//! big-endian 32-bit word at a time instead, with `bitfield!` over a `u32`.
//!
//! # Messages
//! A command's input or output message is a byte array of its whole length, 16-byte head included.
//! A context inside it is a layout of its own: `EqContext(At::<_, PLACE>(&mut message))` is the one
//! at byte `PLACE`; [`take`] copies one out. All stay inside the message by construction, so
//! nothing the device says about lengths can make them panic.
//!
//! # Names
//! `object` names the kinds of objects, `error` the statuses of commands; `fault` makes the texts
//! of faults from both.

pub mod caps;
pub mod cmd;
pub mod congestion;
pub mod counters;
pub mod cq;
pub mod cqe;
pub mod eq;
pub mod error;
pub mod flow;
pub(crate) mod gid;
pub mod hca_vport;
pub mod init_seg;
pub mod mad;
pub mod mkey;
pub(crate) mod object;
pub mod pages;
pub mod qp;
pub mod reg;
pub mod roce;
pub mod rq;
pub mod sa;
pub mod smp;
pub mod sq;
pub mod tir;
pub mod tis;
pub mod vport;
pub mod wqe;

#[cfg(test)]
mod tests;

/// One field of a layout, for cross-checks by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// The manual's name.
    pub name: &'static str,
    /// Its first (most significant) bit, counted from the top bit of byte 0.
    pub first: usize,
    /// Its width in bits.
    pub width: usize,
}

/// A type that fields have, from the bits of one.
pub trait FieldValue {
    /// The value of so many low bits; the greatest there is, if they are too many.
    fn from_bits(bits: u128) -> Self;
}

impl FieldValue for bool {
    fn from_bits(bits: u128) -> Self {
        bits != 0
    }
}

macro_rules! field_values {
    ($($type:ident)*) => {$(
        impl FieldValue for $type {
            fn from_bits(bits: u128) -> Self {
                Self::try_from(bits).unwrap_or(Self::MAX)
            }
        }
    )*};
}
field_values!(u8 u16 u32 u64 u128);

/// First bit and width of a field, at most 64, in one number.
#[expect(clippy::cast_possible_truncation, reason = "no layout is that long")]
pub(crate) const fn place(first: usize, width: usize) -> u32 {
    (first << 8 | width) as u32
}

/// Bytes of a layout: its own, or part of a message.
pub trait Bytes {
    /// All of them.
    fn bytes(&self) -> &[u8];
    /// The bits at a place.
    fn get(&self, place: u32) -> u64;
}

/// The same to write to.
pub trait BytesMut: Bytes {
    /// All of them.
    fn bytes_mut(&mut self) -> &mut [u8];
    /// Writes the bits at a place.
    fn set(&mut self, place: u32, value: u64);
}

// A call for each length of message, not for each field, carries the length.
impl<const N: usize> Bytes for [u8; N] {
    #[inline(always)]
    fn bytes(&self) -> &[u8] {
        self
    }
    #[inline(never)]
    fn get(&self, place: u32) -> u64 {
        bits(place, self)
    }
}

impl<const N: usize> BytesMut for [u8; N] {
    #[inline(always)]
    fn bytes_mut(&mut self) -> &mut [u8] {
        self
    }
    #[inline(never)]
    fn set(&mut self, place: u32, value: u64) {
        set_bits(place, value, self);
    }
}

impl Bytes for [u8] {
    #[inline(always)]
    fn bytes(&self) -> &[u8] {
        self
    }
    #[inline(always)]
    fn get(&self, place: u32) -> u64 {
        bits(place, self)
    }
}

impl BytesMut for [u8] {
    #[inline(always)]
    fn bytes_mut(&mut self) -> &mut [u8] {
        self
    }
    #[inline(always)]
    fn set(&mut self, place: u32, value: u64) {
        set_bits(place, value, self);
    }
}

impl<B: Bytes + ?Sized> Bytes for &mut B {
    #[inline(always)]
    fn bytes(&self) -> &[u8] {
        (**self).bytes()
    }
    #[inline(always)]
    fn get(&self, place: u32) -> u64 {
        (**self).get(place)
    }
}

impl<B: BytesMut + ?Sized> BytesMut for &mut B {
    #[inline(always)]
    fn bytes_mut(&mut self) -> &mut [u8] {
        (**self).bytes_mut()
    }
    #[inline(always)]
    fn set(&mut self, place: u32, value: u64) {
        (**self).set(place, value);
    }
}

impl<B: Bytes + ?Sized> Bytes for &B {
    #[inline(always)]
    fn bytes(&self) -> &[u8] {
        (**self).bytes()
    }
    #[inline(always)]
    fn get(&self, place: u32) -> u64 {
        (**self).get(place)
    }
}

/// Bytes of a message from byte `AT` on.
#[derive(Clone, Copy, Debug)]
pub struct At<B, const AT: usize>(pub B);

impl<B: Bytes, const AT: usize> Bytes for At<B, AT> {
    #[inline(always)]
    fn bytes(&self) -> &[u8] {
        self.0.bytes().get(AT..).unwrap_or_default()
    }
    #[inline(always)]
    fn get(&self, at: u32) -> u64 {
        self.0.get(at + place(8 * AT, 0))
    }
}

impl<B: BytesMut, const AT: usize> BytesMut for At<B, AT> {
    #[inline(always)]
    fn bytes_mut(&mut self) -> &mut [u8] {
        self.0.bytes_mut().get_mut(AT..).unwrap_or_default()
    }
    #[inline(always)]
    fn set(&mut self, at: u32, value: u64) {
        self.0.set(at + place(8 * AT, 0), value);
    }
}

/// The bits of `bytes` at a [`place`]; zero where there are none.
///
/// One bit at a time, and once for all fields of all layouts: a command takes the device longer
/// than this.
#[inline(never)]
pub(crate) fn bits(place: u32, bytes: &[u8]) -> u64 {
    let (first, width) = ((place >> 8) as usize, (place & 0xff) as usize);
    (first..first.saturating_add(width)).fold(0, |value, at| {
        let byte = bytes.get(at / 8).copied().unwrap_or(0);
        value << 1 | u64::from(byte >> (7 - at % 8) & 1)
    })
}

/// Writes as many low bits of `value` as a [`place`] has.
#[inline(never)]
pub(crate) fn set_bits(place: u32, mut value: u64, bytes: &mut [u8]) {
    let (first, width) = ((place >> 8) as usize, (place & 0xff) as usize);
    for at in (first..first.saturating_add(width)).rev() {
        if let Some(byte) = bytes.get_mut(at / 8) {
            let bit = 1 << (7 - at % 8);
            *byte = *byte & !bit | if value & 1 == 0 { 0 } else { bit };
        }
        value >>= 1;
    }
}

/// A type of fields. What is not the whole bytes of its type has 64 bits at most, and no more than
/// the type.
pub(crate) trait Number {
    fn narrow(bits: u64) -> Self;
    fn widen(self) -> u64;
}

macro_rules! number {
    ($($type:ident $narrow:expr, $widen:expr;)*) => {$(
        impl Number for $type {
            #[inline(always)]
            fn narrow(bits: u64) -> Self {
                $narrow(bits)
            }
            #[inline(always)]
            fn widen(self) -> u64 {
                $widen(self)
            }
        }
    )*};
}
/// The low bytes of a number, in the order of the smallest first.
#[inline(always)]
fn low<const N: usize>(bytes: &[u8]) -> [u8; N] {
    bytes.first_chunk().copied().unwrap_or([0; N])
}
number! {
    u8 |bits: u64| Self::from_le_bytes(low(&bits.to_le_bytes())), u64::from;
    u16 |bits: u64| Self::from_le_bytes(low(&bits.to_le_bytes())), u64::from;
    u32 |bits: u64| Self::from_le_bytes(low(&bits.to_le_bytes())), u64::from;
    u64 |bits| bits, |number| number;
    u128 Self::from, |number: Self| u64::from_le_bytes(low(&number.to_le_bytes()));
}

/// The bit ranges of a layout for one integer type: by [`bits`] and [`set_bits`], but for a field
/// that has the whole bytes of its type, as to move those takes less code than a call.
macro_rules! bit_ranges {
    ($name:ident: $($type:ident)*) => {$(
        impl<T: $crate::prm::Bytes> bitfield::BitRange<$type> for $name<T> {
            #[inline(always)]
            fn bit_range(&self, last: usize, first: usize) -> $type {
                if first % 8 == 0 && last + 1 - first == <$type>::BITS as usize {
                    let bytes = self.0.bytes().get(first / 8..);
                    if let Some(bytes) = bytes.and_then(<[u8]>::first_chunk) {
                        return <$type>::from_be_bytes(*bytes);
                    }
                }
                $crate::prm::Number::narrow(self.0.get($crate::prm::place(first, last + 1 - first)))
            }
        }
        impl<T: $crate::prm::BytesMut> bitfield::BitRangeMut<$type> for $name<T> {
            #[inline(always)]
            fn set_bit_range(&mut self, last: usize, first: usize, value: $type) {
                if first % 8 == 0 && last + 1 - first == <$type>::BITS as usize {
                    let bytes = self.0.bytes_mut().get_mut(first / 8..);
                    if let Some(bytes) = bytes.and_then(<[u8]>::first_chunk_mut) {
                        *bytes = value.to_be_bytes();
                        return;
                    }
                }
                self.0.set($crate::prm::place(first, last + 1 - first), $crate::prm::Number::widen(value));
            }
        }
    )*};
}
pub(crate) use bit_ranges;

/// Copies `bytes` into `message` at `offset`; what would not fit is left out.
#[inline(never)]
pub fn put(message: &mut [u8], offset: usize, bytes: &[u8]) {
    if let Some(place) = message.get_mut(offset..) {
        for (to, from) in place.iter_mut().zip(bytes) {
            *to = *from;
        }
    }
}

/// The `N` bytes of `message` at `offset`; zero where the message ends early.
#[must_use]
pub fn take<const N: usize>(message: &[u8], offset: usize) -> [u8; N] {
    let mut bytes = [0; N];
    put(&mut bytes, 0, message.get(offset..).unwrap_or(&[]));
    bytes
}

/// First bit of a field, from the dword's offset and the bits in it.
macro_rules! first_bit {
    ($offset:literal [$high:literal : $low:literal]) => {
        8 * $offset + 31 - $high
    };
    ($offset:literal [$bit:literal]) => {
        8 * $offset + 31 - $bit
    };
    ($offset:literal ($width:literal)) => {
        8 * $offset
    };
}
pub(crate) use first_bit;

/// Last bit of a field, likewise.
macro_rules! last_bit {
    ($offset:literal [$high:literal : $low:literal]) => {
        8 * $offset + 31 - $low
    };
    ($offset:literal [$bit:literal]) => {
        8 * $offset + 31 - $bit
    };
    ($offset:literal ($width:literal)) => {
        8 * $offset + $width - 1
    };
}
pub(crate) use last_bit;

/// The two accessors of one field.
macro_rules! layout_field {
    ($(#[$meta:meta])* $offset:literal [$bit:literal] $get:ident $set:ident bool) => {
        bitfield::bitfield_fields! { only getter;
            $(#[$meta])* #[doc = concat!("Bit `", stringify!($offset[$bit]), "`.")] #[must_use]
            pub bool, $get, _: 8 * $offset + 31 - $bit;
        }
    };
    ($(#[$meta:meta])* $offset:literal $bits:tt $get:ident $set:ident $type:ident) => {
        bitfield::bitfield_fields! { only getter;
            $(#[$meta])* #[doc = concat!("Bits `", stringify!($offset), stringify!($bits), "`.")] #[must_use]
            pub $type, $get, _: $crate::prm::last_bit!($offset $bits), $crate::prm::first_bit!($offset $bits);
        }
    };
}
pub(crate) use layout_field;

/// The setter of one field.
macro_rules! layout_setter {
    ($(#[$meta:meta])* $offset:literal [$bit:literal] $get:ident $set:ident bool) => {
        bitfield::bitfield_fields! { only setter;
            #[doc = concat!("Sets `", stringify!($get), "`.")]
            pub bool, _, $set: 8 * $offset + 31 - $bit;
        }
    };
    ($(#[$meta:meta])* $offset:literal $bits:tt $get:ident $set:ident $type:ident) => {
        bitfield::bitfield_fields! { only setter;
            #[doc = concat!("Sets `", stringify!($get), "`.")]
            pub $type, _, $set: $crate::prm::last_bit!($offset $bits), $crate::prm::first_bit!($offset $bits);
        }
    };
}
pub(crate) use layout_setter;

/// Declares a layout; see the module page.
macro_rules! layout {
    (
        $(#[$meta:meta])* $name:ident, $size:literal;
        $($(#[$field_meta:meta])* $offset:literal $bits:tt $get:ident, $set:ident: $type:ident;)*
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct $name<T>(pub T);

        $crate::prm::bit_ranges! { $name: u8 u16 u32 u64 u128 }

        impl $name<[u8; $size]> {
            /// Its length in bytes.
            pub const SIZE: usize = $size;
            /// Its fields, for cross-checks by name.
            pub const FIELDS: &'static [$crate::prm::Field] = &[$($crate::prm::Field {
                name: stringify!($get),
                first: $crate::prm::first_bit!($offset $bits),
                width: $crate::prm::last_bit!($offset $bits) + 1 - $crate::prm::first_bit!($offset $bits),
            }),*];

            /// The field of that name, read by its accessor; for cross-checks.
            #[must_use]
            pub fn field(&self, name: &str) -> Option<u128> {
                $(if name == stringify!($get) {
                    return Some(u128::from(self.$get()));
                })*
                None
            }

            /// Writes the field of that name by its accessor; whether there is one. For cross-checks.
            pub fn set_field(&mut self, name: &str, value: u128) -> bool {
                $(if name == stringify!($get) {
                    self.$set($crate::prm::FieldValue::from_bits(value));
                    return true;
                })*
                false
            }

            /// All zero.
            #[must_use]
            #[inline(never)]
            pub const fn new() -> Self {
                Self([0; $size])
            }

            /// The one at `offset` of a message.
            #[must_use]
            pub fn read(message: &[u8], offset: usize) -> Self {
                Self($crate::prm::take(message, offset))
            }

            /// Becomes the one at `offset` of a message.
            pub fn load(&mut self, message: &[u8], offset: usize) {
                $crate::prm::put(&mut self.0, 0, message.get(offset..).unwrap_or(&[]));
            }

            /// Copies it to `offset` of a message.
            pub fn write(&self, message: &mut [u8], offset: usize) {
                $crate::prm::put(message, offset, &self.0);
            }
        }

        impl Default for $name<[u8; $size]> {
            fn default() -> Self {
                Self::new()
            }
        }

        $(
            impl<T: $crate::prm::Bytes> $name<T> {
                $crate::prm::layout_field! { $(#[$field_meta])* $offset $bits $get $set $type }
            }
            impl<T: $crate::prm::BytesMut> $name<T> {
                $crate::prm::layout_setter! { $offset $bits $get $set $type }
            }
            const _: () = {
                let (first, last): (usize, usize) =
                    ($crate::prm::first_bit!($offset $bits), $crate::prm::last_bit!($offset $bits));
                assert!($offset % 4 == 0, "not a dword offset");
                assert!(first <= last && last < 8 * $size, "the field leaves the layout");
                assert!(first / 32 == 8 * $offset / 32, "the field does not start in its dword");
                assert!(last - first < 64 || first % 8 == 0, "wide fields are whole bytes");
                assert!(last - first >= 32 || last / 32 == first / 32, "the field leaves its dword");
            };
        )*
    };
}
pub(crate) use layout;
