//! dat_registry_*(3): providers by name.
//!
//! In C, a library of its own loads providers and finds them by the name of an Interface Adapter.
//! Here a registry is a value of the program's, and what it holds for each name is the program's
//! choice: whatever an adapter is opened on. It counts who has one open; it opens nothing itself
//! and knows no files.
//!
//! A key is name, version and thread safety. Where no provider has exactly the key that is asked
//! for, one of a larger minor version serves, and one that is safe for threads serves a consumer
//! that does not ask for that.

use heapless::Vec;

use crate::types::dat_return::{DatReturn, DatSubtype, DatType};

/// Bytes of a name at the most: `DAT_NAME_MAX_LENGTH` without its end.
pub const MAX_NAME: usize = 255;

/// `DAT_PROVIDER_INFO`: what a provider is found by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProviderInfo<'n> {
    /// Name of the Interface Adapter.
    pub ia_name: &'n str,
    /// Version of DAT: major, minor.
    pub dapl_version: (u32, u32),
    /// Calls may come from several threads at once.
    pub is_thread_safe: bool,
}

/// `DAT_HA_RELATIONSHIP`: whether two Interface Adapters stand in for each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum HaRelationship {
    /// They do not.
    False = 0,
    /// They do.
    True = 1,
    /// Nobody knows.
    Unknown = 2,
    /// One says so and the other denies it.
    Conflicting = 3,
}

#[derive(Debug)]
struct Entry<'n, T> {
    info: ProviderInfo<'n>,
    provider: T,
    users: u32,
}

/// Up to `N` providers by name.
#[derive(Debug)]
pub struct Registry<'n, T, const N: usize> {
    entries: Vec<Entry<'n, T>, N>,
}

impl<T, const N: usize> Default for Registry<'_, T, N> {
    fn default() -> Self {
        Self::new()
    }
}

const fn wrong(argument: DatSubtype) -> DatReturn {
    DatReturn::new(DatType::InvalidParameter, argument)
}

const fn not_found(what: DatSubtype) -> DatReturn {
    DatReturn::new(DatType::ProviderNotFound, what)
}

impl<'n, T, const N: usize> Registry<'n, T, N> {
    /// An empty one.
    #[must_use]
    pub const fn new() -> Self {
        Self { entries: Vec::new() }
    }

    /// Makes a provider known.
    ///
    /// `INVALID_PARAMETER` of a name that is empty or too long; `PROVIDER_ALREADY_REGISTERED` if
    /// one of the same name, version and thread safety is there; `INSUFFICIENT_RESOURCES` if
    /// the registry is full.
    #[doc(alias = "dat_registry_add_provider")]
    pub fn add_provider(&mut self, info: ProviderInfo<'n>, provider: T) -> Result<(), DatReturn> {
        if info.ia_name.is_empty() || info.ia_name.len() > MAX_NAME {
            return Err(wrong(DatSubtype::InvalidArg2));
        }
        if self.entries.iter().any(|entry| entry.info == info) {
            return Err(DatReturn::of(DatType::ProviderAlreadyRegistered));
        }
        let entry = Entry { info, provider, users: 0 };
        let full = DatReturn::new(DatType::InsufficientResources, DatSubtype::ResourceMemory);
        self.entries.push(entry).map_err(|_| full)
    }

    /// Takes a provider out. `PROVIDER_NOT_FOUND` if it is not there; `PROVIDER_IN_USE` while
    /// somebody has it open.
    #[doc(alias = "dat_registry_remove_provider")]
    pub fn remove_provider(&mut self, info: &ProviderInfo<'_>) -> Result<T, DatReturn> {
        let at = self.entries.iter().position(|entry| entry.info == *info);
        let at = at.ok_or(not_found(DatSubtype::NameNotFound))?;
        match self.entries.get(at) {
            Some(entry) if entry.users == 0 => Ok(self.entries.remove(at).provider),
            _ => Err(DatReturn::of(DatType::ProviderInUse)),
        }
    }

