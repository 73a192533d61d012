//! REQ: a connection is asked for.

use core::net::IpAddr;

use crate::cm::wire::field::view;
use crate::cm::wire::header::{Header, MAD_LEN, WireError, address, gid, is_v4};
use crate::cm::wire::reason::Reason;
use crate::cm::wire::service::ServiceId;
use crate::provider::Mtu;

view! {
    /// View of a REQ. Of the alternate path only the LID that says whether there is one: RoCE has
    /// none, and no queue pair here migrates.
    Req, attribute 0x10, private data 92 at 140;
    /// Communication ID of the sender.
    local_id set_local_id: u32 = 0, 0, 32;
    /// Service asked for.
    service_id set_service_id: u64 = 8, 0, 64;
    /// GUID of the sender's adapter.
    guid set_guid: u64 = 16, 0, 64;
    /// Q_Key, for datagrams only.
    q_key set_q_key: u32 = 28, 0, 32;
    /// Queue pair of the sender.
    qpn set_qpn: u32 = 32, 0, 24;
    /// Reads the sender answers at a time.
    responder_resources set_responder_resources: u8 = 35, 0, 8;
    /// Reads the sender wants to have outstanding.
    initiator_depth set_initiator_depth: u8 = 39, 0, 8;
    /// How soon the sender expects an answer, as a code.
    remote_response_timeout set_remote_response_timeout: u8 = 43, 0, 5;
    /// Transport: 0 is RC.
    transport set_transport: u8 = 43, 5, 2;
    /// End-to-end flow control.
    flow_control set_flow_control: bool = 43, 7, 1;
    /// First PSN the sender expects.
    starting_psn set_starting_psn: u32 = 44, 0, 24;
    /// How soon the sender will answer, as a code.
    local_response_timeout set_local_response_timeout: u8 = 47, 0, 5;
    /// Transport retries.
    retry_count set_retry_count: u8 = 47, 5, 3;
    /// P_Key.
    p_key set_p_key: u16 = 48, 0, 16;
    /// Path MTU code.
    mtu set_mtu: u8 = 50, 0, 4;
    /// Reliable datagram channel exists.
    rdc set_rdc: bool = 50, 4, 1;
    /// RNR retries the receiver shall make.
    rnr_retry set_rnr_retry: u8 = 50, 5, 3;
    /// Retransmissions of CM messages.
    max_retries set_max_retries: u8 = 51, 0, 4;
    /// The queue pair of the sender uses a shared receive queue.
    srq set_srq: bool = 51, 4, 1;
    /// Extended transport: 1 is XRC.
    extended_transport set_extended_transport: u8 = 51, 5, 3;
    /// LID of the sender; 0xffff where there are none.
    local_lid set_local_lid: u16 = 52, 0, 16;
    /// LID of the receiver; 0xffff where there are none.
    remote_lid set_remote_lid: u16 = 54, 0, 16;
    /// GID of the sender.
    local_gid set_local_gid: u128 = 56, 0, 128;
    /// GID of the receiver.
    remote_gid set_remote_gid: u128 = 72, 0, 128;
    /// Flow label.
    flow_label set_flow_label: u32 = 88, 0, 20;
    /// Packet rate; 0 is that of the port.
    packet_rate set_packet_rate: u8 = 91, 2, 6;
    /// Traffic class.
    traffic_class set_traffic_class: u8 = 92, 0, 8;
    /// Hop limit.
    hop_limit set_hop_limit: u8 = 93, 0, 8;
    /// Service level.
    sl set_sl: u8 = 94, 0, 4;
    /// The path stays within the subnet.
    subnet_local set_subnet_local: bool = 94, 4, 1;
    /// Local ACK timeout code.
    ack_timeout set_ack_timeout: u8 = 95, 0, 5;
    /// LID of the sender on the alternate path; 0 if there is none.
    alternate_lid set_alternate_lid: u16 = 96, 0, 16;
}

impl Req<&mut [u8; MAD_LEN]> {
    /// The GIDs of both sides. LIDs are the permissive ones.
    pub(in crate::cm) fn set_addresses(&mut self, local: u128, remote: u128) {
        self.set_local_lid(0xffff);
        self.set_remote_lid(0xffff);
        self.set_local_gid(local);
        self.set_remote_gid(remote);
    }

    /// A hop limit of 1 or less says that the path stays within the subnet.
    pub(in crate::cm) fn set_hops(&mut self, limit: u8) {
        self.set_hop_limit(limit);
        self.set_subnet_local(limit <= 1);
    }
}

impl Req<&[u8; MAD_LEN]> {
    /// The path MTU of a REQ that can be served; of another the reason to reject it with.
    pub fn servable(&self) -> Result<Mtu, Reason> {
        if self.transport() != 0 || self.extended_transport() != 0 {
            return Err(Reason::INVALID_TRANSPORT);
        }
        if self.local_id() == 0 {
            return Err(Reason::INVALID_COMM_ID);
        }
        // QP 0 and 1 belong to management.
        if self.qpn() <= 1 {
            return Err(Reason::NO_QP);
        }
        let mtu = Mtu::from_code(self.mtu()).ok_or(Reason::INVALID_MTU)?;
        if is_v4(self.local_gid()) != is_v4(self.remote_gid()) {
            return Err(Reason::INVALID_GID);
        }
        Ok(mtu)
    }
}

