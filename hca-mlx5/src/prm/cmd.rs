//! The command interface: opcodes, the queue entry, the mailbox block, the heads of messages.
//!
//! PRM chapter "Command interface"; Linux `mlx5_cmd_layout`, `mlx5_cmd_prot_block`. The numbers of
//! the opcodes and their names are the manual's.

use super::layout;
use super::object;

macro_rules! opcodes {
    ($($variant:ident = $number:literal, $object:ident, $name:literal;)*) => {
        /// A command of the device that this driver knows.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u16)]
        pub enum Opcode {
            $(#[doc = concat!("`", $name, "`.")] $variant = $number,)*
        }

        impl Opcode {
            /// All of them, ascending.
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];

            /// From its number.
            #[must_use]
            pub const fn from_code(code: u16) -> Option<Self> {
                match code {
                    $($number => Some(Self::$variant),)*
                    _ => None,
                }
            }

            /// Its number.
            #[must_use]
            pub const fn code(self) -> u16 {
                self as u16
            }

            /// The manual's name.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }

            /// The kind of the existing object that it is about.
            pub(crate) const fn object(self) -> &'static str {
                match self {
                    $(Self::$variant => object::$object,)*
                }
            }
        }
    };
}

opcodes! {
    QueryHcaCap = 0x100, CAPABILITY, "QUERY_HCA_CAP";
    QueryAdapter = 0x101, NONE, "QUERY_ADAPTER";
    InitHca = 0x102, NONE, "INIT_HCA";
    TeardownHca = 0x103, NONE, "TEARDOWN_HCA";
    EnableHca = 0x104, NONE, "ENABLE_HCA";
    DisableHca = 0x105, NONE, "DISABLE_HCA";
    QueryPages = 0x107, NONE, "QUERY_PAGES";
    ManagePages = 0x108, NONE, "MANAGE_PAGES";
    SetHcaCap = 0x109, NONE, "SET_HCA_CAP";
    QueryIssi = 0x10a, NONE, "QUERY_ISSI";
    SetIssi = 0x10b, NONE, "SET_ISSI";
    CreateMkey = 0x200, NONE, "CREATE_MKEY";
    DestroyMkey = 0x202, MKEY, "DESTROY_MKEY";
    CreateEq = 0x301, NONE, "CREATE_EQ";
    DestroyEq = 0x302, EQ, "DESTROY_EQ";
    QueryEq = 0x303, EQ, "QUERY_EQ";
    GenEqe = 0x304, EQ, "GEN_EQE";
    CreateCq = 0x400, NONE, "CREATE_CQ";
    DestroyCq = 0x401, CQ, "DESTROY_CQ";
    ModifyCq = 0x403, CQ, "MODIFY_CQ";
    CreateQp = 0x500, NONE, "CREATE_QP";
    DestroyQp = 0x501, QP, "DESTROY_QP";
    Rst2InitQp = 0x502, QP, "RST2INIT_QP";
    Init2RtrQp = 0x503, QP, "INIT2RTR_QP";
    Rtr2RtsQp = 0x504, QP, "RTR2RTS_QP";
    ToErrQp = 0x507, QP, "2ERR_QP";
    ToRstQp = 0x50a, QP, "2RST_QP";
    QueryQp = 0x50b, QP, "QUERY_QP";
    MadIfc = 0x50d, PORT, "MAD_IFC";
    QueryVportState = 0x750, PORT, "QUERY_VPORT_STATE";
    ModifyVportState = 0x751, NONE, "MODIFY_VPORT_STATE";
    QueryNicVportContext = 0x754, NONE, "QUERY_NIC_VPORT_CONTEXT";
    ModifyNicVportContext = 0x755, VPORT, "MODIFY_NIC_VPORT_CONTEXT";
    QueryRoceAddress = 0x760, ROCE_ADDRESS, "QUERY_ROCE_ADDRESS";
    SetRoceAddress = 0x761, ROCE_ADDRESS, "SET_ROCE_ADDRESS";
    QueryHcaVportContext = 0x762, PORT, "QUERY_HCA_VPORT_CONTEXT";
    ModifyHcaVportContext = 0x763, PORT, "MODIFY_HCA_VPORT_CONTEXT";
    QueryHcaVportGid = 0x764, PORT, "QUERY_HCA_VPORT_GID";
    QueryHcaVportPkey = 0x765, PORT, "QUERY_HCA_VPORT_PKEY";
    QueryVportCounter = 0x770, PORT, "QUERY_VPORT_COUNTER";
    AllocQCounter = 0x771, NONE, "ALLOC_Q_COUNTER";
    DeallocQCounter = 0x772, COUNTERS, "DEALLOC_Q_COUNTER";
    QueryQCounter = 0x773, COUNTERS, "QUERY_Q_COUNTER";
    AllocPd = 0x800, NONE, "ALLOC_PD";
    DeallocPd = 0x801, PD, "DEALLOC_PD";
    AllocUar = 0x802, NONE, "ALLOC_UAR";
    DeallocUar = 0x803, UAR, "DEALLOC_UAR";
    AccessReg = 0x805, REGISTER, "ACCESS_REG";
    AttachToMcg = 0x806, QP, "ATTACH_TO_MCG";
    DetachFromMcg = 0x807, QP, "DETACH_FROM_MCG";
    Nop = 0x80d, NONE, "NOP";
    AllocTransportDomain = 0x816, NONE, "ALLOC_TRANSPORT_DOMAIN";
    DeallocTransportDomain = 0x817, TRANSPORT_DOMAIN, "DEALLOC_TRANSPORT_DOMAIN";
    QueryCongStatus = 0x822, PRIORITY, "QUERY_CONG_STATUS";
    QueryCongParams = 0x824, NONE, "QUERY_CONG_PARAMS";
    SetL2TableEntry = 0x829, L2_ENTRY, "SET_L2_TABLE_ENTRY";
    DeleteL2TableEntry = 0x82b, L2_ENTRY, "DELETE_L2_TABLE_ENTRY";
    CreateTir = 0x900, NONE, "CREATE_TIR";
    DestroyTir = 0x902, TIR, "DESTROY_TIR";
    CreateSq = 0x904, NONE, "CREATE_SQ";
    ModifySq = 0x905, SQ, "MODIFY_SQ";
    DestroySq = 0x906, SQ, "DESTROY_SQ";
    CreateRq = 0x908, NONE, "CREATE_RQ";
    ModifyRq = 0x909, RQ, "MODIFY_RQ";
    DestroyRq = 0x90a, RQ, "DESTROY_RQ";
    CreateRmp = 0x90c, NONE, "CREATE_RMP";
    ModifyRmp = 0x90d, SRQ, "MODIFY_RMP";
    DestroyRmp = 0x90e, SRQ, "DESTROY_RMP";
    CreateTis = 0x912, NONE, "CREATE_TIS";
    DestroyTis = 0x914, TIS, "DESTROY_TIS";
    SetFlowTableRoot = 0x92f, FLOW_TABLE, "SET_FLOW_TABLE_ROOT";
    CreateFlowTable = 0x930, NONE, "CREATE_FLOW_TABLE";
    DestroyFlowTable = 0x931, FLOW_TABLE, "DESTROY_FLOW_TABLE";
    CreateFlowGroup = 0x933, NONE, "CREATE_FLOW_GROUP";
    DestroyFlowGroup = 0x934, FLOW_GROUP, "DESTROY_FLOW_GROUP";
    SetFlowTableEntry = 0x936, FLOW_ENTRY, "SET_FLOW_TABLE_ENTRY";
    DeleteFlowTableEntry = 0x938, FLOW_ENTRY, "DELETE_FLOW_TABLE_ENTRY";
}

