//! Memory as the device sees it: page lists, memory keys and windows, which together are the
//! translation and protection table (TPT).
//!
//! PRM chapter "Address translation and protection". Only memory of the platform's arena is ever
//! described to the device. What is not here: binding a window, which is a request on a send queue
//! (`queue::send`).

pub mod mkey;
pub mod pages;
pub mod window;

#[cfg(test)]
mod tests;
