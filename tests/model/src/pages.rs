//! Firmware pages: asked for, given, owned, taken back.
//!
//! Every page given is recorded. The device scribbles a word of its own into each and looks for it
//! when the page goes back, so that a driver's write into firmware memory is reported.

use crate::cmd::{Command, FunctionState, Refusal, Stage, Status};
use crate::config::Personality;
use crate::eq::{Event, kind};
use crate::facts::OpenFact;
use crate::hca::Hca;
use crate::ifc::caps::cmd_hca_cap;
use crate::ifc::pages::{manage_pages_in, manage_pages_out, query_pages_in, query_pages_out};
use rand::Rng;
use std::collections::BTreeSet;

/// Pages given by the driver.
#[derive(Debug, Default)]
pub(crate) struct Pages {
    owned: BTreeSet<u64>,
    /// Asked for at run time and not yet answered.
    requested: i64,
    /// The driver said it cannot give.
    refused: bool,
    /// Objects created since reset.
    creates: u32,
    /// Requests that wait for the commands in flight.
    held: Vec<Event>,
    /// Takes in a row that brought nothing.
    empty: u32,
}

/// What becomes of a command for which the firmware lacks pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shortage {
    /// There are enough.
    None,
    /// It waits for them.
    Stall,
    /// It fails.
    Refuse,
}

/// Commands that make the firmware's tables grow: CREATE_MKEY, CREATE_CQ, CREATE_QP, CREATE_RMP.
const CREATES: [u16; 4] = [0x200, 0x400, 0x500, 0x90c];
/// Takes in a row that bring nothing at most. Linux gives up after 5 s of them, and works with the
/// cards it knows.
const EMPTY: u32 = 4;
/// Pages asked for at a shortage.
const GROWTH: i32 = 16;

impl Pages {
    /// Whether every request has been answered.
    pub(crate) fn satisfied(&self) -> bool {
        self.requested <= 0
    }

    /// How many the firmware owns.
    pub(crate) fn count(&self) -> u32 {
        self.owned.len() as u32
    }

    /// Whether an address lies in one of them.
    pub(crate) fn owns(&self, iova: u64) -> bool {
        self.owned.contains(&(iova & !0xfff))
    }
}

/// Pages of the recorded card at any setting of log_max_qp: two points, 4,232 at 14 and 12,868 at
/// 17.
fn init_estimate(log_max_qp: u32) -> u32 {
    2998 + ((u64::from(8636u32) << log_max_qp.min(24)) / 114_688) as u32
}

impl Hca {
    /// Number this function goes by in page commands; a virtual function is not 0.
    fn function_id(&self) -> u32 {
        match self.config.personality {
            Personality::Pf => 0,
            Personality::Vf => 3,
        }
    }

    /// Pages that must have arrived before INIT_HCA.
    pub(crate) fn init_demand(&self) -> u32 {
        let fact = self.config.facts.value(OpenFact::InitPages).map(|pages| pages as u32);
        let init = match fact.or(self.config.init_pages) {
            Some(count) => count,
            None => init_estimate(self.caps.general(cmd_hca_cap::log_max_qp)),
        };
        self.config.boot_pages.saturating_add(init)
    }

    /// Asks the driver for pages, or with a negative count to take some back, by event. The count
    /// is passed on as it is, however absurd.
    pub fn request_pages(&mut self, count: i32) {
        self.pages.requested = self.pages.requested.saturating_add(i64::from(count));
        let event = self.page_event(count);
        match self.config.facts.value(OpenFact::PageEvent) {
            None => self.raise(&event),
            Some(1) if self.cmd.busy() => self.pages.held.push(event),
            Some(1) => self.raise(&event),
            // QUERY_PAGES has it.
            Some(_) => {}
        }
    }

    fn page_event(&self, count: i32) -> Event {
        let function = u32::from(self.embedded_cpu()) << 31 | self.function_id();
        Event::new(kind::PAGE_REQUEST, 0)
            .with(0, function)
            .with(4, 0_u32.wrapping_add_signed(count))
    }

    /// No command is in flight: the requests held back go out.
    pub(crate) fn release_page_events(&mut self) {
        for event in core::mem::take(&mut self.pages.held) {
            self.raise(&event);
        }
    }

