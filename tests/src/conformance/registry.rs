//! Cases of dat_registry_*(3). What is registered here is which side an adapter is opened on.

use dat_core::registry::MAX_NAME;
use dat_core::{CloseFlag, DatSubtype, DatType, HaRelationship, ProviderInfo, Registry};

use super::{A, Adapters, B, Side, refused};

/// A registry with three entries.
type Sides<'n> = Registry<'n, usize, 3>;

/// A provider of DAT 2.0.
fn info(ia_name: &str) -> ProviderInfo<'_> {
    ProviderInfo { ia_name, dapl_version: (2, 0), is_thread_safe: false }
}

/// Both adapters.
fn both<'n>() -> Sides<'n> {
    let mut registry = Sides::new();
    registry.add_provider(info("a"), A).unwrap();
    registry.add_provider(info("b"), B).unwrap();
    registry
}

/// Closes what the adapters have open, so that a case opens by name.
fn close_both(ias: &mut Adapters<'_, impl Side>) {
    ias.a.close(CloseFlag::Graceful).unwrap();
    ias.b.close(CloseFlag::Graceful).unwrap();
}

/// A registry says what is in it, in the order in which it came.
pub fn providers_are_listed_in_order(_: &mut Adapters<'_, impl Side>) {
    let registry = both();
    let mut list = [None; 3];
    assert_eq!(registry.list_providers(&mut list), Ok(2));
    assert_eq!(list, [Some(info("a")), Some(info("b")), None]);
}

/// A list that is too short is refused and left alone; how many are needed can be asked, and as
/// many suffice.
pub fn a_short_list_is_refused(_: &mut Adapters<'_, impl Side>) {
    let registry = both();
    let mut list = [None; 1];
    let listed = registry.list_providers(&mut list);
    refused(listed, DatType::InvalidParameter, DatSubtype::InvalidArg1);
    assert_eq!(list, [None]);
    let mut list = vec![None; registry.len()];
    assert_eq!(registry.list_providers(&mut list), Ok(2));
    assert_eq!(list, [Some(info("a")), Some(info("b"))]);
}

/// A list of no entries is refused; how many are needed can be asked.
pub fn a_list_of_no_places_is_refused(_: &mut Adapters<'_, impl Side>) {
    let registry = both();
    let listed = registry.list_providers(&mut []);
    refused(listed, DatType::InvalidParameter, DatSubtype::InvalidArg1);
    assert_eq!(registry.len(), 2);
}

/// An empty registry lists nothing, and has no provider of any name.
pub fn an_empty_registry_has_nothing(_: &mut Adapters<'_, impl Side>) {
    let mut registry = Sides::new();
    let mut list = [Some(info("x")); 2];
    assert_eq!(registry.list_providers(&mut list), Ok(0));
    assert_eq!(list, [None; 2]);
    assert!(registry.is_empty());
    let opened = registry.open(&info("x"));
    refused(opened, DatType::ProviderNotFound, DatSubtype::NameNotFound);
}

/// The same name, version and thread safety twice.
pub fn a_provider_is_registered_once(_: &mut Adapters<'_, impl Side>) {
    let mut registry = both();
    let again = registry.add_provider(info("a"), B);
    refused(again, DatType::ProviderAlreadyRegistered, DatSubtype::None);
    assert_eq!(registry.len(), 2);
    assert_eq!(registry.open(&info("a")), Ok(&mut A.clone()));
}

/// The same name in another version, or with another thread safety, is another provider.
pub fn versions_and_thread_safety_make_providers_differ(_: &mut Adapters<'_, impl Side>) {
    let mut registry = Sides::new();
    let plain = info("a");
    let safe = ProviderInfo { is_thread_safe: true, ..plain };
    let older = ProviderInfo { dapl_version: (1, 2), ..plain };
    for (side, info) in [plain, safe, older].into_iter().enumerate() {
        registry.add_provider(info, side).unwrap();
    }
    assert_eq!(registry.open(&older), Ok(&mut 2));
    assert_eq!(registry.open(&plain), Ok(&mut 0));
    assert_eq!(registry.open(&safe), Ok(&mut 1));
}

/// A name has at least one byte and at most as many as C has room for.
pub fn names_have_a_length_that_fits(_: &mut Adapters<'_, impl Side>) {
    let long = "n".repeat(MAX_NAME + 1);
    let mut registry = Sides::new();
    for name in ["", &long] {
        let added = registry.add_provider(info(name), A);
        refused(added, DatType::InvalidParameter, DatSubtype::InvalidArg2);
    }
    registry.add_provider(info(&long[1..]), A).unwrap();
    assert_eq!(registry.len(), 1);
}

