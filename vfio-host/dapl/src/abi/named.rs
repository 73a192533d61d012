//! Named attributes: texts of C in memory that lasts as long as the adapter.

use std::ffi::CString;

use dat_core::NamedAttr;

use super::Count;
use super::attr::count;
use super::structs::DatNamedAttr;

/// A list of named attributes with the texts that it points at.
pub(crate) struct Named {
    list: Box<[DatNamedAttr]>,
    /// What the list points at.
    _texts: Vec<(CString, CString)>,
}

impl std::fmt::Debug for Named {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Named({})", self.list.len())
    }
}

impl Named {
    /// Names and values.
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

    /// Those of `dat_core`.
    pub(crate) fn of(attrs: &[NamedAttr]) -> Self {
        Self::new(attrs.iter().map(|attr| (attr.name, attr.value.to_string())))
    }

    /// How many there are.
    pub(crate) fn count(&self) -> Count {
        count(self.list.len())
    }

    /// The first of them; null, if there is none.
    pub(crate) fn list(&self) -> *const DatNamedAttr {
        if self.list.is_empty() { core::ptr::null() } else { self.list.as_ptr() }
    }
}
