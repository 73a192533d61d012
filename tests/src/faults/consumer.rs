//! The consumer on either side: its objects, the sleep that interrupts and deadlines end, and what it
//! sees. It checks as it goes that every request comes back once, in order, before the one end of
//! its connection, and that what succeeded moved the right bytes.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use dat_core::provider::{Fault, FaultKind, Net};
use dat_core::{
    CloseFlag, DtoOperation, Ep, Error, Evd, EvdFlags, Ia, Instant, LmrParam, MemPriv, PspFlag, Pz,
    Storage,
};
use hca_mlx5::dma::Buffer;
use hca_mlx5::platform::Clock as _;
use hca_mlx5::{Config, Mlx5};
use mlx5_model::host::Nanos;

use super::machine::{Later, Machine, Trap};
use super::what::{Interrupts, Loss, MS, Pick, US};
use crate::host::inproc::World;
use crate::host::watched::Watched;
use crate::session::QUALIFIER;

/// The driver on a machine with all its seams.
pub type Driver<'a, 'm> = Mlx5<'a, Watched<'m>>;
/// Memory of an adapter.
pub type Room<'a, 'm> = Storage<Driver<'a, 'm>, 8, 16, 16, 64>;

/// Bytes of memory of each side.
const BYTES: usize = 0x1_0000;
/// The time limit of a command that the consumer sets.
pub const COMMAND_LIMIT: Duration = Duration::from_secs(5);
/// And that of the firmware's start.
const START_LIMIT: Duration = Duration::from_secs(10);

/// One end of a connection.
#[derive(Debug)]
pub struct End {
    /// Endpoint.
    pub ep: Ep,
    /// Number of the connection.
    pub link: usize,
    /// Requests that are outstanding, and the contents that each moves.
    pub requests: VecDeque<(u64, u32)>,
    /// Receives that are outstanding.
    pub receives: VecDeque<u64>,
    /// Contents of the messages that come.
    pub coming: VecDeque<u32>,
    /// Established.
    pub up: bool,
    /// Ended, or never made.
    pub over: bool,
    /// One of the consumers wants the end.
    pub leaving: bool,
}

/// An open adapter with the objects of its consumer.
pub struct Side<'a, 'm> {
    /// The adapter.
    pub ia: Ia<'a, Driver<'a, 'm>>,
    /// Protection Zone.
    pub pz: Pz,
    /// Completions and connection events.
    pub evd: Evd,
    pub(super) cr: Evd,
    /// Memory.
    pub mem: Buffer<'a, Watched<'m>>,
    /// Its registration.
    pub lmr: LmrParam,
    /// Ends of connections.
    pub ends: Vec<End>,
    /// The Endpoint for the next request.
    pub accepts: Option<Ep>,
    pub(super) due: Nanos,
    pub(super) dirty: bool,
}

impl std::fmt::Debug for Side<'_, '_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Side").field("ends", &self.ends).finish_non_exhaustive()
    }
}

/// Something that a consumer sees and would not see without a fault.
#[derive(Clone, Debug)]
pub struct Note {
    /// When.
    pub at: Nanos,
    /// Which consumer.
    pub side: usize,
    /// What it has lost by that.
    pub loss: Loss,
    /// In words.
    pub text: String,
}

/// Both machines, both consumers, and what they saw.
pub struct Scene<'a, 'm> {
    /// Time.
    pub world: Arc<World>,
    /// The machines.
    pub machines: &'m [Machine; 2],
    /// The same, as the drivers see them.
    pub watched: &'a [Watched<'m>; 2],
    pub(super) rooms: std::slice::IterMut<'a, Box<Room<'a, 'm>>>,
    /// The consumers, while they have an adapter.
    pub sides: [Option<Side<'a, 'm>>; 2],
    /// What strikes.
    pub trap: Trap,
    /// What was seen.
    pub notes: Vec<Note>,
    /// Rules that were broken.
    pub wrong: Vec<String>,
    /// What becomes of the interrupts of side 0.
    pub vectors: Option<(Pick, Interrupts)>,
    /// Side 0 does not run until then.
    pub paused: Nanos,
    /// What is done at a time.
    pub later: Arc<Later>,
    /// The clocks jump by this when time passes next.
    pub jump: Nanos,
    pub(super) late: VecDeque<Nanos>,
    pub(super) cookie: u64,
    pub(super) contents: u32,
}

