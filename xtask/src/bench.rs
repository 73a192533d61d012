//! `cargo xtask bench`.
use anyhow::Result;
pub(crate) fn bench(_bless: bool) -> Result<()> {
    Ok(())
}
