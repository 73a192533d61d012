//! Collects the first answer to each question, and what else the lines of a file say.

use super::{BadLine, Recording, bounds};
use crate::cmd::table;
use crate::facts::{Facts, OpenFact};
use crate::ifc::cmd::{head_in, head_out};
use crate::ifc::hca::query_hca_cap_in;
use crate::ifc::pages::query_pages_out;
use crate::ifc::regs::access_register_in as access;
use crate::watch::Half;
use crate::watch::trace::{Message, messages};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Opcode, modifier, register.
pub(super) type Question = (u16, u16, u16);

pub(super) const QUERY_HCA_CAP: u16 = 0x100;
pub(super) const QUERY_ADAPTER: u16 = 0x101;
pub(super) const QUERY_PAGES: u16 = 0x107;
const SET_HCA_CAP: u16 = 0x109;
pub(super) const QUERY_ISSI: u16 = 0x10a;
pub(super) const QUERY_VPORT: u16 = 0x754;
const MODIFY_VPORT: u16 = 0x755;
pub(super) const ACCESS_REG: u16 = 0x805;
/// Registers that count, or whose contents are the cable's.
const MEASURED: [u16; 2] = [0x5008, 0x9014];
/// Declares the byte order: written, never read.
const HOST_ENDIANNESS: u16 = 0x7004;

/// Most questions of which the answer is kept.
const QUESTIONS: usize = 512;
/// Most kinds of command of which the time is kept.
const KINDS: usize = 2048;
/// Most bytes of a question or answer that are kept: a capability block's.
const KEPT: usize = 4112;
/// Most commands that wait for an answer: slots of a command queue.
const SLOTS: usize = 32;

/// The answer to a question.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) line: usize,
    pub(super) asked: Vec<u8>,
    pub(super) output: Vec<u8>,
    /// Software had set it before.
    pub(super) set: bool,
}

impl Answer {
    fn refused(&self) -> bool {
        head_out::status.is_set(&self.output)
    }
}

/// What has been read of a file.
#[derive(Debug, Default)]
pub(super) struct Gather {
    pub(super) answers: BTreeMap<Question, Answer>,
    set: BTreeSet<Question>,
    times: BTreeMap<(u16, u16), (u64, u64)>,
    /// Settings that a line names or an answer shows.
    pub(super) facts: Facts,
    pub(super) known_facts: BTreeSet<OpenFact>,
    /// Vendor and device.
    pub(super) device: Option<u16>,
    pub(super) card: Option<String>,
    pub(super) program: Option<String>,
    pub(super) segment: Option<(usize, Vec<u8>)>,
    /// Microseconds until the firmware was ready.
    pub(super) ready: Option<u64>,
    pub(super) pci: Option<(usize, Vec<u8>)>,
    /// Pages at boot, at initialization, regular: of a line of their own.
    pub(super) pages: [Option<i32>; 3],
    pub(super) lines: usize,
    pub(super) commands: usize,
    /// The check that was announced last and has not ended.
    pub(super) unfinished: Option<String>,
}

impl Gather {
    /// Reads a recorded bring-up.
    pub(super) fn recording(&mut self, text: &str) -> Result<(), BadLine> {
        self.lines = text.lines().count();
        let dumps = text.contains("dump command ");
        let known = |line: &str| {
            let comment = line.trim().is_empty() || line.starts_with('#');
            dumps || comment || line.starts_with("in ") || line.starts_with("out ")
        };
        if let Some((line, text)) = (1..).zip(text.lines()).find(|(_, line)| !known(line)) {
            let word: String = text.chars().take(20).collect();
            return Err(BadLine::new(line, "direction", format!("{word:?} is not in or out")));
        }
        let mut waiting: BTreeMap<u16, VecDeque<Message>> = BTreeMap::new();
        messages(text, |message| {
            let Message { line, opcode, .. } = message;
            if message.bytes.len() < message.length {
                let there = message.bytes.len();
                let what = format!("{} bytes are declared, {there} are there", message.length);
                return Err(BadLine::new(line, "length", what));
            }
            if message.half == Half::Input {
                waiting.entry(opcode).or_default().push_back(message);
                if waiting.values().map(VecDeque::len).sum::<usize>() > SLOTS {
                    let what = format!("more than {SLOTS} commands wait for an answer");
                    return Err(BadLine::new(line, "direction", what));
                }
                return Ok(());
            }
            let asked = waiting.get_mut(&opcode).and_then(VecDeque::pop_front);
            let asked = asked.ok_or_else(|| {
                BadLine::new(line, "opcode", format!("{opcode:#x} answers no command"))
            })?;
            self.command(line, &asked.bytes, &message.bytes, None)
        })?;
        if let Some(left) = waiting.values().flatten().min_by_key(|left| left.line) {
            let what = format!("the answer to {:#x} is missing", left.opcode);
            return Err(BadLine::new(left.line, "opcode", what));
        }
        Ok(())
    }

