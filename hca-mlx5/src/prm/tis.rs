//! Transport interface send: what a raw Ethernet send queue sends through.
//!
//! PRM chapter "Transport interface"; Linux `mlx5_ifc_tisc_bits`.

use super::layout;

layout! {
    /// TIS context.
    TisContext, 160;
    0x00[31] strict_lag_tx_port_affinity, set_strict_lag_tx_port_affinity: bool;
    0x00[27:24] lag_tx_port_affinity, set_lag_tx_port_affinity: u8;
    /// Priority, shifted left by one.
    0x00[19:16] prio, set_prio: u8;
    0x24[23:0] transport_domain, set_transport_domain: u32;
    0x28[23:0] underlay_qpn, set_underlay_qpn: u32;
    0x2c[23:0] pd, set_pd: u32;
}

/// Where the context stands in CREATE_TIS.
pub const TIS_CONTEXT: usize = 0x20;
/// Length of CREATE_TIS.
pub const CREATE_TIS_IN: usize = 192;
