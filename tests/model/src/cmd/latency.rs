//! Time that a command takes.

use crate::facts::OpenFact;
use crate::hca::Hca;
use crate::host::Nanos;
use rand::Rng;

/// Latency between fetch and answer.
pub(super) fn latency(hca: &mut Hca, opcode: u16, op_mod: u32) -> Nanos {
    let facts = &hca.config.facts;
    let slow = match (opcode, op_mod) {
        (0x103, _) => facts.value(OpenFact::Teardown),
        (0x108, 2) => facts.value(OpenFact::Reclaim),
        _ => None,
    };
    let random = facts.value(OpenFact::CommandOrder);
    let random = random.map_or(0, |most| hca.bus.rng.random_range(0..most));
    let recorded = hca
        .recording()
        .and_then(|recording| recording.latencies.get(&(opcode, op_mod as u16)).copied());
    slow.or(recorded).unwrap_or_else(|| usual_latency(hca, opcode)) + random
}

fn usual_latency(hca: &mut Hca, opcode: u16) -> Nanos {
    if !hca.config.hardware_like {
        return hca.config.command_latency;
    }
    match opcode {
        0x102 | 0x104 | 0x108 => hca.bus.rng.random_range(100_000_000..2_000_000_000),
        _ => hca.bus.rng.random_range(10_000..100_000_000),
    }
}
