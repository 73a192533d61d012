//! RTU: the active side's queue pair is ready to use.

use crate::cm::wire::field::view;
use crate::cm::wire::header::{Header, MAD_LEN};

view! {
    /// View of an RTU.
    Rtu, attribute 0x14, private data 224 at 8;
    /// Communication ID of the sender.
    local_id set_local_id: u32 = 0, 0, 32;
    /// Communication ID of the receiver.
    remote_id set_remote_id: u32 = 4, 0, 32;
}

/// An RTU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RtuRepr {
    /// Communication ID of the sender.
    pub local_id: u32,
    /// Communication ID of the receiver.
    pub remote_id: u32,
    /// Private data.
    pub private_data: [u8; 224],
}

impl RtuRepr {
    /// Reads an RTU.
    #[must_use]
    pub fn parse(rtu: &Rtu<&[u8; MAD_LEN]>) -> Self {
        Self {
            local_id: rtu.local_id(),
            remote_id: rtu.remote_id(),
            private_data: rtu.private_data(),
        }
    }

    /// Writes it.
    #[must_use]
    pub fn emit(&self, transaction: u64) -> [u8; MAD_LEN] {
        let mut mad = Header::emit(transaction, Rtu::<()>::ATTRIBUTE);
        let mut rtu = Rtu::new_unchecked(&mut mad);
        rtu.set_local_id(self.local_id);
        rtu.set_remote_id(self.remote_id);
        rtu.set_private_data(&self.private_data);
        mad
    }
}
