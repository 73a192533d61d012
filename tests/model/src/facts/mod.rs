//! Open facts: what public sources do not decide about silicon, each a switch with its settings.
//!
//! [`OpenFact`] is the list (`table.rs`), with the source that leaves each open. The first setting
//! of each is the model's default. A [`Facts`] holds what was chosen:
//!
//! ```
//! let facts: mlx5_model::Facts = "link=after-20s,mac=zero".parse()?;
//! let config = mlx5_model::Config { facts, ..Default::default() };
//! # Ok::<(), mlx5_model::UnknownFact>(())
//! ```

mod table;

pub use table::OpenFact;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

/// One setting of a fact.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setting {
    /// Name, as `--fact NAME=SETTING` takes it.
    pub name: &'static str,
    /// What the model makes of it; the fact's own unit.
    pub(crate) value: u64,
}

/// One row of the table.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) name: &'static str,
    pub(crate) what: &'static str,
    pub(crate) settings: &'static [Setting],
    pub(crate) source: &'static str,
}

impl OpenFact {
    /// Name, as `--fact NAME=SETTING` takes it.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.row().name
    }

    /// The question that it answers.
    #[must_use]
    pub fn what(self) -> &'static str {
        self.row().what
    }

    /// Its settings; the first is the default.
    #[must_use]
    pub fn settings(self) -> &'static [Setting] {
        self.row().settings
    }

    /// The source that leaves it open.
    #[must_use]
    pub fn source(self) -> &'static str {
        self.row().source
    }

    /// The fact of a name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|fact| fact.name() == name)
    }
}

/// A name or setting that no fact has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnknownFact {
    /// Not of the form `NAME=SETTING`.
    #[error("{0}: expected NAME=SETTING")]
    Form(String),
    /// No fact has the name.
    #[error("no open fact is named {0}: `--facts list` prints them")]
    Name(String),
    /// The fact has no such setting.
    #[error("fact {fact} has no setting {setting}: it has {known}")]
    Setting {
        /// The fact.
        fact: &'static str,
        /// What was asked for.
        setting: String,
        /// What there is.
        known: String,
    },
}

/// Settings chosen; a fact that is not in it has its first setting.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts(BTreeMap<OpenFact, usize>);

impl Facts {
    /// Chooses a setting by name.
    pub fn set(&mut self, fact: OpenFact, setting: &str) -> Result<(), UnknownFact> {
        let index = fact.settings().iter().position(|known| known.name == setting);
        let index = index.ok_or_else(|| UnknownFact::Setting {
            fact: fact.name(),
            setting: setting.into(),
            known: fact.settings().iter().map(|s| s.name).collect::<Vec<_>>().join(", "),
        })?;
        self.0.insert(fact, index);
        Ok(())
    }

    /// Chooses a setting of every fact, each with a probability of one in four not its first.
    #[must_use]
    pub fn random(seed: u64) -> Self {
        let mut rng = SmallRng::seed_from_u64(seed);
        let mut facts = Self::default();
        for fact in OpenFact::ALL {
            if rng.random_bool(0.25) {
                facts.0.insert(*fact, rng.random_range(1..fact.settings().len()));
            }
        }
        facts
    }

    /// The setting of a fact.
    #[must_use]
    pub fn setting(&self, fact: OpenFact) -> Setting {
        let index = self.0.get(&fact).copied().unwrap_or(0);
        fact.settings()[index]
    }

    /// The facts that do not have their first setting.
    pub fn changed(&self) -> impl Iterator<Item = (OpenFact, Setting)> + '_ {
        let off = self.0.iter().filter(|(_, index)| **index != 0);
        off.map(|(fact, index)| (*fact, fact.settings()[*index]))
    }

    /// The value of a fact that does not have its first setting.
    pub(crate) fn value(&self, fact: OpenFact) -> Option<u64> {
        let index = self.0.get(&fact).filter(|index| **index != 0)?;
        Some(fact.settings()[*index].value)
    }

    /// Whether a fact does not have its first setting.
    pub(crate) fn on(&self, fact: OpenFact) -> bool {
        self.value(fact).is_some()
    }
}

/// `NAME=SETTING`, any number of them, separated by commas.
impl FromStr for Facts {
    type Err = UnknownFact;

    fn from_str(text: &str) -> Result<Self, UnknownFact> {
        let mut facts = Self::default();
        for part in text.split(',').filter(|part| !part.is_empty()) {
            let (name, setting) =
                part.split_once('=').ok_or_else(|| UnknownFact::Form(part.into()))?;
            let fact = OpenFact::named(name).ok_or_else(|| UnknownFact::Name(name.into()))?;
            facts.set(fact, setting)?;
        }
        Ok(facts)
    }
}

/// The facts that do not have their first setting, in the form that can be parsed.
impl fmt::Display for Facts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (nth, (fact, setting)) in self.changed().enumerate() {
            let comma = if nth == 0 { "" } else { "," };
            write!(f, "{comma}{}={}", fact.name(), setting.name)?;
        }
        Ok(())
    }
}

/// Takes the choices of another set over its own.
impl Extend<Facts> for Facts {
    fn extend<T: IntoIterator<Item = Facts>>(&mut self, sets: T) {
        self.0.extend(sets.into_iter().flat_map(|set| set.0));
    }
}

/// Every fact with its settings and its source, for people.
#[must_use]
pub fn list() -> String {
    let mut text = String::new();
    for fact in OpenFact::ALL {
        let settings: Vec<_> = fact.settings().iter().map(|setting| setting.name).collect();
        text += &format!("{}={}\n", fact.name(), settings.join("|"));
        text += &format!("    {}\n    open: {}\n", fact.what(), fact.source());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::{Facts, OpenFact};
    use std::collections::BTreeSet;

    #[test]
    fn names_are_unique_and_every_fact_has_two_settings() {
        let mut names = BTreeSet::new();
        for fact in OpenFact::ALL {
            assert!(names.insert(fact.name()), "{}", fact.name());
            assert!(fact.settings().len() > 1, "{}", fact.name());
            let settings: BTreeSet<_> = fact.settings().iter().map(|s| s.name).collect();
            assert_eq!(settings.len(), fact.settings().len(), "{}", fact.name());
            assert!(!fact.source().is_empty());
        }
    }

    #[test]
    fn text_and_back() {
        for seed in 0..50 {
            let facts = Facts::random(seed);
            assert_eq!(facts.to_string().parse::<Facts>().unwrap(), facts);
        }
        let error = "link=sideways".parse::<Facts>().unwrap_err().to_string();
        assert!(error.contains("at-once, after-2s"), "{error}");
        assert!("bogus=1".parse::<Facts>().is_err());
        assert!("link".parse::<Facts>().is_err());
    }
}
