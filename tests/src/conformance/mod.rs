//! The conformance suite: every rule of the DAT manual pages and headers that a consumer may rely
//! on, and a case for each.
//!
//! A case is a function `pub fn name(ias: &mut Adapters<'_, impl Side>)` in the file of its group.
//! It runs on [`Adapters`]: two adapters on one wire, fresh for every case, on whatever the
//! [`Side`] stands on: the loop provider ([`loopback`]), the driver on the model in process, or the
//! driver on a device of this machine ([`hosted`]). It uses DAT calls and the two adapters, nothing
//! else, so it runs on all of them; in a guest its time is real time, so it waits for events, not
//! for seconds.
//!
//! Adding a case: the function, its name in the group's list at the end of the file, and a line for
//! each rule that it checks in `rules/<group>.txt`: `call | rule | source | group::case`. Sources:
//! M manual page, H header, E18 number 18 of the faults of the C implementation, X extension, K
//! kDAPL. A number behind the letter is that of a sentence of the call's manual page in
//! `pages.txt`; the page of another call stands before the number (`M dat_ep_reset 3`).
//! `tests/tests/conformance.rs` makes tests of the lists and compares them with the tables; `cargo
//! xtask tidy` writes `docs/dat-coverage.md` and `docs/dat-seed-pages.md` from the tables.

mod adapters;
pub mod hosted;
pub mod loopback;
mod means;
pub mod reach;

pub mod cm;
pub mod cno;
pub mod counters;
pub mod ep;
pub mod evd;
pub mod ext;
pub mod ia;
pub mod lmr;
pub mod post;
pub mod pz;
pub mod registry;
pub mod rmr;
pub mod srq;

pub use adapters::{A, Adapters, B, LIMIT, OPENS, Party, Room, Side, address, net};
pub use means::{End, Mem, NONE, Point, refused};

/// A case with its name, for adapters of one kind.
pub type Case<'s, S> = (&'static str, fn(&mut Adapters<'s, S>));

/// Every case of every group. (The tests have lists of their own, made of the same macros.)
#[must_use]
pub fn all<'s, S: Side>() -> Vec<Case<'s, S>> {
    let mut all: Vec<Case<'s, S>> = Vec::new();
    macro_rules! list {
        ($group:ident: $($case:ident)*) => {
            $(all.push((concat!(stringify!($group), "::", stringify!($case)), $group::$case));)*
        };
    }
    crate::conformance_groups!(list);
    all
}

/// Calls a macro with the list of each group: `group: case case case`.
#[macro_export]
macro_rules! conformance_groups {
    ($with:ident) => {
        $crate::ia_cases!($with);
        $crate::pz_cases!($with);
        $crate::registry_cases!($with);
        $crate::evd_cases!($with);
        $crate::cno_cases!($with);
        $crate::post_cases!($with);
        $crate::ep_cases!($with);
        $crate::srq_cases!($with);
        $crate::cm_cases!($with);
        $crate::ext_cases!($with);
        $crate::counters_cases!($with);
        $crate::lmr_cases!($with);
        $crate::rmr_cases!($with);
    };
}
