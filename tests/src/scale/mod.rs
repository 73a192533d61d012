//! How the costs of the driver grow with the number of its objects.
//!
//! Two Interface Adapters with n connected Endpoints each, and n objects of each other kind. Then
//! each call, each event of the device and each datagram goes through [`meter::measured`], where
//! callgrind counts; the ways into the model are left out. `cargo xtask scale` does that with 1,
//! 1,000 and 10,000 objects and compares.

pub mod calls;
pub mod cases;
pub mod crowd;
pub mod figures;
pub mod mesh;
pub mod meter;
pub mod rate;
pub mod writes;
