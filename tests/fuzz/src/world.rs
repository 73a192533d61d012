//! The driver on the model, small enough to be brought up for each input, and what a device may do
//! to it.

use std::sync::{Arc, Mutex};

use arbitrary::Arbitrary;
use dat_tests::bringup::Rig;
use dat_tests::host::inproc::Memory;
use mlx5_model::{CommandHook, Config as Card, Verdict, Wrote};

/// Memory of the slot: what a bring-up and an Endpoint need, as less takes less time to clear.
pub(crate) const MEMORY: Memory = Memory { arena: 256, firmware: 512 };

/// A card that asks for as few firmware pages as show that it asks more than once.
pub(crate) fn card() -> Card {
    Card { boot_pages: 3, init_pages: Some(9), ..Card::default() }
}

/// Such a card in such a slot.
pub(crate) fn rig() -> Rig {
    Rig::with(card(), MEMORY)
}

/// A change of what the device writes in answer to a command.
#[derive(Clone, Copy, Debug, Arbitrary)]
pub(crate) struct Rule {
    /// Which command, by its number since power-on, or by the number of its opcode's first.
    command: u8,
    /// All commands of its opcode, from there on.
    alike: bool,
    /// The entry in the command queue, or a mailbox.
    entry: bool,
    at: u16,
    bytes: [u8; 4],
}

#[derive(Debug, Default)]
struct Now {
    number: u64,
    opcode: u16,
    /// Opcode of each command so far.
    opcodes: Vec<u16>,
}

/// Notes which command the device is at.
struct Spy(Arc<Mutex<Now>>);

impl CommandHook for Spy {
    fn command(&mut self, number: u64, opcode: u16, _input: &[u8]) -> Verdict {
        let mut now = self.0.lock().unwrap();
        now.opcodes.push(opcode);
        (now.number, now.opcode) = (number, opcode);
        Verdict::Run
    }
}

impl Rule {
    fn fits(&self, now: &Now, kind: Wrote) -> bool {
        let kinds = if self.entry { Wrote::CommandEntry } else { Wrote::Mailbox };
        let own = u64::from(self.command);
        let alike = || now.opcodes.get(usize::from(self.command)) == Some(&now.opcode);
        kind == kinds && (own == now.number || self.alike && own < now.number && alike())
    }
}

/// Lets the device of a rig answer commands as the rules say, of those whose opcode `concerns`.
pub(crate) fn change_answers(rig: &Rig, rules: Vec<Rule>, concerns: fn(u16) -> bool) {
    let now = Arc::new(Mutex::new(Now::default()));
    rig.hook(Some(Box::new(Spy(Arc::clone(&now)))));
    rig.slot.hca().set_mangle(Some(Box::new(move |kind, _, bytes| {
        let now = now.lock().unwrap();
        for rule in rules.iter().filter(|rule| concerns(now.opcode) && rule.fits(&now, kind)) {
            let from = usize::from(rule.at) % bytes.len().max(1);
            for (place, byte) in bytes[from..].iter_mut().zip(rule.bytes) {
                *place = byte;
            }
        }
        true
    })));
}
