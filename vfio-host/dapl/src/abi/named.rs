//! Named attributes as C texts, in memory that lasts as long as the adapter.

use std::ffi::CString;

use dat_core::NamedAttr;

use super::Count;
use super::attr::count;
use super::structs::DatNamedAttr;

/// A list of named attributes with the texts that it points at.
pub(crate) struct Named {
    list: Box<[DatNamedAttr]>,
    /// The texts.
    _texts: Vec<(CString, CString)>,
}

impl std::fmt::Debug for Named {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Named({})", self.list.len())
    }
}

impl Named {
    /// Makes a list of names and values.
    pub(crate) fn new<'t>(attrs: impl IntoIterator<Item = (&'t str, String)>) -> Self {
        let text = |text: &str| CString::new(text).unwrap_or_default();
        let texts: Vec<_> =
            attrs.into_iter().map(|(name, value)| (text(name), text(&value))).collect();
        let list = texts
            .iter()
            .map(|(name, value)| DatNamedAttr { name: name.as_ptr(), value: value.as_ptr() })
            .collect();
        Self { list, _texts: texts }
    }

    /// Makes a list of `dat_core`'s attributes, and those of this library.
    pub(crate) fn of(attrs: &[NamedAttr], own: &[NamedAttr]) -> Self {
        Self::new(attrs.iter().chain(own).map(|attr| (attr.name, attr.value.to_string())))
    }

    /// Returns the number of attributes.
    pub(crate) fn count(&self) -> Count {
        count(self.list.len())
    }

    /// Returns the address of the list; null if it is empty.
    pub(crate) fn list(&self) -> *const DatNamedAttr {
        if self.list.is_empty() { core::ptr::null() } else { self.list.as_ptr() }
    }
}
