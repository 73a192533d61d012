//! A buffer that is posted is the device's: nobody can look at it.
use dat_core::provider::Provider;
use dat_core::{CompletionFlags, Lend, OwningPoster, Returned};

fn misuse<P: Provider, B: Lend>(
    poster: &mut OwningPoster<'_, P, B, 8>,
    buffer: B,
) -> Result<(), Returned<B>> {
    poster.post_recv(buffer, CompletionFlags::empty())?;
    let _ = buffer.segment();
    Ok(())
}

fn main() {}
