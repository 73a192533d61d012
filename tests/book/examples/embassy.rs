//! Adapters as tasks of embassy's executor: docs/book, chapter 5. Here on the loop provider.
#![expect(clippy::wildcard_enum_match_arm, reason = "it names the events that it waits for")]

use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use dat_core::prelude::*;
use dat_core::provider::Provider;
use dat_core::testing::{Fabric, LoopHca};
use embassy_executor::{Executor, Spawner};
use embassy_futures::select::select;
use embassy_sync::blocking_mutex::raw::CriticalSectionRawMutex;
use embassy_sync::signal::Signal;
use embassy_time::Timer;

const PORT: u64 = 4711;
const NONE: CompletionFlags = CompletionFlags::empty();

// ANCHOR: next
/// Set by the interrupt handler of a device.
type Interrupt = Signal<CriticalSectionRawMutex, ()>;

/// embassy's clock, as the adapter wants it.
fn now() -> Instant {
    Instant::from_nanos(embassy_time::Instant::now().as_micros() * 1000)
}

/// Waits for the next event of `evd`.
async fn next<P: Provider>(
    ia: &mut Ia<'_, P>,
    evd: Evd,
    interrupt: &Interrupt,
) -> Result<Event, Error> {
    loop {
        let next = ia.advance(now());
        // Armed before the look, so what comes after the look interrupts.
        ia.evd_arm(evd, false)?;
        if let Ok(event) = ia.evd_dequeue(evd) {
            return Ok(event);
        }
        match next.deadline {
            _ if next.work => {}
            Some(at) => {
                let timer = Timer::at(embassy_time::Instant::from_micros(at.as_nanos() / 1000));
                select(interrupt.wait(), timer).await;
            }
            None => interrupt.wait().await,
        }
    }
}
// ANCHOR_END: next

/// The answer, or why there is none.
type Outcome = Result<Vec<u8>, String>;

/// The interrupt lines of both devices.
static INTERRUPTS: [Interrupt; 2] = [Interrupt::new(), Interrupt::new()];

/// Stands for the devices: the loop provider has no interrupts.
#[embassy_executor::task]
async fn interrupts() {
    loop {
        Timer::after_millis(1).await;
        INTERRUPTS.iter().for_each(|interrupt| interrupt.signal(()));
    }
}

/// One side: its adapter, and its memory as far as it was written before.
struct Side {
    ia: Ia<'static, LoopHca<'static>>,
    evd: Evd,
    ep: Ep,
    memory: LmrParam,
    fabric: &'static Fabric,
}

impl Side {
    fn open(fabric: &'static Fabric, port: u8) -> Result<Self, Error> {
        let storage: &'static mut Storage<_, 4, 4, 4, 8> = Box::leak(Box::new(Storage::new()));
        let net = Net::new([10, 0, 0, 1 + port].into(), 24);
        let hca = LoopHca::new(fabric, port.into());
        let mut ia = Ia::open(hca, storage.parts(), net, now(), [1 + port; 32])?;
        let pz = ia.pz_create()?;
        let evd = ia.evd_create(16, EvdFlags::DEFAULT)?;
        let ep = ia.ep_create(Some(pz), Some(evd), Some(evd), Some(evd), None)?;
        let memory = ia.lmr_create(pz, fabric.region(port.into()), MemPriv::LOCAL)?;
        ia.ep_post_recv(ep, &[memory.local(0, 64)], 0, NONE)?;
        Ok(Self { ia, evd, ep, memory, fabric })
    }
}

// ANCHOR: serve
/// Sends every message back.
async fn serve(side: &mut Side, interrupt: &Interrupt) -> Result<(), Error> {
    let Side { ia, evd, ep, memory, .. } = side;
    ia.psp_create(PORT, *evd, PspFlag::Consumer)?;
    loop {
        match next(ia, *evd, interrupt).await? {
            Event::ConnectionRequest { cr, .. } => ia.cr_accept(now(), cr, Some(*ep), b"")?,
            Event::Dto(done) if done.status != DtoStatus::Success => {}
            Event::Dto(done) if done.operation == DtoOperation::Receive => {
                ia.ep_post_send(*ep, &[memory.local(0, done.len)], 0, NONE)?;
            }
            Event::Dto(_) => ia.ep_post_recv(*ep, &[memory.local(0, 64)], 0, NONE)?,
            event if event.is_terminal() => return Ok(()),
            _ => {}
        }
    }
}
// ANCHOR_END: serve

/// Sends a message and returns the answer.
async fn ask(side: &mut Side, interrupt: &Interrupt, text: &[u8]) -> Result<Vec<u8>, Error> {
    let Side { ia, evd, ep, memory, fabric } = side;
    fabric.write(memory.base() + 64, text);
    let (to, limit) = ([10, 0, 0, 1].into(), core::time::Duration::from_secs(2));
    ia.ep_connect(now(), *ep, to, PORT, limit, b"", Qos::BestEffort)?;
    loop {
        match next(ia, *evd, interrupt).await? {
            Event::Established(_) => {
                let len = u32::try_from(text.len()).unwrap_or(64);
                ia.ep_post_send(*ep, &[memory.local(64, len)], 0, NONE)?;
            }
            Event::Dto(done) if done.operation == DtoOperation::Receive => {
                let mut answer = vec![0; text.len()];
                fabric.read(memory.base(), &mut answer);
                ia.ep_disconnect(now(), *ep, CloseFlag::Abrupt)?;
                ia.advance(now());
                return Ok(answer);
            }
            _ => {}
        }
    }
}

#[embassy_executor::task]
async fn server(mut side: Side) {
    let _ = serve(&mut side, &INTERRUPTS[0]).await;
}

#[embassy_executor::task]
async fn client(mut side: Side, results: Sender<Outcome>) {
    let answer = ask(&mut side, &INTERRUPTS[1], b"hello from a task").await;
    let _ = results.send(answer.map_err(|error| error.to_string()));
}

fn spawn(spawner: Spawner, results: Sender<Outcome>) -> Result<(), Box<dyn core::error::Error>> {
    let fabric: &'static Fabric = Box::leak(Box::new(Fabric::new()));
    let sides = (Side::open(fabric, 0)?, Side::open(fabric, 1)?);
    spawner.spawn(interrupts()?);
    spawner.spawn(server(sides.0)?);
    spawner.spawn(client(sides.1, results)?);
    Ok(())
}

/// Starts an executor, which never ends, in a thread. Returns where the client's result comes.
pub fn run() -> Receiver<Outcome> {
    let (results, result) = channel();
    thread::spawn(move || {
        let executor: &'static mut Executor = Box::leak(Box::new(Executor::new()));
        executor.run(|spawner| {
            if let Err(error) = spawn(spawner, results.clone()) {
                let _ = results.send(Err(error.to_string()));
            }
        });
    });
    result
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    run().recv()??;
    Ok(())
}
