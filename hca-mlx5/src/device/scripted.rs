//! A platform for tests: host memory, a clock that moves only in waits, and a tiny device that
//! answers commands as a test scripts it.
//!
//! It also watches the order of things: a doorbell with stores pending and no fence between fails
//! the test, and so does reading what the device wrote without the fence after seeing ownership.

mod tiny;

use core::cell::{Cell, RefCell};
use std::boxed::Box;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::vec;
use std::vec::Vec;

pub(crate) use self::tiny::Tiny;
use crate::device::Config;
use crate::device::cmd::dump::{Dump, Observer};
use crate::platform::dma::tests::Pages;
use crate::platform::dma::{Memory, Probe};
use crate::platform::{Bar, Blocks, Clock, Dma, Fence, Reach, Span};
use crate::prm;
use crate::prm::cmd::{BLOCK_DATA, BlockTrailer, CommandEntry, HEAD, InputHead, Opcode};
use crate::prm::eq::EventType;
use crate::prm::init_seg;

/// Arena offset + this = device address.
pub(crate) const IOVA: u64 = 0x7_0000_0000;
/// Device address of the first firmware page.
pub(crate) const FIRMWARE: u64 = 0x9_0000_0000;
/// Numbers the tiny device gives to the driver's event queues, in the order they are made.
pub(crate) const COMMANDS: u8 = 3;
pub(crate) const ASYNC: u8 = 4;
pub(crate) const PAGES: u8 = 5;
pub(crate) const COMPLETIONS: u8 = 6;
const ARENA: usize = 1 << 20;
const BAR: usize = 64 * 4096;
/// What one wait costs.
pub(crate) const TICK: u64 = 1_000_000;

/// A command as the device received it.
#[derive(Clone, Debug)]
pub(crate) struct Command {
    pub(crate) slot: u32,
    pub(crate) entry: CommandEntry<[u8; 64]>,
    pub(crate) op: Opcode,
    pub(crate) op_mod: u16,
    pub(crate) input: Vec<u8>,
    pub(crate) in_blocks: Vec<u64>,
    pub(crate) out_blocks: Vec<u64>,
}

/// What the device does with it.
#[derive(Clone, Debug)]
pub(crate) enum Reply {
    /// Answers with these bytes (the rest zero), status and all.
    Answer(Vec<u8>),
    /// Refuses.
    Status(u8, u32),
    /// Refuses for want of memory, and asks for so many pages.
    Hungry(i32),
    /// Does not take it.
    Delivery(u8),
    /// Never answers.
    Never,
    /// Answers with another token.
    WrongToken,
    /// Answers after so many waits.
    Later(u32, Box<Reply>),
    /// Leaves the bus.
    Vanish,
    /// Reports a fatal health syndrome and does not answer.
    Sick(u8),
    /// As the tiny device does.
    Normal,
}

type Script = Box<dyn FnMut(&Command) -> Reply>;

/// What has not passed a fence.
#[derive(Default)]
pub(crate) struct Unfenced {
    store: Cell<bool>,
    /// A store to the command page's address may still be in the CPU.
    register: Cell<bool>,
    /// What the device wrote since the last fence after ownership.
    unseen: RefCell<Vec<core::ops::Range<usize>>>,
}

impl Probe for Rc<Unfenced> {
    fn load(&self, offset: usize, len: usize) {
        let unseen = self.unseen.borrow();
        let hit = unseen.iter().any(|range| range.start < offset + len && offset < range.end);
        assert!(!hit, "read what the device wrote without the fence after ownership");
    }
    fn store(&self, _: usize, _: &[u8]) {
        self.store.set(true);
    }
}

/// What is passed to the driver at bring-up.
pub(crate) fn config() -> Config<'static> {
    Config { entropy: [1; 32], ..Config::default() }
}

pub(crate) struct Scripted {
    memory: Memory<Rc<Unfenced>>,
    /// The same memory for the device.
    pages: Pages,
    unfenced: Rc<Unfenced>,
    live: RefCell<BTreeMap<usize, usize>>,
    bar: RefCell<Vec<u32>>,
    clock: Cell<u64>,
    pub(crate) gone: Cell<bool>,
    pub(crate) tiny: RefCell<Tiny>,
    script: RefCell<Script>,
    pub(crate) log: RefCell<Vec<Command>>,
    pub(crate) later: RefCell<Vec<(u32, Command, Reply)>>,
    pub(crate) doorbells: RefCell<Vec<(usize, u32)>>,
    pub(crate) reserve: Cell<usize>,
    pub(crate) given: RefCell<BTreeSet<u64>>,
    next_page: Cell<u64>,
    /// Health counter runs.
    pub(crate) beating: Cell<bool>,
    pub(crate) busy_until: Cell<u64>,
}

