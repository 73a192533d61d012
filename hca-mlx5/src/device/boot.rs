//! Bring-up, in the order of the manual.
//!
//! PRM chapter "Initialization"; the order of commands is the consensus of the drivers known to run
//! on cards. Steps that only a physical function may take, or that not every firmware knows, are
//! optional here: what they would have set is read back afterwards, so that a virtual function
//! comes up by the same code.
//!
//! A failure in any step undoes the steps before it.

use dat_core::fault;
use dat_core::provider::{Fault, LinkType, Random};
use heapless::Deque;

use crate::device::cmd::CommandQueue;
use crate::device::eq::EventQueue;
use crate::device::health::{self, Monitor};
use crate::device::key_rest::KeyRest;
use crate::device::pages::ledger::Ledger;
use crate::device::{Caps, Config, Device, Identity, Stage, Uar, optional};
use crate::platform::Platform;
use crate::prm::At;
use crate::prm::caps::{
    self, ATOMIC_ANSWERS_AS_HOST, AtomicCap, BLOCK_AT, CapType, FLOW_TABLE_NIC_RECEIVE, GeneralCap,
    RoceCap,
};
use crate::prm::cmd::{InitHcaIn, InputHead, Opcode, OutputHead, QueryIssiOut, SetIssiIn};
use crate::prm::eq::EventType;
use crate::prm::init_seg::{self, FirmwareRevision, Initializing, InterfaceRevision, TimeLimit};
use crate::prm::object;
use crate::prm::pages::Need;

#[cfg(test)]
mod tests;

/// Time limit of the firmware after it was given the command page, where the device names none.
const COMMAND_QUEUE_TIMEOUT: core::time::Duration = core::time::Duration::from_secs(2);

/// The port type of InfiniBand; 1 is Ethernet.
const INFINIBAND: u8 = 0;

/// The bit of RoCE version 2 in the versions that a device has.
const ROCE_V2_BIT: u8 = 4;
/// Log2 of the longest queue that the driver has for itself: receives of connection management.
const LOG_RECEIVES: u8 = 9;
/// A MAD.
const LOG_DATAGRAM: u8 = 8;
/// Log2 of the entries of the asynchronous event queue.
const LOG_ASYNC_EVENTS: u8 = 8;
/// Log2 of the entries of the event queues of commands and of page requests: a page of memory each.
const LOG_FEW_EVENTS: u8 = 6;

/// Types of events of the asynchronous event queue.
const ASYNC_EVENTS: u64 = EventType::CommunicationEstablished.bit()
    | EventType::SendQueueDrained.bit()
    | EventType::CqError.bit()
    | EventType::WqCatastrophic.bit()
    | EventType::InternalError.bit()
    | EventType::PortChange.bit()
    | EventType::WqInvalidRequest.bit()
    | EventType::WqAccessError.bit()
    | EventType::SrqCatastrophic.bit()
    | EventType::LastWqe.bit()
    | EventType::SrqLimit.bit();

/// A capability block with the head of its message.
type CapMessage = [u8; BLOCK_AT + caps::BLOCK];
/// One without content.
const EMPTY_CAP: CapMessage = [0; BLOCK_AT + caps::BLOCK];

impl<'p, P: Platform> Device<'p, P> {
    /// Brings the device up. The host has reset it, mapped BAR 0 and switched bus mastering on.
    pub fn open(platform: &'p P, config: &Config<'p>) -> Result<Self, Fault> {
        if config.entropy == [0; 32] {
            return Err(fault!(
                BadParameter,
                "bring-up",
                "Config::entropy is all zeros, so peers could guess keys",
                "set it to 32 bytes of the platform's source of random numbers",
            ));
        }
        let mut random = Random::new(config.entropy);
        let firmware = await_firmware(platform, config)?;
        let initialized = Initializing(health::read(platform, init_seg::INITIALIZING));
        let mut queue = CommandQueue::new(platform, config.command_timeout, config.observer)?;
        queue.set_token(random.next_byte());
        queue.set_hook(config.hook);
        let mut device = Self {
            platform,
            // The seed is not kept.
            config: Config { entropy: [0; 32], ..*config },
            random,
            key_rest: KeyRest::default(),
            queue,
            stage: Stage::CommandQueue,
            pages: Ledger::new(config.page_budget, initialized.embedded_cpu()),
            caps: Caps::default(),
            identity: Identity { firmware, ..Identity::default() },
            uar: Uar { number: 0, offset: 0 },
            link: LinkType::Ethernet,
            pkey_index: 0,
            counter_set: None,
            answered: 0,
            event_queues: heapless::Vec::new(),
            monitor: Monitor::new(platform, health::clock(platform)),
            events: Deque::new(),
            requests: Deque::new(),
            more: false,
            disowned: heapless::Vec::new(),
            loss_reported: false,
        };
        let mut bytes = device.random.fork();
        device.key_rest.order.fill(|| bytes.next_byte());
        match device.bring_up(config) {
            Ok(()) => Ok(device),
            Err(fault) => {
                // The first failure is reported; failures while undoing follow from it.
                let _ = device.close();
                Err(fault)
            }
        }
    }

