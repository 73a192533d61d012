//! An echo service without an operating system, in steps that a main loop calls: docs/book,
//! chapter 8. Here on the loop provider, two HCAs made of memory.
#![expect(clippy::wildcard_enum_match_arm, reason = "it names the events that it waits for")]

// ANCHOR: names
use core::time::Duration;

use dat_core::Next;
use dat_core::prelude::*;
use dat_core::provider::{Provider, Region};
// ANCHOR_END: names
use dat_core::testing::{Fabric, LoopHca};

const PORT: u64 = 4711;
const NONE: CompletionFlags = CompletionFlags::empty();

// ANCHOR: echo
/// An echo service on any provider: one client at a time, messages of 64 bytes.
#[derive(Debug)]
pub struct Echo {
    evd: Evd,
    ep: Ep,
    memory: LmrParam,
}

impl Echo {
    /// Makes the objects. `memory` is registered; its first bytes take the messages.
    pub fn new<P: Provider>(ia: &mut Ia<'_, P>, memory: Region) -> Result<Self, Error> {
        let pz = ia.pz_create()?;
        let evd = ia.evd_create(16, EvdFlags::DEFAULT)?;
        let ep = ia.ep_create(Some(pz), Some(evd), Some(evd), Some(evd), None)?;
        let memory = ia.lmr_create(pz, memory, MemPriv::LOCAL)?;
        ia.ep_post_recv(ep, &[memory.local(0, 64)], 0, NONE)?;
        ia.psp_create(PORT, evd, PspFlag::Consumer)?;
        Ok(Self { evd, ep, memory })
    }

    /// Does what is due. Call it when the device interrupts, or at the deadline that it returns, or
    /// at any time.
    pub fn step<P: Provider>(&self, ia: &mut Ia<'_, P>, now: Instant) -> Result<Next, Error> {
        let next = ia.advance(now);
        while let Ok(event) = ia.evd_dequeue(self.evd) {
            match event {
                Event::ConnectionRequest { cr, .. } => ia.cr_accept(now, cr, Some(self.ep), b"")?,
                Event::Dto(done) if done.status != DtoStatus::Success => {}
                Event::Dto(done) if done.operation == DtoOperation::Receive => {
                    ia.ep_post_send(self.ep, &[self.memory.local(0, done.len)], 0, NONE)?;
                }
                // The answer has left: its memory takes the next message.
                Event::Dto(_) => {
                    ia.ep_post_recv(self.ep, &[self.memory.local(0, 64)], 0, NONE)?;
                }
                Event::Disconnected(_) | Event::Broken(_) => {
                    ia.ep_reset(self.ep)?;
                    ia.ep_post_recv(self.ep, &[self.memory.local(0, 64)], 0, NONE)?;
                }
                _ => {}
            }
        }
        Ok(next)
    }
}
// ANCHOR_END: echo

/// Sends a text through the service and returns the answer.
pub fn run(text: &[u8]) -> Result<Vec<u8>, Error> {
    // ANCHOR: open
    let fabric = Fabric::new();
    // In firmware a `static`: all memory of the adapter, 4 Endpoints, 8 requests each way.
    let mut storage = Box::new(Storage::<_, 4, 4, 4, 8>::new());
    let (net, entropy) = (Net::new([10, 0, 0, 1].into(), 24), [1; 32]);
    let hca = LoopHca::new(&fabric, 0); // with a card: `Mlx5::open(&platform, &config)?`
    let mut ia = Ia::open(hca, storage.parts(), net, Instant::ZERO, entropy)?;
    let echo = Echo::new(&mut ia, fabric.region(0))?;
    // ANCHOR_END: open
    let mut storage = Box::new(Storage::<_, 4, 4, 4, 8>::new());
    let (net, entropy) = (Net::new([10, 0, 0, 2].into(), 24), [2; 32]);
    let hca = LoopHca::new(&fabric, 1);
    let mut peer = Ia::open(hca, storage.parts(), net, Instant::ZERO, entropy)?;
    let pz = peer.pz_create()?;
    let evd = peer.evd_create(16, EvdFlags::DEFAULT)?;
    let ep = peer.ep_create(Some(pz), Some(evd), Some(evd), Some(evd), None)?;
    let memory = peer.lmr_create(pz, fabric.region(1), MemPriv::LOCAL)?;
    let len = u32::try_from(text.len()).unwrap_or(64);
    fabric.write(memory.region.addr, text);
    peer.ep_post_recv(ep, &[memory.local(64, 64)], 0, NONE)?;
    let (now, limit) = (Instant::ZERO, Duration::from_secs(2));
    peer.ep_connect(now, ep, [10, 0, 0, 1].into(), PORT, limit, b"", Qos::BestEffort)?;
    loop {
        echo.step(&mut ia, now)?;
        peer.advance(now);
        match peer.evd_dequeue(evd) {
            Ok(Event::Established(_)) => {
                peer.ep_post_send(ep, &[memory.local(0, len)], 0, NONE)?;
            }
            Ok(Event::Dto(done)) if done.operation == DtoOperation::Receive => {
                let mut answer = vec![0; text.len()];
                fabric.read(memory.region.addr + 64, &mut answer);
                return Ok(answer);
            }
            Ok(_) | Err(_) => {}
        }
    }
}

fn main() -> Result<(), Error> {
    run(b"hello").map(drop)
}
