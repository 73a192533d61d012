//! A platform for tests: an arena in memory, a BAR that only records, a log of what crossed it in
//! which order, and a device behind it that answers every command with a fresh number unless set
//! to refuse.

use core::cell::{Cell, RefCell};
use std::boxed::Box;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::vec;
use std::vec::Vec;

use core::time::Duration;

use dat_core::Instant;
use dat_core::provider::{LinkType, Random};

use crate::device::cmd::CommandQueue;
use crate::device::health::Monitor;
use crate::device::key_rest::KeyRest;
use crate::device::pages::ledger::Ledger;
use crate::device::{Caps, Config, Device, Identity, Stage, Uar};
use crate::platform::dma::tests::Pages;
use crate::platform::dma::{Memory, Probe};
use crate::platform::{Bar, Blocks, Clock, Dma, Fence, Reach, Span};
use crate::prm::caps::GeneralCap;
use crate::prm::cmd::{BLOCK_DATA, BlockTrailer, CommandEntry, Opcode};
use crate::prm::init_seg;

/// Where the CPU sees the arena.
pub(crate) const ARENA_ADDR: u64 = 0x7f00_0000_0000;
/// Where the device sees it, unless a test scatters it.
pub(crate) const ARENA_IOVA: u64 = 0x1_0000_0000;
/// Its length.
pub(crate) const ARENA_LEN: usize = 1 << 19;

/// Device address of a run that the device sees nothing of.
pub(crate) const NOWHERE: u64 = u64::MAX;

/// BAR offset of the driver's doorbell page.
pub(crate) const UAR: usize = 0x2000;
/// MAC of the port.
pub(crate) const MAC: [u8; 6] = [2, 0, 0, 0xa, 0xb, 0xc];

/// A command as the device got it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Command {
    pub(crate) op: Opcode,
    pub(crate) input: Vec<u8>,
}

impl Command {
    /// A big-endian dword of the input.
    pub(crate) fn word(&self, at: usize) -> u32 {
        u32::from_be_bytes(self.input[at..at + 4].try_into().unwrap())
    }

    /// Bits of a dword of the input.
    pub(crate) fn bits(&self, at: usize, high: u32, low: u32) -> u32 {
        (self.word(at) >> low) & (u32::MAX >> (31 - (high - low)))
    }

    /// A big-endian 64-bit word of the input.
    pub(crate) fn wide(&self, at: usize) -> u64 {
        u64::from_be_bytes(self.input[at..at + 8].try_into().unwrap())
    }
}

/// Seed of the random numbers of a device that is up.
pub(crate) const ENTROPY: [u8; 32] = [0x5a; 32];

/// One thing that crossed the seam.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Op {
    /// Bytes stored to the arena.
    Store(usize, Vec<u8>),
    /// A fence before a record or a doorbell.
    BeforeDoorbell,
    /// [`Fence::AfterOwnership`].
    AfterOwnership,
    /// [`Fence::AfterDoorbell`].
    AfterMmio,
    /// A 64-bit store to the BAR.
    Write64(usize, [u8; 8]),
    /// A block store to the BAR.
    Block(usize, Vec<u8>),
    /// The same in one store.
    Whole(usize, Vec<u8>),
    /// A load from the arena.
    Load(usize, usize),
}

/// Changes what a 32-bit load finds: takes offset and value, returns what the driver is to see.
type Lens = Box<dyn FnMut(usize, u32) -> u32>;

/// What crossed the seam, in order.
#[derive(Default)]
pub(crate) struct Log {
    ops: RefCell<Vec<Op>>,
    /// Loads are logged too.
    loads: Cell<bool>,
    lens: RefCell<Option<Lens>>,
}

impl core::fmt::Debug for Log {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Log").field("ops", &self.ops).finish_non_exhaustive()
    }
}

impl Log {
    fn push(&self, op: Op) {
        self.ops.borrow_mut().push(op);
    }
}

impl Probe for Rc<Log> {
    fn load32(&self, offset: usize, value: u32) -> u32 {
        self.load(offset, 4);
        self.lens.borrow_mut().as_mut().map_or(value, |lens| lens(offset, value))
    }
    fn load(&self, offset: usize, len: usize) {
        if self.loads.get() {
            self.push(Op::Load(offset, len));
        }
    }
    fn store(&self, offset: usize, bytes: &[u8]) {
        self.push(Op::Store(offset, bytes.to_vec()));
    }
}