impl Scripted {
    /// A healthy device that does everything.
    pub(crate) fn new() -> Self {
        Self::with(|_| Reply::Normal)
    }

    /// One that asks `script` first.
    pub(crate) fn with(script: impl FnMut(&Command) -> Reply + 'static) -> Self {
        let pages = Pages::new(ARENA, 0xa5);
        let unfenced = Rc::new(Unfenced::default());
        let platform = Self {
            memory: pages.probed(0x10_0000, unfenced.clone()),
            pages,
            unfenced,
            live: RefCell::default(),
            bar: RefCell::new(vec![0; BAR / 4]),
            clock: Cell::new(5_000_000_000),
            gone: Cell::new(false),
            tiny: RefCell::new(Tiny::new()),
            script: RefCell::new(Box::new(script)),
            log: RefCell::default(),
            later: RefCell::default(),
            doorbells: RefCell::default(),
            reserve: Cell::new(20_000),
            given: RefCell::default(),
            next_page: Cell::new(FIRMWARE),
            beating: Cell::new(true),
            busy_until: Cell::new(0),
        };
        platform.set(init_seg::FW_REV, 12 << 16 | 14);
        platform.set(init_seg::CMDIF_REV_FW_SUB, 5 << 16 | 1220);
        platform.set(init_seg::CMDQ_ADDR_L_SZ, 5 << 4 | 6);
        platform.set(init_seg::HEALTH_FW_VER, 0x0e0c_04c4);
        platform
    }
}

impl Scripted {
    pub(crate) fn script(&self, script: impl FnMut(&Command) -> Reply + 'static) {
        *self.script.borrow_mut() = Box::new(script);
    }

    pub(crate) fn set(&self, offset: usize, value: u32) {
        self.bar.borrow_mut()[offset / 4] = value;
    }

    pub(crate) fn get(&self, offset: usize) -> u32 {
        self.bar.borrow()[offset / 4]
    }

    pub(crate) fn advance(&self, nanos: u64) {
        self.clock.set(self.clock.get() + nanos);
    }

    pub(crate) fn opcodes(&self) -> Vec<Opcode> {
        self.log.borrow().iter().map(|command| command.op).collect()
    }

    pub(crate) fn commands(&self, op: Opcode) -> Vec<Command> {
        self.log.borrow().iter().filter(|command| command.op == op).cloned().collect()
    }

    /// Bytes of the arena that somebody holds.
    pub(crate) fn held(&self) -> usize {
        self.live.borrow().values().sum()
    }

    /// What stands at a device address.
    pub(crate) fn dma<const N: usize>(&self, address: u64) -> [u8; N] {
        let at = usize::try_from(address - IOVA).unwrap();
        let mut bytes = [0; N];
        self.pages.memory().read_bytes(at, &mut bytes);
        bytes
    }

    pub(crate) fn dma_write(&self, address: u64, bytes: &[u8]) {
        let at = usize::try_from(address - IOVA).unwrap();
        self.pages.memory().write_bytes(at, bytes);
        self.unfenced.unseen.borrow_mut().push(at..at + bytes.len());
    }

    /// Posts an event, as the device does.
    pub(crate) fn event(&self, eqn: u8, event_type: EventType, sub_type: u8, data: &[u8]) {
        let mut entry = [0u8; 64];
        entry[1] = event_type as u8;
        entry[3] = sub_type;
        entry[0x20..0x20 + data.len()].copy_from_slice(data);
        self.raw_event(eqn, entry);
    }

    /// A function of that number asks for pages.
    pub(crate) fn ask_pages(&self, function: u16, count: i32) {
        let mut data = [0; 8];
        data[2..4].copy_from_slice(&function.to_be_bytes());
        data[4..].copy_from_slice(&count.to_be_bytes());
        self.event(PAGES, EventType::PageRequest, 0, &data);
    }

    pub(crate) fn raw_event(&self, eqn: u8, mut entry: [u8; 64]) {
        let address = {
            let mut tiny = self.tiny.borrow_mut();
            let (pages, log_size, producer) = tiny.eqs.get_mut(&eqn).unwrap();
            entry[0x3e] = 0xee;
            entry[0x3f] = u8::try_from(*producer >> *log_size & 1).unwrap();
            let at = 64 * (*producer & ((1 << *log_size) - 1)) as usize;
            *producer += 1;
            pages[at / 4096] + (at % 4096) as u64
        };
        self.dma_write(address, &entry);
    }

    /// Doorbells rung at an offset in the UAR page of number 2.
    pub(crate) fn rung(&self, offset: usize) -> Vec<u32> {
        let at = 2 * 4096 + offset;
        self.doorbells.borrow().iter().filter(|(o, _)| *o == at).map(|(_, v)| *v).collect()
    }

