//! Violations of ownership do not compile. (`api/owned.rs` tests what ownership promises.)

#[test]
fn misuse_does_not_compile() {
    trybuild::TestCases::new().compile_fail("tests/owned/*.rs");
}
