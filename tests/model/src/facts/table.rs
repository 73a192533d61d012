//! The table of open facts: name, settings (the first is the default), what it is, and the source
//! that leaves it open.
//!
//! A setting's value is what the part of the model that reads it makes of it: a capability's value,
//! nanoseconds, or a number that only tells the settings apart. `profile` leaves a value as the
//! profile or the card has it.

use super::{Row, Setting};

/// Declares the enum and its rows.
macro_rules! facts {
    ($($(#[$meta:meta])* $fact:ident $name:literal [$($setting:literal $value:expr),+ $(,)?]
        $what:literal, $source:literal;)*) => {
        /// Something that public sources leave open about silicon.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum OpenFact {
            $(#[doc = $what] $fact,)*
        }

        impl OpenFact {
            /// Every fact.
            pub const ALL: &[Self] = &[$(Self::$fact),*];

            pub(super) fn row(self) -> &'static Row {
                match self {
                    $(Self::$fact => &Row {
                        name: $name,
                        what: $what,
                        settings: &[$(Setting { name: $setting, value: $value }),+],
                        source: $source,
                    },)*
                }
            }
        }
    };
}

/// A second in nanoseconds.
const S: u64 = 1_000_000_000;

facts! {
    EqCreated "eq-created" ["idle" 0, "armed" 1]
        "Whether an event queue is armed when it is created.",
        "iPXE golan.c says its cards create EQs armed; Linux, OpenBSD and illumos arm each";
    GenEqe "gen-eqe-unarmed" ["kept" 0, "lost" 1]
        "Whether GEN_EQE writes an entry into an event queue that is not armed.",
        "no open driver sends GEN_EQE to an EQ that is not armed";
    PageEvent "page-event" ["at-once" 0, "after-command" 1, "polled" 2]
        "Whether a page request passes a command in flight, or comes by QUERY_PAGES only.",
        "Linux keeps a command slot for pages; tinygrad has no event queue for them and polls";
    Shortage "shortage" ["none" 0, "beside" 1, "stall" 2, "refuse" 3]
        "What a command does for which the firmware lacks pages.",
        "rdma-core mlx5_vfio_wait_event gives pages during a command; others after status 0x0f";
    Health "health" ["clean" 0, "stale" 0x0b, "stale-no-severity" 0, "stale-warning" 0x0c,
            "stale-emergency" 0x08, "stale-counter-byte" 0x1_0b]
        "A syndrome without the reset bit, left in the health buffer by another function.",
        "Linux health.c: fatal only with rfr; the buffer is shared and a firmware reset clears it";
    QpTsFormat "qp-ts-format" ["profile" 0, "0" 0, "1" 1, "2" 2]
        "Time formats of queue pairs: free running, real time, both.",
        "mlx5_ifc.h qp_ts_format; a set real-time clock (mlxconfig) changes it";
    SqTsFormat "sq-ts-format" ["profile" 0, "0" 0, "1" 1, "2" 2]
        "Time formats of send queues.",
        "mlx5_ifc.h sq_ts_format; a set real-time clock (mlxconfig) changes it";
    RqTsFormat "rq-ts-format" ["profile" 0, "0" 0, "1" 1, "2" 2]
        "Time formats of receive queues.",
        "mlx5_ifc.h rq_ts_format; a set real-time clock (mlxconfig) changes it";
    Mac "mac" ["card" 0, "zero" 1]
        "Whether the vport has a MAC at power-on.",
        "mlx5e_set_netdev_dev_addr makes a random one where it is zero, as of fresh VFs";
    GrhChecksum "grh-checksum" ["sent" 0, "rewritten" 1, "zero" 2]
        "IPv4 header checksum in the 40 bytes before a datagram.",
        "rdma-core and Linux test it (ib_get_rdma_header_version), and only without a CQE type";
    GrhUpper "grh-upper" ["zero" 0, "ones" 1, "untouched" 2]
        "The 20 bytes before the IPv4 header of a datagram.",
        "IBTA annex A17.4 calls them undefined";
    CqeL3Type "cqe-l3-type" ["present" 0, "absent" 1]
        "Whether a datagram's completion says GRH, IPv6 or IPv4.",
        "Linux handle_responder reads it for RoCE ports only, GSI falls back to the checksum";
    UmrEntitySize "umr-modify-entity-size-disabled" ["profile" 0, "0" 0, "1" 1]
        "Whether a UMR may change the page size of a key.",
        "Linux umr_check_mkey_mask; no card that says 1 is named";
    UmrAtomic "umr-modify-atomic-disabled" ["profile" 0, "0" 0, "1" 1]
        "Whether a UMR may change the atomic right of a key.",
        "Linux umr_check_mkey_mask; no card that says 1 is named";
    UmrIndirect "umr-indirect-mkey-disabled" ["profile" 0, "0" 0, "1" 1]
        "Whether a UMR may edit a key of keys.",
        "Linux mlx5_ib_umr: KLM only where it is clear; no card that says 1 is named";
    UmrEntryBits "umr-entry-bits" ["ignored" 0, "required" 1]
        "Whether a page list of a UMR needs EN_RD and EN_WR in bits 0 and 1.",
        "Linux mlx5_set_page sets both, always; bare addresses are shown for CREATE_MKEY only";
    UmrFence "umr-fence" ["profile" 0, "0" 0, "1" 1, "2" 2]
        "Fence that a UMR needs behind other requests: strong, small, none.",
        "Linux mlx5_get_umr_fence; ConnectX-4 says 0, a ConnectX-6 Dx 1";
    QueueWrites "queue-writes" ["none" 0, "back" 1]
        "Whether the device writes to work queue entries that it has read.",
        "every open driver maps them read-write; none says that it must";
    CommandAddress "command-address" ["kept" 0, "zero" 1]
        "What the command queue address registers read.",
        "Linux health.c reads and writes them back after a reset; no text says what they read";
    Link "link" ["at-once" 0, "after-2s" 1, "after-20s" 2, "flapping" 3]
        "When the link comes up after a reset and after the port is set up.",
        "mlx5e waits for PORT_CHANGE; training takes seconds, and no text bounds it";
    PortAdmin "port-admin" ["up" 0, "down" 1]
        "Administrative state of the port that a driver finds.",
        "mlx5e_close sets PAOS down, so a card taken from mlx5_core has it down";
    PortMtu "port-mtu" ["card" 0, "1522" 1522, "4220" 4220]
        "Frame size of the port at power-on.",
        "tinygrad runs path MTU 4096 and never writes PMTU; nobody prints the power-on value";
    PeerMtu "peer-mtu" ["any" 0, "1500" 1500]
        "Largest IP packet that the far end and the switches take.",
        "iboe_get_mtu takes the path MTU from the Ethernet MTU, 1500 unless somebody set it";
    CqeVersion "cqe-version" ["profile" 0, "0" 0, "1" 1]
        "Whether a completion has a user index.",
        "Linux serves both; the cards named say 1";
    CacheLine "cache-line" ["profile" 0, "64" 0, "128" 1]
        "Cache line of 128 bytes, settable.",
        "Linux sets cache_line_128byte where the maximum has it and the host's line is 128";
    InlineMode "wqe-inline-mode" ["profile" 0, "l2" 0, "vport-l2" 1, "vport-ip" 0x11,
            "not-required" 2]
        "Which headers a raw send must carry inline, and who says so.",
        "Linux mlx5_query_min_inline serves three; a ConnectX-6 Dx says 2";
    BfSize "log-bf-reg-size" ["profile" 0, "8" 8, "9" 9, "10" 10, "none" 0]
        "Size of a BlueFlame register, and whether there is one.",
        "mlx5_ifc.h; the cards named say 9";
    BfData "bf-data" ["used" 0, "ignored" 1]
        "Whether a WQE that comes whole through BlueFlame is executed from there.",
        "Linux core/wc.c tries it; a device that takes the doorbell and fetches is correct, too";
    RoceVersion "roce-version" ["profile" 0, "1" 1, "4" 4, "5" 5]
        "RoCE versions: bit 0 version 1, bit 2 version 2.",
        "a ConnectX-6 Dx says 5; early firmware of ConnectX-4 without version 2 is not excluded";
    L3Type "l3-type" ["profile" 0, "1" 1, "3" 3, "7" 7]
        "Layer 3 types of the RoCE block.",
        "a ConnectX-6 Dx says 7; no open driver reads it";
    RoceTable "roce-address-table" ["profile" 0, "8" 8, "16" 16, "255" 255]
        "Entries of the RoCE address table.",
        "a ConnectX-6 Dx says 255, virtual functions share it";
    AckDelay "local-ca-ack-delay" ["profile" 0, "0" 0, "16" 16]
        "Delay of the local acknowledgement.",
        "a ConnectX-6 Dx says 16; older firmware is said to say 0";
    Uar4k "uar-4k" ["profile" 0, "0" 0, "1" 1]
        "Whether doorbell pages may be 4 KiB on a host with larger pages.",
        "Linux sets it where the maximum has it; a ConnectX-6 Dx says 0 as current";
    EqeOrder "eqe-order" ["at-once" 0, "bursts" 1, "reordered" 2]
        "When events reach their queues.",
        "order between EQs is nowhere promised";
    CommandOrder "command-order" ["in-order" 0, "random" 2_000_000]
        "Order in which commands of different slots complete.",
        "Linux serves any order; no text promises one";
    CqeOrder "cqe-order" ["at-once" 0, "late" 100_000]
        "Whether completions of two queues of one CQ come interleaved and late.",
        "IBTA promises order within a queue only";
    KeyIndex "key-index" ["next" 0, "freed-last" 1]
        "Which index a memory key gets: one that never was in use, or the one that was freed last.",
        "Linux mlx5 counts the low byte itself, as nothing says when an index comes back";
    RelaxedWrites "relaxed-writes" ["scattered" 0, "last-first" 1, "in-order" 2]
        "Order in which payload reaches memory behind a key with relaxed ordering.",
        "PCI Express lets such writes pass one another; no text says which card and host do it";
    Teardown "teardown" ["fast" 0, "10s" 10 * S]
        "Time of TEARDOWN_HCA.",
        "DTOR of a ConnectX-6 Dx: tear_down_to 10 s";
    Reclaim "reclaim" ["fast" 0, "5s" 5 * S]
        "Time of taking pages back.",
        "DTOR of a ConnectX-6 Dx: reclaim_pages_to 5 s";
    Flr "flr" ["fast" 0, "5s" 5 * S]
        "Time of a function level reset, until `initializing` clears.",
        "PCIe allows 100 ms, firmware of ConnectX is said to take seconds";
    EnableLive "enable-hca-live" ["refused" 0, "taken" 1]
        "ENABLE_HCA on a function that is enabled already.",
        "tinygrad is inferred to do it: a new process without reset or teardown";
    RoceUdpPort "sw-r-roce-src-udp-port" ["profile" 0, "absent" 0, "settable" 1]
        "Whether the RoCE block lets software choose UDP source ports.",
        "Linux handle_hca_cap_roce and tinygrad set it; a ConnectX-4 does not have it";
    InitPages "init-pages" ["estimate" 0, "8000" 8000, "22737" 22737]
        "Pages asked for before INIT_HCA.",
        "tinygrad's ConnectX-6 asks for at most 8,128, a ConnectX-4's formula says 22,737";
    HostEndianness "host-endianness" ["known" 0, "unknown" 1, "required" 2]
        "The register HOST_ENDIANNESS (0x7004) before INIT_HCA.",
        "Linux, rdma-core and tinygrad write it, OpenBSD, illumos and Snabb do not";
    UplinkFollow "uplink-follow" ["profile" 0, "0" 0, "1" 1]
        "Whether the uplink vport has to be set to follow the port.",
        "mlx5e_modify_admin_state does so by the capability; a ConnectX-6 Dx says 0";
    EmbeddedCpu "embedded-cpu" ["host" 0, "dpu" 1]
        "Whether the function is that of a DPU's own processor.",
        "initialization segment 0x1fc bit 23; Linux sets embedded_cpu_function in four commands";
    SubnetAgent "subnet-agent" ["firmware" 0, "driver" 1]
        "Whether firmware answers subnet and performance management, or queue pairs 0 and 1 get it.",
        "Linux process_mad can answer by MAD_IFC; its answer to perfquery lacks a header (6.12), so it is not asked";
    IbVirt "ib-virt" ["yes" 0, "no" 1]
        "Whether an InfiniBand port has HCA vport contexts, or MAD_IFC only.",
        "Linux mlx5_use_mad_ifc knows both; no dump of a card with InfiniBand shows ib_virt";
    PortType "port-type" ["ethernet" 0, "infiniband" 1]
        "Link type of a VPI card's port; with InfiniBand there is no RoCE.",
        "mlxconfig LINK_TYPE; VPI cards are shipped either way";
    FixedBuffer "fixed-buffer-size" ["profile" 0, "0" 0, "1" 1]
        "Whether keys of keys have one entry size.",
        "a ConnectX-6 Dx says 1";
    EswitchManager "eswitch-manager" ["profile" 0, "0" 0, "1" 1, "filters" 3]
        "Whether the function manages the switch inside, and whether its table of MACs filters.",
        "a ConnectX-4 and a ConnectX-6 Dx say 1; Linux mpfs.c fills the table, no text says of what hosts";
    SwOwnerId "sw-owner-id" ["profile" 0, "0" 0, "1" 1]
        "Whether INIT_HCA takes an owner.",
        "Linux mlx5_cmd_init_hca sends one where the capability is set; no dump shows it";
    VhcaPorts "num-vhca-ports" ["profile" 0, "0" 0, "2" 2]
        "Ports that are affiliated, for which the RoCE table asks for a port's number.",
        "Linux mlx5_core_roce_gid_set sends 1 where it is not 0; cards of two ports only";
    CqResize "cq-resize" ["profile" 0, "0" 0, "1" 1]
        "Whether a completion queue can be resized.",
        "a ConnectX-6 Dx says 1; Linux asks, so some firmware says 0";
    FastTeardown "fast-teardown" ["profile" 0, "0" 0, "1" 1]
        "Whether a function can be torn down in haste.",
        "a ConnectX-6 Dx says 1, a ConnectX-4 0";
    CqeCompression "cqe-compression" ["by-chance" 0, "always" 1, "never" 2]
        "When completions of a CQ with compression are compressed.",
        "DPDK net/mlx5: when PCI pushes back; no text says from which load on";
    CqArmModeration "cq-arm-moderation" ["moderated" 0, "at-once" 1]
        "Whether an arm that finds completions waits for count or period of the CQ.",
        "Linux arms behind a poll that found nothing; a completion between the two is seen late or at once";
    CqSolicitedModeration "cq-solicited-moderation" ["moderated" 0, "at-once" 1]
        "Whether a CQ armed for solicited completions waits for count or period.",
        "mlx5_ifc.h scqe_break_moderation_en: no driver sets it, and no text says what is so without";
    CqPeriodStart "cq-period-start" ["running" 0, "whole" 1]
        "Whether the first completion after a pause waits a whole period in mode 0.",
        "Linux dim.h: counting starts from the event; no text says what a period that is over does";
}
