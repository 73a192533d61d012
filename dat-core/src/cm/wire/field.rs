//! One field of a MAD by byte, bit and width, as the tables of the specification give it.

use core::marker::PhantomData;

use crate::cm::wire::header::{BODY, MAD_LEN};

/// A field that reads as a `T`. Bit 0 is the most significant bit of its byte.
#[derive(Clone, Copy, Debug)]
pub(super) struct Field<T> {
    first: usize,
    width: usize,
    of: PhantomData<T>,
}

/// The integers a field may read as.
pub(super) trait Word: Copy {
    const BITS: usize;
    fn from_bits(bits: u128) -> Self;
    fn into_bits(self) -> u128;
    /// The value of its own bytes, from the first of these on.
    fn from_bytes(bytes: &[u8]) -> Option<Self>;
    /// Writes its own bytes from the first of these on; whether there was room.
    fn into_bytes(self, bytes: &mut [u8]) -> bool;
}

macro_rules! whole_bytes {
    () => {
        #[inline(always)]
        fn from_bytes(bytes: &[u8]) -> Option<Self> {
            bytes.first_chunk().map(|bytes| Self::from_be_bytes(*bytes))
        }
        #[inline(always)]
        fn into_bytes(self, bytes: &mut [u8]) -> bool {
            let place = bytes.first_chunk_mut();
            place.map(|bytes| *bytes = self.to_be_bytes()).is_some()
        }
    };
}

macro_rules! words {
    ($($t:ty)*) => {$(
        impl Word for $t {
            const BITS: usize = <$t>::BITS as usize;
            #[expect(clippy::cast_possible_truncation, reason = "a field is at most as wide as its type")]
            fn from_bits(bits: u128) -> Self {
                bits as Self
            }
            fn into_bits(self) -> u128 {
                u128::from(self)
            }
            whole_bytes!();
        }
    )*};
}
words!(u8 u16 u32 u64);

impl Word for u128 {
    const BITS: usize = 128;
    fn from_bits(bits: u128) -> Self {
        bits
    }
    fn into_bits(self) -> u128 {
        self
    }
    whole_bytes!();
}

impl Word for bool {
    const BITS: usize = 1;
    fn from_bits(bits: u128) -> Self {
        bits != 0
    }
    fn into_bits(self) -> u128 {
        u128::from(self)
    }
    fn from_bytes(_bytes: &[u8]) -> Option<Self> {
        None
    }
    fn into_bytes(self, _bytes: &mut [u8]) -> bool {
        false
    }
}

impl<T: Word> Field<T> {
    /// A field of the MAD header.
    pub(super) const fn header(byte: usize, width: usize) -> Self {
        let field = Self { first: byte * 8, width, of: PhantomData };
        assert!(width <= T::BITS, "field wider than its type");
        assert!(field.first + width <= MAD_LEN * 8, "field outside the MAD");
        field
    }

    /// A field of the message body, which follows the header.
    pub(super) const fn body(byte: usize, bit: usize, width: usize) -> Self {
        assert!(bit < 8 && width <= 128 - bit, "not a byte and a bit");
        let mut field = Self::header(BODY + byte, width);
        field.first += bit;
        assert!(bit + width <= 64 || field.whole().is_some(), "a wide field is one of whole bytes");
        field
    }

    /// Where the field begins, if it has the whole bytes of its type: to move those takes less code
    /// than a call.
    const fn whole(self) -> Option<usize> {
        if self.first % 8 == 0 && self.width == T::BITS { Some(self.first / 8) } else { None }
    }

    #[inline(always)]
    pub(super) fn get(self, mad: &[u8; MAD_LEN]) -> T {
        if let Some(at) = self.whole() {
            if let Some(value) = mad.get(at..).and_then(T::from_bytes) {
                return value;
            }
        }
        T::from_bits(u128::from(bits(mad, place(self.first, self.width))))
    }

    /// Bits of `value` above the width of the field are dropped.
    #[expect(clippy::cast_possible_truncation, reason = "wider is whole")]
    #[inline(always)]
    pub(super) fn set(self, mad: &mut [u8; MAD_LEN], value: T) {
        if let Some(at) = self.whole() {
            if mad.get_mut(at..).is_some_and(|bytes| value.into_bytes(bytes)) {
                return;
            }
        }
        let value = value.into_bits() as u64;
        set_bits(mad, place(self.first, self.width), value);
    }
}

/// First bit and width of a field, within eight bytes, in one number.
const fn place(first: usize, width: usize) -> usize {
    first << 8 | width
}

/// Where the eight bytes begin that a [`place`] is in, and how far its bits are from their top and
/// from their bottom.
const fn window(place: usize) -> (usize, usize, usize) {
    let (first, width) = (place >> 8, place & 0xff);
    let last = MAD_LEN - 8;
    let at = if first / 8 < last { first / 8 } else { last };
    let above = first - 8 * at;
    (at, above, 64 - width - above)
}

/// The bits at a [`place`]. In line: of a fixed place it is a load and two shifts.
#[inline(always)]
fn bits(mad: &[u8; MAD_LEN], place: usize) -> u64 {
    let (at, above, below) = window(place);
    let bytes = mad.get(at..).and_then(|bytes| bytes.first_chunk());
    bytes.map_or(0, |bytes| u64::from_be_bytes(*bytes) << above >> (above + below))
}