/// Length of the part of a message that travels inside the queue entry.
pub const HEAD: usize = 16;
/// Data bytes of one mailbox block.
pub const BLOCK_DATA: usize = 512;
/// Alignment and spacing of mailbox blocks: closer packing is refused by real cards.
pub const BLOCK_STRIDE: usize = 1024;
/// [`CommandEntry::kind`] of the one transport there is.
pub const TRANSPORT_PCI: u8 = 7;

layout! {
    /// Entry of the command queue (Linux `mlx5_cmd_layout`).
    CommandEntry, 64;
    0x00[31:24] kind, set_kind: u8;
    0x04(32) input_length, set_input_length: u32;
    0x08(64) input_mailbox, set_input_mailbox: u64;
    0x10(128) command_input_inline, set_command_input_inline: u128;
    0x20(128) command_output_inline, set_command_output_inline: u128;
    0x30(64) output_mailbox, set_output_mailbox: u64;
    0x38(32) output_length, set_output_length: u32;
    0x3c[31:24] token, set_token: u8;
    0x3c[23:16] signature, set_signature: u8;
    0x3c[7:1] status, set_status: u8;
    /// The device owns the entry.
    0x3c[0] ownership, set_ownership: bool;
}

layout! {
    /// Last 64 bytes of a mailbox block, which starts with 512 bytes of data (Linux `mlx5_cmd_prot_block`).
    BlockTrailer, 64;
    0x30(64) next, set_next: u64;
    0x38(32) block_number, set_block_number: u32;
    0x3c[23:16] token, set_token: u8;
    0x3c[15:8] ctrl_signature, set_ctrl_signature: u8;
    0x3c[7:0] signature, set_signature: u8;
}

layout! {
    /// Head of every input message. `number` is the object's, where the command has one.
    InputHead, 16;
    0x00[31:16] opcode, set_opcode: u16;
    0x00[15:0] uid, set_uid: u16;
    0x04[15:0] op_mod, set_op_mod: u16;
    /// Of the commands that switch a function on and off, or ask for its pages.
    0x08[31] embedded_cpu_function, set_embedded_cpu_function: bool;
    0x08[23:0] number, set_number: u32;
}

layout! {
    /// Head of every output message. `number` is the new object's, where the command makes one.
    OutputHead, 16;
    0x00[31:24] status, set_status: u8;
    0x04(32) syndrome, set_syndrome: u32;
    0x08[23:0] number, set_number: u32;
}

layout! {
    /// INIT_HCA input.
    InitHcaIn, 32;
    /// Only where the general capability `sw_owner_id` is set.
    0x10(128) sw_owner_id, set_sw_owner_id: u128;
}

layout! {
    /// TEARDOWN_HCA input.
    TeardownHcaIn, 16;
    0x08[15:0] profile, set_profile: u16;
}

layout! {
    /// TEARDOWN_HCA output.
    TeardownHcaOut, 16;
    /// A fast or forced teardown was refused.
    0x0c[0] state, set_state: bool;
}

/// `profile` of TEARDOWN_HCA: with everything destroyed before.
pub const TEARDOWN_GRACEFUL: u16 = 0;
/// `profile` of TEARDOWN_HCA: close the port so that nothing moves any more.
pub const TEARDOWN_PREPARE_FAST: u16 = 2;

layout! {
    /// QUERY_ISSI output.
    QueryIssiOut, 112;
    0x08[15:0] current_issi, set_current_issi: u16;
    /// Bit n: interface step n can be set.
    0x6c(32) supported_issi_dw0, set_supported_issi_dw0: u32;
}

layout! {
    /// SET_ISSI input.
    SetIssiIn, 16;
    0x08[15:0] current_issi, set_current_issi: u16;
}