/// The platform. With `WC`, doorbell pages are mapped write-combining.
#[derive(Debug)]
pub(crate) struct Scripted<const WC: bool> {
    memory: Memory<Rc<Log>>,
    /// The same memory for the device and the consumer, whose accesses are not logged.
    pages: Pages,
    /// Where the next span begins at the earliest.
    pub(crate) next: Cell<usize>,
    pub(crate) log: Rc<Log>,
    /// Runs of the arena: (offset, iova), each to the next one's offset. Empty: one run.
    pub(crate) runs: RefCell<Vec<(usize, u64)>>,
    /// Commands so far.
    pub(crate) commands: RefCell<Vec<Command>>,
    /// Opcodes the device refuses, with which status, and after how many it took.
    pub(crate) refusals: RefCell<BTreeMap<u16, (u8, usize)>>,
    numbers: Cell<u32>,
    /// Numbers that the next keys get instead of fresh ones.
    pub(crate) given: RefCell<VecDeque<u32>>,
    command_page: Cell<u64>,
    clock: Cell<u64>,
    /// Spans taken and not given back.
    pub(crate) live: RefCell<BTreeMap<usize, usize>>,
}

impl<const WC: bool> Scripted<WC> {
    pub(crate) fn new() -> Self {
        Self::sized(ARENA_LEN)
    }

    /// With an arena of that many bytes.
    pub(crate) fn sized(len: usize) -> Self {
        let pages = Pages::new(len, 0);
        let log = Rc::new(Log::default());
        Self {
            memory: pages.probed(ARENA_ADDR, log.clone()),
            pages,
            next: Cell::new(0),
            log,
            runs: RefCell::new(Vec::new()),
            commands: RefCell::new(Vec::new()),
            refusals: RefCell::new(BTreeMap::new()),
            numbers: Cell::new(0x40),
            given: RefCell::default(),
            command_page: Cell::new(0),
            clock: Cell::new(0),
            live: RefCell::new(BTreeMap::new()),
        }
    }

