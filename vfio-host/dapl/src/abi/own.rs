//! `dat_dapldat.h`: this provider's own extension.

use core::borrow::Borrow;

use dat_core::{AttrValue, NamedAttr};

use super::number::DAT_DAPLDAT_VERSION;

/// The attribute that tells consumers of the extension, `DAT_DAPLDAT_ATTR`.
pub(crate) const NAMED: NamedAttr =
    NamedAttr { name: "DAT_DAPLDAT", value: AttrValue::Number(DAT_DAPLDAT_VERSION) };

/// An element of a list: what is posted, and the completion flags as C has them.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Element<T> {
    pub(crate) it: T,
    pub(crate) flags: u64,
}

/// `DAT_DAPLDAT_RDMA`.
pub(crate) type Rdma = Element<dat_core::Rdma>;
/// `DAT_DAPLDAT_MESSAGE`.
pub(crate) type Message = Element<dat_core::Message>;

impl Borrow<dat_core::Rdma> for Rdma {
    #[inline(always)]
    fn borrow(&self) -> &dat_core::Rdma {
        &self.it
    }
}

impl Borrow<dat_core::Message> for Message {
    #[inline(always)]
    fn borrow(&self) -> &dat_core::Message {
        &self.it
    }
}

/// What is stated here, for the comparison with C.
#[cfg(test)]
pub(crate) const LAYOUTS: &[super::layout::Layout] = &[
    super::layout::Layout {
        name: "DAT_DAPLDAT_RDMA",
        size: size_of::<Rdma>(),
        fields: &[
            ("cookie", core::mem::offset_of!(Rdma, it.cookie)),
            ("local", core::mem::offset_of!(Rdma, it.local)),
            ("remote", core::mem::offset_of!(Rdma, it.remote)),
            ("flags", core::mem::offset_of!(Rdma, flags)),
        ],
    },
    super::layout::Layout {
        name: "DAT_DAPLDAT_MESSAGE",
        size: size_of::<Message>(),
        fields: &[
            ("cookie", core::mem::offset_of!(Message, it.cookie)),
            ("local", core::mem::offset_of!(Message, it.local)),
            ("flags", core::mem::offset_of!(Message, flags)),
        ],
    },
];
