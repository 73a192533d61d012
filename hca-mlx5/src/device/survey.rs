//! Questions to a device that the driver itself does not need: what a test of a card asks. Their
//! answers go to the [`Observer`](crate::cmd::dump::Observer) that sees every command.
//!
//! Nothing here is in an image that does not call it.

use dat_core::provider::Fault;

use crate::device::cmd::MAX_MESSAGE;
use crate::device::eq::{Decoded, EventQueue};
use crate::device::{Device, health, optional};
use crate::platform::Platform;
use crate::prm::At;
use crate::prm::caps::{BLOCK, BLOCK_AT};
use crate::prm::cmd::{InputHead, Opcode, OutputHead};
use crate::prm::eq::{
    ARMED, EQ_CONTEXT, EQE_SIZE, EqContext, EqeHead, EventType, GEN_EQE_ENTRY, QUERY_EQ_OUT,
};
use crate::prm::reg::{self, AccessRegIn, Register};
use crate::prm::roce::{ROCE_ADDRESS, RoceAddress, RoceAddressIn};
use crate::prm::vport::{QUERY_OUT, UPLINK};

/// Longest wait for an event that was asked for.
const EVENT_LIMIT: core::time::Duration = core::time::Duration::from_millis(100);
/// An event that nothing in the driver acts on.
const HARMLESS: EventType = EventType::Temperature;
/// Bytes of a register's contents.
const CONTENTS: usize = 64;

#[derive(Clone, Copy, Debug)]
enum Asks {
    /// A capability block, current and greatest values.
    Cap(u16),
    /// A register, of the first port where it is one of a port.
    Reg(Register),
    /// An answer of that length to a head with that `op_mod` and number.
    Plain(Opcode, u16, u32, usize),
    /// That entry of the RoCE address table.
    Roce(u16),
}

/// A question that changes nothing.
#[derive(Clone, Copy, Debug)]
pub struct Question {
    /// What it asks for.
    pub name: &'static str,
    asks: Asks,
}

const fn cap(name: &'static str, number: u16) -> Question {
    Question { name, asks: Asks::Cap(number) }
}

const fn register(name: &'static str, register: Register) -> Question {
    Question { name, asks: Asks::Reg(register) }
}

const fn roce(name: &'static str, index: u16) -> Question {
    Question { name, asks: Asks::Roce(index) }
}

const fn plain(name: &'static str, op: Opcode, op_mod: u16, number: u32, len: usize) -> Question {
    Question { name, asks: Asks::Plain(op, op_mod, number, len) }
}

/// All questions. The numbers of capability blocks are those of Linux `enum mlx5_cap_type`.
pub const QUESTIONS: &[Question] = &[
    cap("capabilities.general", 0x0),
    cap("capabilities.ethernet", 0x1),
    cap("capabilities.odp", 0x2),
    cap("capabilities.atomic", 0x3),
    cap("capabilities.roce", 0x4),
    cap("capabilities.ipoib", 0x5),
    cap("capabilities.ipoib-enhanced", 0x6),
    cap("capabilities.flow-table", 0x7),
    cap("capabilities.eswitch-flow-table", 0x8),
    cap("capabilities.eswitch", 0x9),
    cap("capabilities.qos", 0xc),
    cap("capabilities.debug", 0xd),
    cap("capabilities.device-memory", 0xf),
    cap("capabilities.tls", 0x11),
    cap("capabilities.vdpa", 0x13),
    cap("capabilities.device-event", 0x14),
    cap("capabilities.ipsec", 0x15),
    cap("capabilities.crypto", 0x1a),
    cap("capabilities.shampo", 0x1d),
    cap("capabilities.macsec", 0x1f),
    cap("capabilities.general-2", 0x20),
    cap("capabilities.port-selection", 0x25),
    cap("capabilities.virtualization", 0x26),
    plain("adapter", Opcode::QueryAdapter, 0, 0, 272),
    register("DTOR", Register::Dtor),
    register("PAOS", Register::Paos),
    register("PMTU", Register::Pmtu),
    register("PTYS", Register::Ptys),
    plain("vport-context", Opcode::QueryNicVportContext, 0, 0, QUERY_OUT),
    plain("vport-state", Opcode::QueryVportState, 0, 0, OutputHead::<[u8; 16]>::SIZE),
    plain("uplink-state", Opcode::QueryVportState, UPLINK, 0, OutputHead::<[u8; 16]>::SIZE),
    plain("pages-regular", Opcode::QueryPages, 3, 0, OutputHead::<[u8; 16]>::SIZE),
    roce("roce-address-0", 0),
    roce("roce-address-1", 1),
];

