//! Failures: servers that are not there, hang up or fall silent, devices that are reset, lost or
//! asked for.

use std::net::SocketAddr;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::time::{Duration, Instant};

use dat_core::{AsyncEvent, CloseFlag, DatType, EvdFlags, Event, Fault, PspFlag};
use hca_mlx5::Config;
use hca_mlx5::platform::Bar;
use mlx5_model::Config as Card;
use vfio_host::aio::AsyncNic;
use vfio_host::user::VfioUser;
use vfio_host::{Host, Kind, Nic, NicStorage, Options, Trouble, WaitError};

use crate::rig::{LONG, NONE, Pair, Rig, Side, address, net};

/// The longest that a user may wait for a report.
const SOON: Duration = Duration::from_secs(10);

fn refused(path: &Path) -> vfio_host::Error {
    VfioUser::open(path, &Options::default()).unwrap_err()
}

#[test]
fn a_server_that_is_not_there_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("hca0");
    let error = refused(&path);
    assert_eq!(error.kind(), Kind::NotFound);
    let text = error.to_string();
    assert!(text.contains("hca0") && text.contains("there is no such socket"), "{text}");
    drop(UnixListener::bind(&path).unwrap());
    let text = refused(&path).to_string();
    assert!(text.contains("nobody listens"), "{text}");
}

#[test]
fn a_second_user_of_a_device_is_refused() {
    let rig = Rig::new();
    let first = rig.host(0);
    let error = refused(&rig.sockets[0]);
    assert_eq!(error.kind(), Kind::Busy, "{error}");
    let text = error.to_string();
    assert!(
        text.contains("has a client on this socket already") && text.contains("another socket"),
        "{text}"
    );
    // The first does not notice.
    assert!(first.config_space().unwrap().id().is_some() && first.trouble().is_none());
}

#[test]
fn requests_at_a_freed_dispatcher_are_rejected() {
    let rig = Rig::new();
    rig.connected(|pair| {
        let [a, b] = &mut pair.sides;
        let requests = a.nic.evd_create(4, EvdFlags::CR).unwrap();
        let psp = a.nic.psp_create(99, requests, PspFlag::Consumer).unwrap();
        let evds = Some(b.evd);
        let ep = b.nic.ep_create(Some(b.pz), evds, evds, evds, None).unwrap();
        let there = SocketAddr::new(address(0), 99);
        b.nic.ep_connect(ep, there, LONG, &[]).unwrap();
        let start = Instant::now();
        let queued = |a: &mut Side<'_>| a.nic.evd_query(requests).unwrap().queued;
        while queued(a) == 0 {
            assert!(start.elapsed() < SOON);
            b.nic.advance();
            a.nic.advance();
        }
        assert!(a.nic.evd_free(requests).is_err(), "its service point is there");
        assert_eq!(queued(a), 1);
        a.nic.psp_free(psp).unwrap();
        a.nic.evd_free(requests).unwrap();
        let event = loop {
            a.nic.advance();
            match b.nic.evd_wait(b.evd, Duration::from_millis(10), 1) {
                Ok(event) => break event,
                Err(_) => assert!(start.elapsed() < SOON),
            }
        };
        assert_eq!(event, Event::PeerRejected(ep));
    });
}

