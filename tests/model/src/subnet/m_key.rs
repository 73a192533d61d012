//! The M_Key: which manager may read and change a port.

use super::node::Node;
use super::smp::{Smp, method};
use crate::host::Nanos;
use crate::ifc::subnet::port_info;

const SECOND: Nanos = 1_000_000_000;

/// Whether a packet's key opens a port: there is none, or it is this one.
pub(super) fn opens(own: u64, key: u64) -> bool {
    own == 0 || own == key
}

impl Node {
    /// Checks the M_Key of a request to port `number` (IBTA volume 1, 14.2.4). A request that fails
    /// is counted, not answered, and begins the lease; one that passes ends the lease's time.
    pub(super) fn admits(&mut self, number: u8, smp: &Smp, slid: u16) -> bool {
        let Some(port) = self.ports.get_mut(&number) else { return false };
        if opens(port.m_key(), smp.m_key()) {
            port.lease_ends = None;
            return true;
        }
        // Levels 0 and 1 let anyone read; at level 1 the key itself reads as 0.
        if smp.method() == method::GET && port.get(port_info::m_key_protect_bits) < 2 {
            return true;
        }
        port.count(port_info::m_key_violations);
        let lease = Nanos::from(port.get(port_info::m_key_lease_period));
        if lease != 0 && port.lease_ends.is_none() {
            port.lease_ends = Some(self.now.saturating_add(lease * SECOND));
        }
        self.raise_256(number, smp, slid);
        false
    }
}
