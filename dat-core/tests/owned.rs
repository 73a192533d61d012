//! Violations of ownership do not compile. (`api/owned.rs` tests that buffers are dropped as promised.)

#[test]
fn misuse_does_not_compile() {
    trybuild::TestCases::new().compile_fail("tests/owned/*.rs");
}
