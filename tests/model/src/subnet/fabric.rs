//! Nodes and cables: carries what each node sends to the node at the other end.

use std::collections::{BTreeMap, VecDeque};

use super::cause::Cause;
use super::node::Node;
use super::smp::Smp;
use crate::host::Nanos;
use crate::wire::ib::lid::PERMISSIVE;

/// Links that a frame passes before it is dropped, in place of the lifetime limit of switches:
/// tables may lead in a circle. What a directed route leads has its own end.
const MOST_LINKS: u8 = 64;

/// A node of a fabric.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct NodeId(usize);

/// A port of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct End {
    /// The node.
    pub node: NodeId,
    /// The port's number.
    pub port: u8,
}

struct Flight {
    to: End,
    frame: Vec<u8>,
    links: u8,
}

/// Nodes, joined by cables.
#[derive(Default)]
pub struct Fabric {
    nodes: Vec<Node>,
    cables: BTreeMap<End, End>,
    flights: VecDeque<Flight>,
    recorded: Option<Vec<Vec<u8>>>,
}

impl std::fmt::Debug for Fabric {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let drops: Vec<Vec<_>> = self.nodes.iter().map(|node| node.drops().collect()).collect();
        f.debug_struct("Fabric").field("cables", &self.cables).field("drops", &drops).finish()
    }
}

impl Fabric {
    /// Adds a node.
    pub fn add(&mut self, node: Node) -> NodeId {
        self.nodes.push(node);
        NodeId(self.nodes.len() - 1)
    }

    /// A node.
    #[must_use]
    pub fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id.0]
    }

    /// The same, to change.
    pub fn node_mut(&mut self, id: NodeId) -> &mut Node {
        &mut self.nodes[id.0]
    }

    /// Plugs a cable in at two ports; cables that were there are pulled. The links train.
    pub fn connect(&mut self, a: End, b: End) {
        self.disconnect(a);
        self.disconnect(b);
        self.cables.extend([(a, b), (b, a)]);
        self.train(a);
        self.run();
    }

    /// Pulls the cable at a port.
    pub fn disconnect(&mut self, end: End) {
        if let Some(peer) = self.cables.remove(&end) {
            self.cables.remove(&peer);
            self.train(end);
            self.train(peer);
            self.run();
        }
    }

    /// Lets time pass in every node.
    pub fn advance(&mut self, now: Nanos) {
        for node in &mut self.nodes {
            node.advance(now);
        }
        self.run();
    }

    /// Sends a frame by a port of a node, as its queue pairs would.
    pub fn send(&mut self, from: End, frame: Vec<u8>) {
        self.nodes[from.node.0].send(from.port, frame);
        self.run();
    }

    /// Sends an SMP by a port of a node, as its subnet manager would: along its route, or to `dlid`.
    pub fn submit(&mut self, from: End, smp: Smp, dlid: u16) {
        self.nodes[from.node.0].submit(from.port, smp, dlid);
        self.run();
    }

    /// The next frame that waits at a port.
    pub fn receive(&mut self, end: End) -> Option<Vec<u8>> {
        self.nodes[end.node.0].receive(end.port)
    }

    /// Frames dropped at a port for one cause.
    #[must_use]
    pub fn dropped(&self, end: End, why: Cause) -> u64 {
        self.node(end.node).dropped(end.port, why)
    }

    /// Frames dropped at all ports for all causes.
    #[must_use]
    pub fn all_dropped(&self) -> u64 {
        self.nodes.iter().flat_map(Node::drops).map(|(_, _, count)| count).sum()
    }

    /// Keeps every frame that passes a cable from now on, until [`Fabric::take_record`].
    pub fn record(&mut self) {
        self.recorded = Some(Vec::new());
    }

    /// The frames since [`Fabric::record`].
    pub fn take_record(&mut self) -> Vec<Vec<u8>> {
        self.recorded.take().unwrap_or_default()
    }

    /// Lets both ends of a cable train: the link is up when neither is switched off.
    fn train(&mut self, end: End) {
        let peer = self.cables.get(&end).copied();
        let is_up = [Some(end), peer]
            .into_iter()
            .all(|end| end.is_some_and(|end| self.node(end.node).wants_link(end.port)));
        for end in [Some(end), peer].into_iter().flatten() {
            let node = &mut self.nodes[end.node.0];
            node.set_link(end.port, false);
            if is_up {
                node.set_link(end.port, true);
            }
        }
    }

    /// Carries frames until none is under way.
    fn run(&mut self) {
        loop {
            for index in 0..self.nodes.len() {
                self.collect(NodeId(index), 0);
            }
            let Some(Flight { to, frame, links }) = self.flights.pop_front() else { return };
            self.nodes[to.node.0].arrive(to.port, frame);
            self.collect(to.node, links);
        }
    }

    /// Puts the frames of a node on its cables; `links` is how many that has passed which led to
    /// them.
    fn collect(&mut self, id: NodeId, links: u8) {
        while let Some(port) = self.nodes[id.0].take_retrain() {
            self.train(End { node: id, port });
        }
        while let Some((port, frame)) = self.nodes[id.0].next_frame() {
            let Some(to) = self.cables.get(&End { node: id, port }).copied() else { continue };
            let is_directed = frame.get(2..4) == Some(&PERMISSIVE.to_be_bytes());
            let links = if is_directed { 0 } else { links };
            if links >= MOST_LINKS {
                self.nodes[id.0].drop(port, Cause::Lifetime);
                continue;
            }
            if let Some(recorded) = &mut self.recorded {
                recorded.push(frame.clone());
            }
            self.flights.push_back(Flight { to, frame, links: links + 1 });
        }
    }
}
