//! Owns the host of a device, the memory of the adapter's objects, and the driver that refers to
//! both, while the adapter is open.
#![expect(unsafe_code, reason = "the driver refers to a host and to memory that lie beside it")]

use std::alloc::{Layout, alloc_zeroed, handle_alloc_error};
use std::mem::ManuallyDrop;
use std::thread;

use dat_core::{CloseFlag, EpPoster, EvdReaper, Parts, Sizes, SrqPoster, Supply};
use hca_mlx5::{Config as Bringup, Mlx5};
use vfio_host::error::Kind;
use vfio_host::user::VfioUser;
use vfio_host::vfio::Vfio;
use vfio_host::{Error, Neighbour, Nic, status};

use super::{CQS, KEYS, LMRS, NEIGHBOURS, QPS, SRQS};
use crate::config::Config;
use crate::variant::{DataQueue, Variant};

/// Stack size of the threads that bring an adapter up: the driver's tables are moved over the stack.
const STACK: usize = 128 << 20;

const _: () = assert!(size_of::<Mlx5<'static, Vfio, QPS, CQS, KEYS, NEIGHBOURS>>() < STACK / 8);
/// Log2 of the number of completion queues that may be armed at once: all of the adapter, and the
/// driver's own.
const LOG_COMPLETION_EVENTS: u8 = 12;

const _: () = assert!(CQS < 1 << LOG_COMPLETION_EVENTS);

/// Returns the table sizes of an adapter.
const fn sizes(config: &Config) -> Sizes {
    Sizes {
        eps: config.endpoints,
        evds: config.evds(),
        lmrs: LMRS,
        dtos: config.dtos(),
        events: config.events(),
        srqs: SRQS,
    }
}

/// The driver on its host.
pub(crate) type Driver<V> = Nic<'static, 'static, <V as Variant>::Host, QPS, CQS, KEYS, NEIGHBOURS>;

const fn is_send<T: Send>() {}

/// Checks the claims of the two `unsafe impl`s below, for each kind of host.
const _: () = {
    is_send::<Nic<'static, 'static, Vfio, QPS, CQS, KEYS, NEIGHBOURS>>();
    is_send::<Nic<'static, 'static, VfioUser, QPS, CQS, KEYS, NEIGHBOURS>>();
    is_send::<EpPoster<'static, Mlx5<'static, Vfio, QPS, CQS, KEYS, NEIGHBOURS>>>();
    is_send::<EpPoster<'static, Mlx5<'static, VfioUser, QPS, CQS, KEYS, NEIGHBOURS>>>();
    is_send::<EvdReaper<'static, Mlx5<'static, Vfio, QPS, CQS, KEYS, NEIGHBOURS>>>();
    is_send::<EvdReaper<'static, Mlx5<'static, VfioUser, QPS, CQS, KEYS, NEIGHBOURS>>>();
    is_send::<SrqPoster<'static, Mlx5<'static, Vfio, QPS, CQS, KEYS, NEIGHBOURS>>>();
    is_send::<SrqPoster<'static, Mlx5<'static, VfioUser, QPS, CQS, KEYS, NEIGHBOURS>>>();
};

// SAFETY: its parts are `Send`, with the host of every variant.
unsafe impl<V: Variant> Send for Hold<V> {}

// SAFETY: as above.
unsafe impl<V: Variant> Send for DataQueue<V> {}

// SAFETY: it owns the value as a box does.
unsafe impl<T: Send> Send for Held<T> {}

/// A box whose contents other fields refer to.
struct Held<T>(*mut T);

impl<T> Held<T> {
    fn new(value: T) -> Self {
        Self(Box::into_raw(Box::new(value)))
    }
}

impl<T> Drop for Held<T> {
    fn drop(&mut self) {
        // SAFETY: it is the address of a box, which is freed only here.
        drop(unsafe { Box::from_raw(self.0) });
    }
}

/// The memory of an adapter's objects.
#[derive(Default)]
struct Heap {
    /// Functions that free the pieces.
    pieces: Vec<Box<dyn FnOnce() + Send>>,
}

impl Heap {
    fn lend<T>(&mut self, piece: Box<[T]>) -> &'static mut [T] {
        let piece = Box::into_raw(piece);
        let address = piece.cast::<()>().expose_provenance();
        let len = piece.len();
        self.pieces.push(Box::new(move || {
            let first = std::ptr::with_exposed_provenance_mut::<T>(address);
            // SAFETY: it was a box of that length, and nothing refers to it any more: the heap is
            // dropped after the driver.
            drop(unsafe { Box::from_raw(std::ptr::slice_from_raw_parts_mut(first, len)) });
        }));
        // SAFETY: it is valid until the heap is dropped, after the driver, which alone refers to
        // it.
        unsafe { &mut *piece }
    }
}

