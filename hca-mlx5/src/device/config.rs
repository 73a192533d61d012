//! Bring-up parameters.

use core::fmt;
use core::net::IpAddr;
use core::time::Duration;

use dat_core::provider::{Classes, Hook, Mtu};

use crate::device::cmd::dump::Observer;
use crate::platform::{Blocks, Lend};

/// Bytes around the payload of a RoCEv2 packet at most: Ethernet 14, VLAN 4, IPv6 40, UDP 8, BTH
/// 12, RETH and immediate or AtomicETH 28, ICRC 4, FCS 4.
pub(super) const ROCE_HEADERS: u32 = 14 + 4 + 40 + 8 + 12 + 28 + 4 + 4;

/// A frame that holds a RoCEv2 packet with 4,096 bytes of payload.
const ROCE_FRAME_4096: u16 = 4096 + 114;
const _: () = assert!(ROCE_FRAME_4096 as u32 == 4096 + ROCE_HEADERS);

/// Choices of the caller at bring-up.
#[derive(Clone, Copy)]
pub struct Config<'p> {
    /// Log2 of the queue pairs that the firmware makes room for at most; its pages follow from it.
    /// 17 by default: some firmware offers more than the page budget has room for.
    pub log_max_qp: u8,
    /// Log2 of the queue pairs that the firmware is to make room for at least, as far as the device
    /// can: some firmware starts with fewer than it offers. 0 by default; a provider raises it to
    /// what its table holds.
    pub log_min_qp: u8,
    /// Most 4 KiB pages the firmware may hold.
    pub page_budget: u32,
    /// Interrupt vector of command events: it ends a sleep in [`relax`] early. No such sleep may
    /// rely on it alone, for cards are known to lose these events.
    ///
    /// [`relax`]: crate::platform::Clock::relax
    pub command_vector: u16,
    /// Interrupt vector of asynchronous events.
    pub async_vector: u16,
    /// Interrupt vector of the firmware's page requests.
    pub page_vector: u16,
    /// Interrupt vector of completion events.
    pub completion_vector: u16,
    /// Log2 of the entries of the completion event queue; no more completion queues than that may
    /// be armed.
    pub log_completion_events: u8,
    /// Time limit of one command; what the device asks for, or a minute, if not given.
    pub command_timeout: Option<Duration>,
    /// Time limit of the firmware's own start.
    pub init_timeout: Duration,
    /// How long a command is under way before the firmware gets pages meanwhile; at once if not
    /// given. A test of a card finds out so whether a command waits for them.
    pub withhold_pages: Option<Duration>,
    /// Largest frame wanted on the port, headers included. Enough for a RoCEv2 packet of 4,096
    /// bytes by default.
    pub frame_size: u16,
    /// Largest payload that connections are offered with, as far as the port has it. 1,024 bytes by
    /// default, which fit where a switch or the peer's port has the Ethernet MTU of 1,500.
    pub path_mtu: Mtu,
    /// Traffic class and priority of packets: of `best_effort` all that this driver sends of itself
    /// over RoCE; of the others connections that ask for that quality of service, which is refused
    /// where there is none. ARP and Neighbor Discovery have neither, as in Linux. All 0 by default.
    pub classes: Classes,
    /// Random bytes, not all 0, from which keys, flow labels and the like follow: a peer must not be
    /// able to guess them.
    pub entropy: [u8; 32],
    /// How whole work requests reach the doorbell pages of BAR 0.
    pub blocks: Blocks,
    /// Lets the device write successive like receives as a session of compressed entries (CQE
    /// compression), where it can: fewer bytes over PCI Express, and some instructions more for
    /// each completion. It holds a session back for a short time, which costs latency. Off by
    /// default.
    pub compress_completions: bool,
    /// Lets the device put messages of up to 32 bytes into their completions (scatter to CQE), where
    /// it can: one write over PCI Express less for each. The driver copies them to their receives.
    /// Connections have that, unless their receives are shared. Memory by its device addresses
    /// cannot be registered then, as the driver cannot tell where that is. Off by default.
    pub inline_receives: bool,
    /// Neighbours with a fixed MAC, the gateway among them if wanted: never asked for, and no
    /// message changes them. At most 32.
    pub neighbours: &'p [(IpAddr, [u8; 6])],
    /// Runs the built-in subnet manager on an InfiniBand port: for two ports joined by a cable, where
    /// there is no other. It yields to any other. Off by default.
    pub subnet_manager: bool,
    /// Lends memory outside the arena to the device.
    pub lender: Option<&'p (dyn Lend + Sync)>,
    /// Sees the bytes of every command.
    pub observer: Option<&'p (dyn Observer + Sync)>,
    /// Sees what driver and adapter do: commands by name, connections, repeated messages, faults.
    pub hook: Option<Hook<'p>>,
}

/// All but [`Config::entropy`], which whoever opens a device has to set.
impl Default for Config<'_> {
    fn default() -> Self {
        Self {
            log_max_qp: 17,
            log_min_qp: 0,
            // 128 MiB: more than any card seen asks for.
            page_budget: 32_768,
            // One vector for all but completions, which come too often to share it.
            command_vector: 0,
            async_vector: 0,
            page_vector: 0,
            completion_vector: 1,
            log_completion_events: 8,
            command_timeout: None,
            init_timeout: Duration::from_secs(120),
            withhold_pages: None,
            frame_size: ROCE_FRAME_4096,
            path_mtu: Mtu::B1024,
            classes: Classes::default(),
            entropy: [0; 32],
            blocks: Blocks::Words,
            compress_completions: false,
            inline_receives: false,
            neighbours: &[],
            subnet_manager: false,
            lender: None,
            observer: None,
            hook: None,
        }
    }
}

impl fmt::Debug for Config<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config")
            .field("log_max_qp", &self.log_max_qp)
            .field("page_budget", &self.page_budget)
            .field(
                "vectors",
                &[self.command_vector, self.async_vector, self.page_vector, self.completion_vector],
            )
            .finish_non_exhaustive()
    }
}

impl Config<'_> {
    /// Asks for frames that hold RoCE packets with `mtu` bytes of payload, and no more, and offers
    /// that to peers.
    #[must_use]
    pub const fn with_path_mtu(mut self, mtu: Mtu) -> Self {
        #[expect(clippy::cast_possible_truncation, reason = "4,096 bytes and the headers fit")]
        let frame = (mtu.bytes() + ROCE_HEADERS) as u16;
        self.frame_size = frame;
        self.path_mtu = mtu;
        self
    }
}
