//! Datagrams that wait until it is known where their peer is: requests that came, for which nothing
//! is done before, and answers. Whoever asks may not exist, so the room is small, and where it is
//! taken the oldest gives way; what can be sent passes by.

use core::time::Duration;

use heapless::Vec;

use crate::cm::event::Transmit;
use crate::types::bounds::{WAITING, WAITING_OF_ONE};
use crate::types::time::Instant;

/// Longer than the search for a neighbour takes. A peer asks again after that.
const PATIENCE: Duration = Duration::from_secs(4);

#[derive(Clone, Copy, Debug)]
struct Held {
    /// One that came is from where it would go to.
    datagram: Transmit,
    came: bool,
    since: Instant,
    /// In which order they were put here.
    turn: u32,
}

const _: () = assert!(WAITING <= 256, "an index has a byte");

/// The room.
#[derive(Debug)]
pub(crate) struct Waiting {
    held: Vec<Held, WAITING>,
    turn: u32,
    /// The one that is tried next.
    next: usize,
}

impl Waiting {
    pub(crate) const fn new() -> Self {
        Self { held: Vec::new(), turn: 0, next: 0 }
    }

    pub(crate) fn len(&self) -> usize {
        self.held.len()
    }

    /// Puts a datagram here. Whether it replaced another: the oldest of the same peer, if that has
    /// its share; else the oldest that is of no connection, or of all.
    pub(crate) fn put(&mut self, now: Instant, datagram: &Transmit, came: bool) -> bool {
        self.turn = self.turn.wrapping_add(1);
        let turn = self.turn;
        let held = || Held { datagram: *datagram, came, since: now, turn };
        if !self.held.is_full() {
            let _ = self.held.push(held());
            return false;
        }
        // The lowest rank, and where it is: of all, and of those of the same peer.
        let (mut all, mut own, mut of_one) = (u64::MAX, u64::MAX, 0);
        for (at, old) in (0..).zip(&self.held) {
            let age = u64::from(turn.wrapping_sub(old.turn));
            let rank =
                (u64::from(old.datagram.conn.is_some()) << 32 | !age & 0xffff_ffff) << 8 | at;
            all = rank.min(all);
            if old.datagram.to == datagram.to {
                own = rank.min(own);
                of_one += 1;
            }
        }
        let oldest = if of_one < WAITING_OF_ONE { all } else { own };
        if let Some(oldest) = self.held.get_mut(usize::from(oldest.to_le_bytes()[0])) {
            *oldest = held();
        }
        true
    }

    /// The one that is tried next, and whether it has waited for too long.
    pub(crate) fn next(&mut self, now: Instant) -> Option<(&Transmit, bool)> {
        if self.next >= self.held.len() {
            self.next = 0;
        }
        let held = self.held.get(self.next)?;
        Some((&held.datagram, held.since + PATIENCE <= now))
    }

    /// It goes on waiting.
    pub(crate) fn skip(&mut self) {
        self.next = self.next.saturating_add(1);
    }

    /// Takes it out, and whether it is one that came.
    pub(crate) fn take(&mut self) -> Option<(Transmit, bool)> {
        let there = self.next < self.held.len();
        there.then(|| self.held.swap_remove(self.next)).map(|held| (held.datagram, held.came))
    }
}

#[cfg(test)]
#[expect(clippy::cast_possible_truncation, reason = "there are fewer than 256")]
mod tests {
    use core::net::Ipv4Addr;

    use super::*;
    use crate::cm::params::ConnId;

    fn datagram(peer: u8, mark: u8, conn: Option<ConnId>) -> Transmit {
        Transmit { to: Ipv4Addr::new(10, 0, 0, peer).into(), mad: [mark; 256], conn }
    }

    fn marks(waiting: &Waiting) -> [u8; WAITING] {
        let mut marks = core::array::from_fn(|n| waiting.held[n].datagram.mad[0]);
        marks.sort_unstable();
        marks
    }

    #[test]
    fn the_oldest_gives_way_and_a_connection_last() {
        let mut waiting = Waiting::new();
        let conn = Some(ConnId::new(1, 0));
        assert!(!waiting.put(Instant::ZERO, &datagram(0, 0, conn), false));
        for n in 1..WAITING as u8 {
            assert!(!waiting.put(Instant::ZERO, &datagram(n, n, None), true));
        }
        for n in 0..40 {
            assert!(waiting.put(Instant::ZERO, &datagram(100 + n, 100 + n, None), true));
        }
        let last = core::array::from_fn(|n| if n == 0 { 0 } else { 124 + n as u8 });
        assert_eq!(marks(&waiting), last);
    }

    #[test]
    fn one_peer_takes_room_from_itself() {
        let mut waiting = Waiting::new();
        let others = (WAITING - WAITING_OF_ONE) as u8;
        for n in 0..others {
            waiting.put(Instant::ZERO, &datagram(n, n, None), true);
        }
        for n in 0..100 {
            waiting.put(Instant::ZERO, &datagram(200, 100 + n, None), true);
        }
        let last = core::array::from_fn(|n| n as u8 + if n < others.into() { 0 } else { 184 });
        assert_eq!(marks(&waiting), last);
    }

    #[test]
    fn each_is_tried_in_turn_and_not_for_ever() {
        let mut waiting = Waiting::new();
        for n in 0..3 {
            waiting.put(Instant::ZERO, &datagram(n, n, None), n == 1);
        }
        let end = Instant::ZERO + PATIENCE;
        for n in [0, 1, 2, 0] {
            assert_eq!(waiting.next(Instant::ZERO), Some((&datagram(n, n, None), false)));
            waiting.skip();
        }
        assert_eq!(waiting.next(end), Some((&datagram(1, 1, None), true)));
        assert_eq!(waiting.take(), Some((datagram(1, 1, None), true)));
        assert_eq!(waiting.len(), 2);
    }
}
