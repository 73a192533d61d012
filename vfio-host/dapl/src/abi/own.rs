//! `dat_dapldat.h`: this provider's own extension.

use core::borrow::Borrow;

use dat_core::{AttrValue, NamedAttr, RdmaWrite, Receive};

/// The attribute that tells consumers of the extension, `DAT_DAPLDAT_ATTR`.
pub(crate) const NAMED: NamedAttr =
    NamedAttr { name: "DAT_DAPLDAT", value: AttrValue::Number(DAT_DAPLDAT_VERSION) };

/// Returns the number of an operation.
const fn op(n: u32) -> u32 {
    0x5a00_0000 | DAT_DAPLDAT_VERSION << 16 | n
}

numbers! {
    /// The value of [`NAMED`], and a part of each operation's number.
    DAT_DAPLDAT_VERSION: u32 = 1;
    /// The completion flag that `dat.h` does not have.
    DAT_DAPLDAT_DEFER_FLAG: u32 = dat_core::CompletionFlags::DEFER.bits();
    /// Most elements of a list, and events of a burst: as many as the longest queue holds.
    DAT_DAPLDAT_MOST: i32 = 65536;
    /// Rings the doorbell.
    DAT_DAPLDAT_RING_OP: u32 = op(0);
    /// Posts RDMA writes.
    DAT_DAPLDAT_WRITES_OP: u32 = op(1);
    /// Posts RDMA reads.
    DAT_DAPLDAT_READS_OP: u32 = op(2);
    /// Posts sends.
    DAT_DAPLDAT_SENDS_OP: u32 = op(3);
    /// Posts receives.
    DAT_DAPLDAT_RECVS_OP: u32 = op(4);
    /// Dequeues events.
    DAT_DAPLDAT_DEQUEUE_OP: u32 = op(5);
}

/// An element of a list: what is posted, and the completion flags as C has them.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Element<T> {
    pub(crate) it: T,
    pub(crate) flags: u64,
}

/// `DAT_DAPLDAT_RDMA`.
pub(crate) type Rdma = Element<RdmaWrite>;
/// `DAT_DAPLDAT_MESSAGE`.
pub(crate) type Message = Element<Receive>;

impl Borrow<RdmaWrite> for Rdma {
    #[inline(always)]
    fn borrow(&self) -> &RdmaWrite {
        &self.it
    }
}

impl Borrow<Receive> for Message {
    #[inline(always)]
    fn borrow(&self) -> &Receive {
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
