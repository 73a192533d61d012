//! The NIC vport context and the port behind it.

use crate::config::{Config, Personality};

/// State of the vport and the port.
#[derive(Debug)]
pub(crate) struct Vport {
    /// Current MAC.
    pub(crate) mac: [u8; 6],
    /// Frame size limit, all headers and FCS included.
    pub(crate) mtu: u16,
    /// RoCE switched on by MODIFY_NIC_VPORT_CONTEXT.
    pub(crate) roce_enabled: bool,
    /// Physical link.
    pub(crate) link: bool,
}

impl Vport {
    pub(crate) fn new(config: &Config) -> Self {
        let mac = if config.personality == Personality::Pf {
            config.mac
        } else {
            [0; 6]
        };
        Self {
            mac,
            mtu: 1522,
            roce_enabled: false,
            link: config.link_up,
        }
    }
}
