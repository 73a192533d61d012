//! Notes of every field that was ever set, its writer and its message.
//!
//! A note is a class, a place and a path: `in CREATE_QP qpc.log_sq_size`, `wqe RDMA_WRITE
//! wqe_raddr.rkey`, `cqe plain byte_cnt`. Values stand behind it, the four smallest, or a word that
//! says why they would differ from run to run. The text is sorted and can be read back and added
//! to, so that many runs make one file.

use super::messages::{self, Half, Leaf, Means};
use super::{Observer, Seen, Sends};
use crate::eq::kind;
use crate::ifc::Layout;
use crate::ifc::cqe::{cqe, err_cqe};
use crate::ifc::eq::eqe;
use crate::ifc::mkey::{mkc, umr_ctrl};
use crate::ifc::wqe::{
    wqe_atomic, wqe_av, wqe_ctrl, wqe_data, wqe_eth, wqe_inline, wqe_raddr, wqe_srq_next, wqe_xrc,
};
use rustix::fs::{FlockOperation, flock};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs::File;
use std::io::{self, Read as _, Seek as _, Write as _};
use std::path::Path;
use std::sync::{Arc, Mutex};

/// Class of the notes that the model has looked at a field, which only builds with feature `seeded`
/// make.
const HEEDED: &str = "model";
/// Values kept of a field.
const MOST_VALUES: usize = 4;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Note {
    values: BTreeSet<u64>,
    more: bool,
}

impl Note {
    fn add(&mut self, value: u64) {
        self.values.insert(value);
        if self.values.len() > MOST_VALUES {
            self.values.pop_last();
            self.more = true;
        }
    }
}

#[derive(Debug, Default)]
struct Notes {
    /// By class, place and path.
    notes: BTreeMap<(String, String, String), Note>,
    /// Capabilities as the device said them last, by operation modifier: what SET_HCA_CAP repeats
    /// is not set by it.
    current: BTreeMap<u8, Vec<u8>>,
}

impl Notes {
    fn note(&mut self, class: &str, place: &str, leaf: &Leaf) {
        let key = (class.into(), place.into(), leaf.path.clone());
        self.notes.entry(key).or_default().add(leaf.value);
    }

    fn command(&mut self, opcode: u16, input: &[u8], output: &[u8]) {
        let name = messages::name(opcode, input);
        let mut sent = messages::leaves(opcode, input, input, Half::Input);
        let kind = input.get(7).copied().unwrap_or(0) >> 1;
        match opcode {
            // Bit 0 asks for the current values, not for the possible ones.
            0x100 if input.get(7).is_some_and(|op_mod| op_mod & 1 != 0) => {
                let block = output.get(16..).unwrap_or_default().to_vec();
                self.current.insert(kind, block);
            }
            0x109 => {
                let current = self.current.get(&kind).map_or(&[][..], Vec::as_slice);
                sent = changed(input, current, &sent);
            }
            _ => {}
        }
        for leaf in sent.iter().filter(|leaf| leaf.path != "opcode") {
            self.note("in", &name, leaf);
        }
        if opcode != 0x100 {
            for leaf in messages::leaves(opcode, input, output, Half::Output) {
                self.note("out", &name, &leaf);
            }
        }
    }

    /// Fields of one layout in `bytes`, unnamed bits included.
    fn segment(&mut self, class: &str, place: &str, layout: &Layout, bytes: &[u8]) {
        let mut found = Vec::new();
        let bytes = bytes.get(..layout.bytes).unwrap_or(bytes);
        let mut seen = vec![false; bytes.len() * 8];
        let prefix = match class {
            "wqe" => format!("{}.", layout.name),
            _ => String::new(),
        };
        messages::set(&prefix, layout, 0, bytes, &mut seen, &mut found);
        messages::unnamed_bits(bytes, &seen, &mut found);
        for leaf in found {
            self.note(class, place, &leaf);
        }
    }

