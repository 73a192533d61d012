//! Personalities: cards by name, each field with its evidence.
//!
//! A card is a profile ([`Profile::Big`](crate::Profile::Big), a ConnectX-4's own word) with what
//! is known to differ: PCI identity, capabilities, settings of open facts. Where nobody printed a
//! value it is named as guessed; `docs/cards.md` is [`markdown`] of the table.

mod table;

use crate::config::{Config, Personality};
use crate::facts::{Facts, OpenFact};
use crate::ifc::Layout;
use crate::ifc::caps::{atomic_caps, cmd_hca_cap, eth_caps, flow_table_nic_cap, roce_cap};
pub use table::CARDS;
pub(crate) use table::LEFT_OUT;

/// A capability that differs from the profile.
#[derive(Debug)]
pub(crate) struct Cap {
    /// Block number.
    pub(crate) block: u16,
    /// The PRM's name.
    pub(crate) name: &'static str,
    /// What the card could do.
    pub(crate) max: u32,
    /// What it is set to at power-on.
    pub(crate) current: u32,
    /// Who said so.
    pub(crate) evidence: &'static str,
}

/// One kind of card.
#[derive(Debug)]
pub struct Card {
    /// Name, as `--card` takes it.
    pub name: &'static str,
    /// PCI device id, and its evidence.
    pub(crate) device_id: (u16, &'static str),
    /// Firmware version, and its evidence.
    pub(crate) firmware: ((u32, u32, u32), &'static str),
    /// Physical or virtual.
    pub(crate) personality: Personality,
    /// Answer to the query for regular pages, and its evidence.
    pub(crate) regular_pages: (i32, &'static str),
    /// Time limits as the DTOR register has them; empty without the register.
    pub(crate) time_limits: (&'static [u32], &'static str),
    /// Lists of capabilities; a later one wins.
    pub(crate) caps: &'static [&'static [Cap]],
    /// Settings of open facts, and their evidence.
    pub(crate) facts: &'static [(OpenFact, &'static str, &'static str)],
}

/// The layout of a block.
pub(crate) fn layout(block: u16) -> Layout {
    match block {
        1 => eth_caps::LAYOUT,
        3 => atomic_caps::LAYOUT,
        4 => roce_cap::LAYOUT,
        7 => flow_table_nic_cap::LAYOUT,
        _ => cmd_hca_cap::LAYOUT,
    }
}

impl Card {
    /// The card of a name, which may leave out `connectx-`.
    #[must_use]
    pub fn named(name: &str) -> Option<&'static Self> {
        let short = |card: &Self| card.name.strip_prefix("connectx-") == Some(name);
        CARDS.iter().find(|card| card.name == name || short(card))
    }

    /// The card of a PCI device id, or the one most like it: of virtual functions, which have even
    /// ids, the virtual one, else the last before it. No id at all is the profile's card.
    #[must_use]
    pub fn nearest(device_id: u16) -> &'static Self {
        let of = |name| CARDS.iter().find(|card| card.name == name);
        let exact = CARDS.iter().find(|card| card.device_id.0 == device_id);
        let virtual_ids = [0x1014, 0x1016, 0x1018, 0x101a, 0x101c, 0x101e];
        let vf = of("vf").filter(|_| virtual_ids.contains(&device_id));
        let before = |card: &&Self| {
            let id = card.device_id.0;
            card.personality == Personality::Pf && id >> 8 == device_id >> 8 && id < device_id
        };
        let before = CARDS.iter().filter(before).max_by_key(|card| card.device_id.0);
        exact.or(vf).or(before).unwrap_or(&CARDS[0])
    }

    /// A device of this kind.
    #[must_use]
    pub fn config(&'static self) -> Config {
        let mut facts = Facts::default();
        for (fact, setting, _) in self.facts {
            // The tests look whether each is one.
            let known = facts.set(*fact, setting);
            debug_assert!(known.is_ok());
        }
        Config {
            personality: self.personality,
            device_id: self.device_id.0,
            addressed: self.personality == Personality::Pf,
            regular_pages: self.regular_pages.0,
            card: Some(self),
            facts,
            ..Config::default()
        }
    }

    /// Its capabilities, each once.
    pub(crate) fn caps(&self) -> impl Iterator<Item = &'static Cap> + '_ {
        let all: Vec<&'static Cap> = self.caps.iter().flat_map(|list| list.iter()).collect();
        let last = |cap: &&Cap| {
            let same = |other: &&&'static Cap| (other.block, other.name) == (cap.block, cap.name);
            all.iter().rfind(same).is_some_and(|last| std::ptr::eq(*last, *cap))
        };
        all.iter().copied().filter(last).collect::<Vec<_>>().into_iter()
    }
}

/// Every card, field by field, with its evidence.
#[must_use]
pub fn markdown() -> String {
    let mut text = String::from(
        "# Cards of the device model\n\n\
         `mlx5-model --card NAME`. Made by `mlx5-model --cards list > docs/cards.md`; a test of \
         the model\ncompares. What a table does not name is as in the recorded ConnectX-4, which \
         for the other cards is\na guess. \"guessed\" means that no public source prints the \
         value.\n",
    );
    for card in CARDS {
        let (major, minor, patch) = card.firmware.0;
        text += &format!("\n## {}\n\n| field | value | evidence |\n|---|---|---|\n", card.name);
        let mut row = |field: &str, value: &str, evidence: &str| {
            text += &format!("| {field} | {value} | {evidence} |\n");
        };
        row("PCI device id", &format!("{:#06x}", card.device_id.0), card.device_id.1);
        row("firmware", &format!("{major}.{minor}.{patch}"), card.firmware.1);
        row("regular pages", &card.regular_pages.0.to_string(), card.regular_pages.1);
        if !card.time_limits.0.is_empty() {
            row("DTOR", &format!("{} words", card.time_limits.0.len()), card.time_limits.1);
        }
        for cap in card.caps() {
            let value = if cap.max == cap.current {
                cap.max.to_string()
            } else {
                format!("{}, {} at power-on", cap.max, cap.current)
            };
            row(&format!("{}.{}", layout(cap.block).name, cap.name), &value, cap.evidence);
        }
        for (fact, setting, evidence) in card.facts {
            row(&format!("fact {}", fact.name()), setting, evidence);
        }
    }
    text += "\n# Left out\n\nThe ConnectX-6 Dx announces these; the model has not got them, and so \
             claims none: ";
    text += &LEFT_OUT.join(", ");
    text += ".\n";
    text
}

#[cfg(test)]
mod tests {
    use super::{CARDS, layout};
    use crate::facts::Facts;

    #[test]
    fn every_name_and_setting_is_one() {
        for card in CARDS {
            for cap in card.caps() {
                let field = layout(cap.block).field(cap.name);
                let width = field.map(|field| field.width);
                let fits = width.is_some_and(|width| u64::from(cap.max) < 1 << width);
                assert!(fits, "{} {}", card.name, cap.name);
                assert!(cap.current <= cap.max && !cap.evidence.is_empty(), "{}", cap.name);
            }
            let mut facts = Facts::default();
            for (fact, setting, evidence) in card.facts {
                assert!(facts.set(*fact, setting).is_ok(), "{} {setting}", card.name);
                assert!(!evidence.is_empty());
            }
        }
    }
}
