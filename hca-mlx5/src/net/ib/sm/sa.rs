//! Subnet administration: requests by QP1, and their answers (IBTA volume 1, chapter 15).

use super::SubnetManager;
use super::datagram::{Destination, Source};
use super::params::SUBNET_TIMEOUT;
use super::ports::Side;
use super::records::{Records, Reply, UNIT};
use crate::prm::mad::{self, ClassPortInfo, Mad, MadHeader, status};
use crate::prm::put;
use crate::prm::sa::{self, SaHeader, attribute, method, rmpp};

/// ClassPortInfo.CapabilityMask: UD multicast is supported (volume 1, 15.2.5.1).
const UD_MULTICAST: u16 = 1 << 9;
impl SubnetManager {
    /// A datagram of the SA. Only a master serves it, and only for the two ports; no other has a LID
    /// to answer to.
    pub(super) fn input_sa(&mut self, from: Source, mad: &Mad) {
        let header = MadHeader(mad);
        if !self.serves() || header.method() & mad::method::RESPONSE != 0 {
            return;
        }
        let Some(requester) = Side::ALL.into_iter().find(|side| self.lid(*side) == Some(from.lid))
        else {
            self.counters.unknown_requesters += 1;
            return;
        };
        let is_whole =
            SaHeader(mad).rmpp_flags() & rmpp::FLAG_ACTIVE == 0 || SaHeader(mad).rmpp_type() == 0;
        // A key would be that of a trusted client, which has none here (volume 1, 15.4.4.2).
        if SaHeader(mad).sm_key() != 0 || !is_whole {
            self.counters.malformed += 1;
            return;
        }
        let reply = if header.class_version() == sa::CLASS_VERSION {
            self.reply(requester, mad)
        } else {
            Err(status::BAD_VERSION)
        };
        if reply.is_err() {
            self.counters.refused += 1;
        }
        let answer = emit(mad, &reply);
        self.push(Destination::General { lid: from.lid, qpn: from.qpn }, &answer);
    }

    fn reply(&mut self, requester: Side, mad: &Mad) -> Reply {
        let header = MadHeader(mad);
        match (header.attr_id(), header.method()) {
            (attribute::CLASS_PORT_INFO, method::GET) => Ok(Records::one(&class_port_info().0)),
            (attribute::PATH_RECORD, method::GET) => self.find_paths(mad)?.only_one(),
            (attribute::PATH_RECORD, method::GET_TABLE) => self.find_paths(mad),
            (attribute::MC_MEMBER_RECORD, method::GET) => self.find_members(mad)?.only_one(),
            (attribute::MC_MEMBER_RECORD, method::GET_TABLE) => self.find_members(mad),
            (attribute::MC_MEMBER_RECORD, method::SET) => self.join(requester, mad),
            (attribute::MC_MEMBER_RECORD, method::DELETE) => self.leave(requester, mad),
            (attribute::INFORM_INFO, method::SET) => inform(mad),
            (_, method::GET | method::SET | method::GET_TABLE | method::DELETE) => {
                Err(status::UNSUPPORTED_METHOD_ATTRIBUTE)
            }
            _ => Err(status::UNSUPPORTED_METHOD),
        }
    }
}

/// What the SA can do.
fn class_port_info() -> ClassPortInfo<[u8; 72]> {
    let mut info = ClassPortInfo::new();
    info.set_base_version(mad::BASE_VERSION);
    info.set_class_version(sa::CLASS_VERSION);
    info.set_capability_mask(UD_MULTICAST);
    info.set_resp_time_value(SUBNET_TIMEOUT);
    info
}

/// A subscription to notices: there is no table of these, so none is accepted and none can end.
fn inform(request: &Mad) -> Reply {
    match mad::InformInfo::read(request, sa::DATA).subscribe() {
        0 => Err(sa::status::REQ_INVALID),
        1 => Err(sa::status::NO_RESOURCES),
        _ => Err(status::INVALID_FIELD),
    }
}

fn emit(request: &Mad, reply: &Reply) -> Mad {
    let mut answer = *request;
    let asked = MadHeader(request).method();
    let is_table = asked == method::GET_TABLE;
    let mut header = MadHeader(&mut answer);
    header.set_class_version(sa::CLASS_VERSION);
    header.set_class_specific(0);
    // A Set has no response of its own.
    header.set_method(if asked == method::SET {
        method::GET_RESP
    } else {
        asked | mad::method::RESPONSE
    });
    header.set_status(reply.err().unwrap_or(status::SUCCESS));
    put(&mut answer, MadHeader::SIZE, &[0; SaHeader::SIZE - MadHeader::SIZE]);
    let mut header = SaHeader(&mut answer);
    header.set_comp_mask(SaHeader(request).comp_mask());
    let mut data = [0; sa::DATA_LEN];
    if let Ok(records) = reply {
        let units = u16::try_from(records.stride / UNIT).unwrap_or(0);
        header.set_attr_offset(units);
        data = records.bytes;
        if is_table {
            let bytes = u32::try_from(records.count * records.stride).unwrap_or(0);
            header.set_rmpp_version(rmpp::VERSION);
            header.set_rmpp_type(rmpp::TYPE_DATA);
            header.set_rmpp_rtime(rmpp::NO_RESPONSE_TIME);
            header.set_rmpp_flags(rmpp::FLAG_ACTIVE | rmpp::FLAG_FIRST | rmpp::FLAG_LAST);
            header.set_seg_num(1);
            header.set_paylen_newwin(rmpp::SA_HEADER_LEN + bytes);
        }
    }
    put(&mut answer, sa::DATA, &data);
    answer
}
