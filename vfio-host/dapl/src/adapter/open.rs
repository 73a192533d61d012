//! The control half of an adapter that is open.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use dat_core::{AnyHandle, AsyncEvent, Ep, EpState, Event, Ia, Instant, Next};
use vfio_host::Host;

use super::Adapter;
use super::address::Addresses;
use super::hold::{Driver, Hold};
use crate::abi::DatHandle;
use crate::abi::named::Named;
use crate::log::{Level, say};
use crate::object::{Name, Note, Object};
use crate::sleep::{Bell, Descriptor, Sleeper};
use crate::variant::{Hca, Variant};

/// Times that one look drives an adapter which keeps finding work.
const DRIVES: usize = 64;

/// The attributes by name.
#[derive(Debug)]
pub(crate) struct NamedAttrs {
    /// Of the transport.
    pub(crate) transport: Named,
    /// Of the vendor.
    pub(crate) vendor: Named,
    /// Of the provider.
    pub(crate) specific: Named,
}

/// An adapter that is open.
pub(crate) struct Open<V: Variant> {
    hold: Hold<V>,
    /// Where it belongs.
    pub(crate) adapter: &'static Adapter<V>,
    /// Interface Adapters open on it.
    pub(super) ias: Vec<&'static Object<V>>,
    /// Where datagrams go.
    pub(crate) addresses: Addresses,
    /// Who waits.
    pub(crate) sleepers: Vec<Sleeper<V>>,
    /// Descriptors of CNOs.
    pub(crate) descriptors: Vec<Descriptor>,
    /// Bells that nobody uses now.
    pub(crate) bells: Vec<Arc<Bell>>,
    /// Endpoints that drain, whose halves stay home until they have.
    pub(super) drains: Vec<Ep>,
    /// A half is out for good, and somebody may still use it.
    pub(super) stray: bool,
    /// Attributes by name, whose texts consumers are given the addresses of.
    pub(crate) named: NamedAttrs,
    pub(super) thread: Option<JoinHandle<()>>,
    pub(super) stop: Arc<AtomicBool>,
}

impl<V: Variant> Open<V> {
    /// Brings the adapter up, and starts its thread.
    pub(super) fn new(adapter: &'static Adapter<V>) -> Result<Self, vfio_host::Error> {
        let hold = Hold::open(&adapter.config)?;
        let stop = Arc::new(AtomicBool::new(false));
        let thread = crate::progress::start(adapter, hold.nic.host(), Arc::clone(&stop))?;
        say(
            Level::Info,
            format_args!(
                "{} is up, with the address {}",
                adapter.config.device, adapter.config.net.addr
            ),
        );
        let (of_ia, of_provider) = hold.nic.query();
        let named = NamedAttrs {
            transport: Named::of(of_ia.transport_attr),
            vendor: Named::of(of_ia.vendor_attr),
            specific: Named::of(&of_provider.provider_specific_attr),
        };
        Ok(Self {
            named,
            hold,
            adapter,
            ias: Vec::new(),
            addresses: Addresses::default(),
            sleepers: Vec::new(),
            descriptors: Vec::new(),
            bells: Vec::new(),
            drains: Vec::new(),
            stray: false,
            thread: Some(thread),
            stop,
        })
    }

    /// Closes the adapter. Its thread has ended.
    pub(super) fn close(self) {
        let device = &self.adapter.config.device;
        match self.hold.close(self.stray) {
            Ok(()) => say(Level::Info, format_args!("{device} is closed")),
            Err(error) => say(Level::Warn, format_args!("closing {device}: {error}")),
        }
    }

    /// The driver.
    pub(crate) fn nic(&mut self) -> &mut Driver<V> {
        &mut self.hold.nic
    }

    /// That, and where datagrams go.
    pub(crate) fn nic_and_addresses(&mut self) -> (&mut Driver<V>, &mut Addresses) {
        (&mut self.hold.nic, &mut self.addresses)
    }