/// Writes as many low bits of `value` as a [`place`] has.
#[inline(never)]
fn set_bits(mad: &mut [u8; MAD_LEN], place: usize, value: u64) {
    let (at, above, below) = window(place);
    if let Some(bytes) = mad.get_mut(at..).and_then(|bytes| bytes.first_chunk_mut()) {
        let mask = u64::MAX << above >> (above + below) << below;
        let kept = u64::from_be_bytes(*bytes) & !mask;
        *bytes = (kept | value << below & mask).to_be_bytes();
    }
}

/// A run of `N` bytes at `at` in the body.
pub(super) fn bytes<const N: usize>(mad: &[u8; MAD_LEN], at: usize) -> [u8; N] {
    let area = mad.get(BODY + at..).and_then(|tail| tail.first_chunk());
    area.copied().unwrap_or([0; N])
}

/// As many bytes as are there of a run of `len` at `at` in the body.
pub(super) fn slice(mad: &[u8; MAD_LEN], at: usize, len: usize) -> &[u8] {
    mad.get(BODY + at..BODY + at + len).unwrap_or_default()
}

/// Writes `prefix` and `data` one behind the other at `at` in the body, and no further than `len`
/// bytes.
#[inline(never)]
pub(super) fn put(mad: &mut [u8; MAD_LEN], at: usize, len: usize, prefix: &[u8], data: &[u8]) {
    let area = mad.get_mut(BODY + at..BODY + at + len).unwrap_or_default();
    copy(area, prefix);
    copy(area.get_mut(prefix.len()..).unwrap_or_default(), data);
}

/// As much of `from` as there is room for; how much that was.
#[inline(never)]
pub(in crate::cm) fn copy(to: &mut [u8], from: &[u8]) -> usize {
    let len = to.len().min(from.len());
    if let (Some(to), Some(from)) = (to.get_mut(..len), from.get(..len)) {
        to.copy_from_slice(from);
    }
    len
}

/// Writes a run of bytes at `at` in the body.
pub(super) fn set_bytes<const N: usize>(mad: &mut [u8; MAD_LEN], at: usize, value: &[u8; N]) {
    if let Some(area) = mad.get_mut(BODY + at..) {
        for (to, from) in area.iter_mut().zip(value) {
            *to = *from;
        }
    }
}

/// A message view: getters over any 256 bytes, setters over any 256 bytes that may be written.
///
/// Every line is one row of the layout table: getter, setter, type, byte, bit, width.
macro_rules! view {
    (
        $(#[$doc:meta])* $view:ident, attribute $attribute:literal, private data $private:literal at $private_at:literal;
        $($(#[$field_doc:meta])* $get:ident $set:ident: $t:ty = $byte:literal, $bit:literal, $width:literal;)*
    ) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug)]
        pub struct $view<T>(T);

        impl<T> $view<T> {
            /// Attribute ID of the message.
            pub const ATTRIBUTE: u16 = $attribute;
            /// Bytes of private data.
            pub const PRIVATE: usize = $private;
        }

        const _: () = assert!($crate::cm::wire::header::BODY + $private_at + $private <= $crate::cm::wire::header::MAD_LEN);

        impl<T: core::borrow::Borrow<[u8; $crate::cm::wire::header::MAD_LEN]>> $view<T> {
            /// Reads the bytes as this message, whatever they are.
            pub const fn new_unchecked(mad: T) -> Self {
                Self(mad)
            }

            /// Reads the bytes as this message if the header says that they are one.
            pub fn new_checked(mad: T) -> Result<Self, $crate::cm::wire::header::WireError> {
                $crate::cm::wire::header::Header::new_checked(mad.borrow())?.expect(Self::ATTRIBUTE)?;
                Ok(Self(mad))
            }

            $($(#[$field_doc])*
            #[must_use]
            pub fn $get(&self) -> $t {
                const { $crate::cm::wire::field::Field::<$t>::body($byte, $bit, $width) }.get(self.0.borrow())
            })*

            /// Private data, the whole area.
            #[must_use]
            pub fn private_data(&self) -> [u8; $private] {
                $crate::cm::wire::field::bytes(self.0.borrow(), $private_at)
            }

            /// Private data, the whole area, where it stands.
            #[must_use]
            pub fn private(&self) -> &[u8] {
                $crate::cm::wire::field::slice(self.0.borrow(), $private_at, $private)
            }
        }

        impl<T: core::borrow::BorrowMut<[u8; $crate::cm::wire::header::MAD_LEN]>> $view<T> {
            $($(#[$field_doc])*
            pub fn $set(&mut self, value: $t) {
                const { $crate::cm::wire::field::Field::<$t>::body($byte, $bit, $width) }
                    .set(self.0.borrow_mut(), value);
            })*

            /// Private data, the whole area.
            pub fn set_private_data(&mut self, value: &[u8; $private]) {
                $crate::cm::wire::field::set_bytes(self.0.borrow_mut(), $private_at, value);
            }

            /// Private data: `prefix`, and `data` behind it. What is beyond the area is dropped, what they leave stays.
            pub fn put_private(&mut self, prefix: &[u8], data: &[u8]) {
                $crate::cm::wire::field::put(self.0.borrow_mut(), $private_at, $private, prefix, data);
            }
        }
    };
}
pub(super) use view;