    /// One segment of a work request; gives what is behind it.
    fn take<'b>(&mut self, name: &str, layout: &Layout, bytes: &'b [u8]) -> &'b [u8] {
        let (head, rest) = bytes.split_at(layout.bytes.min(bytes.len()));
        self.segment("wqe", name, layout, head);
        rest
    }

    fn send(&mut self, kind: Sends, bytes: &[u8]) {
        let opcode = wqe_ctrl::opcode.declared(bytes) as u8;
        let name = send_name(kind, opcode);
        self.segment("wqe", &name, &wqe_ctrl::LAYOUT, bytes);
        let mut rest = bytes.get(wqe_ctrl::BYTES..).unwrap_or_default();
        if kind == Sends::Xrc && !matches!(opcode, 0x00 | 0x1b | 0x25) {
            rest = self.take(&name, &wqe_xrc::LAYOUT, rest);
        }
        match (kind, opcode) {
            (Sends::Datagrams, _) => rest = self.take(&name, &wqe_av::LAYOUT, rest),
            (Sends::Frames, 0x0a | 0x0e) => {
                let inline = wqe_eth::inline_hdr_size.declared(rest) as usize;
                let vlan = wqe_eth::insert_vlan.declared(rest) != 0;
                rest = self.take(&name, &wqe_eth::LAYOUT, rest);
                // Headers beyond the two bytes that the segment itself has room for.
                let beyond = if vlan { 0 } else { inline.saturating_sub(2) };
                rest = rest.get(beyond.next_multiple_of(16)..).unwrap_or_default();
            }
            (_, 0x08 | 0x09 | 0x10) => rest = self.take(&name, &wqe_raddr::LAYOUT, rest),
            (_, 0x11 | 0x12) => {
                rest = self.take(&name, &wqe_raddr::LAYOUT, rest);
                rest = self.take(&name, &wqe_atomic::LAYOUT, rest);
            }
            (_, 0x25) => {
                let inline = umr_ctrl::flags.declared(rest) & 0x80 != 0;
                rest = self.take(&name, &umr_ctrl::LAYOUT, rest);
                rest = self.take(&name, &mkc::LAYOUT, rest);
                if inline {
                    return self.pointers(&name, rest);
                }
            }
            (_, 0x00 | 0x1b) => return,
            _ => {}
        }
        self.data(&name, rest);
    }

    /// Data pointers of a receive, where the bit that means inline data elsewhere asks for padding;
    /// or entries of a translation in the work request, which are like them.
    fn pointers(&mut self, name: &str, rest: &[u8]) {
        for entry in rest.chunks_exact(16) {
            self.segment("wqe", name, &wqe_data::LAYOUT, entry);
        }
    }

    fn data(&mut self, name: &str, mut rest: &[u8]) {
        while rest.len() >= 16 {
            let length = if wqe_data::inline.declared(rest) != 0 {
                self.segment("wqe", name, &wqe_inline::LAYOUT, rest);
                (4 + wqe_inline::byte_count.declared(rest) as usize).next_multiple_of(16)
            } else {
                self.segment("wqe", name, &wqe_data::LAYOUT, rest);
                16
            };
            rest = rest.get(length..).unwrap_or_default();
        }
    }

    fn completion(&mut self, bytes: &[u8]) {
        match cqe::opcode.declared(bytes) {
            13 | 14 => self.segment("cqe", "error", &err_cqe::LAYOUT, bytes),
            _ => self.segment("cqe", "plain", &cqe::LAYOUT, bytes),
        }
    }

    fn event(&mut self, bytes: &[u8]) {
        let name = event_name(eqe::event_type.declared(bytes) as u8);
        self.segment("eqe", &name, &eqe::LAYOUT, bytes);
    }
}

/// Of the fields of SET_HCA_CAP, those that are not as the device said them.
fn changed(input: &[u8], current: &[u8], sent: &[Leaf]) -> Vec<Leaf> {
    let mut difference = input.to_vec();
    for (byte, was) in difference.iter_mut().skip(16).zip(current) {
        *byte ^= was;
    }
    let mut leaves = messages::leaves(0x109, input, &difference, Half::Input);
    for leaf in &mut leaves {
        let now = sent.iter().find(|other| other.path == leaf.path);
        leaf.value = now.map_or(0, |leaf| leaf.value);
    }
    leaves
}

fn send_name(kind: Sends, opcode: u8) -> String {
    let name = match opcode {
        0x00 => "NOP",
        0x01 => "SEND_INVAL",
        0x08 => "RDMA_WRITE",
        0x09 => "RDMA_WRITE_IMM",
        0x0a => "SEND",
        0x0b => "SEND_IMM",
        0x0e => "LSO",
        0x10 => "RDMA_READ",
        0x11 => "ATOMIC_CS",
        0x12 => "ATOMIC_FA",
        0x1b => "LOCAL_INVAL",
        0x25 => "UMR",
        _ => return format!("opcode_{opcode:#x}"),
    };
    match kind {
        Sends::Messages => name.into(),
        Sends::Xrc => format!("XRC_{name}"),
        Sends::Datagrams => format!("UD_{name}"),
        Sends::Frames => format!("ETH_{name}"),
    }
}