    fn bring_up(&mut self, config: &Config<'p>) -> Result<(), Fault> {
        let platform = self.platform;
        let limit = TimeLimit(health::read(platform, init_seg::CMD_Q_INIT_TO)).duration();
        await_ready(platform, limit.unwrap_or(COMMAND_QUEUE_TIMEOUT))?;

        self.enable_hca()?;
        self.choose_issi()?;
        self.satisfy(Need::Boot)?;
        self.tell_endianness()?;

        let mut block = EMPTY_CAP;
        self.query_cap(CapType::General.max(), &mut block)?;
        self.caps.general_max.load(&block, BLOCK_AT);
        self.set_general_cap(config)?;
        self.set_atomic_cap()?;
        self.set_roce_cap()?;
        // Only now does the firmware know how much it is going to need.
        self.satisfy(Need::Init)?;

        self.init_hca()?;
        self.satisfy(Need::Regular)?;
        self.read_caps()?;
        self.check_sizes(config)?;

        self.uar = self.alloc_uar()?;
        self.stage = Stage::Doorbells;
        self.create_event_queues(config)?;
        match self.link {
            LinkType::Ethernet => self.open_port(config.frame_size),
            LinkType::InfiniBand => self.open_ib_port(config.frame_size),
        }
    }

    /// CREATE_EQ for commands, asynchronous events, page requests and completions. That of commands
    /// comes first and is the last to be made by polling.
    fn create_event_queues(&mut self, config: &Config<'p>) -> Result<(), Fault> {
        let commands = EventQueue::create(
            self,
            LOG_FEW_EVENTS,
            EventType::Command.bit(),
            config.command_vector,
        )?;
        self.stage = Stage::Running;
        self.queue.use_events(commands);
        // Completion events go where a completion queue sends them, by no bit of the mask.
        for (log_size, mask, vector) in [
            (LOG_ASYNC_EVENTS, ASYNC_EVENTS, config.async_vector),
            (LOG_FEW_EVENTS, EventType::PageRequest.bit(), config.page_vector),
            (config.log_completion_events, 0, config.completion_vector),
        ] {
            let queue = EventQueue::create(self, log_size, mask, vector)?;
            let _ = self.event_queues.push(queue);
        }
        // Cards may create them armed or not: armed twice does no harm.
        self.arm_events();
        Ok(())
    }

    /// ENABLE_HCA: the first command, so the first to find that the device cannot reach memory.
    fn enable_hca(&mut self) -> Result<(), Fault> {
        self.run_switch(Opcode::EnableHca)?;
        self.stage = Stage::Enabled;
        Ok(())
    }

    /// QUERY_ISSI and SET_ISSI: interface step 1 where the device has it. One that does not know
    /// the command stays at 0.
    fn choose_issi(&mut self) -> Result<(), Fault> {
        let mut output = QueryIssiOut::new();
        let queried = self.exec(Opcode::QueryIssi, 0, 0, &mut InputHead::new().0, &mut output.0);
        if !optional(queried)? || output.supported_issi_dw0() & 0b10 == 0 {
            return Ok(());
        }
        let mut input = SetIssiIn::new();
        input.set_current_issi(1);
        optional(self.run(Opcode::SetIssi, 0, &mut input.0)).map(drop)
    }

