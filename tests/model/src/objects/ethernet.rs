//! Ethernet frames as the raw queues see them: the send side's Ethernet segment, and what
//! steering and completion say of a received frame.

use crate::ifc::flow::fte_match_set_lyr_2_4 as lyr;
use crate::ifc::wqe::wqe_eth;

const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;
const VLAN: u16 = 0x8100;
const TCP: u8 = 6;
const UDP: u8 = 17;

/// Headers that a parser found in a frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Headers {
    /// VLAN tag control information.
    pub(crate) vlan: Option<u16>,
    /// Ethertype behind any tag.
    pub(crate) ethertype: u16,
    /// Offset of the layer 3 header.
    pub(crate) l3: usize,
    /// 4, 6, or 0.
    pub(crate) ip_version: u8,
    /// IP protocol, or 0.
    pub(crate) protocol: u8,
    /// Offset of a complete TCP or UDP header, if there is one.
    pub(crate) l4: Option<usize>,
    /// Part of a fragmented datagram.
    pub(crate) fragment: bool,
    /// End of the IP packet, which Ethernet padding may follow.
    pub(crate) end: usize,
    /// The IP header says more than there is: good for a match, and for no checksum.
    pub(crate) cut: bool,
}

fn half(frame: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes([*frame.get(at)?, *frame.get(at + 1)?]))
}

impl Headers {
    /// Looks at a frame; none when it is shorter than an Ethernet header.
    pub(crate) fn of(frame: &[u8]) -> Option<Self> {
        Self::parse(frame, true)
    }

    /// Looks at the headers of a large send, whose lengths say nothing of what is there.
    pub(crate) fn of_start(head: &[u8]) -> Option<Self> {
        Self::parse(head, false)
    }

    fn parse(frame: &[u8], whole: bool) -> Option<Self> {
        let mut headers = Self { ethertype: half(frame, 12)?, l3: 14, ..Self::default() };
        headers.end = frame.len();
        if headers.ethertype == VLAN {
            headers.vlan = Some(half(frame, 14)?);
            headers.ethertype = half(frame, 16)?;
            headers.l3 = 18;
        }
        match headers.ethertype {
            IPV4 => headers.ipv4(frame, whole),
            IPV6 => headers.ipv6(frame, whole),
            _ => {}
        }
        Some(headers)
    }

    fn ipv4(&mut self, frame: &[u8], whole: bool) {
        let Some(head) = frame.get(self.l3..self.l3 + 20) else {
            return;
        };
        let ihl = usize::from(head[0] & 0xf) * 4;
        let total = if whole {
            usize::from(u16::from_be_bytes([head[2], head[3]]))
        } else {
            frame.len() - self.l3
        };
        if head[0] >> 4 != 4 || ihl < 20 || total < ihl || self.l3 + total > frame.len() {
            return;
        }
        self.ip_version = 4;
        self.protocol = head[9];
        self.end = self.l3 + total;
        let word = u16::from_be_bytes([head[6], head[7]]);
        self.fragment = word & 0x3fff != 0;
        if word & 0x1fff == 0 {
            self.find_l4(self.l3 + ihl);
        }
    }

    fn ipv6(&mut self, frame: &[u8], whole: bool) {
        let Some(head) = frame.get(self.l3..self.l3 + 40) else {
            return;
        };
        let total = if whole {
            40 + usize::from(u16::from_be_bytes([head[4], head[5]]))
        } else {
            frame.len() - self.l3
        };
        if head[0] >> 4 != 6 {
            return;
        }
        self.ip_version = 6;
        self.protocol = head[6];
        self.cut = self.l3 + total > frame.len();
        self.end = (self.l3 + total).min(frame.len());
        self.find_l4(self.l3 + 40);
    }

    /// A match on ports counts only for a complete layer 4 header in an unfragmented datagram.
    fn find_l4(&mut self, at: usize) {
        let need = match self.protocol {
            TCP => 20,
            UDP => 8,
            _ => return,
        };
        if !self.fragment && at + need <= self.end {
            self.l4 = Some(at);
        }
    }

