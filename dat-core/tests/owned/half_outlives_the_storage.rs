//! A half does not outlive the storage of its adapter.
use dat_core::testing::LoopHca;
use dat_core::{Ep, EpPoster, Ia, Instant, Storage, provider::Net};

fn misuse(hca: LoopHca<'static>, net: Net, ep: Ep) -> EpPoster<'static, LoopHca<'static>> {
    let mut storage: Storage<LoopHca<'static>, 1, 1, 1, 2> = Storage::new();
    let mut ia = Ia::open(hca, storage.parts(), net, Instant::ZERO, [1; 32]).unwrap();
    ia.ep_take_poster(ep).unwrap()
}

fn main() {}
