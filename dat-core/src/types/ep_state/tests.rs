extern crate std;
use std::collections::BTreeMap;
use std::format;
use std::string::String;
use std::string::ToString;

use crate::types::dat_return::DatType;
use crate::types::ep_state::{EpOp, EpState, Outcome, Signal, outcome};

const FILE: &str = include_str!("../../../tests/data/ep-transitions.txt");

fn abbreviation(state: EpState) -> &'static str {
    match state {
        EpState::Unconnected => "U",
        EpState::UnconfiguredUnconnected => "UU",
        EpState::Reserved => "R",
        EpState::UnconfiguredReserved => "UR",
        EpState::PassiveConnectionPending => "P",
        EpState::UnconfiguredPassive => "UP",
        EpState::ActiveConnectionPending => "A",
        EpState::TentativeConnectionPending => "T",
        EpState::UnconfiguredTentative => "UT",
        EpState::Connected => "C",
        EpState::DisconnectPending => "DP",
        EpState::Disconnected => "D",
        EpState::CompletionPending => "CP",
        EpState::ConnectedSinglePath => "CS",
        EpState::ConnectedMultiPath => "CM",
    }
}

/// `PeerRejected` to `peer_rejected`.
fn snake(camel: &str) -> String {
    let mut out = String::new();
    for c in camel.chars() {
        if c.is_uppercase() && !out.is_empty() {
            out.push('_');
        }
        out.extend(c.to_lowercase());
    }
    out
}

fn written(result: Outcome) -> String {
    match result {
        Outcome::Go { next, event: None } => format!("-> {}", abbreviation(next)),
        Outcome::Go { next, event: Some(event) } => {
            let event = snake(&format!("{event:?}")).to_uppercase();
            format!("-> {} {event}", abbreviation(next))
        }
        Outcome::Stay => "stay".to_string(),
        Outcome::Gone => "gone".to_string(),
        Outcome::Ignore => "ignore".to_string(),
        Outcome::Refuse(ret) => {
            format!(
                "{}/{}",
                snake(&format!("{:?}", ret.ty())).to_uppercase(),
                ret.subtype().number()
            )
        }
    }
}

fn rows() -> BTreeMap<(String, String), String> {
    let mut rows = BTreeMap::new();
    for line in FILE.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let [states, op, result] = line.split('|').map(str::trim).collect::<std::vec::Vec<_>>()[..]
        else {
            panic!("three columns: {line}")
        };
        for state in states.split(',') {
            let key = (state.to_string(), op.to_string());
            assert_eq!(rows.insert(key, result.to_string()), None, "twice: {line}");
        }
    }
    rows
}

#[test]
fn the_table_says_what_the_manual_pages_say_row_by_row() {
    let mut rows = rows();
    for state in EpState::ALL {
        for op in EpOp::ALL {
            let key = (abbreviation(state).to_string(), snake(&format!("{op:?}")));
            let row = rows.remove(&key).unwrap_or_else(|| panic!("no row for {key:?}"));
            assert_eq!(written(outcome(state, op)), row, "{key:?}");
        }
    }
    assert!(rows.is_empty(), "rows for nothing: {rows:?}");
}

#[test]
fn states_have_the_numbers_of_the_header() {
    for (number, state) in (0..).zip(EpState::ALL) {
        assert_eq!(state.number(), number);
        assert_eq!(EpState::from_word(state.word()), state);
    }
}

#[test]
fn every_way_into_disconnected_has_one_terminal_event() {
    for state in EpState::ALL {
        for op in EpOp::ALL {
            if let Outcome::Go { next: EpState::Disconnected, event } = outcome(state, op) {
                assert!(
                    event.is_some_and(|event| event != Signal::Established),
                    "{state:?} {op:?}"
                );
            }
        }
    }
}

#[test]
fn refusals_name_the_state_they_are_refused_in() {
    for state in EpState::ALL {
        for op in EpOp::ALL {
            if let Outcome::Refuse(ret) = outcome(state, op) {
                if ret.ty() == DatType::InvalidState {
                    assert_eq!(ret.subtype(), state.subtype());
                }
            }
        }
    }
}
