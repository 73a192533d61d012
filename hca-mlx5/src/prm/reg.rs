//! Registers behind ACCESS_REG: port state and port frame size.
//!
//! PRM chapter "Register access"; Linux `mlx5_ifc_paos_reg_bits`, `mlx5_ifc_pmtu_reg_bits`.

use super::layout;

/// Which register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum Register {
    /// Port MTU.
    Pmtu = 0x5003,
    /// Speeds of the port.
    Ptys = 0x5004,
    /// Port administrative and operational state.
    Paos = 0x5006,
    /// Byte order of the host.
    HostEndianness = 0x7004,
    /// Time limits of the firmware's operations.
    Dtor = 0xc00e,
}

impl Register {
    /// The manual's name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pmtu => "PMTU",
            Self::Ptys => "PTYS",
            Self::Paos => "PAOS",
            Self::HostEndianness => "HOST_ENDIANNESS",
            Self::Dtor => "DTOR",
        }
    }
}

/// `op_mod` of ACCESS_REG: write.
pub const WRITE: u16 = 0;
/// `op_mod` of ACCESS_REG: read.
pub const READ: u16 = 1;
/// Where the register's contents stand in both messages.
pub const CONTENTS: usize = 0x10;

layout! {
    /// Start of ACCESS_REG's input.
    AccessRegIn, 16;
    0x08[15:0] register_id, set_register_id: u16;
    0x0c(32) argument, set_argument: u32;
}

layout! {
    /// Port MTU: frame sizes, headers included.
    Pmtu, 16;
    0x00[23:16] local_port, set_local_port: u8;
    0x04[31:16] max_mtu, set_max_mtu: u16;
    0x08[31:16] admin_mtu, set_admin_mtu: u16;
    0x0c[31:16] oper_mtu, set_oper_mtu: u16;
}

layout! {
    /// Speeds of the port.
    Ptys, 64;
    0x00[23:16] local_port, set_local_port: u8;
    0x00[2:0] proto_mask, set_proto_mask: u8;
}

/// [`Ptys::proto_mask`]: the speeds of Ethernet.
pub const ETHERNET: u8 = 4;

layout! {
    /// Port administrative and operational state.
    Paos, 16;
    0x00[23:16] local_port, set_local_port: u8;
    /// 1 up, 2 down.
    0x00[11:8] admin_status, set_admin_status: u8;
    /// 1 up, 2 down, 4 down by failure.
    0x00[3:0] oper_status, set_oper_status: u8;
    /// `admin_status` counts.
    0x04[31] ase, set_ase: bool;
    /// `e` counts.
    0x04[30] ee, set_ee: bool;
    0x04[1:0] e, set_e: u8;
}
