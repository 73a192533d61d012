//! The benchmarks: definitions, the limit they are measured against, and the host they run on.

pub mod host;
pub mod limit;
pub mod measure;
