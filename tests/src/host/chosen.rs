//! The kind of card and the open facts of all models of a process whose tests name none:
//! `MODEL_CARD` and `MODEL_FACTS`, as `--card` and `--fact` of `mlx5-model`. `cargo xtask switches`
//! sets them.

use std::sync::OnceLock;

use mlx5_model::{Card, Config, Facts, OpenFact};

struct Chosen {
    card: Option<&'static Card>,
    facts: Facts,
}

/// What the environment says.
///
/// # Panics
/// If it names a card or a fact that does not exist.
fn chosen() -> &'static Chosen {
    static CHOSEN: OnceLock<Chosen> = OnceLock::new();
    CHOSEN.get_or_init(|| Chosen {
        card: std::env::var("MODEL_CARD").ok().map(|name| {
            Card::named(&name).unwrap_or_else(|| panic!("MODEL_CARD: no card is named {name}"))
        }),
        facts: std::env::var("MODEL_FACTS").map_or_else(
            |_| Facts::default(),
            |facts| facts.parse().unwrap_or_else(|error| panic!("MODEL_FACTS: {error}")),
        ),
    })
}

/// Whether the firmware may ask for more pages at any time.
#[must_use]
pub fn firmware_grows() -> bool {
    chosen().facts.setting(OpenFact::Shortage).name != "none"
}

/// The card, of the chosen kind and with the chosen facts where it says nothing of its own.
#[must_use]
pub fn or_chosen(card: &Config) -> Config {
    let chosen = chosen();
    let mut made = match chosen.card {
        Some(kind) if card.card.is_none() && card.device_id == Config::default().device_id => {
            let kind = kind.config();
            Config {
                personality: kind.personality,
                device_id: kind.device_id,
                addressed: kind.addressed,
                regular_pages: kind.regular_pages,
                card: kind.card,
                facts: kind.facts,
                ..card.clone()
            }
        }
        Some(_) | None => Config { facts: Facts::default(), ..card.clone() },
    };
    made.facts.extend([chosen.facts.clone(), card.facts.clone()]);
    made
}
