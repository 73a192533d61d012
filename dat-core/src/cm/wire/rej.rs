//! REJ: the connection is refused, with a reason.

use core::borrow::Borrow;
use core::borrow::BorrowMut;

use crate::cm::wire::field::{put, set_bytes, slice, view};
use crate::cm::wire::header::{About, Header, MAD_LEN};
use crate::cm::wire::reason::Reason;

view! {
    /// View of a REJ.
    Rej, attribute 0x12, private data 148 at 84;
    /// Communication ID of the sender; 0 if it never chose one.
    local_id set_local_id: u32 = 0, 0, 32;
    /// Communication ID of the receiver; 0 if the sender never learnt it.
    remote_id set_remote_id: u32 = 4, 0, 32;
    /// Which message is rejected.
    about set_about: u8 = 8, 0, 2;
    /// Valid bytes of the additional reject information.
    ari_len set_ari_len: u8 = 9, 0, 7;
    /// Why.
    reason set_reason: u16 = 10, 0, 16;
}

const ARI: usize = 12;
/// Most bytes of additional reject information.
pub const ARI_LEN: usize = 72;

impl<T: Borrow<[u8; MAD_LEN]>> Rej<T> {
    /// The additional reject information. A length beyond its field is cut.
    #[must_use]
    pub fn ari(&self) -> &[u8] {
        slice(self.0.borrow(), ARI, usize::from(self.ari_len()).min(ARI_LEN))
    }
}

impl<T: BorrowMut<[u8; MAD_LEN]>> Rej<T> {
    /// Which message is rejected, and why.
    pub(in crate::cm) fn refuse(&mut self, about: About, reason: Reason) {
        self.set_about(about.code());
        self.set_reason(reason.0);
    }

    /// Additional reject information, of which at most 72 bytes.
    pub fn put_ari(&mut self, ari: &[u8]) {
        let len = ari.len().min(ARI_LEN);
        put(self.0.borrow_mut(), ARI, len, ari, &[]);
        self.set_ari_len(u8::try_from(len).unwrap_or(0));
    }
}

/// Additional reject information: at most 72 bytes whose meaning depends on the reason.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Ari {
    bytes: [u8; ARI_LEN],
    len: u8,
}

impl Ari {
    /// None.
    pub const EMPTY: Self = Self { bytes: [0; ARI_LEN], len: 0 };

    /// These bytes; `None` if they are more than 72.
    #[must_use]
    pub fn new(data: &[u8]) -> Option<Self> {
        let mut ari = Self::EMPTY;
        ari.bytes.get_mut(..data.len())?.copy_from_slice(data);
        ari.len = u8::try_from(data.len()).ok()?;
        Some(ari)
    }

    /// The bytes.
    #[must_use]
    pub fn as_slice(&self) -> &[u8] {
        self.bytes.get(..usize::from(self.len)).unwrap_or_default()
    }

    /// The adapter GUID that a REJ for timeout carries.
    #[must_use]
    pub fn guid(&self) -> Option<u64> {
        self.as_slice().first_chunk().copied().map(u64::from_be_bytes)
    }
}

impl core::fmt::Debug for Ari {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        self.as_slice().fmt(f)
    }
}

/// A REJ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RejRepr {
    /// Communication ID of the sender; 0 if it never chose one.
    pub local_id: u32,
    /// Communication ID of the receiver; 0 if the sender never learnt it.
    pub remote_id: u32,
    /// Which message is rejected.
    pub about: About,
    /// Why.
    pub reason: Reason,
    /// Additional reject information.
    pub ari: Ari,
    /// Private data.
    pub private_data: [u8; 148],
}

impl RejRepr {
    /// Reads a REJ. A length of the additional information beyond its field is cut.
    #[must_use]
    pub fn parse(rej: &Rej<&[u8; MAD_LEN]>) -> Self {
        Self {
            local_id: rej.local_id(),
            remote_id: rej.remote_id(),
            about: About::from_code(rej.about()),
            reason: Reason(rej.reason()),
            ari: Ari::new(rej.ari()).unwrap_or(Ari::EMPTY),
            private_data: rej.private_data(),
        }
    }

    /// Writes it.
    #[must_use]
    #[inline(never)]
    pub fn emit(&self, transaction: u64) -> [u8; MAD_LEN] {
        let mut mad = Header::emit(transaction, Rej::<()>::ATTRIBUTE);
        set_bytes(&mut mad, ARI, &self.ari.bytes);
        let mut rej = Rej::new_unchecked(&mut mad);
        rej.set_local_id(self.local_id);
        rej.set_remote_id(self.remote_id);
        rej.set_about(self.about.code());
        rej.set_ari_len(self.ari.len);
        rej.set_reason(self.reason.0);
        rej.set_private_data(&self.private_data);
        mad
    }
}