impl std::fmt::Debug for Scene<'_, '_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Scene").field("sides", &self.sides).finish_non_exhaustive()
    }
}

/// A fault in the driver's own words, without the number of an object and without advice.
#[must_use]
pub fn brief(fault: Fault) -> String {
    Fault { object: "", number: 0, host: None, advice: "", ..fault }.to_string()
}

/// An error of a call in the same words.
#[must_use]
pub fn brief_error(error: &Error) -> String {
    match error.fault() {
        Some(fault) => brief(fault),
        None => error.to_string(),
    }
}

impl<'a, 'm> Scene<'a, 'm> {
    /// Time.
    #[must_use]
    pub fn now(&self) -> Nanos {
        self.world.now()
    }

    /// The same, as adapters take it.
    #[must_use]
    pub fn instant(&self) -> Instant {
        Instant::from_nanos(self.now())
    }

    /// A consumer sees something.
    pub fn note(&mut self, side: usize, loss: Loss, text: String) {
        let at = self.now();
        self.trace(side, &text);
        self.notes.push(Note { at, side, loss, text });
    }

    /// Prints what happens, if `FAULTS_TRACE` is set.
    pub(super) fn trace(&self, side: usize, text: &dyn std::fmt::Debug) {
        if std::env::var_os("FAULTS_TRACE").is_some() {
            eprintln!("{:>12} side {side}: {text:?}", self.now());
        }
    }

    /// The result of a call; a failure is seen.
    pub fn call<T>(&mut self, side: usize, call: &str, result: Result<T, Error>) -> Option<T> {
        match result {
            Ok(value) => Some(value),
            Err(error) => {
                let kind = error.fault().map(|fault| fault.kind);
                let gone = matches!(kind, Some(FaultKind::Gone | FaultKind::Timeout));
                let loss = if call == "open" && gone { Loss::Adapter } else { Loss::Connection };
                self.note(side, loss, format!("{call}: {}", brief_error(&error)));
                None
            }
        }
    }

    // ---- opening and closing ----

    /// Address of a side.
    #[must_use]
    pub fn net(side: usize) -> Net {
        let addr = std::net::Ipv4Addr::new(192, 168, 7, 1 + side as u8).into();
        Net::new(addr, 24)
    }

    /// Opens the adapter of a side and makes its objects.
    pub fn open(&mut self, side: usize) -> bool {
        let (slot, watched) = (&self.machines[side].slot, &self.watched[side]);
        let room = self.rooms.next().unwrap();
        let command_timeout = Some(COMMAND_LIMIT);
        let wanted = Config { command_timeout, init_timeout: START_LIMIT, ..Config::default() };
        let driver = Driver::open(watched, &slot.config(wanted)).map_err(Error::from);
        let Some(driver) = self.call(side, "open", driver) else { return false };
        let now = Instant::from_nanos(slot.now());
        let ia = Ia::open(driver, room.parts(), Self::net(side), now, slot.entropy());
        let Some(mut ia) = self.call(side, "open", ia) else { return false };
        let Some(mem) = Buffer::zeroed(watched, BYTES) else {
            self.note(side, Loss::Connection, "buffer: no room in the arena".to_owned());
            let closed = ia.close(self.instant(), CloseFlag::Abrupt);
            self.closed(side, closed, &ia);
            return false;
        };
        let mut objects = || {
            let pz = ia.pz_create()?;
            let evd = ia.evd_create(128, EvdFlags::DTO | EvdFlags::CONNECTION)?;
            let cr = ia.evd_create(8, EvdFlags::CR)?;
            ia.psp_create(QUALIFIER, cr, PspFlag::Consumer)?;
            let lmr = ia.lmr_create(pz, mem.region(), MemPriv::ALL)?;
            Ok::<_, Error>((pz, evd, cr, lmr))
        };
        let made = objects();
        let Some((pz, evd, cr, lmr)) = self.call(side, "objects", made) else {
            let closed = ia.close(self.instant(), CloseFlag::Abrupt);
            self.closed(side, closed, &ia);
            mem.release();
            return false;
        };
        let ends = Vec::new();
        let side_of = Side { ia, pz, evd, cr, mem, lmr, ends, accepts: None, due: 0, dirty: true };
        self.sides[side] = Some(side_of);
        true
    }

