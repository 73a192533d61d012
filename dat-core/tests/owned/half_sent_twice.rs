//! A half belongs to one thread.
use dat_core::EpPoster;
use dat_core::provider::Provider;

fn consume<P: Provider>(_half: EpPoster<'_, P>) {}

fn misuse<P: Provider>(half: EpPoster<'_, P>) {
    consume(half);
    consume(half);
}

fn main() {}
