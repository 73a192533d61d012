//! The directed route: what a node does with an SMP that names the ports of its path.

use super::smp::{MAX_HOPS, Smp};
use crate::ifc::subnet::smp as layout;
use crate::wire::ib::lid;

/// What a node does with the packet next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Sends it out by a port, to the permissive LID.
    Port(u8),
    /// Sends it to a LID: the directed part of its path ends here.
    Lid(u16),
    /// Gives it to the agent or the manager of this node.
    Here,
    /// Throws it away: the hop pointer and the path do not fit.
    Discard,
}

/// Moves a packet on by one node: hop pointer and return path change. `from` is the port by which it
/// came, 0 when the node made it itself.
///
/// IBTA volume 1, 14.2.2 (C14-9 on the way, C14-13 on the way back), as Linux
/// `smi_handle_dr_smp_recv` and `smi_handle_dr_smp_send` together. That a port exists is the
/// caller's to check.
pub fn step(smp: &mut Smp, is_switch: bool, from: u8) -> Step {
    let count = smp.get(layout::hop_count) as u8;
    if count > MAX_HOPS {
        return Step::Discard;
    }
    let pointer = smp.get(layout::hop_pointer) as u8;
    if smp.returns() {
        step_back(smp, is_switch, pointer, count)
    } else {
        step_forward(smp, is_switch, from, pointer, count)
    }
}

fn step_forward(smp: &mut Smp, is_switch: bool, from: u8, pointer: u8, count: u8) -> Step {
    // C14-9:1, the node where the directed part begins: the maker of the packet, or a switch where
    // the LID routed the part before.
    if pointer == 0 && count != 0 {
        if from != 0 && !is_switch {
            return Step::Discard;
        }
        smp.set(layout::hop_pointer, 1);
        return port_at(smp.initial_path(), 1);
    }
    // C14-9:2, a node on the way.
    if pointer != 0 && pointer < count {
        if !is_switch {
            return Step::Discard;
        }
        note_return(smp, pointer, from);
        smp.set(layout::hop_pointer, u32::from(pointer) + 1);
        return port_at(smp.initial_path(), pointer + 1);
    }
    // C14-9:3, the last node of the directed part.
    if pointer == count {
        if count != 0 {
            note_return(smp, pointer, from);
        }
        smp.set(layout::hop_pointer, u32::from(pointer) + 1);
        return end(smp.get(layout::dr_dlid) as u16, is_switch);
    }
    // C14-9:4, a node behind the directed part; C14-9:5.
    if pointer == count + 1 { Step::Here } else { Step::Discard }
}

fn step_back(smp: &mut Smp, is_switch: bool, pointer: u8, count: u8) -> Step {
    // C14-13:1, where the way back begins.
    if count != 0 && pointer == count + 1 {
        smp.set(layout::hop_pointer, count.into());
        return port_at(smp.return_path(), count);
    }
    // C14-13:2, a node on the way.
    if pointer >= 2 && pointer <= count {
        if !is_switch {
            return Step::Discard;
        }
        smp.set(layout::hop_pointer, u32::from(pointer) - 1);
        return port_at(smp.return_path(), pointer - 1);
    }
    // C14-13:3, the last node of the directed part.
    if pointer == 1 {
        smp.set(layout::hop_pointer, 0);
        return end(smp.get(layout::dr_slid) as u16, is_switch);
    }
    // C14-13:4, the manager behind the directed part; C14-13:5.
    if pointer == 0 { Step::Here } else { Step::Discard }
}

/// Where the directed part of a path ends.
fn end(lid: u16, is_switch: bool) -> Step {
    match lid {
        lid::PERMISSIVE => Step::Here,
        lid if is_switch => Step::Lid(lid),
        _ => Step::Discard,
    }
}

fn port_at(path: &[u8], hop: u8) -> Step {
    path.get(usize::from(hop)).map_or(Step::Discard, |port| Step::Port(*port))
}

fn note_return(smp: &mut Smp, hop: u8, from: u8) {
    if let Some(place) = smp.return_path_mut().get_mut(usize::from(hop)) {
        *place = from;
    }
}