    /// Closes the adapter of a side, whatever is left on it; whether the device gave all back.
    pub fn close(&mut self, side: usize) -> bool {
        let Some(mut open) = self.sides[side].take() else { return true };
        if let Some(warning) = open.ia.warning() {
            let text = format!("a warning: {}", brief(*warning));
            self.note(side, Loss::Nothing, text);
        }
        let closed = open.ia.close(self.instant(), CloseFlag::Abrupt);
        let good = self.closed(side, closed, &open.ia);
        open.mem.release();
        good
    }

    fn closed(
        &mut self,
        side: usize,
        closed: Result<(), Error>,
        ia: &Ia<'a, Driver<'a, 'm>>,
    ) -> bool {
        // A lost device has been reported before.
        if ia.lost().is_some() {
            return false;
        }
        self.call(side, "close", closed).is_some()
    }

    // ---- time ----

    /// Lets both hosts do what is due, then time pass: a millisecond at most.
    pub fn turn(&mut self) {
        self.turn_by(MS);
    }

    /// Lets time pass while nobody does anything.
    pub fn rest(&mut self, span: Nanos) {
        let end = self.now() + span;
        while self.now() < end {
            self.turn_by(10 * MS);
        }
    }

    fn turn_by(&mut self, mut leap: Nanos) {
        for side in 0..2 {
            leap = leap.min(self.drive(side));
        }
        let jump = std::mem::take(&mut self.jump);
        if jump != 0 {
            self.world.clock().set(self.now() + jump);
        }
        self.world.turn_by(leap.max(US));
    }

    /// Turns until that is so; whether it is within a time.
    pub fn until(&mut self, limit: Nanos, mut done: impl FnMut(&Self) -> bool) -> bool {
        let end = self.now() + limit;
        while !done(self) {
            if self.now() >= end {
                return false;
            }
            self.turn();
        }
        true
    }

    /// Whether the device's interrupts end the sleep of a host.
    fn woken(&mut self, side: usize, now: Nanos) -> bool {
        let fired = !self.machines[side].slot.hca().interrupts().is_empty();
        let Some((pick, what)) = self.vectors.filter(|_| side == 0) else { return fired };
        let due = self.late.front().is_some_and(|due| *due <= now);
        if due {
            self.late.pop_front();
        }
        let candidate = fired || what == Interrupts::Spurious;
        match what {
            _ if !candidate || !self.trap.strikes(pick, now) => fired || due,
            Interrupts::Lost => due,
            Interrupts::Spurious => true,
            Interrupts::Late(by) => {
                self.late.push_back(now + by);
                due
            }
        }
    }

    /// Drives one host, if something ends its sleep; how long it may sleep then.
    fn drive(&mut self, side: usize) -> Nanos {
        let now = self.now();
        let woken = self.woken(side, now);
        if side == 0 && now < self.paused {
            return self.paused - now;
        }
        let late = self.late.front().map_or(Nanos::MAX, |due| due.saturating_sub(now));
        let Some(open) = &mut self.sides[side] else { return Nanos::MAX };
        if woken || open.dirty || open.due <= now {
            let next = open.ia.advance(Instant::from_nanos(now));
            open.dirty = next.work;
            open.due = next.deadline.map_or(Nanos::MAX, Instant::as_nanos);
            self.reap(side);
        }
        let Some(open) = &self.sides[side] else { return Nanos::MAX };
        if open.dirty { US } else { (open.due - now.min(open.due)).min(late) }
    }

    /// A call was made: the progress engine may have something to do.
    pub fn touch(&mut self, side: usize) -> Option<&mut Side<'a, 'm>> {
        let open = self.sides[side].as_mut()?;
        open.dirty = true;
        Some(open)
    }
}

/// Bytes of a message.
pub const MESSAGE: usize = 400;
/// Bytes of a write and of a read: more than a packet.
pub const BULK: usize = 1800;

/// Where the memory of an operation of a connection lies, at its initiator.
#[must_use]
pub const fn place(link: usize, operation: DtoOperation, cookie: u64) -> usize {
    let nth = (cookie % 8) as usize * 0x200;
    link % 4 * 0x4000
        + match operation {
            DtoOperation::Send => nth,
            DtoOperation::RdmaWrite => 0x2000,
            DtoOperation::RdmaRead => 0x3000,
            _ => 0x1000 + nth,
        }
}

/// How far behind that the bytes arrive.
pub(super) const fn arrives(operation: DtoOperation) -> usize {
    match operation {
        DtoOperation::RdmaWrite | DtoOperation::RdmaRead => 0x800,
        _ => 0,
    }
}
