//! A few things, in a list of fixed size.

use heapless::Vec;

/// The first of them, as many as there is room for. (`collect` panics where there are more.)
pub(crate) fn few<T, const N: usize>(all: impl IntoIterator<Item = T>) -> Vec<T, N> {
    let mut some = Vec::new();
    for one in all.into_iter().take(N) {
        let _ = some.push(one);
    }
    some
}
