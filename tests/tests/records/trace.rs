//! Our bring-up against a recorded one: Linux on a real ConnectX-4, command by command, field by
//! field.
//!
//! What the driver sends is compared with what Linux sent, and what the model answers with what the
//! card answered. Each difference has a name and a reason in `data/trace-differences.txt`, and each
//! line there must still be true: so neither the driver nor the model moves away from the recording
//! without somebody saying why.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "test code: a panic here is a failed test"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::Mutex;

use dat_tests::bringup::{Rig, usual};
use hca_mlx5::cmd::dump::{Direction, Dump, Observer};
use hca_mlx5::prm::cmd::Opcode;
use hca_mlx5::{Config, Device};
use mlx5_model::{Config as Card, ifc};

/// One command: what was sent, what came back.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Command {
    opcode: u16,
    input: Vec<u8>,
    output: Vec<u8>,
}

/// Bytes of a message from which on it is a list of this machine's pages.
fn pages_at(opcode: u16) -> usize {
    match opcode {
        0x108 => 16,
        0x301 => 0x110,
        _ => usize::MAX,
    }
}

impl Command {
    fn op_mod(&self) -> u16 {
        u16::from_be_bytes([self.input[6], self.input[7]])
    }

    /// Its name in the list: opcode, modifier where it means something, register.
    fn name(&self) -> String {
        let name = Opcode::from_code(self.opcode).map_or("?", Opcode::name);
        match self.opcode {
            0x100 | 0x107..=0x109 => format!("{name}/{:x}", self.op_mod()),
            0x805 => {
                let register = u16::from_be_bytes([self.input[10], self.input[11]]);
                format!("{name}/{register:x}/{:x}", self.op_mod())
            }
            _ => String::from(name),
        }
    }

    /// Layout of one half, and the byte it begins at.
    fn layouts(&self, input: bool) -> Vec<(ifc::Layout, usize)> {
        let cap = |op_mod: u16| match op_mod >> 1 {
            0 => Some("cmd_hca_cap"),
            1 => Some("eth_caps"),
            3 => Some("atomic_caps"),
            4 => Some("roce_cap"),
            7 => Some("flow_table_nic_cap"),
            _ => None,
        };
        let names: Vec<(Option<&str>, usize)> = match (self.opcode, input) {
            (0x100, false) | (0x109, true) => vec![(cap(self.op_mod()), 16)],
            (0x101, false) => vec![(Some("query_adapter_param_block"), 16)],
            (0x104, true) => vec![(Some("enable_hca_in"), 0)],
            (0x102, true) => vec![(Some("init_hca_in"), 0)],
            (0x107, true) => vec![(Some("query_pages_in"), 0)],
            (0x107, false) => vec![(Some("query_pages_out"), 0)],
            (0x108, true) => vec![(Some("manage_pages_in"), 0)],
            (0x108, false) => vec![(Some("manage_pages_out"), 0)],
            (0x10a, false) => vec![(Some("query_issi_out"), 0)],
            (0x10b, true) => vec![(Some("set_issi_in"), 0)],
            (0x301, true) => vec![(Some("create_eq_in"), 0)],
            (0x301, false) => vec![(Some("create_eq_out"), 0)],
            (0x802, false) => vec![(Some("alloc_uar_out"), 0)],
            _ => Vec::new(),
        };
        let all = ifc::all();
        let head = if input { "head_in" } else { "head_out" };
        names
            .into_iter()
            .chain([(Some(head), 0)])
            .filter_map(|(name, at)| Some((*all.iter().find(|l| Some(l.name) == name)?, at)))
            .collect()
    }
}

/// The recording.
fn recorded() -> Vec<Command> {
    let mut commands: Vec<Command> = Vec::new();
    for line in include_str!("../../data/connectx4-linux.txt").lines() {
        let mut words = line.split_whitespace();
        let (Some(direction @ ("in" | "out")), Some(opcode), Some(len)) =
            (words.next(), words.next(), words.next())
        else {
            continue;
        };
        let opcode = u16::from_str_radix(opcode, 16).unwrap();
        let mut message = vec![0; len.parse().unwrap()];
        for word in words {
            let (at, value) = word.split_once(':').unwrap();
            let at = usize::from_str_radix(at, 16).unwrap();
            let value = u32::from_str_radix(value, 16).unwrap();
            message[at..at + 4].copy_from_slice(&value.to_be_bytes());
        }
        match direction {
            "in" => commands.push(Command { opcode, input: message, output: Vec::new() }),
            _ => {
                let last = commands.last_mut().unwrap();
                assert_eq!(last.opcode, opcode, "an answer to another command");
                last.output = message;
            }
        }
    }
    assert!(commands.len() > 30 && commands.iter().all(|c| !c.output.is_empty()));
    commands
}