impl<P: Platform> Device<'_, P> {
    /// Asks. False if the device refuses a part, which is an answer too.
    pub fn ask(&mut self, question: &Question) -> Result<bool, Fault> {
        let mut output = [0; BLOCK_AT + BLOCK];
        let mut head = InputHead::new();
        match question.asks {
            Asks::Cap(number) => {
                let greatest = number << 1;
                let mut known = true;
                for op_mod in [greatest | 1, greatest] {
                    let mut head = InputHead::new().0;
                    let op = Opcode::QueryHcaCap;
                    let done = self.exec(op, op_mod, op_mod.into(), &mut head, &mut output);
                    known &= optional(done)?;
                }
                Ok(known)
            }
            Asks::Reg(register) => {
                let mut input = [0; reg::CONTENTS + CONTENTS];
                AccessRegIn(&mut input).set_register_id(register as u16);
                if register != Register::Dtor {
                    reg::Paos(At::<_, { reg::CONTENTS }>(&mut input)).set_local_port(1);
                }
                if register == Register::Ptys {
                    reg::Ptys(At::<_, { reg::CONTENTS }>(&mut input)).set_proto_mask(reg::ETHERNET);
                }
                let output = output.get_mut(..reg::CONTENTS + CONTENTS).unwrap_or_default();
                let number = u32::from(register as u16);
                optional(self.exec(Opcode::AccessReg, reg::READ, number, &mut input, output))
            }
            Asks::Plain(op, op_mod, number, len) => {
                head.set_number(number);
                let output = output.get_mut(..len).unwrap_or_default();
                optional(self.exec(op, op_mod, number, &mut head.0, output))
            }
            Asks::Roce(index) => {
                let mut head = RoceAddressIn(head.0);
                head.set_roce_address_index(index);
                let len = ROCE_ADDRESS + RoceAddress::<[u8; 32]>::SIZE;
                let output = output.get_mut(..len).unwrap_or_default();
                let op = Opcode::QueryRoceAddress;
                optional(self.exec(op, 0, index.into(), &mut head.0, output))
            }
        }
    }

    /// NOP: a command that does nothing. With `spin` without sleeping for its event.
    pub fn nop(&mut self, spin: bool) -> Result<(), Fault> {
        self.alone(Opcode::Nop, 0, &mut InputHead::new().0, spin)
    }

    /// Sends a command and waits for its answer. No event queue is read meanwhile.
    fn alone(
        &mut self,
        op: Opcode,
        number: u32,
        input: &mut [u8],
        spin: bool,
    ) -> Result<(), Fault> {
        let mut output = OutputHead::new().0;
        let flight = self.queue.send(op, 0, number, input, &(), &output)?;
        while !self.queue.poll(&flight)? {
            if !spin {
                self.queue.relax(&flight);
            }
        }
        self.queue.finish(&flight, &mut output)
    }

    /// Number of event queues besides that of commands.
    #[must_use]
    pub fn event_queues(&self) -> usize {
        self.event_queues.len()
    }

    /// GEN_EQE to event queue `nth`: has the device write one entry, and returns how many came;
    /// `None` if it refuses. What else was in the queue is lost, so no traffic may be under way.
    pub fn test_event(&mut self, nth: usize, arm: bool) -> Result<Option<usize>, Fault> {
        let platform = self.platform;
        let Some(queue) = self.event_queues.get_mut(nth) else { return Ok(None) };
        while queue.next(platform).is_some() {}
        if arm {
            queue.arm(platform);
        }
        let number = u32::from(queue.number());
        let mut input = [0; GEN_EQE_ENTRY + EQE_SIZE];
        let mut head = EqeHead::default();
        head.set_event_type(HARMLESS as u8);
        crate::prm::put(&mut input, GEN_EQE_ENTRY, &head.0.to_be_bytes());
        InputHead(&mut input).set_number(number);
        if !optional(self.alone(Opcode::GenEqe, number, &mut input, false))? {
            return Ok(None);
        }
        let deadline = health::clock(platform) + EVENT_LIMIT;
        let mut count = 0;
        while health::clock(platform) < deadline {
            // A second entry, which nobody asked for, comes with the first.
            let found = self.event_queues.get_mut(nth).and_then(|queue| queue.next(platform));
            match found {
                Some(Decoded::Other { event_type, .. }) if event_type == HARMLESS as u8 => {
                    count += 1
                }
                Some(_) => {}
                None if count > 0 => break,
                None => platform.relax(),
            }
        }
        Ok(Some(count))
    }

    /// QUERY_EQ of an event queue that was just made: whether it is armed. `None` if the device
    /// refuses to say.
    pub fn made_armed(&mut self) -> Result<Option<bool>, Fault> {
        let queue = EventQueue::create(self, 0, 0, self.config.async_vector)?;
        let number = u32::from(queue.number());
        let mut head = InputHead::new();
        head.set_number(number);
        let mut output = [0; QUERY_EQ_OUT];
        let asked = self.exec(Opcode::QueryEq, 0, number, &mut head.0, &mut output);
        let ended = queue.destroy(self);
        let known = optional(asked)?;
        ended?;
        let armed = EqContext(At::<_, EQ_CONTEXT>(&output)).st() == ARMED;
        Ok(known.then_some(armed))
    }

    /// ENABLE_HCA on the function that is enabled: whether the device takes it.
    pub fn enable_again(&mut self) -> Result<bool, Fault> {
        optional(self.run_switch(Opcode::EnableHca))
    }
}

const _: () = assert!(BLOCK_AT + BLOCK <= MAX_MESSAGE, "a block is one message");
