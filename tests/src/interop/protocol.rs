//! How the programs differ.

use clap::ValueEnum;

/// The programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Program {
    /// Many connections, and messages on each
    Ucmatose,
    /// A service point is looked up, and datagrams go each way
    Udaddy,
    /// Connections that are made and ended
    Cmtime,
    /// ibv_rc_pingpong: one connection
    Rc,
    /// ibv_srq_pingpong: several connections
    Srq,
    /// ibv_ud_pingpong: datagrams
    Ud,
}

/// A side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Server,
    Client,
}

/// How the two sides find each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Greeting {
    /// The client asks the server's connection manager, once for each connection.
    Manager,
    /// They tell each other their queue pairs over TCP, and lines of zeros up to this number.
    Lines(usize),
}

/// In which order messages go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// One side sends all of a connection's, then the other. What is in them nobody says: only
    /// number and length can be verified.
    AllOf(Role),
    /// Each returns the one before; the client begins. The buffer that is received into over there
    /// is the one that is sent from, so all contents are those of the client's first. It is over
    /// for a side that has sent and received so many, over all connections.
    Alternating,
}

/// A program's habits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Protocol {
    /// Its port, of TCP or of the connection manager.
    pub(super) port: u16,
    pub(super) greeting: Greeting,
    pub(super) order: Order,
    /// The Q_Key of its datagrams; `None` if it connects.
    pub(super) qkey: Option<u32>,
    /// Who ends the connections; `None`: each goes when it has all.
    pub(super) ends: Option<Role>,
}

impl Program {
    pub(super) fn protocol(self) -> Protocol {
        let pingpong = Protocol {
            port: 18515,
            greeting: Greeting::Lines(1),
            order: Order::Alternating,
            qkey: None,
            ends: None,
        };
        let manager = Protocol {
            port: 7471,
            greeting: Greeting::Manager,
            order: Order::AllOf(Role::Server),
            qkey: None,
            ends: Some(Role::Server),
        };
        match self {
            Self::Ucmatose => manager,
            Self::Cmtime => Protocol { ends: Some(Role::Client), ..manager },
            Self::Udaddy => Protocol {
                port: 7174,
                order: Order::AllOf(Role::Client),
                // What rdma_cm gives every queue pair of its UDP port space.
                qkey: Some(0x0123_4567),
                ends: None,
                ..manager
            },
            Self::Rc => pingpong,
            Self::Srq => Protocol { greeting: Greeting::Lines(256), ..pingpong },
            Self::Ud => Protocol { qkey: Some(0x1111_1111), ..pingpong },
        }
    }
}

impl Protocol {
    /// Whether the two sides meet over TCP.
    pub(super) fn by_tcp(&self) -> bool {
        matches!(self.greeting, Greeting::Lines(_))
    }
}
