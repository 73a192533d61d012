//! The driver on the device model, in process. One program for all of it: each program that
//! contains the driver compiles it anew.

mod absurd;
mod batches;
mod bench;
mod bringup;
mod dat_break;
mod dat_cards;
mod dat_class;
mod dat_connect;
mod dat_extensions;
mod dat_fence;
mod dat_hostile;
mod dat_loss;
mod dat_memory;
mod dat_order;
mod dat_refusal;
mod dat_threads;
mod dat_transfer;
mod fail_nth;
mod faults;
mod free;
mod ib;
mod laws;
mod layouts;
mod mad_layouts;
mod mute;
mod replay;
mod silicon;
mod subnet_manager;
mod views;
