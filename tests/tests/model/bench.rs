//! The benchmarks do what they measure.

use dat_tests::bench::cases::CASES;
use dat_tests::bench::economy;
use dat_tests::bench::limit::{ENTRIES, Limit};
use hca_mlx5::platform::Blocks;

#[test]
fn every_case_runs_and_reaps_what_it_posted() {
    for case in CASES {
        let _ = case.run(10);
    }
}

#[test]
fn a_request_is_one_doorbell_and_one_completion() {
    for one in economy::all() {
        let posts = if one.name.ends_with("32") { 1.0 / 32.0 } else { 1.0 };
        let posts = match one.name {
            name if name.starts_with("recv_") => 0.0,
            // A block at a time.
            "rmr_bind" => 3.0,
            _ => posts,
        };
        assert!((one.mmio_stores - posts).abs() < 1e-9, "{one:?}");
        let cqes = if one.name == "unsig_1of32" { 1.0 / 32.0 } else { 1.0 };
        assert!((one.cqes - cqes).abs() < 1e-9, "{one:?}");
    }
}

#[test]
fn the_loop_reaps_what_it_posts_round_the_ring() {
    let mut limit = Limit::default();
    for round in 0..3 * ENTRIES as u64 {
        assert_eq!(limit.poll(), None);
        limit.complete_ahead(1);
        limit.post(0x1000, 7, round, !round, Blocks::Combined);
        assert_eq!(limit.poll(), Some(!round));
    }
}