impl Drop for Heap {
    fn drop(&mut self) {
        for give_back in self.pieces.drain(..) {
            give_back();
        }
    }
}

impl Supply<'static> for Heap {
    fn slice<T>(&mut self, len: usize, new: fn() -> T) -> &'static mut [T] {
        self.lend((0..len).map(|_| new()).collect())
    }

    fn words<T>(&mut self, len: usize, new: fn() -> T) -> &'static mut [T] {
        let one = new();
        // SAFETY: the type consists of words without padding.
        let bytes =
            unsafe { std::slice::from_raw_parts((&raw const one).cast::<u8>(), size_of::<T>()) };
        let layout = Layout::array::<T>(len).ok().filter(|layout| layout.size() != 0);
        let Some(layout) = layout.filter(|_| bytes.iter().all(|byte| *byte == 0)) else {
            return self.slice(len, new);
        };
        // SAFETY: the size is not 0.
        let first = unsafe { alloc_zeroed(layout) }.cast::<T>();
        if first.is_null() {
            handle_alloc_error(layout);
        }
        let words = std::ptr::slice_from_raw_parts_mut(first, len);
        // SAFETY: allocated as a box of that length is, and all-zero bytes are a valid value, as was
        // just compared with a new one.
        self.lend(unsafe { Box::from_raw(words) })
    }
}

/// The three, in drop order.
pub(super) struct Hold<V: Variant> {
    pub(super) nic: Box<Driver<V>>,
    /// Dropped after the driver.
    heap: Heap,
    /// Dropped after the driver, too.
    neighbours: Held<Vec<Neighbour>>,
    /// Dropped last.
    host: Held<V::Host>,
}

impl<V: Variant> Hold<V> {
    /// Opens the device and brings it up.
    pub(super) fn open(config: &Config) -> Result<Self, Error> {
        deep(|| Self::build(config))
            .map_err(|what| Error::new(Kind::Memory, config.device.to_string(), what, ""))?
    }

    fn build(config: &Config) -> Result<Self, Error> {
        let host = Held::new(V::open(&config.device, &config.options())?);
        let mut heap = Heap::default();
        let neighbours = Held::new(config.neighbours.clone());
        let mut bringup = Bringup {
            log_completion_events: LOG_COMPLETION_EVENTS,
            // SAFETY: they are in a box that is dropped after the driver.
            neighbours: unsafe { &*neighbours.0 },
            classes: config.classes,
            compress_completions: config.compress_completions,
            subnet_manager: config.subnet_manager,
            inline_receives: config.inline_receives,
            hook: config.status.then_some(&status::traced),
            ..Bringup::default()
        };
        if let Some(mtu) = config.mtu {
            bringup = bringup.with_path_mtu(mtu);
        }
        // SAFETY: it is in a box that is dropped after the driver.
        let on: &'static V::Host = unsafe { &*host.0 };
        let parts = Parts::supplied(&mut heap, &sizes(config)).map_err(|error| {
            Error::new(Kind::Memory, config.device.to_string(), error.to_string(), "")
        })?;
        let mut nic = Nic::open(on, parts, config.net, &bringup)?;
        if config.status {
            nic.serve_status(&status::folder())?;
        }
        Ok(Self { nic: Box::new(nic), heap, neighbours, host })
    }

    /// Closes the adapter and the device. With `stray`, the memory and registers that a poster or
    /// reaper refers to are leaked.
    pub(super) fn close(self, stray: bool) -> Result<(), String> {
        let Self { mut nic, heap, neighbours, host } = self;
        let closed = nic.close(CloseFlag::Abrupt);
        drop(nic);
        drop(neighbours);
        if stray {
            let _ = ManuallyDrop::new((heap, host));
        } else {
            drop(heap);
            drop(host);
        }
        closed.map_err(|error| error.to_string())
    }
}

/// Runs a function on a thread with a large stack.
fn deep<T: Send>(what: impl FnOnce() -> T + Send) -> Result<T, String> {
    thread::scope(|threads| {
        thread::Builder::new()
            .name("dapldat-deep".into())
            .stack_size(STACK)
            .spawn_scoped(threads, what)
            .map_err(|error| format!("cannot start a thread: {error}"))?
            .join()
            .map_err(|_| "the thread panicked".into())
    })
}
