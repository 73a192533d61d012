//! The port: bringing it up, its MAC and frame size, its RoCE addresses.
//!
//! PRM chapters "Virtual ports", "Register access", "RoCE". The port registers belong to the
//! physical function; on a virtual one they are tried, and what the port has is taken as it is.

use dat_core::fault;
use dat_core::provider::{Fault, LinkType, Mtu};

use crate::device::config::ROCE_HEADERS;
use crate::device::{Device, PortState, optional};
use crate::platform::Platform;
use crate::prm;
use crate::prm::At;
use crate::prm::cmd::{InputHead, Opcode};
use crate::prm::gid::Gid;
use crate::prm::object;
use crate::prm::reg::{self, AccessRegIn, Paos, Pmtu, Register};
use crate::prm::roce::{ROCE_ADDRESS, RoceAddress, RoceAddressIn};
use crate::prm::vport::{
    FOLLOWS, MODIFIED_CONTEXT, MODIFY_IN, ModifyNicVportIn, ModifyVportStateIn, NicVportContext,
    QUERIED_CONTEXT, QUERY_OUT, QueryVportStateOut, UPLINK,
};

/// A frame of 1,500 bytes with headers, VLAN tag and FCS.
const PLAIN_FRAME: u16 = 1522;

/// RoCE version 2, as the address table counts.
const ROCE_V2: u8 = 2;

