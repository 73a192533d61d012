//! Bytes of state: what one more Endpoint, or one more Event Dispatcher, adds to the storage.

use dat_core::Storage;

use super::stage::Driver;

type Eps<const N: usize> = Storage<Driver, N, 1, 1, 128, 128>;
type Evds<const N: usize> = Storage<Driver, 1, N, 1, 128, 128>;

/// Name, bytes, goal.
#[must_use]
pub fn all() -> [(&'static str, usize, usize); 2] {
    [
        (
            "size_ep",
            size_of::<Eps<9>>() / 8 - size_of::<Eps<1>>() / 8,
            4608,
        ),
        (
            "size_evd",
            size_of::<Evds<9>>() / 8 - size_of::<Evds<1>>() / 8,
            6144,
        ),
    ]
}
