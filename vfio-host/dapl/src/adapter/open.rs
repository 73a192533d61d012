//! An open adapter: the state under the adapter's lock.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use dat_core::{AnyHandle, AsyncEvent, Ep, EpState, Event, Ia, Instant, Next};
use vfio_host::{Host, class};

use super::Adapter;
use super::address::{Addresses, Qualifiers};
use super::hold::{Driver, Hold};
use crate::abi::DatHandle;
use crate::abi::named::Named;
use crate::abi::own;
use crate::config::Config;
use crate::log::{Level, say};
use crate::object::{Name, Note, Object};
use crate::sleep::{Bell, Descriptor, Sleeper};
use crate::variant::{Hca, Variant};

/// Upper limit of the times that one call drives an adapter which keeps finding work.
const DRIVES: usize = 64;

/// Named attributes.
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
    /// The adapter that owns it.
    pub(crate) adapter: &'static Adapter<V>,
    /// Interface Adapters open on it.
    pub(super) ias: Vec<&'static Object<V>>,
    /// Destinations of datagrams.
    pub(crate) addresses: Addresses,
    /// What service points were made with.
    pub(crate) qualifiers: Qualifiers,
    /// Threads that wait.
    pub(crate) sleepers: Vec<Sleeper<V>>,
    /// Descriptors of CNOs.
    pub(crate) descriptors: Vec<Descriptor>,
    /// Unused bells.
    pub(crate) bells: Vec<Arc<Bell>>,
    /// Endpoints that drain, whose gates stay shut until they have.
    pub(super) drains: Vec<Ep>,
    /// A poster or reaper could not be recalled, and a thread may still use it.
    pub(super) stray: bool,
    /// Named attributes; consumers get the addresses of the texts.
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
        let Config { device, classes, net, .. } = &adapter.config;
        if let Some(note) = class::note(classes.best_effort, net) {
            say(Level::Warn, format_args!("{device}: {note}"));
        }
        let (of_ia, of_provider) = hold.nic.query();
        let named = NamedAttrs {
            transport: Named::of(of_ia.transport_attr, &[]),
            vendor: Named::of(of_ia.vendor_attr, &[]),
            specific: Named::of(&of_provider.provider_specific_attr, &[own::NAMED]),
        };
        Ok(Self {
            named,
            hold,
            adapter,
            ias: Vec::new(),
            addresses: Addresses::default(),
            qualifiers: Qualifiers::default(),
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

    /// Returns the driver.
    pub(crate) fn nic(&mut self) -> &mut Driver<V> {
        &mut self.hold.nic
    }

    /// Returns the driver and the destinations of datagrams.
    pub(crate) fn nic_and_addresses(&mut self) -> (&mut Driver<V>, &mut Addresses) {
        (&mut self.hold.nic, &mut self.addresses)
    }

    /// Returns the `Ia`, for calls that `Nic` replaces by calls that wait.
    pub(crate) fn ia(&mut self) -> &mut Ia<'static, Hca<V>> {
        &mut self.hold.nic
    }

    /// Ends the sleep of the adapter's thread.
    pub(crate) fn poke(&mut self) {
        self.hold.nic.host().wakeups().set_timer(Some(Duration::ZERO));
    }

    /// Makes the C object of a new `dat_core` object of the Interface Adapter `ia`. Returns its
    /// handle.
    pub(crate) fn adopt<N: Name>(&mut self, ia: &'static Object<V>, name: N) -> DatHandle {
        let object = V::objects().take();
        let ia = ia.ia();
        object.begin(N::KIND, name.word(), Some(ia), self.adapter);
        self.adapter.put(name, Some(object));
        ia.children.fetch_add(1, Ordering::Relaxed);
        object.handle()
    }

    /// Frees the C object of an object that `dat_core` has freed.
    pub(crate) fn disown<N: Name>(&mut self, object: &'static Object<V>, name: N) {
        self.adapter.put(name, None);
        object.ia().children.fetch_sub(1, Ordering::Relaxed);
        object.end();
    }

    /// Drives the adapter, wakes waiters, and sets the timer for the next deadline.
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
        self.update_descriptors();
        let now = self.hold.nic.now();
        let due = !self.adapter.nothing_due();
        let after = match next.deadline {
            _ if next.work || due => Some(Duration::ZERO),
            Some(deadline) if deadline != Instant::NEVER => Some(deadline.since(now)),
            Some(_) | None => None,
        };
        self.hold.nic.host().wakeups().set_timer(after);
    }

    /// Passes asynchronous events on: those of an object to its own Interface Adapter, others to
    /// all.
    fn pass_on(&mut self) {
        let all = self.hold.nic.async_evd();
        while let Ok(event) = self.hold.nic.evd_dequeue(all) {
            let Event::Async(what) = event else { continue };
            // With a Shared Receive Queue, every connection ends with this event.
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

    /// Queues an event on the async Event Dispatcher of an Interface Adapter.
    pub(super) fn raise(&mut self, ia: &'static Object<V>, what: AsyncEvent) {
        let Note::Ia { async_evd, .. } = *ia.note() else {
            return;
        };
        if let Some(evd) = Object::<V>::find(async_evd).and_then(|evd| evd.name().ok()) {
            self.hold.nic.evd_pass_on(evd, what);
            self.wake();
        }
    }

    /// Removes the Endpoints that have drained.
    fn drained(&mut self) {
        let nic = &self.hold.nic;
        self.drains.retain(|ep| {
            nic.ep_query(*ep).is_ok_and(|param| param.state == EpState::DisconnectPending)
        });
    }

    /// Wakes the sleepers whose wait may be over.
    fn wake(&mut self) {
        for place in 0..self.sleepers.len() {
            let Some(sleeper) = self.sleepers.get(place) else {
                return;
            };
            if sleeper.what.may_be_over::<V>(&mut self.hold.nic) {
                sleeper.bell.ring();
            }
        }
    }

    /// Updates the descriptors of CNOs, and closes those of freed CNOs.
    pub(crate) fn update_descriptors(&mut self) {
        let nic = &self.hold.nic;
        self.descriptors.retain_mut(|one| one.update::<V>(nic));
    }

    /// Wakes all waiters on an object, because its state has changed.
    pub(crate) fn rouse(&mut self, object: &'static Object<V>) {
        for sleeper in self.sleepers.iter().filter(|sleeper| std::ptr::eq(sleeper.object, object)) {
            sleeper.bell.ring();
        }
    }
}
