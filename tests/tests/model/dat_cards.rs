//! The same consumer on different cards: those that take their time as real ones do, virtual
//! functions, small ones, and one without memory windows.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "test code: a panic here is a failed test with a line number"
)]

use std::time::Duration;

use dat_core::{CloseFlag, DatType, Event};
use dat_tests::pair::Stage;
use dat_tests::session::{Session, Setup};
use mlx5_model::Config as Card;
use mlx5_model::wire::impair::Rates;

/// Connects, moves data, ends, connects again.
fn connect_move_end(session: &mut Session<'_>) {
    for n in 0..3 {
        session.connect();
        session.traffic(n);
        session.disconnect(usize::from(n == 1), CloseFlag::Graceful);
        let ended = session.ended();
        assert_eq!(ended, [0, 1].map(|side| Event::Disconnected(session.sides[side].ep)));
        for side in 0..2 {
            let ep = session.sides[side].ep;
            session.pair.ias[side].ep_reset(ep).unwrap();
        }
    }
}

fn on(cards: [Card; 2], seed: u64) {
    let stage = Stage { cards, seed, ..Stage::default() };
    Setup { stage, ..Setup::default() }.run(connect_move_end);
}

#[test]
fn cards_that_take_their_time() {
    for seed in 0..5 {
        let card = Card { hardware_like: true, ..Card::default() };
        on([card.clone(), card], seed);
    }
}

#[test]
fn cards_that_take_their_time_on_a_bad_wire() {
    for seed in 0..4 {
        let card = Card { hardware_like: true, ..Card::default() };
        let rates = Rates { drop: 50, duplicate: 50, corrupt: 20, reorder: 50, ..Rates::default() };
        let stage = Stage { cards: [card.clone(), card], seed, rates, ..Stage::default() };
        Setup { stage, ..Setup::default() }.run(connect_move_end);
    }
}

#[test]
fn virtual_functions_without_addresses_make_them_up() {
    on([Card::vf(), Card::vf()], 1);
    on([Card::vf(), Card::default()], 2);
}

#[test]
fn virtual_functions_with_addresses() {
    let card = Card { addressed: true, ..Card::vf() };
    on([card.clone(), card], 1);
}

#[test]
fn small_cards() {
    on([Card::small(), Card::small()], 1);
    on([Card::small(), Card::default()], 2);
}

#[test]
fn cards_with_slow_commands() {
    let card = Card { command_latency: 20_000_000, init_time: 2_000_000_000, ..Card::default() };
    on([card.clone(), card], 1);
}

#[test]
fn a_card_without_windows_has_no_windows_and_says_so() {
    let cards = [Card { umr: false, ..Card::default() }, Card::default()];
    let stage = Stage { cards, ..Stage::default() };
    Setup { stage, ..Setup::default() }.connected(|session| {
        assert_eq!(session.pair.ias[0].query().0.max_rmrs, 0);
        assert!(session.pair.ias[1].query().0.max_rmrs > 0);
        let pz = session.sides[0].pz;
        let refused = session.pair.ias[0].rmr_create(pz).unwrap_err().ret();
        assert_eq!(refused.ty(), DatType::ModelNotSupported);
        session.traffic(1);
    });
}

#[test]
fn cards_that_want_pages_while_running() {
    Setup::default().connected(|session| {
        for (n, pages) in [100, -60, 7, -40].into_iter().enumerate() {
            let before = session.pair.slots[0].views().pages_out();
            session.pair.slots[0].hca().request_pages(pages);
            session.pass(Duration::from_millis(100));
            let after = session.pair.slots[0].views().pages_out();
            let changed = before.checked_add_signed(isize::try_from(pages).unwrap());
            assert_eq!(Some(after), changed);
            session.traffic(u32::try_from(n).unwrap());
        }
    });
}
