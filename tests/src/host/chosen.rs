//! The kind of card and the open facts of all models of a process whose tests name none:
//! `MODEL_CARD`, `MODEL_REPLAY` and `MODEL_FACTS`, as `--card`, `--replay` and `--fact` of
//! `mlx5-model`. `cargo xtask switches` sets them. `MODEL_LINK=ib` makes their ports those of InfiniBand. `DRIVER_OPTIONS` are options of the driver that are
//! off by default, by their names in `hca_mlx5::Config`.

use std::path::Path;
use std::sync::OnceLock;

use mlx5_model::replay::Replay;
use mlx5_model::{Card, Config, Facts, LinkLayer, OpenFact, Profile};

struct Chosen {
    kind: Option<Config>,
    link: LinkLayer,
    facts: Facts,
}

/// What the environment says.
///
/// # Panics
/// If it names a card, a file, a fact or a link layer that does not exist.
fn chosen() -> &'static Chosen {
    static CHOSEN: OnceLock<Chosen> = OnceLock::new();
    CHOSEN.get_or_init(|| {
        let card = std::env::var("MODEL_CARD").ok().map(|name| {
            let card = Card::named(&name);
            card.unwrap_or_else(|| panic!("MODEL_CARD: no card is named {name}")).config()
        });
        let replay = std::env::var("MODEL_REPLAY").ok().map(|file| {
            let replay = Replay::open(Path::new(&file));
            replay.unwrap_or_else(|error| panic!("MODEL_REPLAY: {file}: {error}")).config()
        });
        let facts = std::env::var("MODEL_FACTS").map_or_else(
            |_| Facts::default(),
            |facts| facts.parse().unwrap_or_else(|error| panic!("MODEL_FACTS: {error}")),
        );
        let link = match std::env::var("MODEL_LINK").as_deref() {
            Err(_) | Ok("eth") => LinkLayer::Ethernet,
            Ok("ib") => LinkLayer::InfiniBand,
            Ok(other) => panic!("MODEL_LINK: {other} is neither eth nor ib"),
        };
        Chosen { kind: card.or(replay), link, facts }
    })
}

/// `wanted`, with the options of the driver that the environment names.
///
/// # Panics
/// If there is no such option.
#[must_use]
pub fn with_options(wanted: hca_mlx5::Config<'_>) -> hca_mlx5::Config<'_> {
    static OPTIONS: OnceLock<String> = OnceLock::new();
    let options = OPTIONS.get_or_init(|| std::env::var("DRIVER_OPTIONS").unwrap_or_default());
    options.split_terminator(',').fold(wanted, |mut config, option| {
        match option {
            "compress_completions" => config.compress_completions = true,
            "inline_receives" => config.inline_receives = true,
            _ => panic!("DRIVER_OPTIONS: there is no option {option}"),
        }
        config
    })
}

/// Whether the firmware may ask for more pages at any time.
#[must_use]
pub fn firmware_grows() -> bool {
    chosen().facts.setting(OpenFact::Shortage).name != "none"
}

/// The largest payload of a packet that the network between two models carries.
#[must_use]
pub fn path_mtu() -> usize {
    let narrow = chosen().facts.setting(OpenFact::PeerMtu).name == "1500";
    if narrow { 1024 } else { 4096 }
}

/// Whether a function without an address of its own makes one up at each bring-up.
#[must_use]
pub fn makes_up_addresses() -> bool {
    let chosen = chosen();
    let without = chosen.kind.as_ref().is_some_and(|kind| !kind.addressed);
    without || chosen.facts.setting(OpenFact::Mac).name == "zero"
}

/// Whether a test leaves the kind of card open: it names none, and where a recording is chosen,
/// which has all of them, no capabilities.
fn open_to(card: &Config, kind: &Config) -> bool {
    let usual = card.profile == Profile::Big && card.umr && card.general_caps.is_empty();
    let named = card.card.is_some() || card.recording.is_some();
    (usual || kind.recording.is_none()) && !named && card.device_id == Config::default().device_id
}

/// The card, of the chosen kind and with the chosen facts where it says nothing of its own.
#[must_use]
pub fn or_chosen(card: &Config) -> Config {
    let chosen = chosen();
    let mut made = match &chosen.kind {
        Some(kind) if open_to(card, kind) => Config {
            personality: kind.personality,
            device_id: kind.device_id,
            addressed: kind.addressed,
            boot_pages: kind.boot_pages,
            init_pages: card.init_pages.or(kind.init_pages),
            regular_pages: kind.regular_pages,
            init_time: card.init_time.max(kind.init_time),
            card: kind.card,
            facts: kind.facts.clone(),
            recording: kind.recording.clone(),
            ..card.clone()
        },
        Some(_) | None => Config { facts: Facts::default(), ..card.clone() },
    };
    if chosen.link == LinkLayer::InfiniBand {
        made.link = LinkLayer::InfiniBand;
    }
    if card.init_pages.is_some() {
        // A test whose memory is for so many.
        let own = made.facts.set(OpenFact::InitPages, "estimate");
        debug_assert!(own.is_ok());
    }
    made.facts.extend([chosen.facts.clone(), card.facts.clone()]);
    made
}