/// A registry has as many entries as it was made with.
pub fn a_full_registry_refuses(_: &mut Adapters<'_, impl Side>) {
    let mut registry = both();
    registry.add_provider(info("c"), A).unwrap();
    let full = registry.add_provider(info("d"), A);
    refused(full, DatType::InsufficientResources, DatSubtype::ResourceMemory);
    registry.remove_provider(&info("a")).unwrap();
    registry.add_provider(info("d"), A).unwrap();
}

/// A provider that was removed is not found any more, and is returned to its owner.
pub fn a_removed_provider_is_gone(_: &mut Adapters<'_, impl Side>) {
    let mut registry = both();
    assert_eq!(registry.remove_provider(&info("b")), Ok(B));
    let not_found = (DatType::ProviderNotFound, DatSubtype::NameNotFound);
    refused(registry.open(&info("b")), not_found.0, not_found.1);
    refused(registry.remove_provider(&info("b")), not_found.0, not_found.1);
    assert_eq!(registry.len(), 1);
}

/// A provider that was never registered cannot be removed; name, version and thread safety count.
pub fn an_unregistered_provider_cannot_be_removed(_: &mut Adapters<'_, impl Side>) {
    let mut registry = both();
    let safe = ProviderInfo { is_thread_safe: true, ..info("a") };
    for unknown in [info("c"), safe] {
        let removed = registry.remove_provider(&unknown);
        refused(removed, DatType::ProviderNotFound, DatSubtype::NameNotFound);
    }
    assert_eq!(registry.len(), 2);
}

/// A provider with an adapter open on it is in use until that is closed.
pub fn a_provider_in_use_cannot_be_removed(ias: &mut Adapters<'_, impl Side>) {
    close_both(ias);
    let mut registry = both();
    let side = *registry.open(&info("a")).unwrap();
    ias[side].reopen();
    let removed = registry.remove_provider(&info("a"));
    refused(removed, DatType::ProviderInUse, DatSubtype::None);
    ias[side].close(CloseFlag::Graceful).unwrap();
    registry.close(&info("a")).unwrap();
    assert_eq!(registry.remove_provider(&info("a")), Ok(A));
}

/// Each of several users counts.
pub fn a_provider_is_in_use_until_its_last_user_closes(_: &mut Adapters<'_, impl Side>) {
    let mut registry = both();
    for _ in 0..3 {
        registry.open(&info("a")).unwrap();
    }
    for _ in 0..3 {
        let removed = registry.remove_provider(&info("a"));
        refused(removed, DatType::ProviderInUse, DatSubtype::None);
        registry.close(&info("a")).unwrap();
    }
    registry.remove_provider(&info("a")).unwrap();
}

/// A provider that nobody has open cannot be closed.
pub fn a_provider_that_is_not_open_cannot_be_closed(_: &mut Adapters<'_, impl Side>) {
    let mut registry = both();
    refused(registry.close(&info("a")), DatType::InvalidState, DatSubtype::None);
    let unknown = registry.close(&info("c"));
    refused(unknown, DatType::ProviderNotFound, DatSubtype::NameNotFound);
}

/// Adapters found by name are the ones that were registered: they connect.
pub fn adapters_are_opened_by_name(ias: &mut Adapters<'_, impl Side>) {
    close_both(ias);
    let mut registry = both();
    for name in ["b", "a"] {
        let side = *registry.open(&info(name)).unwrap();
        ias[side].reopen();
    }
    ias.connected();
}

/// Of a name that is not known, the name is what is not found.
pub fn an_unknown_name_is_not_found(_: &mut Adapters<'_, impl Side>) {
    let mut registry = both();
    for name in ["c", "", "A", "aa"] {
        let opened = registry.open(&info(name));
        refused(opened, DatType::ProviderNotFound, DatSubtype::NameNotFound);
    }
}

/// Of a known name in another version, the version is what is not found: the major one, or of that
/// the minor one.
pub fn an_unknown_version_is_not_found(_: &mut Adapters<'_, impl Side>) {
    let mut registry = both();
    for (version, subtype) in [
        ((1, 0), DatSubtype::MajorNotFound),
        ((3, 0), DatSubtype::MajorNotFound),
        // A provider of a smaller minor version lacks what the consumer asks for.
        ((2, 1), DatSubtype::MinorNotFound),
    ] {
        let wanted = ProviderInfo { dapl_version: version, ..info("a") };
        let opened = registry.open(&wanted);
        refused(opened, DatType::ProviderNotFound, subtype);
    }
}