    /// Lists the providers in the order in which they were added, and returns their number; entries
    /// of `list` that are left become `None`.
    ///
    /// `INVALID_PARAMETER` for a list that is too short or empty, which is left alone;
    /// [`Registry::len`] returns the number of entries that are needed.
    #[doc(alias = "dat_registry_list_providers")]
    pub fn list_providers(
        &self,
        list: &mut [Option<ProviderInfo<'n>>],
    ) -> Result<usize, DatReturn> {
        if list.is_empty() || list.len() < self.len() {
            return Err(wrong(DatSubtype::InvalidArg1));
        }
        let infos = self.entries.iter().map(|entry| Some(entry.info));
        let all = infos.chain(core::iter::repeat(None));
        list.iter_mut().zip(all).for_each(|(place, info)| *place = info);
        Ok(self.len())
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Finds a provider and counts its user: what dat_ia_open(3) does first.
    ///
    /// The provider is the one that [`Registry::find`] returns, with its errors.
    pub fn open(&mut self, wanted: &ProviderInfo<'_>) -> Result<&mut T, DatReturn> {
        let at = self.closest(wanted)?;
        let entry = self.entries.get_mut(at);
        let entry = entry.ok_or(not_found(DatSubtype::NameNotFound))?;
        entry.users = entry.users.saturating_add(1);
        Ok(&mut entry.provider)
    }

    /// The user of a provider has closed its adapter. `info` is the provider's own, as
    /// [`Registry::find`] returns it.
    ///
    /// `PROVIDER_NOT_FOUND` if there is none of exactly that key; `INVALID_STATE` if nobody has it
    /// open.
    pub fn close(&mut self, info: &ProviderInfo<'_>) -> Result<(), DatReturn> {
        let entry = self.entries.iter_mut().find(|entry| entry.info == *info);
        match entry {
            Some(entry) if entry.users != 0 => {
                entry.users -= 1;
                Ok(())
            }
            Some(_) => Err(DatReturn::of(DatType::InvalidState)),
            None => Err(not_found(DatSubtype::NameNotFound)),
        }
    }

    /// Returns the key of the provider that [`Registry::open`] chooses.
    ///
    /// That is the provider of exactly the wanted key; without one, the provider with the same
    /// thread safety and the next larger minor version; without one, the same among those that
    /// are safe for threads. `PROVIDER_NOT_FOUND` with the subtype of what no provider has: the
    /// name; of that name the major version, then a minor version that is large enough; of that
    /// version the safety for threads.
    pub fn find(&self, wanted: &ProviderInfo<'_>) -> Result<ProviderInfo<'n>, DatReturn> {
        let entry = self.entries.get(self.closest(wanted)?);
        entry.map(|entry| entry.info).ok_or(not_found(DatSubtype::NameNotFound))
    }

    fn closest(&self, wanted: &ProviderInfo<'_>) -> Result<usize, DatReturn> {
        let (major, minor) = wanted.dapl_version;
        let mut lacking = DatSubtype::NameNotFound;
        let mut best = None;
        for (at, Entry { info, .. }) in self.entries.iter().enumerate() {
            let lacks = if info.ia_name != wanted.ia_name {
                continue;
            } else if info.dapl_version.0 != major {
                DatSubtype::MajorNotFound
            } else if info.dapl_version.1 < minor {
                DatSubtype::MinorNotFound
            } else if wanted.is_thread_safe && !info.is_thread_safe {
                DatSubtype::ThreadSafetyNotFound
            } else {
                let distance = (info.is_thread_safe != wanted.is_thread_safe, info.dapl_version.1);
                if best.is_none_or(|(least, _)| distance < least) {
                    best = Some((distance, at));
                }
                continue;
            };
            // Reports what came closest. The numbers of the subtypes are in that order.
            if lacks.number() > lacking.number() {
                lacking = lacks;
            }
        }
        best.map(|(_, at)| at).ok_or(not_found(lacking))
    }

    /// Whether two adapters stand in for each other. No provider here has several paths, so none
    /// do; `PROVIDER_NOT_FOUND` of a name that is not known.
    #[doc(alias = "dat_registry_providers_related")]
    pub fn providers_related(&self, one: &str, other: &str) -> Result<HaRelationship, DatReturn> {
        for name in [one, other] {
            if !self.entries.iter().any(|entry| entry.info.ia_name == name) {
                return Err(not_found(DatSubtype::NameNotFound));
            }
        }
        Ok(HaRelationship::False)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_names_what_came_closest_whatever_the_order() {
        let info = |major, minor| ProviderInfo {
            ia_name: "a",
            dapl_version: (major, minor),
            is_thread_safe: false,
        };
        let unsafe_one = (info(2, 0), DatSubtype::ThreadSafetyNotFound);
        let older = (info(2, 0), DatSubtype::MinorNotFound);
        let other = (info(1, 0), DatSubtype::MajorNotFound);
        for (minor, closest) in [(0, unsafe_one), (1, older)] {
            for entries in [[closest, other], [other, closest]] {
                let mut registry = Registry::<_, 2>::new();
                for (info, _) in entries {
                    registry.add_provider(info, ()).unwrap();
                }
                let wanted = ProviderInfo { is_thread_safe: true, ..info(2, minor) };
                assert_eq!(registry.find(&wanted), Err(not_found(closest.1)));
            }
        }
    }
}
