//! Where each answer comes from: the file, or the nearest card of the model.

use super::gather::{ACCESS_REG, Gather, QUERY_ADAPTER, QUERY_HCA_CAP, QUERY_ISSI, QUERY_PAGES};
use super::gather::{QUERY_VPORT, Question};
use super::{BadLine, Recording, Replay, bounds, segments};
use crate::caps::{decides, kind};
use crate::cards::{self, Card};
use crate::config::{Config, Personality};
use crate::facts::{Facts, OpenFact};
use crate::ifc::pages::query_pages_out;
use crate::ifc::vport::nic_vport_context as ctx;
use crate::reg_access::id;

/// Capability blocks that the model has.
const BLOCKS: [(u16, &str); 5] = [
    (kind::GENERAL, "general"),
    (kind::ETHERNET, "Ethernet"),
    (kind::ATOMIC, "atomic"),
    (kind::ROCE, "RoCE"),
    (kind::FLOW_TABLE, "flow table"),
];
/// Registers that the model has of a port.
const REGISTERS: [(u32, &str); 6] = [
    (id::PMLP, "PMLP"),
    (id::PMTU, "PMTU"),
    (id::PTYS, "PTYS"),
    (id::PAOS, "PAOS"),
    (id::PFCC, "PFCC"),
    (id::DTOR, "DTOR"),
];
/// Of what the model's cards leave out, what the model has as far as a driver without a switch
/// needs it: the table of MACs, teardown in haste.
const IN_PART: [&str; 3] = ["eswitch_manager", "fast_teardown", "force_teardown"];
/// The three questions for pages.
const PAGES: [&str; 3] = ["boot", "initialization", "regular"];

/// The kind of card that a file is of, or the one most like it.
fn nearest(gather: &Gather) -> &'static Card {
    let named = gather.card.as_deref().and_then(Card::named);
    let device = gather.device;
    let same = |card: &&Card| device == Some(card.device_id.0);
    named.filter(same).unwrap_or_else(|| Card::nearest(device.unwrap_or(0)))
}

impl Gather {
    /// Joins what the file says with the nearest card.
    pub(super) fn finish(mut self) -> Result<Replay, BadLine> {
        if self.commands == 0 && self.program.is_none() {
            return Err(BadLine::new(self.lines.max(1), "direction", "there is no command"));
        }
        let card = nearest(&self);
        let mut sources = Sources { card: card.name, lacks: Vec::new() };
        let mut config = card.config();
        let mut recording = self.copied();
        if let Some(check) = &self.unfinished {
            sources.lacks.push(format!("ends within check {check}"));
        }
        self.identity(&mut config, &mut sources);
        self.capabilities(&mut recording, &mut sources)?;
        for (question, name) in [
            ((QUERY_ADAPTER, 0, 0), "QUERY_ADAPTER"),
            ((QUERY_ISSI, 0, 0), "QUERY_ISSI"),
            ((QUERY_VPORT, 0, 0), "NIC vport context"),
        ] {
            self.note(question, name, &mut sources);
        }
        for (register, name) in REGISTERS {
            self.note((ACCESS_REG, 1, register as u16), name, &mut sources);
        }
        self.ask_pages(&mut config, &mut sources)?;
        self.vport(&mut config)?;
        if recording.latencies.is_empty() {
            sources.lacks.push("lacks times of commands: each is answered at once".into());
        }
        config.facts = self.facts(&config, &recording, &mut sources);
        let source = format!(
            "{}: {} lines, {} commands, {} answers; nearest card {}",
            match (&self.program, self.device) {
                (Some(program), Some(device)) =>
                    format!("report by {program} of 15b3:{device:04x}"),
                _ => "recorded bring-up".into(),
            },
            self.lines,
            self.commands,
            self.answers.len(),
            card.name
        );
        Ok(Replay::new(config, recording, source, sources.lacks))
    }

    /// A line where the answer to a question is not the card's own.
    fn note(&self, question: Question, name: &str, sources: &mut Sources) {
        match self.answers.get(&question) {
            None => sources.lacking(name),
            Some(answer) if answer.set => {
                sources.lacks.push(format!("{name}: read after software had set it"));
            }
            Some(_) => {}
        }
    }

    fn identity(&mut self, config: &mut Config, sources: &mut Sources) {
        match self.device {
            Some(device) => config.device_id = device,
            None => sources.lacking("PCI device id"),
        }
        match &self.pci {
            Some((_, bytes)) => match segments::vectors(bytes) {
                Some(vectors) => config.vectors = vectors,
                None => sources.lacking("MSI-X vectors"),
            },
            None => sources.lacking("configuration space"),
        }
        match (&self.segment, self.ready) {
            (Some((_, bytes)), Some(ready)) => {
                config.init_time = ready * 1000;
                if segments::geometry(bytes).is_none() {
                    sources.lacking("command queue's size");
                }
                if segments::embedded_cpu(bytes) {
                    self.shows(OpenFact::EmbeddedCpu, "dpu");
                }
            }
            _ => sources.lacking("initialization segment"),
        }
    }

