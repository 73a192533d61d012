//! MRA: "your message has arrived, the answer takes a while".

use crate::cm::wire::field::view;
use crate::cm::wire::header::{About, Header, MAD_LEN};

view! {
    /// View of an MRA.
    Mra, attribute 0x11, private data 222 at 10;
    /// Communication ID of the sender.
    local_id set_local_id: u32 = 0, 0, 32;
    /// Communication ID of the receiver.
    remote_id set_remote_id: u32 = 4, 0, 32;
    /// Which message it is about.
    about set_about: u8 = 8, 0, 2;
    /// How long the answer may take, as a code.
    service_timeout set_service_timeout: u8 = 9, 0, 5;
}

/// An MRA.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MraRepr {
    /// Communication ID of the sender.
    pub local_id: u32,
    /// Communication ID of the receiver.
    pub remote_id: u32,
    /// Which message it is about.
    pub about: About,
    /// How long the answer may take: a code of 5 bits.
    pub service_timeout: u8,
    /// Private data.
    pub private_data: [u8; 222],
}

impl MraRepr {
    /// Reads an MRA.
    #[must_use]
    pub fn parse(mra: &Mra<&[u8; MAD_LEN]>) -> Self {
        Self {
            local_id: mra.local_id(),
            remote_id: mra.remote_id(),
            about: About::from_code(mra.about()),
            service_timeout: mra.service_timeout(),
            private_data: mra.private_data(),
        }
    }

    /// Writes it.
    #[must_use]
    pub fn emit(&self, transaction: u64) -> [u8; MAD_LEN] {
        let mut mad = Header::emit(transaction, Mra::<()>::ATTRIBUTE);
        let mut mra = Mra::new_unchecked(&mut mad);
        mra.set_local_id(self.local_id);
        mra.set_remote_id(self.remote_id);
        mra.set_about(self.about.code());
        mra.set_service_timeout(self.service_timeout);
        mra.set_private_data(&self.private_data);
        mad
    }
}
