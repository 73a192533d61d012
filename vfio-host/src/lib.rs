//! The user-space host.
