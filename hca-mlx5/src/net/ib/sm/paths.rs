//! PathRecord: from one of the two ports to one of them (IBTA volume 1, 15.2.5.16).

use super::SubnetManager;
use super::params::PACKET_LIFETIME;
use super::ports::Side;
use super::rates;
use super::records::{Records, is_of_partition, satisfies};
use crate::prm::mad::{self, Mad, MadHeader};
use crate::prm::sa::{self, PathRecord, SaHeader, method, path_component, selector};

impl SubnetManager {
    /// The paths that a request asks for.
    pub(super) fn find_paths(&self, mad: &Mad) -> Result<Records, u16> {
        let (asked, mask) = (PathRecord::read(mad, sa::DATA), SaHeader(mad).comp_mask());
        let has = |component: u64| mask & component != 0;
        // A source is needed, and where one path is asked for, a destination (15.2.5.16); its LID is
        // one, as other managers take it (OpenSM `osm_sa_path_record.c`).
        let is_get = MadHeader(mad).method() == method::GET;
        if !has(path_component::SGID) || is_get && !has(path_component::DGID | path_component::DLID)
        {
            return Err(sa::status::REQ_INSUFFICIENT_COMPONENTS);
        }
        let is_known = |gid| self.ports.iter().any(|port| port.gid() == gid);
        if !is_known(asked.sgid()) || has(path_component::DGID) && !is_known(asked.dgid()) {
            return Err(sa::status::REQ_INVALID_GID);
        }
        let mut records = Records::new(PathRecord::SIZE);
        let most = match asked.numb_path() {
            count if has(path_component::NUMB_PATH) => usize::from(count),
            _ => usize::MAX,
        };
        let mut found = 0;
        for from in Side::ALL {
            for to in Side::ALL {
                let path = self.path(from, to, &asked, mask);
                if matches(&path, &asked, mask) && found < most {
                    records.add(&path.0)?;
                    found += 1;
                }
            }
        }
        Ok(records)
    }

    /// MTU and rate of what passes from one port to another.
    pub(super) fn link(&self, from: Side, to: Side) -> (u8, u8) {
        let [from, to] = [from, to].map(|side| &self.port(side).info);
        let mtu = from.neighbor_mtu().min(to.neighbor_mtu()).clamp(1, 5);
        (mtu, rates::slower(rates::of_port(from), rates::of_port(to)))
    }

    /// The path, with what the request leaves to the client.
    fn path(
        &self,
        from: Side,
        to: Side,
        asked: &PathRecord<[u8; 64]>,
        mask: u64,
    ) -> PathRecord<[u8; 64]> {
        let mut path = PathRecord::new();
        let (mtu, rate) = self.link(from, to);
        let [source, destination] = [from, to].map(|side| self.port(side));
        path.set_sgid(source.gid());
        path.set_dgid(destination.gid());
        path.set_slid(source.info.lid());
        path.set_dlid(destination.info.lid());
        path.set_reversible(true);
        path.set_pkey(mad::DEFAULT_PKEY);
        path.set_mtu_selector(selector::EXACTLY);
        path.set_mtu(mtu);
        path.set_rate_selector(selector::EXACTLY);
        path.set_rate(rate);
        path.set_packet_lifetime_selector(selector::EXACTLY);
        path.set_packet_lifetime(PACKET_LIFETIME);
        if mask & path_component::SERVICE_ID != 0 {
            path.set_service_id(asked.service_id());
        }
        if mask & path_component::FLOW_LABEL != 0 {
            path.set_flow_label(asked.flow_label());
        }
        if mask & path_component::TRAFFIC_CLASS != 0 {
            path.set_traffic_class(asked.traffic_class());
        }
        if mask & path_component::QOS_CLASS != 0 {
            path.set_qos_class(asked.qos_class());
        }
        path
    }
}

/// Whether a path is as asked.
fn matches(path: &PathRecord<[u8; 64]>, asked: &PathRecord<[u8; 64]>, mask: u64) -> bool {
    use path_component as component;
    let is_as_asked = |needed: u64, is: bool| mask & needed != needed || is;
    let speed = rates::speed;
    is_as_asked(component::SGID, path.sgid() == asked.sgid())
        && is_as_asked(component::DGID, path.dgid() == asked.dgid())
        && is_as_asked(component::SLID, path.slid() == asked.slid())
        && is_as_asked(component::DLID, path.dlid() == asked.dlid())
        && is_as_asked(component::RAW_TRAFFIC, !asked.raw_traffic())
        && is_as_asked(component::PKEY, is_of_partition(path.pkey(), asked.pkey()))
        && is_as_asked(component::SL, path.sl() == asked.sl())
        && is_as_asked(
            component::MTU | component::MTU_SELECTOR,
            satisfies(asked.mtu_selector(), &path.mtu(), &asked.mtu()),
        )
        && is_as_asked(
            component::RATE | component::RATE_SELECTOR,
            satisfies(asked.rate_selector(), &speed(path.rate()), &speed(asked.rate())),
        )
        && is_as_asked(
            component::PACKET_LIFETIME | component::PACKET_LIFETIME_SELECTOR,
            satisfies(
                asked.packet_lifetime_selector(),
                &path.packet_lifetime(),
                &asked.packet_lifetime(),
            ),
        )
}