fn event_name(event: u8) -> String {
    let name = match event {
        kind::COMPLETION => "COMPLETION",
        kind::COMM_ESTABLISHED => "COMM_ESTABLISHED",
        kind::CQ_ERROR => "CQ_ERROR",
        kind::WQ_CATASTROPHIC => "WQ_CATASTROPHIC",
        kind::PORT_CHANGE => "PORT_CHANGE",
        kind::COMMAND => "COMMAND",
        kind::PAGE_REQUEST => "PAGE_REQUEST",
        kind::NIC_VPORT_CHANGE => "NIC_VPORT_CHANGE",
        kind::WQ_INVALID_REQUEST => "WQ_INVALID_REQUEST",
        kind::WQ_ACCESS_ERROR => "WQ_ACCESS_ERROR",
        kind::LAST_WQE_REACHED => "LAST_WQE_REACHED",
        kind::SRQ_LIMIT => "SRQ_LIMIT",
        _ => return format!("event_{event:#x}"),
    };
    name.into()
}

/// The notes; clones share them, so one may stay with a device and another be asked.
#[derive(Clone, Debug, Default)]
pub struct Fields(Arc<Mutex<Notes>>);

impl Fields {
    fn with<T>(&self, f: impl FnOnce(&mut Notes) -> T) -> T {
        f(&mut self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner()))
    }

    /// Notes that the model looked at fields, by layout and name.
    pub fn heeded(&self, names: impl IntoIterator<Item = (&'static str, &'static str)>) {
        self.with(|notes| {
            for (layout, field) in names {
                let key = (HEEDED.into(), layout.into(), field.into());
                notes.notes.entry(key).or_default();
            }
        });
    }

    /// Takes a command over that was recorded elsewhere.
    pub fn command(&self, opcode: u16, input: &[u8], output: &[u8]) {
        self.with(|notes| notes.command(opcode, input, output));
    }

    /// Adds the notes to those of a file, which others may be adding to as well.
    ///
    /// # Errors
    ///
    /// The file cannot be read or written, or has something else in it.
    pub fn add_to(&self, path: &Path) -> io::Result<()> {
        let mut file =
            File::options().read(true).write(true).create(true).truncate(false).open(path)?;
        flock(&file, FlockOperation::LockExclusive)?;
        let mut text = String::new();
        file.read_to_string(&mut text)?;
        self.add(&text).map_err(io::Error::other)?;
        file.set_len(0)?;
        file.rewind()?;
        file.write_all(self.to_string().as_bytes())
    }

    /// Adds notes of earlier runs, in the form in which they are displayed.
    ///
    /// # Errors
    ///
    /// Says which line is none.
    pub fn add(&self, text: &str) -> Result<(), String> {
        let lines = text.lines().map(str::trim_end);
        for line in lines.filter(|line| !line.is_empty() && !line.starts_with('#')) {
            let parsed = (|| {
                let (key, values) = line.split_once(": ")?;
                let mut words = key.splitn(3, ' ');
                let key = (words.next()?, words.next()?, words.next()?);
                Some((key, values))
            })();
            let ((class, place, path), values) =
                parsed.ok_or_else(|| format!("not a note: {line}"))?;
            self.with(|notes| {
                let key = (class.into(), place.into(), path.into());
                let note = notes.notes.entry(key).or_default();
                for word in values.split(' ') {
                    match word.strip_prefix("0x") {
                        Some(digits) => {
                            note.add(u64::from_str_radix(digits, 16).map_err(|e| e.to_string())?);
                        }
                        None if word == "..." => note.more = true,
                        None => {}
                    }
                }
                Ok::<(), String>(())
            })?;
        }
        Ok(())
    }
}

impl Observer for Fields {
    fn saw(&mut self, seen: &Seen<'_>) {
        self.with(|notes| match *seen {
            Seen::Command { opcode, input, output } => notes.command(opcode, input, output),
            Seen::Send { kind, bytes } => notes.send(kind, bytes),
            Seen::Receive { bytes } => notes.pointers("RECEIVE", bytes),
            Seen::Shared { linked, bytes } => {
                let mut rest = bytes;
                if linked {
                    notes.segment("wqe", "SHARED", &wqe_srq_next::LAYOUT, bytes);
                    rest = bytes.get(wqe_srq_next::BYTES..).unwrap_or_default();
                }
                notes.pointers("SHARED", rest);
            }
            Seen::Completion { bytes } => notes.completion(bytes),
            Seen::Event { bytes } => notes.event(bytes),
        });
    }
}

impl fmt::Display for Fields {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.with(|notes| {
            for ((class, place, path), note) in &notes.notes {
                write!(f, "{class} {place} {path}:")?;
                if class == HEEDED {
                    writeln!(f, " reads")?;
                    continue;
                }
                match Means::of(path) {
                    means @ (Means::Address | Means::Handle | Means::Random | Means::Identity) => {
                        write!(f, " {}", means.word())?
                    }
                    Means::Value => {
                        for value in &note.values {
                            write!(f, " {value:#x}")?;
                        }
                        if note.more {
                            write!(f, " ...")?;
                        }
                    }
                }
                writeln!(f)?;
            }
            Ok(())
        })
    }
}