    fn chain(&self, first: u64, len: usize, token: u8) -> (Vec<u64>, Vec<u8>, bool) {
        let (mut blocks, mut data, mut good) = (Vec::new(), Vec::new(), true);
        let mut at = first;
        for number in 0..len.div_ceil(BLOCK_DATA) {
            assert_ne!(at, 0, "the chain ends early");
            assert_eq!(at % 1024, 0, "real cards refuse blocks closer than 1 KiB");
            let block: [u8; 576] = self.dma(at);
            let trailer = BlockTrailer::read(&block, BLOCK_DATA);
            good &= trailer.token() == token && trailer.block_number() as usize == number;
            assert_eq!(block.iter().fold(0, |a, b| a ^ b), 0xff, "block signature");
            assert_eq!(block[512..575].iter().fold(0, |a, b| a ^ b), 0xff, "control signature");
            blocks.push(at);
            data.extend_from_slice(&block[..BLOCK_DATA]);
            at = trailer.next();
        }
        assert_eq!(at, 0, "the chain goes on");
        data.truncate(len);
        (blocks, data, good)
    }

    fn ring(&self, bits: u32) {
        assert!(!self.unfenced.store.get(), "doorbell without the fence before it");
        let page = u64::from(self.get(init_seg::CMDQ_ADDR_H)) << 32
            | u64::from(self.get(init_seg::CMDQ_ADDR_L_SZ) & 0xffff_f000);
        for slot in (0..32).filter(|slot| bits >> slot & 1 == 1) {
            let entry = CommandEntry(self.dma::<64>(page + 64 * u64::from(slot)));
            if !entry.ownership() {
                continue;
            }
            assert_eq!(entry.0.iter().fold(0, |a, b| a ^ b), 0xff, "entry signature");
            assert_eq!((entry.kind(), entry.status()), (7, 0));
            let rest = entry.input_length() as usize - HEAD;
            let out = (entry.output_length() as usize).saturating_sub(HEAD);
            let (in_blocks, data, good) = self.chain(entry.input_mailbox(), rest, entry.token());
            let (out_blocks, _, out_good) = self.chain(entry.output_mailbox(), out, entry.token());
            assert!(good && out_good, "token or block number");
            let mut input = entry.command_input_inline().to_be_bytes().to_vec();
            input.extend(data);
            let head = InputHead::read(&input, 0);
            let op = Opcode::from_code(head.opcode()).unwrap();
            let command =
                Command { slot, entry, op, op_mod: head.op_mod(), input, in_blocks, out_blocks };
            self.log.borrow_mut().push(command.clone());
            let reply = (self.script.borrow_mut())(&command);
            self.reply(command, reply);
        }
    }

    fn reply(&self, command: Command, reply: Reply) {
        match reply {
            Reply::Answer(bytes) => self.answer(&command, &bytes, 0, None),
            Reply::Status(code, syndrome) => {
                let mut bytes = vec![code, 0, 0, 0];
                bytes.extend(syndrome.to_be_bytes());
                self.answer(&command, &bytes, 0, None);
            }
            Reply::Hungry(count) => {
                self.ask_pages(7, count);
                self.reply(command, Reply::Status(0x0f, 0));
            }
            Reply::Delivery(code) => self.answer(&command, &[], code, None),
            Reply::WrongToken => self.answer(&command, &[], 0, Some(command.entry.token() ^ 0xff)),
            Reply::Never => {}
            Reply::Later(waits, reply) => self.later.borrow_mut().push((waits, command, *reply)),
            Reply::Vanish => self.gone.set(true),
            Reply::Sick(synd) => {
                self.set(init_seg::HEALTH_COUNTER, u32::from(synd) << 24);
                self.set(init_seg::HEALTH_WORD, u32::from(synd) << 16);
                self.set(init_seg::HEALTH_SEVERITY, 1 << 31);
            }
            Reply::Normal => {
                let bytes = self.tiny.borrow_mut().run(&command);
                self.answer(&command, &bytes, 0, None);
            }
        }
    }

    fn answer(&self, command: &Command, bytes: &[u8], delivery: u8, token: Option<u8>) {
        let mut output = vec![0; command.entry.output_length() as usize];
        prm::put(&mut output, 0, bytes);
        for (block, data) in
            command.out_blocks.iter().zip(output.get(HEAD..).unwrap_or(&[]).chunks(BLOCK_DATA))
        {
            self.dma_write(*block, data);
        }
        let mut entry = command.entry;
        entry.set_command_output_inline(u128::from_be_bytes(prm::take(&output, 0)));
        entry.set_status(delivery);
        entry.set_ownership(false);
        if let Some(token) = token {
            entry.set_token(token);
        }
        let page = u64::from(self.get(init_seg::CMDQ_ADDR_H)) << 32
            | u64::from(self.get(init_seg::CMDQ_ADDR_L_SZ) & 0xffff_f000);
        self.dma_write(page + 64 * u64::from(command.slot), &entry.0);
    }
}

