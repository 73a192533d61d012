//! What ownership forbids does not compile. (`api/owned.rs` tests what it promises.)

#[test]
fn misuse_does_not_compile() {
    trybuild::TestCases::new().compile_fail("tests/owned/*.rs");
}