impl<P: Platform> Device<'_, P> {
    /// Brings the port up: frame size, RoCE, link; and reads its identity.
    pub(crate) fn open_port(&mut self, frame_size: u16) -> Result<(), Fault> {
        let mut output = [0; QUERY_OUT];
        let mut input = InputHead::new().0;
        let op = Opcode::QueryNicVportContext;
        self.exec(op, 0, 0, &mut input, &mut output)?;
        let context = NicVportContext(At::<_, QUERIED_CONTEXT>(&output));
        let [_, _, mac @ ..] = context.permanent_address().to_be_bytes();
        self.identity.mac_given = mac != [0; 6];
        // A fresh virtual function has none.
        let mac = if self.identity.mac_given { mac } else { self.random_mac() };
        self.identity.mac = mac;
        self.identity.min_wqe_inline_mode = context.min_wqe_inline_mode();
        self.identity.node_guid = match context.node_guid() {
            0 => guid_of(mac),
            guid => guid,
        };
        self.identity.frame_size = self.set_frame_size(frame_size, context.mtu())?;

        // Before the first SET_ROCE_ADDRESS.
        let mut input = [0; MODIFY_IN];
        ModifyNicVportIn(&mut input).set_select_roce_en(true);
        NicVportContext(At::<_, MODIFIED_CONTEXT>(&mut input)).set_roce_en(true);
        self.run(Opcode::ModifyNicVportContext, 0, &mut input)?;

        let mut paos = Paos::new();
        paos.set_local_port(1);
        paos.set_admin_status(1);
        // Without it the administrative state does not count.
        paos.set_ase(true);
        self.register(Register::Paos, reg::WRITE, &mut paos.0)?;

        // Linux `mlx5e_modify_admin_state`; a virtual function may not.
        if self.caps().general.uplink_follow() {
            let mut input = ModifyVportStateIn::new();
            input.set_admin_state(FOLLOWS);
            let op = Opcode::ModifyVportState;
            optional(self.exec(op, UPLINK, 0, &mut input.0, &mut [0; 16]))?;
        }
        Ok(())
    }

    /// A random MAC, unicast and locally administered, as mlx5e makes one.
    fn random_mac(&mut self) -> [u8; 6] {
        let [first, b, c, d, e, f, ..] = self.random.next_u64().to_le_bytes();
        [first & 0xfc | 2, b, c, d, e, f]
    }

    /// Sets port and virtual port to frames of `wanted` bytes, or what the port can do; returns
    /// what they carry now.
    fn set_frame_size(&mut self, wanted: u16, current: u16) -> Result<u16, Fault> {
        let mut pmtu = Pmtu::new();
        pmtu.set_local_port(1);
        let mut port = None;
        if self.register(Register::Pmtu, reg::READ, &mut pmtu.0)? && pmtu.max_mtu() != 0 {
            let mut set = Pmtu::new();
            set.set_local_port(1);
            set.set_admin_mtu(wanted.min(pmtu.max_mtu()));
            pmtu = Pmtu::new();
            pmtu.set_local_port(1);
            if self.register(Register::Pmtu, reg::WRITE, &mut set.0)?
                && self.register(Register::Pmtu, reg::READ, &mut pmtu.0)?
                && pmtu.oper_mtu() != 0
            {
                port = Some(pmtu.oper_mtu());
            }
        }
        let Some(frame) = port else {
            // Somebody else decides. A port that says nothing carries at least a plain frame with a
            // VLAN tag.
            return Ok(if current == 0 { PLAIN_FRAME } else { current });
        };
        let mut input = [0; MODIFY_IN];
        ModifyNicVportIn(&mut input).set_select_mtu(true);
        NicVportContext(At::<_, MODIFIED_CONTEXT>(&mut input)).set_mtu(frame);
        optional(self.run(Opcode::ModifyNicVportContext, 0, &mut input))?;
        Ok(frame)
    }

    /// The largest payload of a packet that the port carries.
    pub(crate) fn path_mtu(&self) -> Mtu {
        let headers = match self.link {
            LinkType::Ethernet => ROCE_HEADERS,
            // The port's MTU is of payload there.
            LinkType::InfiniBand => 0,
        };
        let frame = u32::from(self.identity.frame_size);
        [Mtu::B4096, Mtu::B2048, Mtu::B1024, Mtu::B512]
            .into_iter()
            .find(|mtu| mtu.bytes() + headers <= frame)
            .unwrap_or(Mtu::B256)
    }

    /// QUERY_VPORT_STATE, on InfiniBand the state of the port: whether it carries traffic.
    pub(crate) fn port_up(&mut self) -> Result<bool, Fault> {
        if self.link == LinkType::InfiniBand {
            return Ok(self.ib_port()?.state == PortState::Active);
        }
        let mut output = QueryVportStateOut::new();
        self.exec(Opcode::QueryVportState, 0, 1, &mut InputHead::new().0, &mut output.0)?;
        Ok(output.state() == 1)
    }

    /// SET_ROCE_ADDRESS: lets queue pairs send from, and receive for, `address` by source index
    /// `index`.
    pub(crate) fn set_roce_address(
        &mut self,
        index: u16,
        address: Gid,
        vlan: Option<u16>,
    ) -> Result<(), Fault> {
        let refuse = |fault: Fault| {
            Err(fault
                .of(object::ROCE_ADDRESS, u32::from(index))
                .during(Opcode::SetRoceAddress.name()))
        };
        let mac = self.identity.mac;
        if index >= self.caps.roce.roce_address_table_size() {
            return refuse(fault!(
                BadParameter,
                "",
                "the device has fewer addresses",
                "use a lower index",
            ));
        }
        // Firmware refuses it with a number (0x63c66) that tells nobody anything.
        if mac.first().is_some_and(|byte| byte & 1 == 1) {
            return refuse(fault!(
                BadParameter,
                "",
                "the port's MAC is a multicast address",
                "give the port a unicast MAC",
            ));
        }
        if vlan.is_some_and(|vlan| vlan == 0 || vlan >= 4095) {
            return refuse(fault!(BadParameter, "", "no such VLAN", "use 1 to 4094"));
        }
        let mut input = self.roce_entry(index);
        let mut entry = RoceAddress(At::<_, ROCE_ADDRESS>(&mut input));
        entry.set_source_l3_address(address.0);
        entry.set_roce_l3_type(u8::from(!address.is_v4()));
        let [a, b, low @ ..] = mac;
        entry.set_source_mac_47_32(u16::from_be_bytes([a, b]));
        entry.set_source_mac_31_0(u32::from_be_bytes(low));
        if let Some(vlan) = vlan {
            entry.set_vlan_valid(true);
            entry.set_vlan_id(vlan);
        }
        self.run(Opcode::SetRoceAddress, index.into(), &mut input)
    }

    /// SET_ROCE_ADDRESS: empties an entry. The version stays: a function may refuse one it does not
    /// support even here.
    pub(crate) fn clear_roce_address(&mut self, index: u16) -> Result<(), Fault> {
        let mut input = self.roce_entry(index);
        self.run(Opcode::SetRoceAddress, index.into(), &mut input)
    }

    /// A SET_ROCE_ADDRESS of an empty entry.
    fn roce_entry(&self, index: u16) -> [u8; ROCE_ADDRESS + RoceAddress::SIZE] {
        let mut input = [0; ROCE_ADDRESS + RoceAddress::SIZE];
        let mut head = RoceAddressIn(&mut input);
        head.set_roce_address_index(index);
        if self.caps.general.num_vhca_ports() != 0 {
            head.set_vhca_port_num(1);
        }
        RoceAddress(At::<_, ROCE_ADDRESS>(&mut input)).set_roce_version(ROCE_V2);
        input
    }

    /// HOST_ENDIANNESS: the byte order of this host, in the top bit (Linux `set_hca_ctrl`). A virtual
    /// function may not say it, and not every card knows it.
    pub(super) fn tell_endianness(&mut self) -> Result<(), Fault> {
        let mut contents = [0; 16];
        let [first, ..] = &mut contents;
        *first = if cfg!(target_endian = "big") { 0x80 } else { 0 };
        self.register(Register::HostEndianness, reg::WRITE, &mut contents).map(drop)
    }

    /// ACCESS_REG: reads or writes a register of 16 bytes. False if the device refuses, as it may
    /// do to a virtual function.
    pub(super) fn register(
        &mut self,
        register: Register,
        op_mod: u16,
        contents: &mut [u8; 16],
    ) -> Result<bool, Fault> {
        let mut input = [0; reg::CONTENTS + 16];
        AccessRegIn(&mut input).set_register_id(register as u16);
        prm::put(&mut input, reg::CONTENTS, contents);
        let mut output = [0; reg::CONTENTS + 16];
        let number = u32::from(register as u16);
        let done = self.exec(Opcode::AccessReg, op_mod, number, &mut input, &mut output);
        *contents = prm::take(&output, reg::CONTENTS);
        optional(done)
    }
}

/// The EUI-64 of a MAC.
pub(super) fn guid_of(mac: [u8; 6]) -> u64 {
    let [a, b, c, d, e, f] = mac;
    u64::from_be_bytes([a ^ 2, b, c, 0xff, 0xfe, d, e, f])
}
