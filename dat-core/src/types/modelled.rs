//! loom's atomics with constant first values, which loom's own do not have.
//!
//! Each is made when it is first accessed. loom wants that to happen before any thread that
//! accesses it starts: printing a value with `Debug` accesses all of it. loom knows the total order
//! of `SeqCst` for fences only, so an access of that order has one on either side.

#![expect(
    dead_code,
    unreachable_pub,
    reason = "each type has the calls that any of them needs; the trait of marks names one"
)]

extern crate std as dat_std;

use core::fmt;
use core::sync::atomic::Ordering;

use dat_std::sync::OnceLock;

/// Calls `access`, between fences if it takes part in the total order.
fn ordered<R>(order: Ordering, access: impl FnOnce() -> R) -> R {
    let fence = || {
        if order == Ordering::SeqCst {
            loom::sync::atomic::fence(order);
        }
    };
    fence();
    let result = access();
    fence();
    result
}

macro_rules! modelled {
    ($($name:ident $t:ty;)+) => {$(
        pub struct $name {
            first: $t,
            made: OnceLock<loom::sync::atomic::$name>,
        }

        impl $name {
            pub(crate) const fn new(first: $t) -> Self {
                Self { first, made: OnceLock::new() }
            }

            fn made(&self) -> &loom::sync::atomic::$name {
                self.made.get_or_init(|| loom::sync::atomic::$name::new(self.first))
            }

            pub(crate) fn load(&self, order: Ordering) -> $t {
                ordered(order, || self.made().load(order))
            }

            pub(crate) fn store(&self, value: $t, order: Ordering) {
                ordered(order, || self.made().store(value, order));
            }

            pub(crate) fn swap(&self, value: $t, order: Ordering) -> $t {
                ordered(order, || self.made().swap(value, order))
            }

            pub(crate) fn compare_exchange(
                &self,
                old: $t,
                new: $t,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$t, $t> {
                ordered(success, || self.made().compare_exchange(old, new, success, failure))
            }

            pub(crate) fn fetch_or(&self, value: $t, order: Ordering) -> $t {
                ordered(order, || self.made().fetch_or(value, order))
            }

            pub(crate) fn fetch_and(&self, value: $t, order: Ordering) -> $t {
                ordered(order, || self.made().fetch_and(value, order))
            }

            pub(crate) fn fetch_update(
                &self,
                success: Ordering,
                failure: Ordering,
                new: impl FnMut($t) -> Option<$t>,
            ) -> Result<$t, $t> {
                ordered(success, || self.made().fetch_update(success, failure, new))
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.load(Ordering::Relaxed).fmt(f)
            }
        }
    )+};
}

modelled! { AtomicBool bool; AtomicU32 u32; AtomicU64 u64; }

macro_rules! sums {
    ($($name:ident $t:ty;)+) => {$(
        impl $name {
            pub(crate) fn fetch_add(&self, value: $t, order: Ordering) -> $t {
                ordered(order, || self.made().fetch_add(value, order))
            }

            pub(crate) fn fetch_max(&self, value: $t, order: Ordering) -> $t {
                ordered(order, || self.made().fetch_max(value, order))
            }

            pub(crate) fn fetch_sub(&self, value: $t, order: Ordering) -> $t {
                ordered(order, || self.made().fetch_sub(value, order))
            }
        }
    )+};
}

sums! { AtomicU32 u32; AtomicU64 u64; }