    /// What a command meets that needs memory of the firmware: the first of an object, and every
    /// eighth, finds none. The request for pages goes out at once: it is what the command waits
    /// for.
    pub(crate) fn shortage(&mut self, opcode: u16) -> Shortage {
        let kind = match self.config.facts.value(OpenFact::Shortage) {
            Some(2) => Shortage::Stall,
            Some(3) => Shortage::Refuse,
            _ => return Shortage::None,
        };
        let polled = self.config.facts.value(OpenFact::PageEvent) == Some(2);
        // Without anybody to ask nothing can wait.
        let asks = polled || self.eqs.subscribed(kind::PAGE_REQUEST);
        if !CREATES.contains(&opcode) || !asks {
            return Shortage::None;
        }
        if self.pages.requested > 0 {
            return kind;
        }
        self.pages.creates += 1;
        if self.pages.creates % 8 != 1 {
            return Shortage::None;
        }
        self.pages.refused = false;
        self.pages.requested += i64::from(GROWTH);
        if !polled {
            let event = self.page_event(GROWTH);
            self.raise(&event);
        }
        kind
    }

    /// Run-time page requests not yet answered; negative while some should be taken back.
    pub fn pages_outstanding(&self) -> i64 {
        self.pages.requested
    }

    /// Complains when memory handed over as a queue's is memory given to the firmware before.
    pub(crate) fn check_not_firmware(&mut self, what: &str, list: &[u8]) {
        let pages = list
            .chunks_exact(8)
            .filter_map(<[_]>::first_chunk::<8>)
            .map(|page| u64::from_be_bytes(*page));
        if let Some(page) = { pages }.find(|page| self.pages.owns(*page)) {
            self.bus.complain(format!("{what}: {page:#x} was given to the firmware"));
        }
    }

    /// Hardware-like, a card wants more pages as objects grow, and asks while it goes on.
    pub(crate) fn grow(&mut self, opcode: u16) {
        let (grows, every) = match self.config.facts.value(OpenFact::Shortage) {
            None => (self.config.hardware_like, 32),
            Some(1) => (true, 8),
            // Those count in `shortage`.
            Some(_) => (false, 1),
        };
        if grows && CREATES.contains(&opcode) {
            self.pages.creates += 1;
            if self.pages.creates % every == 0 {
                self.request_pages(GROWTH);
            }
        }
    }

    /// Pages the firmware owns now.
    pub fn pages_owned(&self) -> u32 {
        self.pages.count()
    }

    /// Whether the driver answered the last request with "cannot give".
    pub fn pages_refused(&self) -> bool {
        self.pages.refused
    }
}

fn query(hca: &mut Hca, input: &[u8], output: &mut [u8]) -> Result<(), Refusal> {
    if query_pages_in::embedded_cpu_function.is_set(input) != hca.embedded_cpu() {
        return Err(Status::BadParam.because(0x10_7002));
    }
    let owned = hca.pages.count();
    let polled = hca.config.facts.value(OpenFact::PageEvent) == Some(2);
    let asked = hca.pages.requested.clamp(i32::MIN.into(), i32::MAX.into()) as i32;
    let count = match query_pages_in::op_mod.get(input) {
        2 | 3 if polled && hca.cmd.state == FunctionState::Running => asked,
        1 => 0_i32.wrapping_add_unsigned(hca.config.boot_pages.saturating_sub(owned)),
        2 => 0_i32.wrapping_add_unsigned(hca.init_demand().saturating_sub(owned)),
        3 => hca.config.regular_pages,
        _ => return Err(Status::BadParam.because(0x10_7001)),
    };
    query_pages_out::embedded_cpu_function.set(output, u32::from(hca.embedded_cpu()));
    query_pages_out::function_id.set(output, hca.function_id());
    query_pages_out::num_pages.set(output, 0_u32.wrapping_add_signed(count));
    Ok(())
}

fn manage(hca: &mut Hca, input: &[u8], output: &mut [u8]) -> Result<(), Refusal> {
    let own = manage_pages_in::embedded_cpu_function.is_set(input) == hca.embedded_cpu();
    if manage_pages_in::function_id.get(input) != hca.function_id() || !own {
        return Err(Status::BadParam.because(0x10_8001));
    }
    let count = manage_pages_in::input_num_entries.get(input) as usize;
    match manage_pages_in::op_mod.get(input) {
        0 => {
            hca.pages.refused = true;
            hca.pages.requested = hca.pages.requested.min(0);
            Ok(())
        }
        1 => give(hca, count, manage_pages_in::pas.tail(input)),
        2 => take(hca, count, output),
        _ => Err(Status::BadParam.because(0x10_8002)),
    }
}

