//! There is no second posting half of an Endpoint.
use dat_core::EpPoster;
use dat_core::provider::Provider;

fn misuse<'s, P: Provider>(half: EpPoster<'s, P>) -> (EpPoster<'s, P>, EpPoster<'s, P>) {
    (half.clone(), half)
}

fn main() {}