/// A REQ for a reliable connection over RoCEv2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReqRepr {
    /// Communication ID of the sender, not 0.
    pub local_id: u32,
    /// Service asked for.
    pub service: ServiceId,
    /// GUID of the sender's adapter.
    pub guid: u64,
    /// Queue pair of the sender, 24 bits, above 1.
    pub qpn: u32,
    /// Reads the sender answers at a time.
    pub responder_resources: u8,
    /// Reads the sender wants to have outstanding.
    pub initiator_depth: u8,
    /// How soon the sender expects an answer: a code of 5 bits.
    pub remote_response_timeout: u8,
    /// How soon the sender will answer: a code of 5 bits.
    pub local_response_timeout: u8,
    /// Retransmissions of CM messages, 4 bits.
    pub max_retries: u8,
    /// First PSN the sender expects, 24 bits.
    pub starting_psn: u32,
    /// Transport retries, 3 bits.
    pub retry_count: u8,
    /// RNR retries the receiver shall make, 3 bits.
    pub rnr_retry: u8,
    /// Local ACK timeout: a code of 5 bits.
    pub ack_timeout: u8,
    /// P_Key; 0xffff on RoCE.
    pub p_key: u16,
    /// Path MTU.
    pub mtu: Mtu,
    /// End-to-end flow control.
    pub flow_control: bool,
    /// The queue pair of the sender uses a shared receive queue.
    pub srq: bool,
    /// Address of the sender.
    pub local: IpAddr,
    /// Address of the receiver, of the same family.
    pub remote: IpAddr,
    /// Flow label, 20 bits.
    pub flow_label: u32,
    /// Traffic class.
    pub traffic_class: u8,
    /// Hop limit.
    pub hop_limit: u8,
    /// Service level, 4 bits.
    pub sl: u8,
    /// Private data, with the IP CM header if the service is one of the IP CM.
    pub private_data: [u8; 92],
}

impl ReqRepr {
    /// Reads a REQ; one that cannot be served is an error that holds the reason to reject it with.
    pub fn parse(req: &Req<&[u8; MAD_LEN]>) -> Result<Self, WireError> {
        let mtu = req.servable().map_err(WireError::Refuse)?;
        let (local, remote) = (address(req.local_gid()), address(req.remote_gid()));
        Ok(Self {
            local_id: req.local_id(),
            service: ServiceId(req.service_id()),
            guid: req.guid(),
            qpn: req.qpn(),
            responder_resources: req.responder_resources(),
            initiator_depth: req.initiator_depth(),
            remote_response_timeout: req.remote_response_timeout(),
            local_response_timeout: req.local_response_timeout(),
            max_retries: req.max_retries(),
            starting_psn: req.starting_psn(),
            retry_count: req.retry_count(),
            rnr_retry: req.rnr_retry(),
            ack_timeout: req.ack_timeout(),
            p_key: req.p_key(),
            mtu,
            flow_control: req.flow_control(),
            srq: req.srq(),
            local,
            remote,
            flow_label: req.flow_label(),
            traffic_class: req.traffic_class(),
            hop_limit: req.hop_limit(),
            sl: req.sl(),
            private_data: req.private_data(),
        })
    }

    /// Writes it. LIDs are the permissive ones; a hop limit of 1 or less says that the path stays
    /// within the subnet.
    #[must_use]
    #[inline(never)]
    pub fn emit(&self, transaction: u64) -> [u8; MAD_LEN] {
        let mut mad = Header::emit(transaction, Req::<()>::ATTRIBUTE);
        let mut req = Req::new_unchecked(&mut mad);
        req.set_local_id(self.local_id);
        req.set_service_id(self.service.0);
        req.set_guid(self.guid);
        req.set_qpn(self.qpn);
        req.set_responder_resources(self.responder_resources);
        req.set_initiator_depth(self.initiator_depth);
        req.set_remote_response_timeout(self.remote_response_timeout);
        req.set_local_response_timeout(self.local_response_timeout);
        req.set_max_retries(self.max_retries);
        req.set_starting_psn(self.starting_psn);
        req.set_retry_count(self.retry_count);
        req.set_rnr_retry(self.rnr_retry);
        req.set_ack_timeout(self.ack_timeout);
        req.set_p_key(self.p_key);
        req.set_mtu(self.mtu.code());
        req.set_flow_control(self.flow_control);
        req.set_srq(self.srq);
        req.set_addresses(gid(self.local), gid(self.remote));
        req.set_flow_label(self.flow_label);
        req.set_traffic_class(self.traffic_class);
        req.set_sl(self.sl);
        req.set_hops(self.hop_limit);
        req.set_private_data(&self.private_data);
        mad
    }
}
