//! One field of a MAD by byte, bit and width, as the tables of the specification give it.

use core::marker::PhantomData;

use super::{BODY, MAD_LEN};

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
}

impl Word for bool {
    const BITS: usize = 1;
    fn from_bits(bits: u128) -> Self {
        bits != 0
    }
    fn into_bits(self) -> u128 {
        u128::from(self)
    }
}

impl<T: Word> Field<T> {
    /// A field of the MAD header.
    pub(super) const fn header(byte: usize, width: usize) -> Self {
        let field = Self {
            first: byte * 8,
            width,
            of: PhantomData,
        };
        assert!(width <= T::BITS, "field wider than its type");
        assert!(field.first + width <= MAD_LEN * 8, "field outside the MAD");
        field
    }

    /// A field of the message body, which follows the header.
    pub(super) const fn body(byte: usize, bit: usize, width: usize) -> Self {
        assert!(bit < 8 && width <= 128 - bit, "not a byte and a bit");
        let field = Self::header(BODY + byte, width);
        Self {
            first: field.first + bit,
            width,
            of: PhantomData,
        }
    }

    /// First byte, byte behind the last, and the bits of the last byte behind the field.
    const fn span(self) -> (usize, usize, usize) {
        let end = self.first + self.width;
        let last = end.div_ceil(8);
        (self.first / 8, last, last * 8 - end)
    }

    const fn mask(self) -> u128 {
        u128::MAX >> (128 - self.width)
    }

    pub(super) fn get(self, mad: &[u8; MAD_LEN]) -> T {
        let (from, to, below) = self.span();
        let bytes = mad.get(from..to).unwrap_or_default();
        let value = bytes
            .iter()
            .fold(0, |value, byte| (value << 8) | u128::from(*byte));
        T::from_bits((value >> below) & self.mask())
    }

    /// Bits of `value` above the width of the field are dropped.
    pub(super) fn set(self, mad: &mut [u8; MAD_LEN], value: T) {
        let (from, to, below) = self.span();
        let mask = (self.mask() << below).to_be_bytes();
        let value = (value.into_bits() << below).to_be_bytes();
        let bytes = mad.get_mut(from..to).unwrap_or_default();
        for ((byte, mask), value) in bytes
            .iter_mut()
            .rev()
            .zip(mask.iter().rev())
            .zip(value.iter().rev())
        {
            *byte = (*byte & !mask) | (value & mask);
        }
    }
}

/// A run of `N` bytes at `at` in the body.
pub(super) fn bytes<const N: usize>(mad: &[u8; MAD_LEN], at: usize) -> [u8; N] {
    let area = mad.get(BODY + at..).and_then(|tail| tail.first_chunk());
    area.copied().unwrap_or([0; N])
}

/// Writes a run of bytes at `at` in the body.
pub(super) fn set_bytes<const N: usize>(mad: &mut [u8; MAD_LEN], at: usize, value: &[u8; N]) {
    if let Some(area) = mad
        .get_mut(BODY + at..)
        .and_then(|tail| tail.first_chunk_mut())
    {
        *area = *value;
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

        const _: () = assert!($crate::cm::wire::BODY + $private_at + $private <= $crate::cm::wire::MAD_LEN);

        impl<T: core::borrow::Borrow<[u8; $crate::cm::wire::MAD_LEN]>> $view<T> {
            /// Reads the bytes as this message, whatever they are.
            pub const fn new_unchecked(mad: T) -> Self {
                Self(mad)
            }

            /// Reads the bytes as this message if the header says that they are one.
            pub fn new_checked(mad: T) -> Result<Self, $crate::cm::wire::WireError> {
                $crate::cm::wire::Header::new_checked(mad.borrow())?.expect(Self::ATTRIBUTE)?;
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
        }

        impl<T: core::borrow::BorrowMut<[u8; $crate::cm::wire::MAD_LEN]>> $view<T> {
            $($(#[$field_doc])*
            pub fn $set(&mut self, value: $t) {
                const { $crate::cm::wire::field::Field::<$t>::body($byte, $bit, $width) }
                    .set(self.0.borrow_mut(), value);
            })*

            /// Private data, the whole area.
            pub fn set_private_data(&mut self, value: &[u8; $private]) {
                $crate::cm::wire::field::set_bytes(self.0.borrow_mut(), $private_at, value);
            }
        }
    };
}
pub(super) use view;
