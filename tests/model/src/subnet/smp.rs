//! Subnet management packets.

use crate::ifc::Field;
use crate::ifc::subnet::smp as layout;
use crate::wire::ib::lid;

/// Longest path of a directed route (IBTA volume 1, 14.2.1.2; Linux `IB_SMP_MAX_PATH_HOPS`).
pub const MAX_HOPS: u8 = 63;
/// Bytes of an attribute.
pub const DATA_LEN: usize = 64;

/// Management class of SMPs that the LID routes (IBTA volume 1, 13.4.4).
pub const CLASS_LID: u8 = 0x01;
/// Management class of SMPs with a directed route.
pub const CLASS_DIRECTED: u8 = 0x81;

/// Methods of subnet management (IBTA volume 1, 14.2.3).
pub mod method {
    /// SubnGet.
    pub const GET: u8 = 0x01;
    /// SubnSet.
    pub const SET: u8 = 0x02;
    /// SubnTrap.
    pub const TRAP: u8 = 0x05;
    /// SubnTrapRepress.
    pub const TRAP_REPRESS: u8 = 0x07;
    /// SubnGetResp.
    pub const GET_RESP: u8 = 0x81;
}

/// Status of an answer (IBTA volume 1, 13.4.7).
pub mod status {
    /// Class version, or base version, not supported.
    pub const VERSION: u16 = 0x0004;
    /// Method not supported.
    pub const METHOD: u16 = 0x0008;
    /// Method not supported for this attribute, or no such attribute.
    pub const ATTRIBUTE: u16 = 0x000c;
    /// A field of the attribute or its modifier has a value that is not valid.
    pub const INVALID: u16 = 0x001c;
}

/// Attributes (IBTA volume 1, 14.2.5; Linux `IB_SMP_ATTR_*`).
pub mod attribute {
    /// Notice.
    pub const NOTICE: u16 = 0x0002;
    /// NodeDescription.
    pub const NODE_DESCRIPTION: u16 = 0x0010;
    /// NodeInfo.
    pub const NODE_INFO: u16 = 0x0011;
    /// SwitchInfo.
    pub const SWITCH_INFO: u16 = 0x0012;
    /// GUIDInfo.
    pub const GUID_INFO: u16 = 0x0014;
    /// PortInfo.
    pub const PORT_INFO: u16 = 0x0015;
    /// P_KeyTable.
    pub const P_KEY_TABLE: u16 = 0x0016;
    /// SLtoVLMappingTable.
    pub const SL_TO_VL: u16 = 0x0017;
    /// VLArbitrationTable.
    pub const VL_ARBITRATION: u16 = 0x0018;
    /// LinearForwardingTable.
    pub const LINEAR_FORWARDING: u16 = 0x0019;
    /// MulticastForwardingTable.
    pub const MULTICAST_FORWARDING: u16 = 0x001b;
    /// SMInfo.
    pub const SM_INFO: u16 = 0x0020;
}

/// A subnet management packet; fields by `ifc::subnet::smp`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Smp(pub [u8; layout::BYTES]);

impl Smp {
    /// A request that the LID routes.
    #[must_use]
    pub fn request(method: u8, attribute: u16, modifier: u32, tid: u64) -> Self {
        let mut smp = Self([0; layout::BYTES]);
        smp.set(layout::base_version, 1);
        smp.set(layout::mgmt_class, CLASS_LID.into());
        smp.set(layout::class_version, 1);
        smp.set(layout::method, method.into());
        smp.set(layout::attr_id, attribute.into());
        smp.set(layout::attr_mod, modifier);
        layout::tid.set64(&mut smp.0, tid);
        smp
    }

    /// The same request with a directed route from end to end: out by the first port of `path`, and
    /// so on. A path of more than 63 ports is cut.
    #[must_use]
    pub fn directed(mut self, path: &[u8]) -> Self {
        let hops = path.len().min(MAX_HOPS.into());
        self.set(layout::mgmt_class, CLASS_DIRECTED.into());
        self.set(layout::hop_count, hops as u32);
        self.set(layout::dr_slid, lid::PERMISSIVE.into());
        self.set(layout::dr_dlid, lid::PERMISSIVE.into());
        for (place, port) in self.initial_path_mut().iter_mut().skip(1).zip(path) {
            *place = *port;
        }
        self
    }

    /// A field of up to 32 bits.
    #[must_use]
    pub fn get(&self, field: Field) -> u32 {
        field.get(&self.0)
    }

    /// Stores a field of up to 32 bits.
    pub fn set(&mut self, field: Field, value: u32) {
        field.set(&mut self.0, value);
    }

    /// The method.
    #[must_use]
    pub fn method(&self) -> u8 {
        self.get(layout::method) as u8
    }

    /// The attribute.
    #[must_use]
    pub fn attribute(&self) -> u16 {
        self.get(layout::attr_id) as u16
    }

    /// The attribute modifier.
    #[must_use]
    pub fn modifier(&self) -> u32 {
        self.get(layout::attr_mod)
    }

    /// The M_Key.
    #[must_use]
    pub fn m_key(&self) -> u64 {
        layout::m_key.get64(&self.0)
    }

    /// The status without the direction bit.
    #[must_use]
    pub fn status(&self) -> u16 {
        self.get(layout::status) as u16
    }

    /// Whether the packet has a directed route.
    #[must_use]
    pub fn is_directed(&self) -> bool {
        self.get(layout::mgmt_class) == u32::from(CLASS_DIRECTED)
    }

    /// Whether the class is one of subnet management.
    #[must_use]
    pub fn is_of_class(&self) -> bool {
        self.is_directed() || self.get(layout::mgmt_class) == u32::from(CLASS_LID)
    }

    /// Whether a directed route leads back: the D bit.
    #[must_use]
    pub fn returns(&self) -> bool {
        layout::direction.is_set(&self.0)
    }

    /// The attribute's bytes.
    #[must_use]
    pub fn data(&self) -> &[u8] {
        layout::data.bytes(&self.0)
    }

    /// The same, to write.
    pub fn data_mut(&mut self) -> &mut [u8] {
        layout::data.bytes_mut(&mut self.0)
    }

    /// The ports of the directed route; the first is not used.
    #[must_use]
    pub fn initial_path(&self) -> &[u8] {
        layout::initial_path.bytes(&self.0)
    }

    /// The same, to write.
    pub fn initial_path_mut(&mut self) -> &mut [u8] {
        layout::initial_path.bytes_mut(&mut self.0)
    }

    /// The ports of the route back; the first is not used.
    #[must_use]
    pub fn return_path(&self) -> &[u8] {
        layout::return_path.bytes(&self.0)
    }

    /// The same, to write.
    pub fn return_path_mut(&mut self) -> &mut [u8] {
        layout::return_path.bytes_mut(&mut self.0)
    }

    /// The answer to this request, with the request's data.
    #[must_use]
    pub fn answer(mut self, status: u16) -> Self {
        self.set(layout::method, method::GET_RESP.into());
        self.set(layout::status, status.into());
        self.set(layout::direction, self.is_directed().into());
        self
    }
}