    /// What it drives, for the calls that wait there and do not here.
    pub(crate) fn ia(&mut self) -> &mut Ia<'static, Hca<V>> {
        &mut self.hold.nic
    }

    /// Ends the sleep of the adapter's thread.
    pub(super) fn poke(&mut self) {
        self.hold.nic.host().wakeups().set_timer(Some(Duration::ZERO));
    }

    /// Makes an object of what `dat_core` has made, for the Interface Adapter `ia`: its handle.
    pub(crate) fn adopt<N: Name>(&mut self, ia: &'static Object<V>, name: N) -> DatHandle {
        let object = V::objects().take();
        let ia = ia.ia();
        object.begin(N::KIND, name.word(), Some(ia), self.adapter);
        self.adapter.put(name, Some(object));
        ia.children.fetch_add(1, Ordering::Relaxed);
        object.handle()
    }

    /// Ends an object that `dat_core` has freed.
    pub(crate) fn disown<N: Name>(&mut self, object: &'static Object<V>, name: N) {
        self.adapter.put(name, None);
        object.ia().children.fetch_sub(1, Ordering::Relaxed);
        object.end();
    }

    /// Does what is due, tells who waits, and sets the timer for what comes next.
    pub(crate) fn drive(&mut self) {
        self.hold.nic.host().wakeups().clear();
        let mut next = Next { deadline: None, work: true };
        for _ in 0..DRIVES {
            next = self.hold.nic.advance();
            if !next.work {
                break;
            }
        }
        self.pass_on();
        self.drained();
        self.wake();
        self.tell_descriptors();
        let now = self.hold.nic.now();
        let due = !self.adapter.nothing_due();
        let after = match next.deadline {
            _ if next.work || due => Some(Duration::ZERO),
            Some(deadline) if deadline != Instant::NEVER => Some(deadline.since(now)),
            Some(_) | None => None,
        };
        self.hold.nic.host().wakeups().set_timer(after);
    }

    /// Passes asynchronous events on to the Interface Adapters that they concern: those of an
    /// object to its own, all others to all.
    fn pass_on(&mut self) {
        let all = self.hold.nic.async_evd();
        while let Ok(event) = self.hold.nic.evd_dequeue(all) {
            let Event::Async(what) = event else { continue };
            // With a shared queue every connection ends like that.
            let level =
                if matches!(what, AsyncEvent::EpBroken(_)) { Level::Info } else { Level::Warn };
            say(level, format_args!("{}: {what:?}", self.adapter.config.device));
            let about = Object::<V>::find(self.adapter.handle_of_any(what.handle()));
            match (about, what.handle()) {
                (Some(object), _) => self.raise(object.ia(), what),
                (None, AnyHandle::Ia) => {
                    for place in 0..self.ias.len() {
                        if let Some(ia) = self.ias.get(place).copied() {
                            self.raise(ia, what);
                        }
                    }
                }
                (None, _) => {}
            }
        }
    }

    /// Tells an Interface Adapter's async Event Dispatcher.
    pub(super) fn raise(&mut self, ia: &'static Object<V>, what: AsyncEvent) {
        let Note::Ia { async_evd, .. } = *ia.note() else {
            return;
        };
        if let Some(evd) = Object::<V>::find(async_evd).and_then(|evd| evd.name().ok()) {
            self.hold.nic.evd_pass_on(evd, what);
            self.wake();
        }
    }

    /// Forgets the drains that are over.
    fn drained(&mut self) {
        let nic = &self.hold.nic;
        self.drains.retain(|ep| {
            nic.ep_query(*ep).is_ok_and(|param| param.state == EpState::DisconnectPending)
        });
    }

    /// Rings for those who wait for something that may have come.
    fn wake(&mut self) {
        for place in 0..self.sleepers.len() {
            let Some(sleeper) = self.sleepers.get(place) else {
                return;
            };
            if sleeper.what.stirs::<V>(&mut self.hold.nic) {
                sleeper.bell.ring();
            }
        }
    }

    /// Has the descriptors of CNOs tell what is so, and closes those of CNOs that are gone.
    pub(crate) fn tell_descriptors(&mut self) {
        let nic = &self.hold.nic;
        self.descriptors.retain_mut(|one| one.tell::<V>(nic));
    }

    /// Rings for all who wait for that object: it is not what it was.
    pub(crate) fn rouse(&mut self, object: &'static Object<V>) {
        for sleeper in self.sleepers.iter().filter(|sleeper| std::ptr::eq(sleeper.object, object)) {
            sleeper.bell.ring();
        }
    }
}
