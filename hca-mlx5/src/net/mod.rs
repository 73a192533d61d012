//! The network of the port: raw Ethernet, neighbour discovery, and QP1.
//!
//! * [`eth`] - frames out and in, over a send and a receive queue of their own.
//! * [`neigh`] - ARP and Neighbor Discovery: bytes in, bytes out.
//! * `network` - both joined, with the RoCE addresses of the port.
//! * [`ib`] - the network of an InfiniBand port: subnet administration, IP over InfiniBand, and a
//!   subnet manager for two ports.
//! * `gsi` - QP1, which carries connection management datagrams.

pub mod eth;
pub(crate) mod gsi;
pub mod ib;
pub mod neigh;
pub(crate) mod network;
