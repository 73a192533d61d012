//! Each message forged in each state: with one field wrong it changes nothing.

use dat_tests::attack::Cm;
use dat_tests::session::Setup;

use crate::stage::{Field, State, reach};

/// The fields that have to be right for a message to count: those of the connection, the queue pair
/// of a DREQ, and of an answer the transaction that this side chose.
fn compared(state: State, kind: Cm) -> Vec<Field> {
    let mut fields = vec![Field::Gid];
    match kind {
        Cm::Req | Cm::SidrReq => return Vec::new(),
        Cm::SidrRep => fields.push(Field::Own),
        Cm::Dreq => fields.extend([Field::Own, Field::Peer, Field::Qpn]),
        // The peer's ID is not known yet.
        _ if state == State::ReqSent => fields.push(Field::Own),
        _ => fields.extend([Field::Own, Field::Peer]),
    }
    let ours = matches!(state, State::ReqSent | State::DreqSent | State::SidrSent);
    let answer = matches!(kind, Cm::Rep | Cm::Rej | Cm::Mra | Cm::Drep | Cm::SidrRep);
    if ours && answer && (state, kind) != (State::DreqSent, Cm::Rej) {
        fields.push(Field::Transaction);
    }
    fields
}

/// All wrong in one field, one after the other, then the honest end.
fn refused(state: State, kind: Cm) {
    let mut fields = compared(state, kind);
    if fields.is_empty() {
        fields.push(Field::Transaction);
    }
    for field in fields {
        Setup::default().run(|session| {
            let known = reach(session, state);
            let good = known.genuine(session, kind);
            known.inject_wrong(session, &good, kind, field);
            if let Err(harm) = known.unharmed(session) {
                panic!("{state:?}: {} with a wrong {field:?}: {harm}", kind.name());
            }
        });
    }
}

macro_rules! every_message {
    ($state:ident: $($test:ident = $kind:ident),*) => {
        $(#[test]
        fn $test() {
            super::refused(super::State::$state, super::Cm::$kind);
        })*
    };
}

macro_rules! every_state {
    ($($module:ident = $state:ident),*) => {
        $(mod $module {
            every_message!($state: mra = Mra, rej = Rej, rep = Rep, rtu = Rtu, dreq = Dreq,
                drep = Drep, sidr_rep = SidrRep, lap = Lap, apr = Apr);
        })*
    };
}

every_state!(
    req_sent = ReqSent,
    req_received = ReqReceived,
    rep_sent = RepSent,
    established_active = EstablishedActive,
    established_passive = EstablishedPassive,
    dreq_sent = DreqSent,
    time_wait = TimeWait,
    sidr_sent = SidrSent,
    sidr_received = SidrReceived
);

/// The control: the unchanged message does have its effect, so that the ones above were well made.
#[test]
fn the_same_messages_with_nothing_wrong_do_count() {
    let pairs = [
        (State::ReqSent, Cm::Rep),
        (State::ReqSent, Cm::Rej),
        (State::ReqSent, Cm::Mra),
        (State::ReqReceived, Cm::Rej),
        (State::RepSent, Cm::Rtu),
        (State::RepSent, Cm::Rej),
        (State::RepSent, Cm::Mra),
        (State::RepSent, Cm::Dreq),
        (State::EstablishedActive, Cm::Dreq),
        (State::EstablishedPassive, Cm::Dreq),
        (State::DreqSent, Cm::Drep),
        (State::SidrSent, Cm::SidrRep),
    ];
    for (state, kind) in pairs {
        Setup::default().run(|session| {
            let known = reach(session, state);
            let good = known.genuine(session, kind);
            known.inject(session, &good, false);
            session.pass(std::time::Duration::from_millis(20));
            let harm = known.unharmed(session);
            assert!(harm.is_err(), "{state:?}: {} has no effect", kind.name());
        });
    }
}
