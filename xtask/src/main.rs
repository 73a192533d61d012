//! The verbs of this workspace.
fn main() {}