    /// One command with its answer, and how many microseconds it took.
    pub(super) fn command(
        &mut self,
        line: usize,
        input: &[u8],
        output: &[u8],
        took: Option<u64>,
    ) -> Result<(), BadLine> {
        self.commands += 1;
        for (name, bytes) in [("in", input), ("out", output)] {
            if bytes.len() < 8 {
                let what = format!("{} bytes, and a command has 8 at least", bytes.len());
                return Err(BadLine::new(line, name, what));
            }
        }
        let opcode = head_in::opcode.get(input) as u16;
        let op_mod = head_in::op_mod.get(input) as u16;
        let register = if opcode == ACCESS_REG { access::register_id.get(input) as u16 } else { 0 };
        let refused = head_out::status.is_set(output);
        if let Some(took) = took {
            self.time(line, (opcode, op_mod), took)?;
        }
        let shortest = table::find(opcode).map_or(8, |row| row.output);
        if !refused && output.len() < shortest && kept((opcode, op_mod, register)) {
            let name = table::find(opcode).map_or("the command", |row| row.name);
            let what = format!("{} bytes, and {name} answers {shortest}", output.len());
            return Err(BadLine::new(line, "out", what));
        }
        match opcode {
            SET_HCA_CAP => drop(self.set.insert((QUERY_HCA_CAP, op_mod | 1, 0))),
            MODIFY_VPORT => drop(self.set.insert((QUERY_VPORT, 0, 0))),
            ACCESS_REG if op_mod == 0 => {
                self.set.insert((ACCESS_REG, 1, register));
                if register == HOST_ENDIANNESS && refused {
                    self.shows(OpenFact::HostEndianness, "unknown");
                }
            }
            _ => {}
        }
        // Of another function.
        let other = query_hca_cap_in::other_function.is_set(input);
        if matches!(opcode, QUERY_HCA_CAP | QUERY_VPORT) && other {
            return Ok(());
        }
        let question = (opcode, op_mod, register);
        let set = self.set.contains(&question);
        // An answer from before it was set is the card's own.
        if !kept(question) || self.answers.contains_key(&question) {
            return Ok(());
        }
        if self.answers.len() == QUESTIONS {
            let what = format!("more than {QUESTIONS} kinds of question");
            return Err(BadLine::new(line, "op_mod", what));
        }
        let cut = |bytes: &[u8]| bytes[..bytes.len().min(KEPT)].to_vec();
        let answer = Answer { line, asked: cut(input), output: cut(output), set };
        if opcode == QUERY_HCA_CAP && !answer.refused() {
            let which = if op_mod & 1 == 1 { "current" } else { "maximum" };
            bounds::check(line, op_mod >> 1, which, &answer.output[16..])?;
        }
        if opcode == QUERY_PAGES && !answer.refused() {
            pages(
                line,
                "out: num_pages",
                0_i32.wrapping_add_unsigned(query_pages_out::num_pages.get(output)),
            )?;
        }
        if opcode == ACCESS_REG && !answer.refused() {
            bounds::check_register(line, register, &answer.output[16..])?;
        }
        self.answers.insert(question, answer);
        Ok(())
    }

    fn time(&mut self, line: usize, kind: (u16, u16), took: u64) -> Result<(), BadLine> {
        if self.times.len() == KINDS && !self.times.contains_key(&kind) {
            return Err(BadLine::new(
                line,
                "op_mod",
                format!("more than {KINDS} kinds of command"),
            ));
        }
        let (sum, count) = self.times.entry(kind).or_default();
        *sum += took;
        *count += 1;
        Ok(())
    }

    /// What a card did decides a fact, unless a line has named it.
    pub(super) fn shows(&mut self, fact: OpenFact, setting: &str) {
        if self.known_facts.insert(fact) {
            let known = self.facts.set(fact, setting);
            debug_assert!(known.is_ok());
        }
    }

    /// The answer to a question, if the card gave one.
    pub(super) fn answer(&self, question: Question) -> Option<&Answer> {
        self.answers.get(&question).filter(|answer| !answer.refused())
    }

    /// What can be copied as it is.
    pub(super) fn copied(&self) -> Recording {
        let mut recording = Recording {
            segment: self.segment.as_ref().map(|(_, bytes)| bytes.clone()),
            pci: self.pci.as_ref().map(|(_, bytes)| bytes.clone()),
            ..Recording::default()
        };
        for (kind, (sum, count)) in &self.times {
            recording.latencies.insert(*kind, sum / count * 1000);
        }
        for (&(opcode, op_mod, register), answer) in &self.answers {
            let output = &answer.output;
            if answer.refused() {
                let status = head_out::status.get(output) as u8;
                let refusal =
                    crate::cmd::Refusal { status, syndrome: head_out::syndrome.get(output) };
                recording.refused.insert((opcode, op_mod, register), refusal);
                continue;
            }
            let body = output.get(16..).unwrap_or_default().to_vec();
            match opcode {
                QUERY_HCA_CAP if op_mod & 1 == 1 => {
                    recording.current.insert(op_mod >> 1, body);
                }
                QUERY_HCA_CAP => {
                    recording.max.insert(op_mod >> 1, body);
                }
                QUERY_ADAPTER => recording.adapter = Some(body),
                QUERY_VPORT => recording.vport = Some(body),
                QUERY_ISSI => {
                    let versions = crate::ifc::hca::query_issi_out::supported_issi_dw0.get(output);
                    recording.issi = Some(versions);
                }
                ACCESS_REG => {
                    let asked = answer.asked.get(16..).unwrap_or_default().to_vec();
                    recording.registers.insert(register, (asked, body));
                }
                _ => {}
            }
        }
        recording
    }
}

/// Whether the answer to a question is the card's own word of itself.
fn kept((opcode, op_mod, register): Question) -> bool {
    match opcode {
        QUERY_HCA_CAP | QUERY_PAGES => true,
        QUERY_ADAPTER | QUERY_ISSI | QUERY_VPORT => op_mod == 0,
        ACCESS_REG => op_mod == 1 && !MEASURED.contains(&register),
        _ => false,
    }
}

/// A number of pages that a firmware may ask for.
pub(super) fn pages(line: usize, field: &str, count: i32) -> Result<i32, BadLine> {
    if i64::from(count).abs() > bounds::PAGES {
        let what = format!("{count}, and no firmware asks for more than {}", bounds::PAGES);
        return Err(BadLine::new(line, field, what));
    }
    Ok(count)
}