    /// The match set of the frame's outer headers.
    pub(crate) fn match_set(&self, frame: &[u8]) -> [u8; lyr::BYTES] {
        let mut out = [0; lyr::BYTES];
        let byte = |at: usize| u32::from(frame.get(at).copied().unwrap_or(0));
        let half = |at: usize| u32::from(half(frame, at).unwrap_or(0));
        lyr::dmac_47_16.set(&mut out, (half(0) << 16) | half(2));
        lyr::dmac_15_0.set(&mut out, half(4));
        lyr::smac_47_16.set(&mut out, (half(6) << 16) | half(8));
        lyr::smac_15_0.set(&mut out, half(10));
        lyr::ethertype.set(&mut out, u32::from(self.ethertype));
        if let Some(tci) = self.vlan {
            lyr::cvlan_tag.set(&mut out, 1);
            lyr::first_prio.set(&mut out, u32::from(tci >> 13));
            lyr::first_cfi.set(&mut out, u32::from(tci >> 12) & 1);
            lyr::first_vid.set(&mut out, u32::from(tci & 0xfff));
        }
        if self.ip_version != 0 {
            lyr::ip_version.set(&mut out, u32::from(self.ip_version));
            lyr::ip_protocol.set(&mut out, u32::from(self.protocol));
            lyr::frag.set(&mut out, u32::from(self.fragment));
        }
        let l3 = self.l3;
        match self.ip_version {
            4 => {
                lyr::ip_dscp.set(&mut out, byte(l3 + 1) >> 2);
                lyr::ip_ecn.set(&mut out, byte(l3 + 1) & 3);
                lyr::ttl_hoplimit.set(&mut out, byte(l3 + 8));
                lyr::ipv4_ihl.set(&mut out, byte(l3) & 0xf);
                // IPv4 addresses lie in the last four of the sixteen bytes.
                copy(&mut out, lyr::src_ipv4_src_ipv6.byte() + 12, frame, l3 + 12, 4);
                copy(&mut out, lyr::dst_ipv4_dst_ipv6.byte() + 12, frame, l3 + 16, 4);
            }
            6 => {
                let tclass = (half(l3) >> 4) & 0xff;
                lyr::ip_dscp.set(&mut out, tclass >> 2);
                lyr::ip_ecn.set(&mut out, tclass & 3);
                lyr::ttl_hoplimit.set(&mut out, byte(l3 + 7));
                copy(&mut out, lyr::src_ipv4_src_ipv6.byte(), frame, l3 + 8, 16);
                copy(&mut out, lyr::dst_ipv4_dst_ipv6.byte(), frame, l3 + 24, 16);
            }
            _ => {}
        }
        if let Some(l4) = self.l4 {
            if self.protocol == TCP {
                lyr::l4_type.set(&mut out, 1);
                lyr::tcp_sport.set(&mut out, half(l4));
                lyr::tcp_dport.set(&mut out, half(l4 + 2));
                lyr::tcp_flags.set(&mut out, half(l4 + 12) & 0x1ff);
            } else {
                lyr::l4_type.set(&mut out, 2);
                lyr::udp_sport.set(&mut out, half(l4));
                lyr::udp_dport.set(&mut out, half(l4 + 2));
            }
        }
        out
    }

    /// Byte 0x1c of the completion: 1 layer 2 good, 2 layer 3 good, 4 layer 4 good.
    pub(crate) fn verdict(&self, frame: &[u8]) -> u8 {
        let mut good = 1;
        let l3_good = match self.ip_version {
            _ if self.cut => false,
            4 => {
                let ihl = usize::from(frame.get(self.l3).copied().unwrap_or(0) & 0xf) * 4;
                sum(frame.get(self.l3..self.l3 + ihl).unwrap_or(&[])) == 0xffff
            }
            6 => true,
            _ => false,
        };
        if l3_good {
            good |= 2;
            if self.l4.is_some_and(|at| self.l4_good(frame, at)) {
                good |= 4;
            }
        }
        good
    }

    fn l4_good(&self, frame: &[u8], at: usize) -> bool {
        let unused = self.protocol == UDP && self.ip_version == 4 && half(frame, at + 6) == Some(0);
        unused || self.l4_sum(frame, at) == 0xffff
    }

    /// The folded sum over pseudo header, layer 4 header and data.
    fn l4_sum(&self, frame: &[u8], at: usize) -> u16 {
        let data = frame.get(at..self.end).unwrap_or(&[]);
        let addresses = match self.ip_version {
            4 => frame.get(self.l3 + 12..self.l3 + 20),
            _ => frame.get(self.l3 + 8..self.l3 + 40),
        };
        let mut total = u64::from(sum(data)) + u64::from(sum(addresses.unwrap_or(&[])));
        total += data.len() as u64 + u64::from(self.protocol);
        fold(total)
    }

    /// Whether layer 4, if there is one, is TCP.
    pub(crate) fn is_tcp(&self) -> bool {
        self.protocol == TCP
    }

