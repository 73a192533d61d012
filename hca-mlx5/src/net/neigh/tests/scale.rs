//! Thousands of neighbours: who is asked how often, and what a frame costs.

use super::super::least::VISITED;
use super::*;

const OWN: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);

/// The address of a host.
fn station_at(number: usize) -> Ipv4Addr {
    Ipv4Addr::from_bits(OWN.to_bits() + 1 + u32::try_from(number).unwrap())
}

fn mac_of(number: usize) -> Mac {
    let [.., a, b] = u32::try_from(number).unwrap().to_be_bytes();
    [2, 0, 0, 1, a, b]
}

fn large<const N: usize>() -> std::boxed::Box<Neighbours<N>> {
    let station = Neighbours::new(MAC_A, &net("10.0.0.1", 16), ms(0)).unwrap();
    let mut station = std::boxed::Box::new(station);
    station.announcement = None;
    station.set_secret([1, 2]);
    station
}

fn reply(number: usize) -> Frame {
    let tag = Tag::new(None).unwrap();
    arp::reply(tag, mac_of(number), station_at(number), MAC_A, OWN).unwrap()
}

/// The question of a host for our address.
fn hint(number: usize) -> Frame {
    let tag = Tag::new(None).unwrap();
    arp::request(tag, mac_of(number), station_at(number), OWN, None).unwrap()
}

/// Sends what is due and has it answered. Counts questions to everybody and to one, by host.
fn answer_all<const N: usize>(a: &mut Neighbours<N>, now: Instant, asked: &mut [[u32; 2]]) {
    while let Some(question) = a.transmit(now) {
        let target = Ipv4Addr::from(<[u8; 4]>::try_from(&question[38..42]).unwrap());
        let number = usize::try_from(target.to_bits() - OWN.to_bits() - 1).unwrap();
        let to_all = question[..6] == arp::BROADCAST;
        assert!(to_all || question[..6] == mac_of(number));
        asked[number][usize::from(!to_all)] += 1;
        a.receive(&reply(number), now);
    }
}

#[test]
fn a_thousand_neighbours_in_traffic_are_searched_for_once() {
    const PEERS: usize = 1_000;
    let mut a = large::<1024>();
    let mut asked = [[0; 2]; PEERS];
    // Ten minutes, in which each is resolved every five seconds.
    for turn in 0..120 * PEERS {
        let (number, now) = (turn % PEERS, ms(5 * turn as u64));
        let to = station_at(number).into();
        if a.resolve(to, now).is_pending() {
            answer_all(&mut a, now, &mut asked);
        }
        assert_eq!(known(a.resolve(to, now)), mac_of(number));
    }
    // Once in a lifetime, after the first, and only when it is asked for.
    assert_eq!(asked, [[1, 9]; PEERS]);
    assert_eq!((a.counters().failed, a.cache.len()), (0, PEERS));
}

/// Neighbours of which every fourth is known, in use or not, and hosts whose questions taught where
/// they are.
fn full<const N: usize>() -> std::boxed::Box<Neighbours<N>> {
    let mut a = large::<N>();
    let mut asked = std::vec![[0; 2]; N];
    for number in 0..N {
        let now = ms(number as u64);
        if number % 2 == 0 {
            a.receive(&hint(number), now);
            while a.transmit(now).is_some() {}
        } else {
            assert!(a.resolve(station_at(number).into(), now).is_pending());
            if number % 4 == 1 {
                answer_all(&mut a, now, &mut asked);
            }
        }
    }
    assert_eq!(a.cache.len(), N);
    a
}

/// Most entries and nodes visited by a call.
fn most<T>(mut call: impl FnMut(usize) -> T) -> u64 {
    let visited = |number| {
        let before = VISITED.get();
        call(number);
        VISITED.get() - before
    };
    (0..2_000).map(visited).max().unwrap()
}

#[test]
fn in_a_full_table_no_frame_and_no_call_visits_many_entries() {
    const N: usize = 4096;
    let now = ms(5_000);
    let mut a = full::<N>();
    let host = |number| station_at(number).into();
    let unknown = |number: usize| 2 * N + number;
    let costs = [
        most(|number| a.receive(&hint(unknown(number)), now)),
        most(|_| a.transmit(now)),
        most(|_| a.next_deadline()),
        // In the name of those that are known, and of those that are searched for.
        most(|number| a.receive(&hint(number), now)),
        most(|number| a.receive(&reply(unknown(number)), now)),
        most(|number| a.resolve(host(number), now)),
        most(|number| a.resolve_asker(host(unknown(number)), now)),
        most(|number| a.resolve(host(unknown(2_000 + number)), now)),
    ];
    // A list of the index, and trees of 12 levels.
    assert!(costs.iter().all(|visited| *visited < 100), "{costs:?}");
    assert_eq!(a.cache.len(), N);
}