/// A provider of a larger minor version serves where none has the version that is asked for; of
/// several the closest.
pub fn a_larger_minor_version_serves(_: &mut Adapters<'_, impl Side>) {
    let of = |minor| ProviderInfo { dapl_version: (2, minor), ..info("a") };
    let mut registry = Sides::new();
    registry.add_provider(of(7), 7).unwrap();
    registry.add_provider(of(3), 3).unwrap();
    for (wanted, serves) in [(0, 3), (2, 3), (3, 3), (4, 7), (7, 7)] {
        assert_eq!(registry.find(&of(wanted)), Ok(of(serves)));
        let side = registry.open(&of(wanted)).copied();
        assert_eq!(side, Ok(usize::try_from(serves).unwrap()));
    }
    let opened = registry.open(&of(8));
    refused(opened, DatType::ProviderNotFound, DatSubtype::MinorNotFound);
    let other = ProviderInfo { dapl_version: (1, 0), ..info("a") };
    let opened = registry.open(&other);
    refused(opened, DatType::ProviderNotFound, DatSubtype::MajorNotFound);
    // Thread safety counts for more than the minor version.
    let safe = ProviderInfo { is_thread_safe: true, ..of(0) };
    registry.add_provider(safe, 0).unwrap();
    assert_eq!(registry.find(&of(0)), Ok(of(3)));
    assert_eq!(registry.find(&safe), Ok(safe));
}

/// A user of another version closes that one: the users of each are counted apart.
pub fn a_provider_is_closed_by_its_own_info(_: &mut Adapters<'_, impl Side>) {
    let newer = ProviderInfo { dapl_version: (2, 1), ..info("a") };
    let mut registry = Sides::new();
    registry.add_provider(newer, B).unwrap();
    assert_eq!(registry.open(&info("a")), Ok(&mut B.clone()));
    registry.add_provider(info("a"), A).unwrap();
    assert_eq!(registry.open(&info("a")), Ok(&mut A.clone()));
    registry.close(&newer).unwrap();
    refused(registry.close(&newer), DatType::InvalidState, DatSubtype::None);
    let removed = registry.remove_provider(&info("a"));
    refused(removed, DatType::ProviderInUse, DatSubtype::None);
    assert_eq!(registry.remove_provider(&newer), Ok(B));
    registry.close(&info("a")).unwrap();
    assert_eq!(registry.remove_provider(&info("a")), Ok(A));
}

/// Thread safety that no provider of that name has is what is not found.
pub fn thread_safety_that_is_not_there_is_not_found(_: &mut Adapters<'_, impl Side>) {
    let mut registry = both();
    let wanted = ProviderInfo { is_thread_safe: true, ..info("a") };
    let opened = registry.open(&wanted);
    refused(opened, DatType::ProviderNotFound, DatSubtype::ThreadSafetyNotFound);
}

/// A provider that is safe for threads serves consumers that do not ask for that, too.
pub fn a_thread_safe_provider_serves_everybody(_: &mut Adapters<'_, impl Side>) {
    let mut registry = Sides::new();
    let safe = ProviderInfo { is_thread_safe: true, ..info("a") };
    registry.add_provider(safe, A).unwrap();
    assert_eq!(registry.open(&info("a")), Ok(&mut A.clone()));
    assert_eq!(registry.open(&safe), Ok(&mut A.clone()));
}

/// No two adapters stand in for each other.
pub fn providers_are_not_related(_: &mut Adapters<'_, impl Side>) {
    let registry = both();
    assert_eq!(registry.providers_related("a", "b"), Ok(HaRelationship::False));
    for (one, other) in [("a", "c"), ("c", "b")] {
        let related = registry.providers_related(one, other);
        refused(related, DatType::ProviderNotFound, DatSubtype::NameNotFound);
    }
    assert_eq!(HaRelationship::Conflicting as u32, 3);
}

/// The cases.
#[macro_export]
macro_rules! registry_cases {
    ($with:ident) => {
        $with! { registry:
            providers_are_listed_in_order
            a_short_list_is_refused
            a_list_of_no_places_is_refused
            an_empty_registry_has_nothing
            a_provider_is_registered_once
            versions_and_thread_safety_make_providers_differ
            names_have_a_length_that_fits
            a_full_registry_refuses
            a_removed_provider_is_gone
            an_unregistered_provider_cannot_be_removed
            a_provider_in_use_cannot_be_removed
            a_provider_is_in_use_until_its_last_user_closes
            a_provider_that_is_not_open_cannot_be_closed
            adapters_are_opened_by_name
            an_unknown_name_is_not_found
            an_unknown_version_is_not_found
            a_larger_minor_version_serves
            a_provider_is_closed_by_its_own_info
            thread_safety_that_is_not_there_is_not_found
            a_thread_safe_provider_serves_everybody
            providers_are_not_related
        }
    };
}