    /// A device that is up, as bring-up would leave it.
    pub(crate) fn device(&self) -> Device<'_, Self> {
        let mut general = GeneralCap::new();
        general.set_log_max_qp(17);
        general.set_log_max_qp_sz(15);
        general.set_log_max_cq(24);
        general.set_log_max_cq_sz(22);
        general.set_log_max_mkey(24);
        general.set_log_max_pd(24);
        general.set_log_max_msg(30);
        general.set_log_max_klm_list_size(16);
        general.set_log_max_ra_req_qp(4);
        general.set_log_max_ra_res_qp(4);
        general.set_log_bf_reg_size(9);
        general.set_bf(true);
        general.set_roce(true);
        general.set_imaicl(true);
        general.set_cqe_version(1);
        let mut caps = Caps { general, general_max: general, ..Caps::default() };
        caps.roce.set_roce_address_table_size(16);
        Device {
            platform: self,
            config: Config {
                blocks: if WC { Blocks::Combined } else { Blocks::Words },
                ..Config::default()
            },
            random: Random::new(ENTROPY),
            key_rest: KeyRest::default(),
            queue: CommandQueue::new(self, Some(Duration::from_millis(10)), None).unwrap(),
            stage: Stage::Running,
            pages: Ledger::new(0, false),
            caps,
            identity: Identity {
                mac: MAC,
                mac_given: true,
                node_guid: 0x1234,
                frame_size: 1522,
                min_wqe_inline_mode: 1,
                firmware: (14, 12, 1220),
            },
            uar: Uar { number: 2, offset: UAR },
            link: LinkType::Ethernet,
            pkey_index: 0,
            answered: 0,
            event_queues: heapless::Vec::new(),
            monitor: Monitor::new(self, Instant::ZERO),
            events: heapless::Deque::new(),
            requests: heapless::Deque::new(),
            more: false,
            counter_set: None,
            disowned: heapless::Vec::new(),
            loss_reported: false,
        }
    }

    /// Refuses `op` with `status` from the `after`-th on.
    pub(crate) fn refuse(&self, op: Opcode, status: u8, after: usize) {
        self.refusals.borrow_mut().insert(op.code(), (status, after));
    }

    /// Commands of one kind so far.
    pub(crate) fn of(&self, op: Opcode) -> Vec<Command> {
        self.commands.borrow().iter().filter(|c| c.op == op).cloned().collect()
    }

    /// Bytes of the arena that somebody holds.
    pub(crate) fn held(&self) -> usize {
        self.live.borrow().values().sum()
    }

    fn at(address: u64) -> usize {
        usize::try_from(address - ARENA_IOVA).unwrap()
    }

    /// Does the commands whose slots are in `bits`.
    fn run(&self, bits: u32) {
        for slot in (0..32).filter(|slot| bits >> slot & 1 == 1) {
            let at = Self::at(self.command_page.get()) + 64 * slot;
            let mut entry = CommandEntry(<[u8; 64]>::try_from(self.bytes(at, 64)).unwrap());
            let len = entry.input_length() as usize;
            let mut input = entry.command_input_inline().to_be_bytes().to_vec();
            let mut next = entry.input_mailbox();
            while input.len() < len {
                let block = self.bytes(Self::at(next), 576);
                input.extend(&block[..BLOCK_DATA]);
                next = BlockTrailer::read(&block, BLOCK_DATA).next();
            }
            input.truncate(len);
            let op = Opcode::from_code(u16::from_be_bytes([input[0], input[1]])).unwrap();
            assert_eq!(input[2..6], [0; 4], "reserved");
            // Only MODIFY_CQ of another size, which has a ring, has one.
            let resizes = op == Opcode::ModifyCq && input.len() > 0x110;
            assert_eq!(input[6..8], [0, u8::from(resizes)], "op_mod of {op:?}");
            let before = self.of(op).len();
            self.commands.borrow_mut().push(Command { op, input });
            let refusal = self.refusals.borrow().get(&op.code()).copied();
            let mut output = [0; 16];
            match refusal {
                Some((status, after)) if before >= after => {
                    output[0] = status;
                    output[4..8].copy_from_slice(&0x00ab_cdef_u32.to_be_bytes());
                }
                _ => {
                    let given =
                        (op == Opcode::CreateMkey).then(|| self.given.borrow_mut().pop_front());
                    self.numbers.set(self.numbers.get() + 1);
                    let number = given.flatten().unwrap_or(self.numbers.get());
                    output[8..12].copy_from_slice(&number.to_be_bytes());
                    output[15] = u8::from(op == Opcode::QueryVportState);
                }
            }
            entry.set_command_output_inline(u128::from_be_bytes(output));
            entry.set_ownership(false);
            self.put(at, &entry.0);
        }
    }

    /// From now on 32-bit loads find what `lens` says: a device that writes between two loads.
    pub(crate) fn look(&self, lens: impl FnMut(usize, u32) -> u32 + 'static) {
        *self.log.lens.borrow_mut() = Some(Box::new(lens));
    }

    /// From now on loads are logged, or not.
    pub(crate) fn log_loads(&self, whether: bool) {
        self.log.loads.set(whether);
    }

    /// The log since the last call.
    pub(crate) fn take(&self) -> Vec<Op> {
        core::mem::take(&mut self.log.ops.borrow_mut())
    }

    /// Bytes of the arena.
    pub(crate) fn bytes(&self, offset: usize, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.pages.memory().read_bytes(offset, &mut bytes);
        bytes
    }

    /// Writes the arena as the device or the consumer would: not logged.
    pub(crate) fn put(&self, offset: usize, bytes: &[u8]) {
        self.pages.memory().write_bytes(offset, bytes);
    }
}

