//! What lives as long as an adapter is open: the host of its device, the memory of its objects, and
//! the driver that refers to both.
#![expect(unsafe_code, reason = "the driver refers to a host and to memory that lie beside it")]

use std::mem::ManuallyDrop;
use std::thread;

use dat_core::{CloseFlag, EpPoster, EvdReaper, Parts, Sizes, SrqPoster, Supply};
use hca_mlx5::{Config as Bringup, Mlx5};
use vfio_host::error::Kind;
use vfio_host::user::VfioUser;
use vfio_host::vfio::Vfio;
use vfio_host::{Error, Nic};

use super::{CQS, KEYS, LMRS, QPS, SRQS};
use crate::config::Config;
use crate::variant::{Half, Variant};

/// Stack of the thread that brings an adapter up, and of the one that closes it: the driver's
/// tables pass over it.
const STACK: usize = 32 << 20;
/// Log2 of the completion queues that may be armed at once: all that there are, and the driver's
/// own.
const LOG_COMPLETION_EVENTS: u8 = 12;

const _: () = assert!(CQS < 1 << LOG_COMPLETION_EVENTS);

/// How much of everything there is room for.
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
pub(crate) type Driver<V> = Nic<'static, 'static, <V as Variant>::Host, QPS, CQS, KEYS>;

const fn is_send<T: Send>() {}

/// What makes the two below true, for each kind of host.
const _: () = {
    is_send::<Nic<'static, 'static, Vfio, QPS, CQS, KEYS>>();
    is_send::<Nic<'static, 'static, VfioUser, QPS, CQS, KEYS>>();
    is_send::<EpPoster<'static, Mlx5<'static, Vfio, QPS, CQS, KEYS>>>();
    is_send::<EpPoster<'static, Mlx5<'static, VfioUser, QPS, CQS, KEYS>>>();
    is_send::<EvdReaper<'static, Mlx5<'static, Vfio, QPS, CQS, KEYS>>>();
    is_send::<EvdReaper<'static, Mlx5<'static, VfioUser, QPS, CQS, KEYS>>>();
    is_send::<SrqPoster<'static, Mlx5<'static, Vfio, QPS, CQS, KEYS>>>();
    is_send::<SrqPoster<'static, Mlx5<'static, VfioUser, QPS, CQS, KEYS>>>();
};

// SAFETY: its parts are, with the host of every variant that there is.
unsafe impl<V: Variant> Send for Hold<V> {}

// SAFETY: as above.
unsafe impl<V: Variant> Send for Half<V> {}

// SAFETY: it owns the value as a box does.
unsafe impl<T: Send> Send for Held<T> {}

/// A box that something beside it refers to.
struct Held<T>(*mut T);

impl<T> Held<T> {
    fn new(value: T) -> Self {
        Self(Box::into_raw(Box::new(value)))
    }
}

impl<T> Drop for Held<T> {
    fn drop(&mut self) {
        // SAFETY: it is the address of a box, given up here alone.
        drop(unsafe { Box::from_raw(self.0) });
    }
}

/// The memory of an adapter's objects.
#[derive(Default)]
struct Heap {
    /// Each gives a piece back.
    pieces: Vec<Box<dyn FnOnce() + Send>>,
}

impl Heap {
    fn lend<T>(&mut self, piece: Box<[T]>) -> &'static mut [T] {
        let piece = Box::into_raw(piece);
        let address = piece.cast::<()>().expose_provenance();
        let len = piece.len();
        self.pieces.push(Box::new(move || {
            let first = std::ptr::with_exposed_provenance_mut::<T>(address);
            // SAFETY: it was a box of that many, and nobody refers to it any more: the heap goes
            // after the driver.
            drop(unsafe { Box::from_raw(std::ptr::slice_from_raw_parts_mut(first, len)) });
        }));
        // SAFETY: it lives until the heap goes, after the driver, which alone refers to it.
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
        // SAFETY: it is a value of words, which have no gaps between them.
        let bytes =
            unsafe { std::slice::from_raw_parts((&raw const one).cast::<u8>(), size_of::<T>()) };
        if bytes.iter().any(|byte| *byte != 0) {
            return self.slice(len, new);
        }
        // SAFETY: bytes of 0 are such a value, as has just been seen of one.
        self.lend(unsafe { Box::new_zeroed_slice(len).assume_init() })
    }
}

/// The three, in the order in which they end.
pub(super) struct Hold<V: Variant> {
    pub(super) nic: Box<Driver<V>>,
    /// After the driver.
    heap: Heap,
    /// Last.
    host: Held<V::Host>,
}

impl<V: Variant> Hold<V> {
    /// Takes hold of the device and brings it up.
    pub(super) fn open(config: &Config) -> Result<Self, Error> {
        deep(|| Self::build(config))
            .map_err(|what| Error::new(Kind::Memory, config.device.to_string(), what, ""))?
    }

    fn build(config: &Config) -> Result<Self, Error> {
        let host = Held::new(V::open(&config.device, &config.options())?);
        let mut heap = Heap::default();
        let mut bringup =
            Bringup { log_completion_events: LOG_COMPLETION_EVENTS, ..Bringup::default() };
        if let Some(mtu) = config.mtu {
            bringup = bringup.with_path_mtu(mtu);
        }
        // SAFETY: it lives in a box that is dropped after the driver.
        let on: &'static V::Host = unsafe { &*host.0 };
        let parts = Parts::supplied(&mut heap, &sizes(config)).map_err(|error| {
            Error::new(Kind::Memory, config.device.to_string(), error.to_string(), "")
        })?;
        let nic = Nic::open(on, parts, config.net, &bringup)?;
        Ok(Self { nic: Box::new(nic), heap, host })
    }

    /// Closes the adapter, and gives the device back; or says why not, also where no thread was
    /// left to do it. With a stray half the memory that it refers to stays, the device's
    /// registers too: there is no other use for them.
    pub(super) fn close(self, stray: bool) -> Result<(), String> {
        let all = self;
        let closed = deep(move || {
            let whole = all;
            let Self { nic, heap, host } = whole;
            let closed = (*nic).close(CloseFlag::Abrupt);
            if stray {
                let _ = ManuallyDrop::new((heap, host));
            } else {
                drop(heap);
                drop(host);
            }
            closed
        });
        closed?.map_err(|error| error.to_string())
    }
}

/// Does something on a thread that has stack enough for it.
fn deep<T: Send>(what: impl FnOnce() -> T + Send) -> Result<T, String> {
    thread::scope(|threads| {
        thread::Builder::new()
            .name("dapldat-deep".into())
            .stack_size(STACK)
            .spawn_scoped(threads, what)
            .map_err(|error| format!("there is no thread for it: {error}"))?
            .join()
            .map_err(|_| "it ended early".into())
    })
}
