//! The initialization segment: the first 4 KiB of BAR 0 and a few registers behind it.
//!
//! PRM chapter "Initialization segment"; Linux `mlx5_init_seg`. All registers are 32 bits,
//! big-endian.

use core::time::Duration;

/// [`FirmwareRevision`].
pub const FW_REV: usize = 0x000;
/// [`InterfaceRevision`].
pub const CMDIF_REV_FW_SUB: usize = 0x004;
/// Upper half of the command page's address.
pub const CMDQ_ADDR_H: usize = 0x010;
/// [`CommandQueueWord`]; writing it commits the address.
pub const CMDQ_ADDR_L_SZ: usize = 0x014;
/// One bit a slot; several may be set in one write.
pub const CMD_DOORBELL: usize = 0x018;
/// [`Initializing`].
pub const INITIALIZING: usize = 0x1fc;
/// The health buffer; offsets inside it follow.
pub const HEALTH_BUFFER: usize = 0x200;
/// Firmware version word; all ones when the device is gone.
pub const HEALTH_FW_VER: usize = HEALTH_BUFFER + 0x30;
/// [`HealthSeverity`].
pub const HEALTH_SEVERITY: usize = HEALTH_BUFFER + 0x38;
/// [`HealthWord`].
pub const HEALTH_WORD: usize = HEALTH_BUFFER + 0x3c;
/// Time limit of a command, a [`TimeLimit`].
pub const CMD_EXEC_TO: usize = 0xff8;
/// Time limit of initialization, a [`TimeLimit`]; 0 means that neither is given.
pub const CMD_Q_INIT_TO: usize = 0xffc;
/// [`HealthCounter`].
pub const HEALTH_COUNTER: usize = 0x1010;
/// Bytes of BAR 0 that hold the above.
pub const SIZE: usize = 0x1014;

/// The one revision of the command interface there is.
pub const CMD_INTERFACE_REV: u16 = 5;

bitfield::bitfield! {
    /// Word 0.
    #[derive(Clone, Copy, Default, PartialEq, Eq)]
    pub struct FirmwareRevision(pub u32);
    impl Debug;
    /// Minor.
    pub u16, minor, set_minor: 31, 16;
    /// Major.
    pub u16, major, set_major: 15, 0;
}

bitfield::bitfield! {
    /// Word 4.
    #[derive(Clone, Copy, Default, PartialEq, Eq)]
    pub struct InterfaceRevision(pub u32);
    impl Debug;
    /// Of the command interface.
    pub u16, cmd_interface_rev, set_cmd_interface_rev: 31, 16;
    /// Of the firmware.
    pub u16, fw_rev_subminor, set_fw_rev_subminor: 15, 0;
}

bitfield::bitfield! {
    /// Lower half of the command page's address; its low byte is the device's to set.
    #[derive(Clone, Copy, Default, PartialEq, Eq)]
    pub struct CommandQueueWord(pub u32);
    impl Debug;
    /// 0 full driver, 1 disabled, 2 no-DRAM NIC, 7 software reset.
    pub u8, nic_interface, set_nic_interface: 10, 8;
    /// Log2 of the number of slots.
    pub u8, log_cmdq_size, set_log_cmdq_size: 7, 4;
    /// Log2 of the bytes between slots.
    pub u8, log_cmdq_stride, set_log_cmdq_stride: 3, 0;
}

/// Values of `nic_interface` with which no command works.
pub const NIC_DISABLED: u8 = 1;
/// The function is being reset by software.
pub const NIC_SW_RESET: u8 = 7;

bitfield::bitfield! {
    /// Progress of the firmware's own start.
    #[derive(Clone, Copy, Default, PartialEq, Eq)]
    pub struct Initializing(pub u32);
    impl Debug;
    /// Not ready yet.
    pub busy, set_busy: 31;
    /// This function is a DPU's embedded CPU.
    pub embedded_cpu, set_embedded_cpu: 23;
}

bitfield::bitfield! {
    /// How bad the health syndrome is.
    #[derive(Clone, Copy, Default, PartialEq, Eq)]
    pub struct HealthSeverity(pub u32);
    impl Debug;
    /// Request for reset: the firmware cannot go on by itself.
    pub rfr, set_rfr: 31;
    /// `severity` means something.
    pub severity_valid, set_severity_valid: 27;
    /// 0 worst, as in syslog.
    pub u8, severity, set_severity: 26, 24;
}

bitfield::bitfield! {
    /// Last word of the health buffer.
    #[derive(Clone, Copy, Default, PartialEq, Eq)]
    pub struct HealthWord(pub u32);
    impl Debug;
    /// Which core of the firmware reported.
    pub u8, irisc_index, set_irisc_index: 31, 24;
    /// The syndrome, 0 if nothing is wrong.
    pub u8, synd, set_synd: 23, 16;
    /// Detail.
    pub u16, ext_synd, set_ext_synd: 15, 0;
}

bitfield::bitfield! {
    /// Shows that the firmware is alive: it counts.
    #[derive(Clone, Copy, Default, PartialEq, Eq)]
    pub struct HealthCounter(pub u32);
    impl Debug;
    /// A copy of the syndrome, for waits that look at one register only.
    pub u8, syndrome, set_syndrome: 31, 24;
    /// Counts up while the firmware runs.
    pub u32, counter, set_counter: 23, 0;
}

bitfield::bitfield! {
    /// A time limit the device gives.
    #[derive(Clone, Copy, Default, PartialEq, Eq)]
    pub struct TimeLimit(pub u32);
    impl Debug;
    /// 0 milliseconds, 1 seconds, 2 minutes, 3 hours.
    pub u8, unit, set_unit: 31, 29;
    /// How many.
    pub u32, value, set_value: 19, 0;
}

impl TimeLimit {
    /// No more than this is believed: a register full of ones would stop its reader for a century.
    /// The slowest command known took 74 seconds.
    pub const LONGEST: Duration = Duration::from_secs(600);

    /// As a span, at most [`TimeLimit::LONGEST`]; `None` if it is zero or in an unknown unit.
    #[must_use]
    pub fn duration(self) -> Option<Duration> {
        let value = u64::from(self.value());
        let span = match self.unit() {
            0 => Duration::from_millis(value),
            1 => Duration::from_secs(value),
            2 => Duration::from_secs(value * 60),
            3 => Duration::from_secs(value * 3600),
            _ => return None,
        };
        (!span.is_zero()).then_some(span.min(Self::LONGEST))
    }
}

/// Health syndromes in words; `None` for one without a name.
#[must_use]
pub const fn health_syndrome(synd: u8) -> Option<&'static str> {
    Some(match synd {
        0x01 => "the firmware met an internal error",
        0x07 => "a core of the firmware does not respond",
        0x08 => "fatal hardware error",
        0x09 => "the firmware image fails its checksum",
        0x0a => "the device could not fetch its pages over PCI",
        0x0b => "a page given to the firmware is unusable",
        0x0c => "the asynchronous event queue overran",
        0x0d => "an event queue is in error",
        0x0e => "an event queue is invalid",
        0x0f => "unrecoverable hardware fault (FFSER)",
        0x10 => "the device is too hot",
        0x12 => "a page given to the firmware is poisoned",
        _ => return None,
    })
}
