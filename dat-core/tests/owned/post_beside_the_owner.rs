//! What owns its buffers is the only one that posts.
use dat_core::provider::Provider;
use dat_core::{CompletionFlags, EpPoster, Lend, OwningPoster};

fn misuse<'s, P: Provider, B: Lend>(
    mut half: EpPoster<'s, P>,
) -> Option<OwningPoster<'s, P, B, 8>> {
    let owner = OwningPoster::new(half).ok();
    let _ = half.post_send(&[], 0, CompletionFlags::empty());
    owner
}

fn main() {}