    /// The sum that goes with a completion: over the IP packet, from its header to its end. Neither
    /// a VLAN tag nor Ethernet padding is in it.
    pub(crate) fn check_sum(&self, frame: &[u8]) -> u16 {
        sum(frame.get(self.l3..self.end).unwrap_or(&[]))
    }

    /// Layer 4 kind: TCP that acknowledges nothing, UDP, TCP with nothing but an acknowledgement,
    /// TCP with one and data.
    fn l4_kind(&self, frame: &[u8]) -> u8 {
        let Some(at) = self.l4 else { return 0 };
        if self.protocol != TCP {
            return 2;
        }
        let byte = |at: usize| frame.get(at).copied().unwrap_or(0);
        let header = usize::from(byte(at + 12) >> 4) * 4;
        match (byte(at + 13) & 0x10 != 0, at + header < self.end) {
            (false, _) => 1,
            (true, false) => 3,
            (true, true) => 4,
        }
    }

    /// Byte 0x1d of the completion: layer 4 and layer 3 kind.
    pub(crate) fn kinds(&self, frame: &[u8]) -> u8 {
        let l3 = match self.ip_version {
            4 => 2,
            6 => 1,
            _ => 0,
        };
        (self.l4_kind(frame) << 4) | (l3 << 2)
    }

    /// Fills in the checksums a sender asked for: 0x40 layer 3, 0x80 layer 4.
    pub(crate) fn offload(&self, frame: &mut [u8], flags: u8) {
        if flags & 0x40 != 0 && self.ip_version == 4 {
            let ihl = usize::from(frame.get(self.l3).copied().unwrap_or(0) & 0xf) * 4;
            put(frame, self.l3 + 10, 0);
            let check = !sum(frame.get(self.l3..self.l3 + ihl).unwrap_or(&[]));
            put(frame, self.l3 + 10, check);
        }
        if flags & 0x80 != 0 {
            if let Some(at) = self.l4 {
                let field = at + if self.protocol == TCP { 16 } else { 6 };
                put(frame, field, 0);
                let check = !self.l4_sum(frame, at);
                // A UDP checksum of zero would say that there is none.
                let check = if check == 0 && self.protocol == UDP { 0xffff } else { check };
                put(frame, field, check);
            }
        }
    }
}

fn copy(to: &mut [u8], at: usize, from: &[u8], start: usize, n: usize) {
    if let (Some(to), Some(from)) = (to.get_mut(at..at + n), from.get(start..start + n)) {
        to.copy_from_slice(from);
    }
}

pub(super) fn put(frame: &mut [u8], at: usize, value: u16) {
    if let Some(to) = frame.get_mut(at..at + 2) {
        to.copy_from_slice(&value.to_be_bytes());
    }
}

fn fold(mut total: u64) -> u16 {
    while total >> 16 != 0 {
        total = (total & 0xffff) + (total >> 16);
    }
    total as u16
}

/// Ones-complement sum of big-endian halves, folded, not inverted.
pub(crate) fn sum(bytes: &[u8]) -> u16 {
    let total = bytes
        .chunks(2)
        .map(|c| (u64::from(c[0]) << 8) | u64::from(c.get(1).copied().unwrap_or(0)))
        .sum();
    fold(total)
}

/// The Ethernet segment of a send WQE and what follows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EthSegment {
    /// Checksums asked for.
    pub(crate) cs_flags: u8,
    /// Segment size of a large send, else 0.
    pub(crate) mss: u16,
    /// Headers in the work request.
    pub(crate) inline: Vec<u8>,
    /// Tag to insert.
    pub(crate) vlan: Option<u16>,
    /// Bytes of the WQE, from the segment's start, where the data pointers begin.
    pub(crate) data_at: usize,
}

impl EthSegment {
    /// Parses the segment at the front of `bytes`.
    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        let head = bytes.get(..wqe_eth::BYTES)?;
        let mut segment = Self {
            cs_flags: wqe_eth::cs_flags.get(head) as u8,
            mss: wqe_eth::mss.get(head) as u16,
            inline: Vec::new(),
            vlan: None,
            data_at: 16,
        };
        if wqe_eth::insert_vlan.is_set(head) {
            segment.vlan = Some(wqe_eth::inline_hdr_start_vlan.get(head) as u16);
        } else {
            let size = wqe_eth::inline_hdr_size.get(head) as usize;
            segment.inline = bytes.get(0x0e..0x0e + size)?.to_vec();
            segment.data_at = (0x0e + size).max(16).next_multiple_of(16);
        }
        Some(segment)
    }
}
