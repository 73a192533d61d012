//! One run.

use std::any::Any;
use std::fs::File;
use std::io::BufWriter;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use mlx5_model::host::Nanos;
use mlx5_model::wire::Wire;
use mlx5_model::wire::pcap::Tap;

use crate::oracle::{Check, Violation};
use crate::script::Script;
use crate::trace::{Lines, Trace};
use crate::world::{Room, Sim, openings, plug};

/// How to run.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// What happens to the lines of the trace.
    pub lines: Lines,
    /// Where to write all frames.
    pub pcap: Option<PathBuf>,
}

/// What came of a run.
#[derive(Debug)]
pub struct Outcome {
    /// The rule that did not hold.
    pub violation: Option<Violation>,
    /// Hash of the trace.
    pub hash: u64,
    /// Its lines that were kept.
    pub kept: Vec<String>,
    /// Lines of it.
    pub lines: u64,
    /// Calls of consumers.
    pub calls: u64,
    /// Virtual time that passed.
    pub time: Nanos,
}

/// A wire that goes nowhere.
#[derive(Debug)]
struct Nowhere;

impl Wire for Nowhere {
    fn send(&mut self, _: &[u8]) {}
    fn recv(&mut self) -> Option<Vec<u8>> {
        None
    }
}

type Capture = Arc<Mutex<Tap<Nowhere, BufWriter<File>>>>;

/// A plug whose frames are captured as they enter the switch.
struct Captured(Box<dyn Wire + Send>, Capture);

impl Wire for Captured {
    fn send(&mut self, frame: &[u8]) {
        self.1.lock().unwrap_or_else(PoisonError::into_inner).send(frame);
        self.0.send(frame);
    }
    fn recv(&mut self) -> Option<Vec<u8>> {
        self.0.recv()
    }
}

/// Runs a script.
pub fn run(script: &Script, options: &Options) -> anyhow::Result<Outcome> {
    let shape = &script.shape;
    let mut capture: Option<Capture> = None;
    let file = options.pcap.as_ref().map(File::create).transpose()?;
    let mut file = file.map(BufWriter::new);
    let mut failed = None;
    let (time, slots) = plug(shape, &mut |port, time| {
        if let Some(file) = file.take() {
            match Tap::new(Nowhere, file, time.clock()) {
                Ok(tap) => capture = Some(Arc::new(Mutex::new(tap))),
                Err(error) => failed = Some(error),
            }
        }
        match &capture {
            Some(capture) => Box::new(Captured(port, Arc::clone(capture))),
            None => port,
        }
    });
    if let Some(error) = failed {
        return Err(error.into());
    }
    let mut rooms: Vec<Room<'_>> = Vec::new();
    rooms.resize_with(openings(shape, &script.steps), Room::new);
    let trace = Trace::new(options.lines);
    let (violation, trace, calls) = {
        match Sim::new(shape, &time, &slots, &mut rooms, trace) {
            Err((violation, trace)) => (Some(violation), trace, 0),
            Ok(mut sim) => {
                let done = catch_unwind(AssertUnwindSafe(|| all(&mut sim, script)));
                let done = done.unwrap_or_else(|panic| {
                    Err(Violation { rule: "panic", text: said(panic.as_ref()) })
                });
                (done.err(), std::mem::replace(&mut sim.trace, Trace::new(Lines::Hash)), sim.calls)
            }
        }
    };
    Ok(Outcome {
        violation,
        hash: trace.hash(),
        kept: trace.kept().map(String::from).collect(),
        lines: trace.count(),
        calls,
        time: time.now(),
    })
}

fn all(sim: &mut Sim<'_>, script: &Script) -> Check {
    for step in &script.steps {
        sim.step(step)?;
    }
    sim.finish()
}

/// What a panic said.
fn said(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(|text| String::from(*text)))
        .unwrap_or_else(|| String::from("a panic"))
}
