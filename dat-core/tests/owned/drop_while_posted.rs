//! Memory that is posted is not dropped.
use dat_core::provider::Provider;
use dat_core::{CompletionFlags, Lend, OwningPoster, Returned};

fn misuse<P: Provider, B: Lend>(
    poster: &mut OwningPoster<'_, P, B, 8>,
    buffer: B,
) -> Result<(), Returned<B>> {
    poster.post_recv(buffer, CompletionFlags::empty())?;
    drop(buffer);
    Ok(())
}

fn main() {}