#[test]
fn a_server_that_dies_in_mid_traffic_ends_the_wait() {
    let mut rig = Rig::new();
    let server = rig.server.take();
    let sockets = rig.sockets.clone();
    let hosts = sockets.map(|path| VfioUser::open(&path, &Options::default()).unwrap());
    let mut rooms = [Box::new(NicStorage::new()), Box::new(NicStorage::new())];
    let mut pair = Pair::open(&hosts, &mut rooms);
    let Side { nic, evd, ep, .. } = &mut pair.sides[0];
    let place = [];
    nic.ep_post_recv(*ep, &place, 9, NONE).unwrap();
    drop(server);

    let start = Instant::now();
    let error = loop {
        match nic.evd_wait(*evd, LONG, 1) {
            // The connection breaks and the receive comes back flushed.
            Ok(Event::Dto(done)) => assert_eq!(done.cookie, 9),
            Ok(Event::Broken(_)) => {}
            Ok(other) => panic!("{other:?}"),
            Err(error) => break error,
        }
    };
    assert!(start.elapsed() < SOON);
    let WaitError::Device(Trouble::Gone(error)) = error else {
        panic!("{error}");
    };
    let text = error.to_string();
    assert!(text.contains("the server is gone") && text.contains("start the server"), "{text}");
    assert_eq!(hosts[0].read32(0), u32::MAX);
    let async_evd = nic.async_evd();
    let lost = nic.evd_wait(async_evd, SOON, 1);
    assert_eq!(lost, Ok(Event::Async(AsyncEvent::IaCatastrophic)));
    assert!(pair.sides.into_iter().all(|mut side| side.nic.close(CloseFlag::Abrupt).is_err()));
    assert!(hosts[0].reset().is_err());
    assert!(start.elapsed() < SOON, "{:?}", start.elapsed());
}

#[test]
fn a_reset_in_mid_traffic_is_reported_and_recovered_from() {
    let rig = Rig::new();
    let mut hosts = [rig.host(0), rig.host(1)];
    {
        let mut rooms = [Box::new(NicStorage::new()), Box::new(NicStorage::new())];
        let mut pair = Pair::open(&hosts, &mut rooms);
        let Side { nic, evd, ep, .. } = &mut pair.sides[0];
        nic.ep_post_recv(*ep, &[], 1, NONE).unwrap();
        hosts[0].reset().unwrap();
        let start = Instant::now();
        let async_evd = nic.async_evd();
        let lost = nic.evd_wait(async_evd, LONG, 1);
        assert_eq!(lost, Ok(Event::Async(AsyncEvent::IaCatastrophic)));
        assert!(start.elapsed() < SOON, "{:?}", start.elapsed());
        let first = nic.evd_wait(*evd, SOON, 1).unwrap();
        assert!(
            matches!(first, Event::Dto(done) if done.cookie == 1)
                || matches!(first, Event::Broken(_))
        );
    }
    for host in &mut hosts {
        host.renew().unwrap();
    }
    let mut rooms = [Box::new(NicStorage::new()), Box::new(NicStorage::new())];
    let mut pair = Pair::open(&hosts, &mut rooms);
    let [a, b] = &mut pair.sides;
    let place = b.near(0, 8);
    b.nic.ep_post_recv(b.ep, &place, 3, NONE).unwrap();
    a.buffer.copy_in(0, b"recovery");
    let place = a.near(0, 8);
    a.nic.ep_post_send(a.ep, &place, 4, NONE).unwrap();
    for _ in 0..2 {
        pair.next().unwrap();
    }
    assert_eq!(pair.sides[1].look(0, 8), b"recovery");
}

#[test]
fn a_card_that_is_away_after_a_reset_is_waited_for() {
    let rig = Rig::new();
    let mut host = rig.host(0);
    let away = |gone| rig.server().with(0, move |function| function.set_gone(gone));
    away(true).unwrap();
    assert_eq!(host.config_space().unwrap().id(), None);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(100));
            away(false).unwrap();
        });
        host.renew().unwrap();
    });
    let config = host.config_space().unwrap();
    assert_eq!(config.id(), Some((0x15b3, Card::default().device_id)));
    assert!(config.bus_master() && config.msix());
    assert!(config.express().unwrap().function_reset);
}

#[test]
fn a_device_that_vanishes_is_noticed() {
    let rig = Rig::new();
    let mut host = rig.host(0);
    {
        let mut room = Box::new(NicStorage::new());
        let mut side = Side::open(&host, &mut room, 0);
        let gone = rig.server().with(0, |function| function.set_gone(true));
        gone.unwrap();
        let async_evd = side.nic.async_evd();
        let lost = side.nic.evd_wait(async_evd, LONG, 1);
        assert_eq!(lost, Ok(Event::Async(AsyncEvent::IaCatastrophic)));
        let cause = side.nic.lost().unwrap().to_string();
        assert!(cause.contains("all ones"), "{cause}");
    }
    let error = host.renew().unwrap_err();
    assert!(error.to_string().contains("does not answer"), "{error}");
}

