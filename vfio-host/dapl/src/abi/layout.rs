//! How structures of C are written down: with the place of each field, which is asserted, and kept
//! for the test that asks a C compiler the same.

/// Offsets and sizes of the fields of a structure of C.
pub(crate) trait Places: Copy {
    /// Offset and size of each field, in order.
    const PLACES: &'static [(usize, usize)];
}

/// A structure that a query fills by a mask.
pub(crate) trait Fields: Places {
    /// Bits of fields that are lists. The field before each is the number of its elements, without
    /// which no list can be read; stock dtest and dtestsrq ask for
    /// `DAT_PROVIDER_FIELD_PROVIDER_SPECIFIC_ATTR` alone and read both. So a list brings its
    /// number.
    const LISTS: u64 = 0;

    /// Returns offset and size of the field that a bit of the mask names. In the masks of the
    /// headers, bit n is field n.
    fn named(bit: usize) -> Option<(usize, usize)> {
        Self::PLACES.get(bit).copied()
    }
}

/// What was stated of one structure.
#[cfg(test)]
#[derive(Debug)]
pub(crate) struct Layout {
    /// Its name in C.
    pub(crate) name: &'static str,
    /// Its bytes.
    pub(crate) size: usize,
    /// The place of each field.
    pub(crate) fields: &'static [(&'static str, usize)],
}

/// Structures of C, each with its name there, its size, and the place of every field.
macro_rules! layouts {
    ($(
        $(#[$meta:meta])*
        $name:ident = $c:literal [$size:literal] {
            $($(#[$doc:meta])* $at:literal $field:ident: $ty:ty,)*
        }
    )*) => {
        $(
            $(#[$meta])*
            #[derive(Clone, Copy)]
            #[repr(C)]
            pub(crate) struct $name {
                $($(#[$doc])* pub(crate) $field: $ty,)*
            }

            const _: () = {
                assert!(size_of::<$name>() == $size);
                $(assert!(core::mem::offset_of!($name, $field) == $at);)*
            };

            impl crate::abi::layout::Places for $name {
                const PLACES: &'static [(usize, usize)] = &[$(($at, size_of::<$ty>()),)*];
            }
        )*

        /// What is stated here, for the comparison with C.
        #[cfg(test)]
        pub(crate) const LAYOUTS: &[crate::abi::layout::Layout] = &[
            $(crate::abi::layout::Layout {
                name: $c,
                size: $size,
                fields: &[$((stringify!($field), $at),)*],
            },)*
        ];
    };
}

/// Numbers of C, under their names there.
macro_rules! numbers {
    ($($(#[$doc:meta])* $name:ident: $ty:ty = $value:expr;)*) => {
        $(
            $(#[$doc])*
            pub(crate) const $name: $ty = $value;
        )*

        /// What is stated here, for the comparison with C.
        #[cfg(test)]
        #[expect(clippy::cast_sign_loss, reason = "as C converts it")]
        pub(crate) const NUMBERS: &[(&str, u64)] = &[$((stringify!($name), $name as u64),)*];
    };
}
