//! What the hook sees, and the errors whose sources name what the device said.
#![expect(clippy::unwrap_used, reason = "a test")]

use core::error::Error as _;
use core::time::Duration;
use std::sync::Mutex;

use crate::pair::*;
use dat_core::testing::{Fabric, LoopHca};
use dat_core::*;

/// What was seen, oldest first.
type Seen = Mutex<Vec<Activity>>;

/// Two adapters; the hook of the first writes into the list.
fn watched() -> (Pair, &'static Seen) {
    let seen: &'static Seen = Box::leak(Box::default());
    let hook: Hook<'static> = Box::leak(Box::new(|what: &Activity| {
        seen.lock().unwrap().push(*what);
    }));
    let fabric: &'static Fabric = Box::leak(Box::new(Fabric::new()));
    let storage: &'static mut Storage<_, 8, 8, 8, 32> = Box::leak(Box::new(Storage::new()));
    let net = provider::Net::new(addr(0), 24);
    let hca = LoopHca::new(fabric, 0).with_hook(hook);
    let ia = Ia::open(hca, storage.parts(), net, Instant::ZERO, [1; 32]).unwrap();
    let a = Side::on(ia, fabric, 0, Merge::Apart, None);
    let b = Side::new(fabric, 1, Merge::Apart, None);
    (Pair { fabric, a, b, now: Instant::ZERO }, seen)
}

fn lines(seen: &Seen) -> Vec<String> {
    seen.lock().unwrap().drain(..).map(|what| what.to_string()).collect()
}

#[test]
fn the_hook_sees_a_connection_from_open_to_close() {
    let (mut p, seen) = watched();
    assert_eq!(lines(seen), ["the adapter is open as 10.0.0.1"]);
    p.b.ia.psp_create(PORT, p.b.cr, PspFlag::Consumer).unwrap();
    p.ask(b"").unwrap();
    p.run_until_idle();
    let cr = p.request().unwrap();
    p.b.ia.cr_accept(p.now, cr, Some(p.b.ep), b"").unwrap();
    p.run_until_idle();
    let name = format!("EP {}", p.a.ep.index());
    assert_eq!(
        lines(seen),
        [
            format!("{name}: Unconnected to ActiveConnectionPending"),
            "REQ to 10.0.0.2".to_owned(),
            "REP from 10.0.0.2".to_owned(),
            format!("{name}: ActiveConnectionPending to Connected"),
            "RTU to 10.0.0.2".to_owned(),
        ]
    );
    p.a.ia.ep_disconnect(p.now, p.a.ep, CloseFlag::Abrupt).unwrap();
    p.run_until_idle();
    p.a.ia.ep_reset(p.a.ep).unwrap();
    p.a.ia.close(p.now, CloseFlag::Abrupt).unwrap();
    assert_eq!(
        lines(seen),
        [
            format!("{name}: Connected to Disconnected"),
            "DREQ to 10.0.0.2".to_owned(),
            "DREP from 10.0.0.2".to_owned(),
            format!("{name}: Disconnected to Unconnected"),
            "the adapter is closed".to_owned(),
        ]
    );
}

#[test]
fn the_hook_sees_requests_refusals_and_repeated_messages() {
    let (mut p, seen) = watched();
    lines(seen);
    // Nobody listens at `a`.
    let (to, wait) = (addr(0), Duration::from_secs(60));
    let ask = |p: &mut Pair| {
        p.b.ia.ep_connect(p.now, p.b.ep, to, PORT, wait, b"", Qos::BestEffort).unwrap();
        p.run_until_idle();
    };
    ask(&mut p);
    let Some(Activity::Datagram { sent: false, local, remote, mad, .. }) =
        seen.lock().unwrap().first().copied()
    else {
        unreachable!("a REQ came");
    };
    // The class of the connection manager, and the attribute of a REQ.
    assert_eq!((local, remote, mad[1], mad[17]), (addr(0), addr(1), 0x07, 0x10));
    assert_eq!(lines(seen), ["REQ from 10.0.0.2", "REJ to 10.0.0.2"]);
    p.b.ia.ep_reset(p.b.ep).unwrap();
    let psp = p.a.ia.psp_create(PORT, p.a.cr, PspFlag::Consumer).unwrap();
    ask(&mut p);
    assert_eq!(lines(seen), ["REQ from 10.0.0.2", "10.0.0.2 asks for port 4711"]);
    let Some(Event::ConnectionRequest { cr, .. }) = p.a.next(p.a.cr) else {
        unreachable!("it was announced");
    };
    // The REP gets no answer.
    p.fabric.filter(|_| testing::Verdict::Lose);
    p.a.ia.cr_accept(p.now, cr, Some(p.a.ep), b"").unwrap();
    p.run_until_idle();
    while lines(seen).iter().all(|line| line != "REP to 10.0.0.2 is repeated: no answer yet") {
        p.now = p.a.ia.advance(p.now).deadline.unwrap();
    }
    p.a.ia.psp_free(psp).unwrap();
}

#[test]
fn the_hook_sees_how_the_device_is_lost() {
    let (mut p, seen) = watched();
    lines(seen);
    let fault = fault!(Gone, "health", "the firmware fell");
    p.fabric.raise(0, provider::Notice::Warning(fault));
    p.fabric.raise(0, provider::Notice::Link(false));
    p.fabric.raise(0, provider::Notice::Catastrophic(fault));
    p.run_until_idle();
    let all = seen.lock().unwrap().clone();
    let expected = [Activity::Warning(fault), Activity::Link(false), Activity::Lost(fault)];
    assert_eq!(all, expected);
    let severities = all.iter().map(Activity::severity);
    assert!(severities.eq([Severity::Warning, Severity::Warning, Severity::Error]));
}

#[test]
fn the_source_of_an_error_is_what_the_device_said() {
    let mut p = Pair::unconnected(Merge::Apart, None);
    p.fabric.fail_nth(Some(0));
    let error = p.a.ia.pz_create().unwrap_err();
    let fault = error.source().unwrap().downcast_ref::<Fault>().unwrap();
    assert_eq!(error.fault().as_ref(), Some(fault));
    assert!(error.to_string().ends_with(&fault.to_string()), "{error}");
    // A refusal that the device had no part in has none.
    let error = p.a.ia.lmr_free(Lmr::from_raw(7)).unwrap_err();
    assert!(error.source().is_none(), "{error}");
}
