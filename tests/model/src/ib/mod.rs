//! An InfiniBand port: its node in the subnet, what the firmware does for it, and its events.
//!
//! The node ([`Node`]) answers subnet management by itself, as firmware does: a manager brings the
//! port up whether a driver is loaded or not. What a manager on this port is sent, queue pair 0
//! receives; requests to the performance agent on queue pair 1 the firmware answers, too. Each change of the port becomes a PORT_CHANGE event ([`Hca::announce_ib`]).
//! Reference: IBTA volume 1, chapters 7, 13, 14 and 16; Linux mlx5_ib for the commands.

pub(crate) mod pma;
mod port;
mod vport;

pub(crate) use port::Counts;
pub(crate) use vport::{CHANGEABLE, COMMANDS, mad_ifc, pkeys};

use crate::caps::Caps;
use crate::config::{Config, Personality};
use crate::eq::{Event, kind};
use crate::facts::OpenFact;
use crate::hca::Hca;
use crate::ifc::caps::cmd_hca_cap;
use crate::ifc::subnet::port_info;
use crate::subnet::port::{GUIDS, P_KEYS, Port, State};
use crate::subnet::{Identity, Node};
use crate::vport::guid_of;

/// The only port.
pub(crate) const PORT: u8 = 1;

/// Sub types of PORT_CHANGE (Linux `device.h`, `MLX5_PORT_CHANGE_SUBTYPE_*`).
mod change {
    pub(super) const DOWN: u8 = 1;
    pub(super) const ACTIVE: u8 = 4;
    pub(super) const INITIALIZED: u8 = 5;
    pub(super) const LID: u8 = 6;
    pub(super) const P_KEY: u8 = 7;
    pub(super) const GUID: u8 = 8;
    pub(super) const CLIENT_REREGISTER: u8 = 9;
}

/// The port.
#[derive(Debug)]
pub(crate) struct IbPort {
    pub(crate) node: Node,
    /// Counters of the performance agent.
    pub(crate) counts: Counts,
    /// What the events have said so far.
    announced: Announced,
    /// The vport's state policy: 0 down, 1 up, 2 follows the port.
    policy: u32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Announced {
    state: State,
    lid: (u32, u32),
    p_keys: [u16; P_KEYS],
    gids: (u64, [u64; GUIDS]),
    reregistrations: u64,
}

impl Announced {
    fn of(port: &Port) -> Self {
        Self {
            state: port.state(),
            lid: (port.lid().into(), port.get(port_info::lmc)),
            p_keys: port.p_keys,
            gids: (port.gid_prefix(), port.guids),
            reregistrations: port.reregistrations,
        }
    }
}

impl IbPort {
    /// The port of a card whose capabilities say that its link is InfiniBand.
    pub(crate) fn new(config: &Config, caps: &Caps) -> Option<Self> {
        if caps.general(cmd_hca_cap::port_type) != 0 {
            return None;
        }
        let guid = guid_of(config.mac);
        let identity = Identity {
            node_guid: guid,
            system_guid: guid,
            description: "mlx5 device model".into(),
            vendor_id: 0x02_c903,
            device_id: config.device_id,
        };
        let mut node = Node::channel_adapter(identity, PORT);
        node.set_port_guid(PORT, guid);
        node.leave_agent_to_software(
            config.facts.value(OpenFact::SubnetAgent) == Some(1)
                && config.personality == Personality::Pf,
        );
        let announced = Announced::of(node.port(PORT)?);
        Some(Self { node, counts: Counts::default(), announced, policy: 2 })
    }

    /// The port of the node.
    pub(crate) fn port(&self) -> &Port {
        // A node of one port has it.
        self.node.port(PORT).unwrap_or_else(|| unreachable!())
    }

    /// Whether no manager has switched the port off.
    pub(crate) fn wants_link(&self) -> bool {
        self.node.wants_link(PORT)
    }

    /// Whether data passes.
    pub(crate) fn is_active(&self) -> bool {
        self.port().state() == State::Active
    }
}

impl Hca {
    /// Brings the node's link to what the cable and the administrative states make of it, and
    /// announces it.
    pub(crate) fn follow_link(&mut self) {
        let is_trained = self.is_trained();
        if let Some(ib) = &mut self.ib {
            if (ib.port().state() != State::Down) != is_trained {
                self.traffic.link_down += u32::from(!is_trained);
                ib.node.set_link(PORT, is_trained && ib.node.wants_link(PORT));
            }
        }
        self.tell_carrier();
        self.announce_ib();
    }

    /// Lets the link train again where a manager asked for it.
    pub(crate) fn retrain_ib(&mut self) {
        while let Some(port) = self.ib.as_mut().and_then(|ib| ib.node.take_retrain()) {
            if let Some(ib) = &mut self.ib {
                ib.node.set_link(port, false);
            }
            self.traffic.link_down += 1;
            self.tell_carrier();
            self.announce_ib();
            let is_trained = self.is_trained();
            if let Some(ib) = &mut self.ib {
                let comes_up = is_trained && ib.node.wants_link(port);
                ib.node.set_link(port, comes_up);
            }
            self.tell_carrier();
        }
        self.announce_ib();
    }

    /// Tells the other end of the cable whether this one has a link.
    fn tell_carrier(&mut self) {
        if let Some(ib) = &self.ib {
            self.wire.set_carrier(ib.port().state() != State::Down);
        }
    }

    /// PORT_CHANGE for everything of the port that is no longer as it was.
    pub(crate) fn announce_ib(&mut self) {
        let Some(ib) = &mut self.ib else { return };
        let new = Announced::of(ib.port());
        let old = std::mem::replace(&mut ib.announced, new.clone());
        let state = match (old.state, new.state) {
            (old, new) if old == new => None,
            (_, State::Down) => Some(change::DOWN),
            (_, State::Init) => Some(change::INITIALIZED),
            (_, State::Active) => Some(change::ACTIVE),
            (_, State::Armed) => None,
        };
        let others = [
            (old.lid != new.lid, change::LID),
            (old.p_keys != new.p_keys, change::P_KEY),
            (old.gids != new.gids, change::GUID),
            (old.reregistrations != new.reregistrations, change::CLIENT_REREGISTER),
        ];
        // What an active port needs is there before it says that it is active.
        let others = others.into_iter().filter_map(|(is_new, sub)| is_new.then_some(sub));
        for sub in others.chain(state).collect::<Vec<_>>() {
            let mut event = Event::new(kind::PORT_CHANGE, sub);
            event.data[8] = PORT << 4;
            self.raise(&event);
        }
    }
}
