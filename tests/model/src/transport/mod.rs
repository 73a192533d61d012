//! The transport: RC, UD and GSI engines between work requests and RoCE v2 frames.
//!
//! One [`Engine`] stands in each QP object. It is sans-IO: work, packets and time come in by
//! calls, everything else goes out by [`Host`]. It knows nothing of WQE and CQE layouts,
//! memory keys or commands. Reference: IBTA volume 1, chapter 9; annex A17 (RoCE v2).

pub mod host;
