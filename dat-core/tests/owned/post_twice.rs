//! A buffer is posted once.
use dat_core::provider::Provider;
use dat_core::{CompletionFlags, Lend, OwningPoster, Returned};

fn misuse<P: Provider, B: Lend>(
    poster: &mut OwningPoster<'_, P, B, 8>,
    buffer: B,
) -> Result<(), Returned<B>> {
    poster.post_send(buffer, .., CompletionFlags::empty())?;
    poster.post_send(buffer, .., CompletionFlags::empty())
}

fn main() {}
