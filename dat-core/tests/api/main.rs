//! The API on the loop provider: each rule in a few lines, for each file a group of calls or of
//! events.

mod absorbed;
mod activity;
mod arrivals;
mod asynchronous;
mod attributes;
mod burst;
mod closing;
mod connect_direct;
mod costs;
mod counts;
mod crowd;
mod faults;
mod followers;
mod generations;
mod listeners;
mod merged;
mod owned;
mod pair;
mod remainders;
mod shared_receives;
mod stale;
mod supplied;
mod upcalls;
mod windows;