impl Bar for Scripted {
    fn bar_len(&self) -> usize {
        BAR
    }

    fn read32(&self, offset: usize) -> u32 {
        if self.gone.get() || offset + 4 > BAR {
            return u32::MAX;
        }
        if offset == init_seg::CMDQ_ADDR_L_SZ {
            assert!(!self.unfenced.register.get(), "looks for the effect of a store still here");
        }
        let value = self.get(offset);
        match offset {
            init_seg::INITIALIZING if self.clock.get() < self.busy_until.get() => value | 1 << 31,
            init_seg::HEALTH_COUNTER if self.beating.get() => {
                (value & 0xff00_0000) | u32::try_from(self.clock.get() / TICK % 0xff_ffff).unwrap()
            }
            _ => value,
        }
        .to_be()
    }

    fn write32(&self, offset: usize, value: u32) {
        let value = u32::from_be(value);
        if self.gone.get() {
            return;
        }
        match offset {
            init_seg::CMD_DOORBELL => self.ring(value),
            // Size and stride are the device's.
            init_seg::CMDQ_ADDR_L_SZ => {
                self.unfenced.register.set(true);
                let own = self.get(offset) & 0xff;
                self.set(offset, (value & !0xff) | own);
            }
            _ => {
                if offset >= 4096 {
                    assert!(!self.unfenced.store.get(), "doorbell without the fence before it");
                    self.doorbells.borrow_mut().push((offset, value));
                }
                self.set(offset, value);
            }
        }
    }

    fn write64(&self, _: usize, _: u64) {
        panic!("nothing here rings a 64-bit doorbell");
    }

    fn write_block(&self, _: usize, _: &[u64; 8], _: Blocks) {
        panic!("nothing here uses BlueFlame");
    }
}

impl Dma for Scripted {
    type Probe = Rc<Unfenced>;

    fn memory(&self) -> &Memory<Rc<Unfenced>> {
        &self.memory
    }

    fn alloc(&self, len: usize, align: usize, _: Reach) -> Option<Span> {
        assert!(align.is_power_of_two());
        let mut live = self.live.borrow_mut();
        let mut offset = 0;
        for (start, size) in live.iter() {
            if offset + len <= *start {
                break;
            }
            offset = (start + size).next_multiple_of(align);
        }
        if offset + len > ARENA {
            return None;
        }
        live.insert(offset, len);
        self.pages.memory().write_bytes(offset, &vec![0; len]);
        Some(Span { offset, len })
    }

    fn free(&self, span: Span) {
        assert_eq!(
            self.live.borrow_mut().remove(&span.offset),
            Some(span.len),
            "freed what was not taken"
        );
        // Whoever uses it still will notice.
        self.pages.memory().write_bytes(span.offset, &vec![0xa5; span.len]);
    }

    fn iova(&self, offset: usize) -> Option<(u64, usize)> {
        Some((IOVA + offset as u64, ARENA.checked_sub(offset)?))
    }

    fn fence(&self, fence: Fence) {
        match fence {
            Fence::BeforeRecord | Fence::BeforeDoorbell | Fence::BeforeUncached => {
                self.unfenced.store.set(false);
            }
            Fence::AfterOwnership => self.unfenced.unseen.borrow_mut().clear(),
            Fence::AfterDoorbell => self.unfenced.register.set(false),
        }
    }

    fn pages_take(&self, to: &mut [u64]) -> usize {
        let count = to.len().min(self.reserve.get());
        for page in &mut to[..count] {
            *page = self.next_page.get();
            self.next_page.set(*page + 4096);
            self.given.borrow_mut().insert(*page);
        }
        self.reserve.set(self.reserve.get() - count);
        count
    }

    fn pages_return(&self, pages: &[u64]) -> usize {
        let known = pages.iter().filter(|page| self.given.borrow_mut().remove(page)).count();
        self.reserve.set(self.reserve.get() + known);
        known
    }
}

impl Clock for Scripted {
    fn now(&self) -> u64 {
        self.clock.get()
    }

    fn relax(&self) {
        self.advance(TICK);
        let mut due = Vec::new();
        self.later.borrow_mut().retain_mut(|(waits, command, reply)| {
            *waits -= 1;
            if *waits == 0 {
                due.push((command.clone(), reply.clone()));
            }
            *waits != 0
        });
        for (command, reply) in due {
            self.reply(command, reply);
        }
    }
}

/// Keeps the text of every command.
#[derive(Default)]
pub(crate) struct Recorder(pub(crate) spin::Mutex<Vec<std::string::String>>);

impl Observer for Recorder {
    fn command(&self, dump: &Dump<'_>) {
        self.0.lock().push(std::format!("{dump}"));
    }
}