/// Sees every command of our driver.
#[derive(Default)]
struct Record {
    commands: Mutex<Vec<Command>>,
    text: Mutex<String>,
}

impl Observer for Record {
    fn command(&self, dump: &Dump<'_>) {
        write!(self.text.lock().unwrap(), "{dump}").unwrap();
        let mut commands = self.commands.lock().unwrap();
        match dump.direction {
            Direction::Input => commands.push(Command {
                opcode: dump.opcode.code(),
                input: dump.bytes().collect(),
                output: Vec::new(),
            }),
            Direction::Output => commands.last_mut().unwrap().output = dump.bytes().collect(),
        }
    }
}

fn ours() -> (Vec<Command>, String) {
    // As the recorded card was: no memory windows.
    let rig = Rig::new(Card { umr: false, ..Card::default() });
    let record = Record::default();
    let mut device =
        Device::open(&rig.slot, &Config { observer: Some(&record), ..usual() }).unwrap();
    let commands = record.commands.lock().unwrap().clone();
    device.close().unwrap();
    let text = record.text.lock().unwrap().clone();
    (commands, text)
}

/// Names of the fields in which two messages differ, with both values.
fn differing(
    layouts: &[(ifc::Layout, usize)],
    real: &[u8],
    own: &[u8],
) -> BTreeMap<String, (u64, u64)> {
    let mut found = BTreeMap::new();
    let mut named = vec![false; real.len().max(own.len())];
    for (layout, at) in layouts {
        let (real, own) = (real.get(*at..).unwrap_or(&[]), own.get(*at..).unwrap_or(&[]));
        for (name, field) in layout.leaves().into_iter().filter(|(_, field)| field.width != 0) {
            // The contents of a block begin there; the head before it belongs to the head.
            let bytes = at + field.bit / 8..at + (field.bit + field.width).div_ceil(8);
            if bytes.start >= named.len()
                || named[bytes.start..bytes.end.min(named.len())].iter().all(|n| *n)
            {
                continue;
            }
            let wide = |bytes: &[u8]| -> Vec<u64> {
                let step = 64.min(field.width);
                (0..field.width / step)
                    .map(|n| ifc::Field::at(field.bit + n * step, step).get64(bytes))
                    .collect()
            };
            let (a, b) = (wide(real), wide(own));
            if let Some(n) = (0..a.len()).find(|n| a[*n] != b[*n]) {
                found.insert(name, (a[n], b[n]));
            }
        }
        for entry in layout.entries {
            let bytes =
                at + entry.field.bit / 8..at + (entry.field.bit + entry.field.width).div_ceil(8);
            if !entry.name.starts_with("reserved") {
                named.iter_mut().take(bytes.end).skip(bytes.start).for_each(|n| *n = true);
            }
        }
    }
    // Bits without a name in any layout.
    for at in (0..named.len()).filter(|at| !named[*at]) {
        let (a, b) = (real.get(at).copied().unwrap_or(0), own.get(at).copied().unwrap_or(0));
        if a != b {
            found.insert(format!("byte_{at:x}"), (a.into(), b.into()));
        }
    }
    found
}

/// Every difference, a line each: as the list has them, without the reasons.
fn differences() -> BTreeSet<String> {
    let mut lines = BTreeSet::new();
    let numbered = |commands: Vec<Command>| {
        let mut seen: BTreeMap<String, usize> = BTreeMap::new();
        let mut out = BTreeMap::new();
        for command in commands {
            let n = seen.entry(command.name()).or_default();
            out.insert((command.name(), *n), command);
            *n += 1;
        }
        out
    };
    let (real, own) = (numbered(recorded()), numbered(ours().0));
    for (key, command) in &real {
        let (name, n) = key;
        let Some(twin) = own.get(key) else {
            lines.insert(format!("linux {name} {n}"));
            continue;
        };
        for (half, a, b) in
            [("in", &command.input, &twin.input), ("out", &command.output, &twin.output)]
        {
            let end = pages_at(command.opcode);
            if end == usize::MAX && a.len() != b.len() {
                lines.insert(format!("{half} {name} {n} length {} {}", a.len(), b.len()));
            }
            let layouts = command.layouts(half == "in");
            let cut = |bytes: &[u8]| bytes[..bytes.len().min(end)].to_vec();
            for (field, (a, b)) in differing(&layouts, &cut(a), &cut(b)) {
                lines.insert(format!("{half} {name} {n} {field} {a:#x} {b:#x}"));
            }
        }
    }
    for (name, n) in own.keys().filter(|key| !real.contains_key(key)) {
        lines.insert(format!("ours {name} {n}"));
    }
    lines
}

