//! dat_strerror(3), and what a DAT_RETURN is made of.

use dat_core::{DatReturn, DatSubtype, DatType, strerror};

use crate::conformance::{Adapters, Side, refused};

/// Every type with every subtype has words for both.
pub fn every_word_has_its_strings(_: &mut Adapters<'_, impl Side>) {
    for &ty in DatType::ALL {
        for &subtype in DatSubtype::ALL {
            let ret = DatReturn::new(ty, subtype);
            let (major, minor) = strerror(ret.raw()).unwrap();
            assert_eq!(major, ty.words());
            assert!(!major.is_empty());
            if subtype == DatSubtype::None {
                assert_eq!(minor, "");
            } else {
                assert_eq!(minor, subtype.words());
                assert!(!minor.is_empty());
            }
        }
    }
}

/// Words differ where types and subtypes differ.
pub fn no_two_words_have_the_same_strings(_: &mut Adapters<'_, impl Side>) {
    let mut types: Vec<_> = DatType::ALL.iter().map(|ty| ty.words()).collect();
    types.sort_unstable();
    types.dedup();
    assert_eq!(types.len(), DatType::ALL.len());
    let mut subtypes: Vec<_> = DatSubtype::ALL.iter().map(|s| s.words()).collect();
    subtypes.sort_unstable();
    subtypes.dedup();
    assert_eq!(subtypes.len(), DatSubtype::ALL.len());
}

/// DAT_SUCCESS has words too.
pub fn success_has_its_string(_: &mut Adapters<'_, impl Side>) {
    assert_eq!(strerror(0), Ok(("success", "")));
}

/// A value that is no DAT_RETURN is refused: a wrong class, an unknown type or subtype.
pub fn a_value_that_is_no_return_code_has_no_strings(_: &mut Adapters<'_, impl Side>) {
    let known = DatReturn::new(DatType::InvalidHandle, DatSubtype::InvalidHandleEp).raw();
    assert!(strerror(known).is_ok());
    let unknown = [
        known & 0x3fff_ffff,
        known | 0x4000_0000,
        known & 0x3fff_ffff | 0x4000_0000,
        known & 0xffff_0000 | 104,
        known & 0xffff_0000 | 0xffff,
        known & 0xc000_ffff | 0x18 << 16,
        known & 0xc000_ffff | 0x3ffe << 16,
        known & 0xc000_ffff,
        u32::MAX,
        1,
    ];
    for word in unknown {
        let said = strerror(word);
        refused(said, DatType::InvalidParameter, DatSubtype::InvalidArg1);
    }
}

/// Numbers of the types are those of dat_error.h.
pub fn return_codes_have_the_numbers_of_the_header(_: &mut Adapters<'_, impl Side>) {
    let numbers = [
        (DatType::Abort, 1),
        (DatType::ConnQualInUse, 2),
        (DatType::InsufficientResources, 3),
        (DatType::InternalError, 4),
        (DatType::InvalidHandle, 5),
        (DatType::InvalidParameter, 6),
        (DatType::InvalidState, 7),
        (DatType::LengthError, 8),
        (DatType::ModelNotSupported, 9),
        (DatType::ProviderNotFound, 0xa),
        (DatType::PrivilegesViolation, 0xb),
        (DatType::ProtectionViolation, 0xc),
        (DatType::QueueEmpty, 0xd),
        (DatType::QueueFull, 0xe),
        (DatType::TimeoutExpired, 0xf),
        (DatType::ProviderAlreadyRegistered, 0x10),
        (DatType::ProviderInUse, 0x11),
        (DatType::InvalidAddress, 0x12),
        (DatType::InterruptedCall, 0x13),
        (DatType::ConnQualUnavailable, 0x14),
        (DatType::NotImplemented, 0x3fff),
    ];
    for (ty, number) in numbers {
        assert_eq!(DatReturn::of(ty).raw(), 0x8000_0000 | number << 16);
    }
}

/// Subtypes name what they are about by the numbers of dat_error.h.
pub fn subtypes_have_the_numbers_of_the_header(_: &mut Adapters<'_, impl Side>) {
    let numbers = [
        (DatSubtype::None, 0),
        (DatSubtype::InvalidHandleIa, 11),
        (DatSubtype::InvalidHandleEp, 12),
        (DatSubtype::InvalidHandleLmr, 13),
        (DatSubtype::InvalidHandleRmr, 14),
        (DatSubtype::InvalidHandlePz, 15),
        (DatSubtype::InvalidHandle1, 27),
        (DatSubtype::InvalidArg1, 37),
        (DatSubtype::InvalidStateIaInUse, 80),
        (DatSubtype::InvalidStatePzInUse, 83),
        (DatSubtype::NameNotFound, 100),
        (DatSubtype::ThreadSafetyNotFound, 103),
    ];
    for (subtype, number) in numbers {
        let ret = DatReturn::new(DatType::InvalidState, subtype);
        assert_eq!((subtype.number(), ret.raw() & 0xffff), (number, u32::from(number)));
    }
}

/// A value always carries the error class: a comparison of the type alone and a test of the class
/// agree.
pub fn refusals_carry_the_error_class(ias: &mut Adapters<'_, impl Side>) {
    let pz = ias.a.pz_create().unwrap();
    ias.a.pz_free(pz).unwrap();
    let ret = ias.a.pz_free(pz).unwrap_err().ret();
    assert_eq!(ret.raw() >> 30, 2);
    assert_eq!(ret.raw() & 0x3fff_0000, u32::from(DatType::InvalidHandle.number()) << 16);
    let async_evd = ias.a.async_evd();
    let ret = ias.a.evd_dequeue(async_evd).unwrap_err();
    assert_eq!(ret.raw(), 0x800d_0000);
}