    /// Both sides of each capability block, without what the model does not have.
    fn capabilities(
        &self,
        recording: &mut Recording,
        sources: &mut Sources,
    ) -> Result<(), BadLine> {
        let Recording { max, current, .. } = recording;
        for (block, name) in BLOCKS {
            for (side, word) in [(0, "maximum"), (1, "current")] {
                let question = (QUERY_HCA_CAP, block << 1 | side, 0);
                let other = self.answer((QUERY_HCA_CAP, block << 1 | (1 - side), 0));
                let what = format!("{name} capabilities, {word}");
                match (self.answers.contains_key(&question), other) {
                    (false, Some(_)) if side == 0 => {
                        sources.lacks.push(format!("lacks {what}: the current ones"));
                    }
                    (false, Some(_)) => {
                        sources.lacks.push(format!("lacks {what}: the maximum"));
                    }
                    _ => self.note(question, &what, sources),
                }
            }
        }
        for (block, bytes) in &*current {
            max.entry(*block).or_insert_with(|| bytes.clone());
        }
        for (block, bytes) in &*max {
            let set = current.entry(*block).or_insert_with(|| bytes.clone());
            let line = self.answer((QUERY_HCA_CAP, *block << 1 | 1, 0)).map(|answer| answer.line);
            bounds::check_set(line.unwrap_or(self.lines), *block, bytes, set)?;
        }
        for name in cards::LEFT_OUT.iter().filter(|name| !IN_PART.contains(name)) {
            for block in [kind::GENERAL, kind::ETHERNET] {
                let Some(field) = cards::layout(block).field(name) else { continue };
                let sides = [&mut *max, &mut *current].into_iter();
                let mut had = false;
                for bytes in sides.filter_map(|blocks| blocks.get_mut(&block)) {
                    had |= field.is_set(bytes);
                    field.set(bytes, 0);
                }
                if had {
                    sources.lacks.push(format!("hides {name}: the model has not got it"));
                }
            }
        }
        Ok(())
    }

    fn ask_pages(&self, config: &mut Config, sources: &mut Sources) -> Result<(), BadLine> {
        for (which, name) in (0..).zip(PAGES) {
            let answer = self.answer((QUERY_PAGES, which as u16 + 1, 0));
            let said = answer
                .map(|answer| {
                    0_i32.wrapping_add_unsigned(query_pages_out::num_pages.get(&answer.output))
                })
                .or(self.pages[which]);
            let Some(count) = said else {
                sources.lacking(&format!("{name} pages"));
                continue;
            };
            let line = answer.map_or(self.lines, |answer| answer.line);
            let least = || BadLine::new(line, "out: num_pages", format!("{count} {name} pages"));
            match which {
                0 => config.boot_pages = u32::try_from(count).map_err(|_| least())?,
                1 => config.init_pages = Some(u32::try_from(count).map_err(|_| least())?),
                _ => config.regular_pages = count,
            }
        }
        Ok(())
    }

    fn vport(&mut self, config: &mut Config) -> Result<(), BadLine> {
        let Some(answer) = self.answer((QUERY_VPORT, 0, 0)) else { return Ok(()) };
        let bad = |field: &str, what: String| {
            let field = format!("out: nic_vport_context.{field}");
            Err(BadLine::new(answer.line, field, what))
        };
        let context = answer.output.get(16..).unwrap_or_default();
        let mtu = ctx::mtu.get(context);
        if mtu != 0 && !(68..=0x4000).contains(&mtu) {
            return bad("mtu", format!("frames of {mtu} bytes"));
        }
        if ctx::min_wqe_inline_mode.get(context) > 2 {
            return bad("min_wqe_inline_mode", "a mode that no card has".into());
        }
        let [_, _, mac @ ..] = ctx::permanent_address.get64(context).to_be_bytes();
        if mac[0] & 1 != 0 {
            return bad("permanent_address", "a multicast address".into());
        }
        match (mac == [0; 6], config.personality) {
            (false, _) => {
                config.mac = mac;
                config.addressed = true;
            }
            (true, Personality::Vf) => config.addressed = false,
            (true, Personality::Pf) => self.shows(OpenFact::Mac, "zero"),
        }
        Ok(())
    }

    /// The card's settings, but for what the file decides; those of the file last.
    fn facts(&self, config: &Config, recording: &Recording, sources: &mut Sources) -> Facts {
        let mut facts = Facts::default();
        let of_file = [
            (OpenFact::InitPages, config.init_pages.is_some()),
            (OpenFact::PortMtu, recording.registers.contains_key(&(id::PMTU as u16))),
            (OpenFact::Mac, recording.vport.is_some()),
            (OpenFact::EmbeddedCpu, recording.segment.is_some()),
        ];
        for fact in OpenFact::ALL {
            let decided = of_file.iter().find(|(own, _)| own == fact).map_or_else(
                || decides(*fact).is_some_and(|block| recording.max.contains_key(&block)),
                |(_, decided)| *decided,
            );
            if decided || self.known_facts.contains(fact) {
                continue;
            }
            let setting = config.facts.setting(*fact);
            let known = facts.set(*fact, setting.name);
            debug_assert!(known.is_ok());
            let from = if setting == fact.settings()[0] { "the model" } else { sources.card };
            sources.lacks.push(format!("lacks fact {}: {}, of {from}", fact.name(), setting.name));
        }
        facts.extend([self.facts.clone()]);
        facts
    }
}

/// The lines of what the file lacks.
struct Sources {
    card: &'static str,
    lacks: Vec<String>,
}

impl Sources {
    fn lacking(&mut self, answer: &str) {
        self.lacks.push(format!("lacks {answer}: that of {}", self.card));
    }
}
