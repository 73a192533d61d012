//! DREQ and DREP: the end of a connection, asked for and agreed to.

use crate::cm::wire::field::view;
use crate::cm::wire::header::{Header, MAD_LEN};

view! {
    /// View of a DREQ.
    Dreq, attribute 0x15, private data 220 at 12;
    /// Communication ID of the sender.
    local_id set_local_id: u32 = 0, 0, 32;
    /// Communication ID of the receiver.
    remote_id set_remote_id: u32 = 4, 0, 32;
    /// Queue pair of the receiver.
    remote_qpn set_remote_qpn: u32 = 8, 0, 24;
}

view! {
    /// View of a DREP.
    Drep, attribute 0x16, private data 224 at 8;
    /// Communication ID of the sender.
    local_id set_local_id: u32 = 0, 0, 32;
    /// Communication ID of the receiver.
    remote_id set_remote_id: u32 = 4, 0, 32;
}

/// A DREQ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DreqRepr {
    /// Communication ID of the sender.
    pub local_id: u32,
    /// Communication ID of the receiver.
    pub remote_id: u32,
    /// Queue pair of the receiver, 24 bits.
    pub remote_qpn: u32,
    /// Private data.
    pub private_data: [u8; 220],
}

impl DreqRepr {
    /// Reads a DREQ.
    #[must_use]
    pub fn parse(dreq: &Dreq<&[u8; MAD_LEN]>) -> Self {
        Self {
            local_id: dreq.local_id(),
            remote_id: dreq.remote_id(),
            remote_qpn: dreq.remote_qpn(),
            private_data: dreq.private_data(),
        }
    }

    /// Writes it.
    #[must_use]
    pub fn emit(&self, transaction: u64) -> [u8; MAD_LEN] {
        let mut mad = Header::emit(transaction, Dreq::<()>::ATTRIBUTE);
        let mut dreq = Dreq::new_unchecked(&mut mad);
        dreq.set_local_id(self.local_id);
        dreq.set_remote_id(self.remote_id);
        dreq.set_remote_qpn(self.remote_qpn);
        dreq.set_private_data(&self.private_data);
        mad
    }
}

/// A DREP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DrepRepr {
    /// Communication ID of the sender.
    pub local_id: u32,
    /// Communication ID of the receiver.
    pub remote_id: u32,
    /// Private data.
    pub private_data: [u8; 224],
}

impl DrepRepr {
    /// Reads a DREP.
    #[must_use]
    pub fn parse(drep: &Drep<&[u8; MAD_LEN]>) -> Self {
        Self {
            local_id: drep.local_id(),
            remote_id: drep.remote_id(),
            private_data: drep.private_data(),
        }
    }

    /// Writes it.
    #[must_use]
    pub fn emit(&self, transaction: u64) -> [u8; MAD_LEN] {
        let mut mad = Header::emit(transaction, Drep::<()>::ATTRIBUTE);
        let mut drep = Drep::new_unchecked(&mut mad);
        drep.set_local_id(self.local_id);
        drep.set_remote_id(self.remote_id);
        drep.set_private_data(&self.private_data);
        mad
    }
}