impl<const WC: bool> Bar for Scripted<WC> {
    fn bar_len(&self) -> usize {
        1 << 20
    }
    fn read32(&self, offset: usize) -> u32 {
        match offset {
            init_seg::CMDQ_ADDR_L_SZ => 5 << 4 | 6,
            init_seg::FW_REV => 1,
            _ => 0_u32,
        }
        .to_be()
    }
    fn write32(&self, offset: usize, value: u32) {
        let value = u32::from_be(value);
        match offset {
            init_seg::CMDQ_ADDR_H => self.command_page.set(u64::from(value) << 32),
            init_seg::CMDQ_ADDR_L_SZ => {
                self.command_page.set(self.command_page.get() | u64::from(value & !0xfff));
            }
            init_seg::CMD_DOORBELL => self.run(value),
            _ => {}
        }
    }
    fn write64(&self, offset: usize, value: u64) {
        self.log.push(Op::Write64(offset, value.to_ne_bytes()));
    }
    fn write_block(&self, offset: usize, block: &[u64; 8], how: Blocks) {
        let op = if how == Blocks::Whole { Op::Whole } else { Op::Block };
        let bytes = block.iter().flat_map(|w| w.to_ne_bytes()).collect();
        self.log.push(op(offset, bytes));
    }
}

impl<const WC: bool> Dma for Scripted<WC> {
    type Probe = Rc<Log>;

    fn memory(&self) -> &Memory<Rc<Log>> {
        &self.memory
    }
    fn alloc(&self, len: usize, align: usize, _: Reach) -> Option<Span> {
        assert!(align.is_power_of_two());
        let offset = self.next.get().next_multiple_of(align);
        if offset + len > self.memory.len() {
            return None;
        }
        self.next.set(offset + len);
        self.live.borrow_mut().insert(offset, len);
        Some(Span { offset, len })
    }
    fn free(&self, span: Span) {
        let taken = self.live.borrow_mut().remove(&span.offset);
        assert_eq!(taken, Some(span.len), "freed what was not taken");
    }
    fn iova(&self, offset: usize) -> Option<(u64, usize)> {
        let len = self.memory.len();
        if offset >= len {
            return None;
        }
        let runs = self.runs.borrow();
        if runs.is_empty() {
            return Some((ARENA_IOVA + offset as u64, len - offset));
        }
        let at = runs.iter().rposition(|&(start, _)| start <= offset)?;
        if runs[at].1 == NOWHERE {
            return Some((NOWHERE, 0));
        }
        let end = runs.get(at + 1).map_or(len, |run| run.0);
        Some((runs[at].1 + (offset - runs[at].0) as u64, end - offset))
    }

    fn fence(&self, fence: Fence) {
        self.log.push(match fence {
            Fence::BeforeRecord | Fence::BeforeDoorbell | Fence::BeforeUncached => {
                Op::BeforeDoorbell
            }
            Fence::AfterOwnership => Op::AfterOwnership,
            Fence::AfterDoorbell => Op::AfterMmio,
        });
    }
    fn pages_take(&self, _: &mut [u64]) -> usize {
        0
    }
    fn pages_return(&self, _: &[u64]) -> usize {
        0
    }
}

impl<const WC: bool> Clock for Scripted<WC> {
    fn now(&self) -> u64 {
        self.clock.get()
    }
    fn relax(&self) {
        self.clock.set(self.clock.get() + 1_000_000);
    }
}

/// Where the rings of created queues lie, as the device learns it.
impl<const WC: bool> Scripted<WC> {
    /// Arena offset of the ring of the `nth` completion queue made.
    pub(crate) fn cq_ring(&self, nth: usize) -> usize {
        let command = &self.of(Opcode::CreateCq)[nth];
        let unit = 64 << command.bits(0x10 + 0x18, 28, 24);
        Self::at(command.wide(0x110)) + (command.bits(0x10 + 0x08, 11, 6) as usize) * unit
    }

    /// Arena offsets of the receive and send rings of the `nth` queue pair made.
    pub(crate) fn qp_rings(&self, nth: usize) -> (usize, usize) {
        let command = &self.of(Opcode::CreateQp)[nth];
        let context = 0x18;
        let unit = 64 << command.bits(context + 0x14, 28, 24);
        let page_offset = command.bits(context + 0x90, 11, 6) as usize;
        let receive = Self::at(command.wide(0x110)) + page_offset * unit;
        let log_len =
            command.bits(context + 0x08, 22, 19) + command.bits(context + 0x08, 18, 16) + 4;
        (receive, receive + (1 << log_len))
    }
}
