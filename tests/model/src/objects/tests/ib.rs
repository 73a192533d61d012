//! Two devices on an InfiniBand cable, or with a switch between, brought up by a small subnet
//! manager on queue pair 0 of the first.

mod data;
mod manage;
mod station;

use std::collections::BTreeMap;

use self::station::Station;
use super::*;
use crate::config::Config;
use crate::ib::PORT;
use crate::ifc::subnet::{port_info, smp as layout};
use crate::subnet::port::State;
use crate::subnet::smp::{Smp, attribute, method};
use crate::subnet::{Cause, Identity, Node};
use crate::wire::ib::lid::PERMISSIVE;

/// Both devices and what is between them.
pub(super) struct Link {
    pub(super) ends: [Station; 2],
    /// A switch with a device at each of its ports 1 and 2.
    pub(super) switch: Option<Node>,
    /// Frames on the cables, as they left the devices.
    pub(super) frames: Vec<Vec<u8>>,
    tid: u64,
}

impl Link {
    pub(super) fn with(configs: [Config; 2], has_switch: bool) -> Self {
        let ends = configs.map(Station::new);
        let identity = Identity {
            node_guid: 0x5000,
            system_guid: 0x5000,
            description: "switch".into(),
            vendor_id: 1,
            device_id: 2,
        };
        let switch = has_switch.then(|| {
            let mut node = Node::switch(identity, 4);
            node.set_link(1, true);
            node.set_link(2, true);
            node
        });
        Self { ends, switch, frames: Vec::new(), tid: 0 }
    }

    pub(super) fn new() -> Self {
        let [a, b] = [1, 2].map(|n| Config { mac: [2, 0xc9, 3, 0, 0, n], ..Config::infiniband() });
        Self::with([a, b], false)
    }

    /// The same, active, with LIDs 1 and 2.
    pub(super) fn active() -> Self {
        let mut link = Self::new();
        link.bring_up(&[&[], &[1]]);
        link
    }

    /// Moves frames until none is under way.
    pub(super) fn run(&mut self) {
        for _ in 0..200 {
            let mut moved = false;
            for n in 0..2 {
                let now = self.ends[n].rig.hca.bus.now;
                self.ends[n].rig.hca.step(now);
                let sent = std::mem::take(&mut *self.ends[n].rig.sent.lock().unwrap());
                for frame in sent {
                    moved = true;
                    self.frames.push(frame.clone());
                    match &mut self.switch {
                        None => self.ends[1 - n].rig.coming.lock().unwrap().push_back(frame),
                        Some(switch) => switch.arrive(n as u8 + 1, frame),
                    }
                }
            }
            while let Some((port, frame)) = self.switch.as_mut().and_then(Node::next_frame) {
                moved = true;
                let to = &self.ends[usize::from(port) - 1];
                to.rig.coming.lock().unwrap().push_back(frame);
            }
            if !moved {
                return;
            }
        }
        panic!("frames without end");
    }

    /// Sends a request from queue pair 0 of the first device along a path; the answer.
    pub(super) fn ask(&mut self, smp: Smp, path: &[u8]) -> Option<Smp> {
        self.tid += 1;
        let mut smp = smp.directed(path);
        layout::tid.set64(&mut smp.0, self.tid);
        let manager = &mut self.ends[0];
        if path.is_empty() {
            return manager.mad_ifc(&smp.0, 0).ok().map(Smp);
        }
        // Software takes the first step (Linux `smi_handle_dr_smp_send`).
        smp.set(layout::hop_pointer, 1);
        let qp0 = manager.qp0();
        manager.receive(qp0);
        manager.send_datagram(qp0, &[(av::rlid, PERMISSIVE.into()), (av::dqpn, 0)], &smp.0);
        self.run();
        let qp0 = self.ends[0].qp0();
        let got = self.ends[0].take_received(qp0)?;
        let answer = Smp(got.bytes[40..][..256].try_into().unwrap());
        // A trap may have come instead.
        let is_answer = answer.method() == method::GET_RESP;
        if is_answer {
            assert_eq!((got.src_qp, layout::tid.get64(&answer.0)), (0, self.tid));
            assert_eq!(answer.get(layout::hop_pointer), 0);
        }
        is_answer.then_some(answer)
    }

    /// Changes fields of the PortInfo of a port; the status.
    pub(super) fn set_port(
        &mut self,
        path: &[u8],
        port: u32,
        fields: &[(Field, u32)],
    ) -> Option<u16> {
        let get = Smp::request(method::GET, attribute::PORT_INFO, port, 0);
        let read = self.ask(get, path)?;
        let mut smp = Smp::request(method::SET, attribute::PORT_INFO, port, 0);
        smp.data_mut().copy_from_slice(read.data());
        let states = [(port_info::port_state, 0), (port_info::port_physical_state, 0)];
        for (field, value) in states.iter().chain(fields) {
            field.set(smp.data_mut(), *value);
        }
        self.ask(smp, path).map(|answer| answer.status())
    }

    /// Gives the devices at the ends of the paths the LIDs 1, 2 and so on, and activates the links.
    pub(super) fn bring_up(&mut self, paths: &[&[u8]]) {
        for (path, lid) in paths.iter().zip(1..) {
            let fields = [
                (port_info::lid, lid),
                (port_info::master_sm_lid, 1),
                (port_info::neighbor_mtu, 4),
            ];
            assert_eq!(self.set_port(path, 0, &fields), Some(0));
        }
        for state in [3, 4] {
            for path in paths {
                assert_eq!(self.set_port(path, 0, &[(port_info::port_state, state)]), Some(0));
            }
        }
    }

    pub(super) fn state(&self, n: usize) -> State {
        self.ends[n].port().state()
    }

    pub(super) fn dropped(&self, n: usize, why: Cause) -> u64 {
        self.ends[n].rig.hca.ib.as_ref().unwrap().node.dropped(PORT, why)
    }

    /// Sub types of the PORT_CHANGE events of a device since the last call.
    pub(super) fn changes(&mut self, n: usize) -> Vec<u8> {
        self.ends[n].changes()
    }
}

/// Fields of an address vector by shorter names.
pub(super) mod av {
    pub(in super::super) use crate::ifc::wqe::wqe_av::rlid_udp_sport as rlid;
    pub(in super::super) use crate::ifc::wqe::wqe_av::{dqpn, grh, hop_limit, mlid, qkey, sl};
}

pub(super) type Posted = BTreeMap<u32, u16>;
