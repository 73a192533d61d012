//! Who takes part in a cell of the matrix, where it is, and the arguments that a tool gets for it.
//!
//! All sides are on one wire: a model's HCA in each of two guests of stock Linux, a Soft-RoCE in
//! the second guest, and a third HCA that the host drives by `dat`. Soft-RoCE has networks of its
//! own, so that no host has two ways to an address.

use std::path::PathBuf;

use super::lab::Link;

/// A side of a cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    /// mlx5_ib in the first guest.
    First,
    /// mlx5_ib in the second guest.
    Second,
    /// rdma_rxe in the second guest.
    Soft,
    /// This workspace's driver, on the host.
    Ours,
    /// The same once more, on an HCA of its own: a peer of the former, on InfiniBand.
    Twin,
}

impl Side {
    /// As the table has it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::First | Self::Second => "mlx5_ib",
            Self::Soft => "rxe",
            Self::Ours | Self::Twin => "ours",
        }
    }

    /// Last part of its addresses.
    fn host(self) -> u8 {
        match self {
            Self::First => 1,
            Self::Second | Self::Soft => 2,
            Self::Ours => 3,
            Self::Twin => 4,
        }
    }

    /// Its RDMA device.
    fn device(self) -> &'static str {
        match self {
            Self::First | Self::Second => "mlx5_0",
            Self::Soft => "rxe0",
            Self::Ours | Self::Twin => "",
        }
    }

    /// Whether it is the driver of this workspace, and no guest.
    pub(crate) fn is_ours(self) -> bool {
        match self {
            Self::Ours | Self::Twin => true,
            Self::First | Self::Second | Self::Soft => false,
        }
    }
}

/// Where the servers of guests listen that are called past the wire.
const OOB: u16 = 18515;

/// Who serves whom.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Pairing {
    /// Who listens.
    pub(crate) server: Side,
    /// Who calls.
    pub(crate) client: Side,
}

/// All of them, in the order of the table's columns.
pub(crate) const PAIRINGS: [Pairing; 7] = [
    Pairing::of(Side::Second, Side::First),
    Pairing::of(Side::Soft, Side::First),
    Pairing::of(Side::First, Side::Soft),
    Pairing::of(Side::Ours, Side::First),
    Pairing::of(Side::First, Side::Ours),
    Pairing::of(Side::Ours, Side::Soft),
    Pairing::of(Side::Soft, Side::Ours),
];

/// Those of a subnet of InfiniBand.
pub(crate) const IN_SUBNET: [Pairing; 4] = [
    Pairing::of(Side::Second, Side::First),
    Pairing::of(Side::Ours, Side::First),
    Pairing::of(Side::First, Side::Ours),
    Pairing::of(Side::Ours, Side::Twin),
];

impl Pairing {
    const fn of(server: Side, client: Side) -> Self {
        Self { server, client }
    }

    /// Soft-RoCE is one side and the model, driven by Linux, the other.
    pub(crate) fn judges_model(self) -> bool {
        !self.has_ours() && [self.server, self.client].contains(&Side::Soft)
    }

    /// `SERVER-CLIENT`.
    pub(crate) fn name(self) -> String {
        format!("{}-{}", self.server.name(), self.client.name())
    }

    /// The same as a heading.
    pub(crate) fn shown(self) -> String {
        format!("{} - {}", self.server.name(), self.client.name())
    }

    /// Whether the host's side takes part.
    pub(crate) fn has_ours(self) -> bool {
        self.server.is_ours() || self.client.is_ours()
    }

    pub(super) fn has(self, side: Side) -> bool {
        self.server == side || self.client == side
    }