/// Nobody is connected, so no event of a connection ends the wait.
#[test]
fn a_firmware_that_falls_ends_every_wait() {
    let rig = Rig::new();
    let host = rig.host(0);
    let mut room = Box::new(NicStorage::new());
    let Side { mut nic, evd, .. } = Side::open(&host, &mut room, 0);
    let cno = nic.cno_create(None).unwrap();
    let start = Instant::now();
    rig.control("die 0");
    let error = nic.evd_wait(evd, LONG, 1).unwrap_err();
    let lost = WaitError::Lost(*nic.lost().unwrap());
    assert_eq!(error, lost);
    assert_eq!(nic.wait_any(&[evd], LONG), Err(lost.clone()));
    assert_eq!(nic.cno_wait(cno, LONG), Err(lost.clone()));
    // What is there comes first.
    let async_evd = nic.async_evd();
    assert_eq!(nic.evd_wait(async_evd, LONG, 1), Ok(Event::Async(AsyncEvent::IaCatastrophic)));
    assert_eq!(nic.evd_wait(async_evd, LONG, 1), Err(lost.clone()));
    assert!(start.elapsed() < SOON);
    let sources = chain(&lost);
    assert!(sources[1].is::<Fault>());
    let error = vfio_host::Error::from(lost.clone());
    assert_eq!((error.kind(), error.to_string()), (Kind::Device, lost.to_string()));
}

#[test]
fn a_request_to_release_the_device_is_reported() {
    let rig = Rig::new();
    let host = rig.host(0);
    let mut room = Box::new(NicStorage::new());
    let mut side = Side::open(&host, &mut room, 0);
    rig.server().with(0, |function| function.request_back()).unwrap();
    let error = side.nic.evd_wait(side.evd, LONG, 1);
    assert_eq!(error, Err(WaitError::Device(Trouble::RemovalRequested)));
    assert_eq!(host.trouble(), Some(Trouble::RemovalRequested));
    // Said once: there may be connections to end in good order.
    let again = side.nic.evd_wait(side.evd, Duration::from_millis(20), 1);
    assert_eq!(again, Err(WaitError::TIMEOUT));
    rig.server().with(0, |function| function.signal_error()).unwrap();
    let bus = WaitError::Device(Trouble::BusError);
    let start = Instant::now();
    while side.nic.evd_wait(side.evd, LONG, 1) != Err(bus.clone()) {
        assert!(start.elapsed() < SOON);
    }
    side.nic.close(CloseFlag::Abrupt).unwrap();
}

/// A wait that finds an event makes no system call, and trouble shows in descriptors.
#[test]
fn a_program_that_never_sleeps_sees_the_request_too() {
    let rig = Rig::new();
    let host = rig.host(0);
    let mut room = Box::new(NicStorage::new());
    let mut side = Side::open(&host, &mut room, 0);
    let evd = side.nic.evd_create(4, EvdFlags::SOFTWARE).unwrap();
    assert_eq!(side.nic.prepare(&[evd]), Ok(false));
    rig.server().with(0, |function| function.request_back()).unwrap();
    let mut waits = 0;
    while host.trouble().is_none() {
        assert!(waits < 64);
        side.nic.evd_post_se(evd, waits).unwrap();
        assert_eq!(side.nic.evd_wait(evd, LONG, 1), Ok(Event::Software(waits)));
        waits += 1;
    }
    assert!(waits > 1, "a pending event is found without a system call");
    side.nic.evd_free(evd).unwrap();
    side.nic.close(CloseFlag::Abrupt).unwrap();
}

