//! dat_strerror(3).

use crate::types::dat_return::{DatReturn, DatSubtype, DatType};

/// What a `DAT_RETURN` means, in words: its type, and its subtype (nothing, if it has none).
///
/// For words that come from elsewhere: a log, a C consumer. A [`DatReturn`] at hand says the same
/// by `Display`. `INVALID_PARAMETER` of what
/// is no `DAT_RETURN`: an unknown class, type or subtype.
#[doc(alias = "dat_strerror")]
pub fn strerror(word: u32) -> Result<(&'static str, &'static str), DatReturn> {
    if word == 0 {
        return Ok(("success", ""));
    }
    #[expect(clippy::cast_possible_truncation, reason = "fields of a word")]
    let (class, ty, subtype) = (word >> 30, (word >> 16 & 0x3fff) as u16, word as u16);
    match (DatType::from_number(ty), DatSubtype::from_number(subtype)) {
        (Some(ty), Some(DatSubtype::None)) if class == 2 => Ok((ty.words(), "")),
        (Some(ty), Some(subtype)) if class == 2 => Ok((ty.words(), subtype.words())),
        _ => Err(DatReturn::new(DatType::InvalidParameter, DatSubtype::InvalidArg1)),
    }
}