#[test]
fn every_difference_from_the_recording_has_a_reason() {
    let mut listed = BTreeSet::new();
    for line in include_str!("../../data/trace-differences.txt").lines() {
        if line.starts_with('#') || line.is_empty() {
            continue;
        }
        let (difference, reason) =
            line.split_once(" - ").unwrap_or_else(|| panic!("no reason: {line}"));
        assert!(reason.len() > 10, "{line}");
        assert!(listed.insert(String::from(difference.trim())), "twice: {line}");
    }
    let found = differences();
    let new: Vec<_> = found.difference(&listed).collect();
    let gone: Vec<_> = listed.difference(&found).collect();
    assert!(new.is_empty() && gone.is_empty(), "not listed: {new:#?}\nno longer so: {gone:#?}");
}

#[test]
fn the_commands_both_send_come_in_the_same_order() {
    // Up to the first event queue; what only one side sends is left out.
    let shared = |commands: Vec<Command>, other: &BTreeSet<String>| {
        let mut order: Vec<String> = Vec::new();
        for name in commands.iter().map(Command::name).filter(|name| other.contains(name)) {
            // The first time counts: how often each asks is in the list.
            if !order.contains(&name) {
                order.push(name);
            }
        }
        order
    };
    let names = |commands: &[Command]| commands.iter().map(Command::name).collect::<BTreeSet<_>>();
    let (real, own) = (recorded(), ours().0);
    let (real_names, own_names) = (names(&real), names(&own));
    let (real, own) = (shared(real, &own_names), shared(own, &real_names));
    let capability = |name: &String| {
        name.starts_with("QUERY_HCA_CAP/") && name != "QUERY_HCA_CAP/0" && name != "QUERY_HCA_CAP/1"
    };
    // The special capability blocks are read in an order of each one's own.
    let strip =
        |names: Vec<String>| names.into_iter().filter(|name| !capability(name)).collect::<Vec<_>>();
    let (real, own) = (strip(real), strip(own));
    assert!(own.len() > 10, "{own:?}");
    assert_eq!(own, real);
}

#[test]
fn every_command_is_dumped_in_the_kernel_driver_s_form() {
    let (commands, text) = ours();
    let heads = text.lines().filter(|line| line.starts_with("dump command ")).count();
    assert!(heads >= 2 * commands.len(), "{heads}");
    for op in [Opcode::EnableHca, Opcode::QueryHcaCap, Opcode::ManagePages, Opcode::TeardownHca] {
        for direction in ["INPUT", "OUTPUT"] {
            let head = format!("dump command {}({:#x}) {direction}", op.name(), op.code());
            assert!(text.contains(&head), "{head}");
        }
    }
    // Lines of 16 bytes: offset, four words. An entry is 64 bytes, a block 576, and offsets run on
    // through both.
    let mut expected = 0;
    for line in text.lines().filter(|line| !line.is_empty()) {
        if line.starts_with("dump command ") {
            expected = 0;
        } else if line != "command block:" {
            let (at, words) = line.split_once(": ").unwrap();
            assert_eq!(usize::from_str_radix(at, 16).unwrap(), expected, "{line}");
            let words: Vec<&str> = words.split(' ').collect();
            assert!(words.len() == 4 && words.iter().all(|word| word.len() == 8), "{line}");
            expected += 16;
        }
    }
}

#[test]
fn messages_of_the_dump_are_the_messages_sent() {
    // Put together again from entry and blocks: what an offline reader of the dump would see.
    let (commands, text) = ours();
    let mut dumps: Vec<(bool, Vec<u8>)> = Vec::new();
    for line in text.lines().filter(|line| !line.is_empty() && *line != "command block:") {
        if line.starts_with("dump command ") {
            dumps.push((line.ends_with("INPUT"), Vec::new()));
        } else {
            let words = line.split_once(": ").unwrap().1.replace(' ', "");
            let bytes = (0..words.len())
                .step_by(2)
                .map(|at| u8::from_str_radix(&words[at..at + 2], 16).unwrap());
            dumps.last_mut().unwrap().1.extend(bytes);
        }
    }
    let mut halves = dumps.into_iter();
    for command in commands {
        for message in [&command.input, &command.output] {
            let (input, bytes) = halves.next().unwrap();
            let (inline, length) = if input { (0x10, 4) } else { (0x20, 0x38) };
            let length = u32::from_be_bytes(bytes[length..length + 4].try_into().unwrap()) as usize;
            let mut joined = bytes[inline..inline + 16].to_vec();
            for block in bytes[64..].chunks(576) {
                joined.extend(&block[..512]);
            }
            joined.truncate(length);
            assert_eq!(&joined, message, "{}", command.name());
        }
    }
}
