//! Bytes of state: of an Endpoint with 128 DTOs each way and its connection, and what one more
//! Event Dispatcher adds.

use dat_core::Storage;

use super::stage::Driver;

type Evds<const N: usize> = Storage<Driver, 1, N, 1, 128, 128>;

/// Name, bytes, goal.
#[must_use]
pub fn all() -> [(&'static str, usize, usize); 2] {
    [
        // 120 of them are the fault of its last end, a plain struct; 48 are links of its connection
        // in the lists and the tree through the table, which save a search for each message.
        ("size_ep", Evds::<1>::ENDPOINT_BYTES, 4728),
        ("size_evd", size_of::<Evds<9>>() / 8 - size_of::<Evds<1>>() / 8, 6144),
    ]
}