/// All pages of a command are taken, or none.
fn give(hca: &mut Hca, count: usize, list: &[u8]) -> Result<(), Refusal> {
    if list.len() / 8 < count {
        return Err(Status::BadInputLength.because(0x10_8003));
    }
    let mut fresh = BTreeSet::new();
    for entry in list.chunks_exact(8).filter_map(<[_]>::first_chunk::<8>).take(count) {
        let page = u64::from_be_bytes(*entry);
        // Page 0 is one like others behind an IOMMU: rdma-core's driver over VFIO gives it first.
        if page & 0xfff != 0 {
            return Err(Status::BadParam.because(0x10_8004));
        }
        if hca.pages.owned.contains(&page) || !fresh.insert(page) {
            return Err(Status::BadParam.because(0x10_8005));
        }
    }
    let mut lost = 0;
    if let Some(memory) = hca.bus.memory() {
        for page in &fresh {
            lost += u32::from(memory.write(*page, &scribble(*page)).is_err());
        }
    }
    if lost != 0 {
        hca.bus.complain(format!("MANAGE_PAGES: {lost} of the pages given cannot be written"));
    }
    // Not `append`, which goes through all that are owned.
    hca.pages.owned.extend(fresh);
    hca.pages.refused = false;
    hca.pages.requested -= hca.pages.requested.clamp(0, i64::try_from(count).unwrap_or(i64::MAX));
    Ok(())
}

/// Gives back up to `count`: all there are once torn down, else what exceeds the demand. Like real
/// cards, fewer than asked or none for a while, when hardware-like.
fn take(hca: &mut Hca, count: usize, output: &mut [u8]) -> Result<(), Refusal> {
    let spare = if hca.cmd.state == FunctionState::Running {
        hca.pages.count().saturating_sub(hca.init_demand())
    } else {
        hca.pages.count()
    };
    let room = output.len().saturating_sub(manage_pages_out::BYTES) / 8;
    if room < count {
        hca.bus
            .complain(format!("MANAGE_PAGES take: {count} asked, room for {room} in the answer"));
    }
    let mut number = count.min(spare as usize).min(room);
    if hca.config.hardware_like && number != 0 {
        let nothing = hca.bus.rng.random_bool(0.3) && hca.pages.empty < EMPTY;
        number = if nothing { 0 } else { hca.bus.rng.random_range(1..=number) };
        hca.pages.empty = if nothing { hca.pages.empty + 1 } else { 0 };
    }
    let back: Vec<u64> = hca.pages.owned.iter().rev().take(number).copied().collect();
    for (page, to) in back.iter().zip(output[manage_pages_out::BYTES..].chunks_exact_mut(8)) {
        hca.pages.owned.remove(page);
        to.copy_from_slice(&page.to_be_bytes());
        let mut word = [0; 8];
        let read = hca.bus.memory().map(|memory| memory.read(*page, &mut word));
        if matches!(read, Some(Ok(()))) && word != scribble(*page) {
            hca.bus.complain(format!("page {page:#x} was written while the firmware owned it"));
        }
    }
    hca.pages.requested +=
        (-hca.pages.requested).clamp(0, i64::try_from(number).unwrap_or(i64::MAX));
    manage_pages_out::output_num_entries.set(output, number as u32);
    Ok(())
}

/// The word the firmware leaves at the start of a page.
fn scribble(page: u64) -> [u8; 8] {
    (page.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1).to_be_bytes()
}

/// The commands handled here.
pub(crate) const COMMANDS: &[Command] = &[
    Command {
        opcode: 0x107,
        name: "QUERY_PAGES",
        input: 8,
        output: 16,
        stage: Stage::Enabled,
        run: query,
    },
    Command {
        opcode: 0x108,
        name: "MANAGE_PAGES",
        input: 16,
        output: 16,
        stage: Stage::Enabled,
        run: manage,
    },
];
