//! The forgery table: what each message of connection management can do in each state, and how many
//! packets it takes on average to forge one without reading the wire.
//!
//! Nothing in it is claimed: a message has an effect if it changes what the honest ends do next, a
//! field is compared if each of its bits, wrong alone, takes that effect away, and its width is the
//! number of bits that differ from run to run. Addresses and queue pair numbers count as known.

use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use dat_tests::attack::{Cm, Mad};
use dat_tests::session::{Session, Setup};

use crate::blind::varying;
use crate::stage::{Field, Known, State, reach};

const PAGE: &str = "../../docs/generated/forgery.md";
const HEAD: &str = "\
# Packets that a forgery takes

Made by `cargo xtask attack --bless`, checked by `tests/tests/attacks`. Do not edit.

For an attacker who knows both addresses, both queue pair numbers, both adapters' GUIDs and the service, and cannot read
the wire. *Compared* are the fields of which every single bit was changed alone, and the message had no effect; *bits*
those among them that differ from run to run. The attacker guesses half of them on average. Messages and states that are
not listed have no effect: the connection ends and answers as if nothing had come.

A REQ or SIDR_REQ repeats nothing of the receiver, so each costs one packet: what it can do is in `docs/security.md`. Packets
of an established connection are checked by the device, not by the driver: queue pair and PSN, 24 bits each.

| state | message | compared | bits | packets |
|---|---|---|---|---|
";
/// Bits that make 2^32 packets on average.
const ENOUGH: u32 = 33;
const FIELDS: [Field; 5] = [Field::Own, Field::Peer, Field::Transaction, Field::Qpn, Field::Gid];

/// Makes a message as the peer would.
type Forge = fn(&Known, &Session<'_>, Cm) -> Mad;

/// Whether what `act` injects has an effect.
fn harms(state: State, act: impl Fn(&Known, &mut Session<'_>)) -> bool {
    Setup::default().run(|session| {
        let known = reach(session, state);
        act(&known, session);
        session.pass(Duration::from_millis(20));
        known.unharmed(session).is_err()
    })
}

/// The fields that are compared; `None` if the message has no effect with all of them right.
fn compared(state: State, kind: Cm, forge: Forge) -> Option<Vec<Field>> {
    let effect = harms(state, |known, session| {
        let mad = forge(known, session, kind);
        known.inject(session, &mad, false);
    });
    let matters = |field: &Field| {
        // A field that the message does not have is not compared.
        let there = std::cell::Cell::new(false);
        let harm = harms(state, |known, session| {
            let mad = forge(known, session, kind);
            there.set(known.inject_wrong(session, &mad, kind, *field).is_some());
        });
        there.get() && !harm
    };
    effect.then(|| FIELDS.into_iter().filter(matters).collect())
}

#[test]
fn no_forgery_that_ends_or_alters_a_connection_takes_less_than_four_billion_packets() {
    let [active, passive, _, _, transaction] = varying();
    let mut page = String::from(HEAD);
    let mut cheap = Vec::new();
    for state in State::ALL {
        let passive_victim = matches!(
            state,
            State::ReqReceived | State::RepSent | State::EstablishedPassive | State::SidrReceived
        );
        let [own, peer] = if passive_victim { [passive, active] } else { [active, passive] };
        let genuine: Forge = |known, session, kind| known.genuine(session, kind);
        let given_up: Forge = |known, _, _| known.given_up();
        // What has another form is listed apart.
        let kinds = Cm::ALL.into_iter().map(|kind| (kind, kind.name(), genuine));
        let kinds = kinds.chain([(Cm::Rej, "REJ (timeout, without the receiver's ID)", given_up)]);
        for (kind, name, forge) in kinds {
            // A request is new, unless the queue pair it names is connected already.
            let connected = matches!(
                state,
                State::ReqReceived
                    | State::RepSent
                    | State::EstablishedActive
                    | State::EstablishedPassive
            );
            if kind == Cm::SidrReq || kind == Cm::Req && !connected {
                continue;
            }
            let Some(fields) = compared(state, kind, forge) else { continue };
            let bits = |field: &Field| match field {
                // A receiver's ID of 0 is no secret.
                Field::Own if name != kind.name() => 0,
                Field::Own => own,
                Field::Peer => peer,
                Field::Transaction => transaction,
                Field::Qpn | Field::Gid => 0,
            };
            let sum: u32 = fields.iter().map(bits).sum();
            let names: Vec<String> = fields.iter().map(|field| format!("{field:?}")).collect();
            let row = format!(
                "| {state:?} | {name} | {} | {sum} | 2^{} |",
                names.join(", "),
                sum.saturating_sub(1)
            );
            if sum < ENOUGH {
                cheap.push(row.clone());
            }
            let _ = writeln!(page, "{row}");
        }
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(PAGE);
    if std::env::var_os("FORGERY_BLESS").is_some() {
        std::fs::write(&path, &page).unwrap();
    }
    assert!(cheap.is_empty(), "fewer than 2^32 packets:\n{}", cheap.join("\n"));
    let there = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        there == page,
        "docs/generated/forgery.md differs: `cargo xtask attack --bless`\n{page}"
    );
}