#[test]
fn a_firmware_that_gets_too_few_pages_is_explained() {
    let rig = Rig::new();
    let options = Options { firmware: 4 << 20, ..Options::default() };
    let host = VfioUser::open(&rig.sockets[0], &options).unwrap();
    let mut room = Box::new(NicStorage::new());
    let error = Nic::open(&host, room.parts(), net(0), &Config::default()).unwrap_err();
    let text = error.to_string();
    assert!(text.contains("firmware's reserve") && text.contains("Options::firmware"), "{text}");
}

/// Nothing repeats a lost message after the device is closed.
#[test]
fn a_closing_adapter_tells_its_peer_what_the_network_lost() {
    let rig = Rig::new();
    let hosts = [rig.host(0), rig.host(1)];
    let mut rooms = [Box::new(NicStorage::new()), Box::new(NicStorage::new())];
    let [a, b] = Pair::open(&hosts, &mut rooms).sides;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.unwrap().block_on(async {
        let (nic, mut peer) = (AsyncNic::new(a.nic).unwrap(), AsyncNic::new(b.nic).unwrap());
        rig.control("impair drop=1000");
        let lost = async {
            tokio::time::sleep(Duration::from_millis(500)).await;
            rig.control("impair");
        };
        let event = tokio::time::timeout(LONG, peer.evd_wait(b.evd, 1));
        let (closed, event, ()) = tokio::join!(nic.close(CloseFlag::Abrupt), event, lost);
        closed.unwrap();
        assert_eq!(event.expect("in time"), Ok(Event::Disconnected(b.ep)));
    });
}

/// The sources of an error, from the error itself to the first cause.
fn chain<'e>(
    error: &'e (dyn std::error::Error + 'static),
) -> Vec<&'e (dyn std::error::Error + 'static)> {
    std::iter::successors(Some(error), |error| error.source()).collect()
}

#[test]
fn the_sources_of_a_failed_bring_up_lead_to_what_the_device_said() {
    let rig = Rig::new();
    let host = rig.host(0);
    rig.control("die 0");
    let mut room = Box::new(NicStorage::new());
    let error = Nic::open(&host, room.parts(), net(0), &Config::default()).unwrap_err();
    let boxed: Box<dyn std::error::Error> = error.into();
    let sources = chain(&*boxed);
    assert_eq!(sources.len(), 3, "{sources:?}");
    assert_eq!(sources[0].downcast_ref::<vfio_host::Error>().unwrap().kind(), Kind::Device);
    let call = sources[1].downcast_ref::<dat_core::Error>().unwrap();
    let fault = sources[2].downcast_ref::<Fault>().unwrap();
    assert_eq!(call.fault().as_ref(), Some(fault));
    // What a source says stands in the text of the error above it.
    for pair in sources.windows(2) {
        let (above, below) = (pair[0].to_string(), pair[1].to_string());
        assert!(above.contains(&below) || above.contains(fault.cause), "{above} / {below}");
    }
}

#[test]
fn the_source_of_a_missing_server_is_the_kernel_s_error() {
    let error = refused("/nowhere/socket".as_ref());
    let sources = chain(&error);
    assert_eq!(sources.len(), 2, "{sources:?}");
    let cause = sources[1].downcast_ref::<std::io::Error>().unwrap();
    assert_eq!(cause.kind(), std::io::ErrorKind::NotFound);
}

#[test]
fn a_refused_call_and_a_failed_wait_become_the_error_of_the_host() {
    let rig = Rig::new();
    let host = rig.host(0);
    let mut room = Box::new(NicStorage::new());
    let mut nic = Nic::open(&host, room.parts(), net(0), &Config::default()).unwrap();
    let mut run = || -> Result<(), vfio_host::Error> {
        let evd = nic.evd_create(4, EvdFlags::SOFTWARE)?;
        nic.evd_wait(evd, Duration::from_millis(1), 1)?;
        Ok(())
    };
    let error = run().unwrap_err();
    assert_eq!((error.kind(), error.to_string()), (Kind::Call, "the timeout expired".to_owned()));
    let call = chain(&error)[1].downcast_ref::<dat_core::Error>().unwrap().ret();
    assert_eq!(call.ty(), DatType::TimeoutExpired);
}