    /// SET_HCA_CAP general: the current block, edited. Never the maximum block, and no field whose
    /// maximum is 0.
    fn set_general_cap(&mut self, config: &Config<'p>) -> Result<(), Fault> {
        let mut block = EMPTY_CAP;
        self.query_cap(CapType::General.current(), &mut block)?;
        let mut cap = GeneralCap(At::<_, BLOCK_AT>(&mut block));
        // Signatures of replies are not looked at; and the driver's pages are those of the device.
        cap.set_cmdif_checksum(0);
        cap.set_log_uar_page_sz(0);
        let least = config.log_min_qp.min(self.caps.general_max.log_max_qp());
        cap.set_log_max_qp(cap.log_max_qp().min(config.log_max_qp).max(least));
        // Before RoCE is looked at, which a port for InfiniBand does not have.
        if cap.port_type() == INFINIBAND {
            self.link = LinkType::InfiniBand;
        } else if self.caps.general_max.roce_rw_supported() && self.caps.general_max.roce() {
            cap.set_roce(true);
        }
        self.set_cap(CapType::General, &mut block)?;
        self.caps.general.load(&block, BLOCK_AT);
        if self.link == LinkType::Ethernet && !self.caps.general.roce() {
            return Err(fault!(
                Unsupported,
                "",
                "RoCE is off on this function",
                "enable RoCE in the NIC's configuration (ROCE_CONTROL) or for this virtual function"
            )
            .during(Opcode::QueryHcaCap.name()));
        }
        Ok(())
    }

    /// SET_HCA_CAP atomic: answers in the byte order of the host, where the device can be set so.
    fn set_atomic_cap(&mut self) -> Result<(), Fault> {
        if !self.caps.general.atomic() {
            return Ok(());
        }
        let mut block = EMPTY_CAP;
        self.query_cap(CapType::Atomic.current(), &mut block)?;
        if AtomicCap(At::<_, BLOCK_AT>(&block)).supported_atomic_req_8b_endianness_mode_1() {
            // Nothing but the mode, as Linux sends it.
            block = EMPTY_CAP;
            AtomicCap(At::<_, BLOCK_AT>(&mut block))
                .set_atomic_req_8b_endianness_mode(ATOMIC_ANSWERS_AS_HOST);
            // Without it there are no atomics, and all else works.
            optional(self.set_cap(CapType::Atomic, &mut block))?;
        }
        Ok(())
    }

    /// SET_HCA_CAP RoCE: the UDP source port comes from the queue pair, where the device can be
    /// set so.
    fn set_roce_cap(&mut self) -> Result<(), Fault> {
        if self.link == LinkType::InfiniBand {
            return Ok(());
        }
        let mut block = EMPTY_CAP;
        self.query_cap(CapType::Roce.max(), &mut block)?;
        let can = RoceCap(At::<_, BLOCK_AT>(&block)).sw_r_roce_src_udp_port();
        self.query_cap(CapType::Roce.current(), &mut block)?;
        let mut cap = RoceCap(At::<_, BLOCK_AT>(&mut block));
        if can && !cap.sw_r_roce_src_udp_port() {
            cap.set_sw_r_roce_src_udp_port(true);
            self.set_cap(CapType::Roce, &mut block)?;
        }
        Ok(())
    }

    /// INIT_HCA, with a random owner where the device keeps one.
    fn init_hca(&mut self) -> Result<(), Fault> {
        let mut input = InitHcaIn::new();
        if self.caps.general.sw_owner_id() {
            let [high, low] = [self.random.next_u64(), self.random.next_u64()];
            input.set_sw_owner_id(u128::from(high) << 64 | u128::from(low));
        }
        self.run(Opcode::InitHca, 0, &mut input.0)?;
        self.stage = Stage::Initialized;
        Ok(())
    }

    /// QUERY_HCA_CAP of all that was announced, now that it is final. Old firmware refuses types it
    /// does not know.
    fn read_caps(&mut self) -> Result<(), Fault> {
        let mut block = EMPTY_CAP;
        self.query_cap(CapType::General.current(), &mut block)?;
        self.caps.general.load(&block, BLOCK_AT);
        if self.link == LinkType::Ethernet {
            self.query_cap(CapType::Roce.current(), &mut block)?;
            self.caps.roce.load(&block, BLOCK_AT);
        }
        if self.caps.general.atomic() {
            self.query_cap(CapType::Atomic.current(), &mut block)?;
            self.caps.atomic.load(&block, BLOCK_AT);
        }
        // The driver does not use these two: they tell callers what the card can do.
        if self.caps.general.eth_net_offloads() {
            self.query_cap(CapType::Ethernet.current(), &mut block)?;
            self.caps.ethernet.load(&block, BLOCK_AT);
        }
        if self.caps.general.nic_flow_table() {
            self.query_cap(CapType::FlowTable.current(), &mut block)?;
            let at = BLOCK_AT + FLOW_TABLE_NIC_RECEIVE;
            self.caps.flow_nic_receive.load(&block, at);
        }
        Ok(())
    }