    /// A tool's command, as one of the sides has to say it. Its own address is `{ip}` (`{ip6}`, and
    /// `{vip}` in the tagged network), the peer's `{peer}` (`{peer6}`, `{vpeer}`), its RDMA
    /// device `{dev}`, the index of its own address among the GIDs `{gid}`; and a device of
    /// `dat`, with an address, is `{dat}` (`{dat6}`, `{vdat}`). What a client says to agree on
    /// something over TCP with its peer at port 18515 is `{tcp}`; where such a server of ours
    /// listens, `{port}`; and the host's port that leads to a guest's 18515, `{oob}`. The port
    /// of a server that does so at its address in the network is `{way}`; and the name by which
    /// DAT's registry in a guest knows its address is `{ia}`.
    pub(crate) fn fill(self, command: &str, own: Side, place: &Place) -> String {
        let peer = if own == self.server { self.client } else { self.server };
        let network = 9 + u8::from(self.has(Side::Soft));
        let tagged = network + 2;
        let v4 = |network: u8, side: Side| format!("192.168.{network}.{}", side.host());
        let v6 = |side: Side| format!("fd00:{network}::{}", side.host());
        let device = own.device();
        let (ip, ip6, vip) = (v4(network, own), v6(own), v4(tagged, own));
        let socket = if own == Side::Twin { &place.twin } else { &place.socket };
        let dat = |address: &str| format!("vfio-user:{} --ip {address}", socket.display());
        let port = place.ports[usize::from(Side::Ours.host()) - 1];
        // Where the host reaches the peer by TCP.
        let oob = if peer.is_ours() { port } else { place.ports[usize::from(peer.host()) - 1] };
        let tcp = if own.is_ours() {
            format!("--client 127.0.0.1 --port {oob}")
        } else if peer.is_ours() {
            format!("-p {port} 10.0.2.2")
        } else {
            v4(network, peer)
        };
        // The port of a server that talks TCP at the address of the network as well.
        let way = if peer.is_ours() { port } else { OOB };
        // Ports of InfiniBand have LIDs.
        let command = match place.link {
            Link::Ethernet => command.to_owned(),
            Link::InfiniBand => command.replace(" -g {gid}", "").replace(" -x {gid}", ""),
        };
        command
            .replace("{way}", &way.to_string())
            .replace("{dat}", &dat(&format!("{ip}/24")))
            .replace("{dat6}", &dat(&format!("{ip6}/64")))
            .replace("{vdat}", &dat(&format!("{vip}/24 --vlan 5")))
            .replace("{gid}", &format!("$(gid {device} {ip})"))
            .replace("{ia}", &format!("ia{network}"))
            .replace("{ip}", &ip)
            .replace("{ip6}", &ip6)
            .replace("{vip}", &vip)
            .replace("{peer}", &v4(network, peer))
            .replace("{peer6}", &v6(peer))
            .replace("{vpeer}", &v4(tagged, peer))
            .replace("{tcp}", &tcp)
            .replace("{port}", &port.to_string())
            .replace("{oob}", &oob.to_string())
            .replace("{dev}", device)
    }
}

/// What a lab has of its own.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    /// What joins the sides.
    pub(crate) link: Link,
    /// The socket of our side's HCA.
    pub(crate) socket: PathBuf,
    /// That of its twin.
    pub(crate) twin: PathBuf,
    /// TCP ports of the host: those that lead to port 18515 of the guests, and the one where our
    /// side may listen.
    pub(crate) ports: [u16; 3],
    /// The port of the host that leads to port 15828 of a guest: of the second, and on InfiniBand
    /// of the first.
    pub(crate) meeting: u16,
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::{IN_SUBNET, Link, PAIRINGS, Pairing, Place, Side};

    #[test]
    fn each_side_gets_its_own_and_the_peers_addresses() {
        let pairing = Pairing::of(Side::Soft, Side::First);
        let place = Place {
            link: Link::Ethernet,
            socket: "/tmp/s".into(),
            twin: "/tmp/t".into(),
            ports: [1001, 1002, 1003],
            meeting: 1004,
        };
        let fill = |command, own| pairing.fill(command, own, &place);
        assert_eq!(fill("rping -c -a {peer}", Side::First), "rping -c -a 192.168.10.2");
        assert_eq!(fill("dtest -P {ia}", Side::Soft), "dtest -P ia10");
        assert_eq!(
            fill("ibv_rc_pingpong -d {dev} -g {gid}", Side::Soft),
            "ibv_rc_pingpong -d rxe0 -g $(gid rxe0 192.168.10.2)"
        );
        let pairing = Pairing::of(Side::First, Side::Ours);
        assert_eq!(
            pairing.fill("rping {vdat} --client {vpeer}", Side::Ours, &place),
            "rping vfio-user:/tmp/s --ip 192.168.11.3/24 --vlan 5 --client 192.168.11.1"
        );
        assert_eq!(pairing.fill("{ip6} {peer6}", Side::First, &place), "fd00:9::1 fd00:9::3");
        assert_eq!(pairing.fill("{tcp}", Side::Ours, &place), "--client 127.0.0.1 --port 1001");
        let pairing = Pairing::of(Side::Ours, Side::Soft);
        assert_eq!(pairing.fill("{tcp}", Side::Soft, &place), "-p 1003 10.0.2.2");
        let pairing = Pairing::of(Side::Ours, Side::Twin);
        assert_eq!(
            pairing.fill("rping {dat} --client {peer} --port {way} {tcp}", Side::Twin, &place),
            "rping vfio-user:/tmp/t --ip 192.168.9.4/24 --client 192.168.9.3 --port 1003 \
             --client 127.0.0.1 --port 1003"
        );
    }

    #[test]
    fn pairings_have_names_of_their_own() {
        for pairings in [PAIRINGS.as_slice(), &IN_SUBNET] {
            let names: BTreeSet<String> = pairings.iter().map(|pairing| pairing.name()).collect();
            assert_eq!(names.len(), pairings.len());
        }
    }
}