    /// Refuses a device that has too little of what every connection is made of, by the name of the
    /// capability, which the command that would fail for it does not say.
    fn check_sizes(&self, config: &Config<'p>) -> Result<(), Fault> {
        let (caps, roce) = (&self.caps.general, &self.caps.roce);
        let needs = [
            ("log_max_eq", caps.log_max_eq(), 2),
            ("log_max_eq_sz", caps.log_max_eq_sz(), LOG_ASYNC_EVENTS),
            ("log_max_eq_sz", caps.log_max_eq_sz(), config.log_completion_events),
            ("log_max_cq", caps.log_max_cq(), 2),
            ("log_max_cq_sz", caps.log_max_cq_sz(), LOG_RECEIVES),
            ("log_max_qp", caps.log_max_qp(), 1),
            ("log_max_qp_sz", caps.log_max_qp_sz(), LOG_RECEIVES),
            ("log_max_msg", caps.log_max_msg(), LOG_DATAGRAM),
            ("log_max_mkey", caps.log_max_mkey(), 1),
            ("log_max_pd", caps.log_max_pd(), 1),
        ];
        // The raw Ethernet port, and RoCE.
        let ethernet = [
            ("log_max_transport_domain", caps.log_max_transport_domain(), 1),
            ("log_max_tis", caps.log_max_tis(), 1),
            ("log_max_tir", caps.log_max_tir(), 1),
            ("log_max_sq", caps.log_max_sq(), 1),
            ("log_max_rq", caps.log_max_rq(), 1),
            ("roce_version", roce.roce_version() & ROCE_V2_BIT, ROCE_V2_BIT),
            ("roce_address_table_size", u8::from(roce.roce_address_table_size() != 0), 1),
        ];
        let of_ethernet = if self.link == LinkType::Ethernet { &ethernet[..] } else { &[] };
        let short = needs.iter().chain(of_ethernet).find(|(_, has, least)| has < least);
        short.map_or(Ok(()), |(name, has, _)| {
            let fault = fault!(
                Unsupported,
                "",
                "the device says that it has too little of this",
                "update the firmware, or give this function more"
            );
            Err(fault.of(name, u32::from(*has)).during(Opcode::QueryHcaCap.name()))
        })
    }

    /// QUERY_HCA_CAP: the whole answer, head included, so that it can be edited and sent back.
    fn query_cap(&mut self, op_mod: u16, answer: &mut CapMessage) -> Result<(), Fault> {
        self.exec(Opcode::QueryHcaCap, op_mod, u32::from(op_mod), &mut InputHead::new().0, answer)
    }

    /// SET_HCA_CAP: an edited answer.
    fn set_cap(&mut self, cap: CapType, block: &mut CapMessage) -> Result<(), Fault> {
        // The input must not carry the answer's status.
        OutputHead::new().write(block, 0);
        self.exec(Opcode::SetHcaCap, cap.max(), 0, block, &mut OutputHead::new().0)
    }
}

/// Waits for the firmware's own start and reads its identity.
fn await_firmware<P: Platform>(
    platform: &P,
    config: &Config<'_>,
) -> Result<(u16, u16, u16), Fault> {
    if platform.bar_len() < init_seg::SIZE {
        return Err(fault!(
            Nonsense,
            "initialization segment",
            "BAR 0 is too short for an mlx5 device",
            "map the whole of BAR 0",
        ));
    }
    await_ready(platform, config.init_timeout)?;
    let revision = InterfaceRevision(health::read(platform, init_seg::CMDIF_REV_FW_SUB));
    if revision.cmd_interface_rev() != init_seg::CMD_INTERFACE_REV {
        return Err(fault!(
            Nonsense,
            "initialization segment",
            "the device speaks another revision of the command interface",
            "is this an mlx5 device (ConnectX-4 or later)?",
        )
        .of(object::REVISION, u32::from(revision.cmd_interface_rev())));
    }
    let firmware = FirmwareRevision(health::read(platform, init_seg::FW_REV));
    Ok((firmware.major(), firmware.minor(), revision.fw_rev_subminor()))
}

/// Waits until `initializing` is clear. After a reset the device reads as all ones for a while,
/// which looks like busy.
fn await_ready<P: Platform>(platform: &P, limit: core::time::Duration) -> Result<(), Fault> {
    let deadline = health::clock(platform) + limit;
    loop {
        let now = health::clock(platform);
        if !Initializing(health::read(platform, init_seg::INITIALIZING)).busy() {
            return Ok(());
        }
        if now >= deadline {
            // Its interface is disabled in any case, until it is given the address of its commands.
            return Err(health::verdict(platform).unwrap_or_else(|| {
                fault!(
                    Timeout,
                    "initialization segment",
                    "the firmware does not finish its start",
                    "reset the device; if that does not help, power-cycle it"
                )
            }));
        }
        platform.relax();
    }
}
