//! Messages of connection management, from the tables of IBTA volume 1, chapter 12.

use std::net::{IpAddr, Ipv6Addr};

/// Bytes of a MAD.
pub const LEN: usize = 256;
/// Where a message begins, behind the common header.
pub const BODY: usize = 24;

/// The messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u16)]
pub enum Cm {
    /// Connect request.
    Req = 0x10,
    /// Message receipt acknowledgement.
    Mra = 0x11,
    /// Rejection.
    Rej = 0x12,
    /// Reply.
    Rep = 0x13,
    /// Ready to use.
    Rtu = 0x14,
    /// Disconnect request.
    Dreq = 0x15,
    /// Disconnect reply.
    Drep = 0x16,
    /// Service ID resolution request.
    SidrReq = 0x17,
    /// Service ID resolution reply.
    SidrRep = 0x18,
    /// Load alternate path.
    Lap = 0x19,
    /// Alternate path response.
    Apr = 0x1a,
}

impl Cm {
    /// All of them.
    pub const ALL: [Self; 11] = [
        Self::Req,
        Self::Mra,
        Self::Rej,
        Self::Rep,
        Self::Rtu,
        Self::Dreq,
        Self::Drep,
        Self::SidrReq,
        Self::SidrRep,
        Self::Lap,
        Self::Apr,
    ];

    /// The message of that attribute.
    #[must_use]
    pub fn of(mad: &[u8]) -> Option<Self> {
        let attribute = u16::from_be_bytes([*mad.get(16)?, *mad.get(17)?]);
        Self::ALL.into_iter().find(|kind| *kind as u16 == attribute)
    }

    /// The name in the standard.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Req => "REQ",
            Self::Mra => "MRA",
            Self::Rej => "REJ",
            Self::Rep => "REP",
            Self::Rtu => "RTU",
            Self::Dreq => "DREQ",
            Self::Drep => "DREP",
            Self::SidrReq => "SIDR_REQ",
            Self::SidrRep => "SIDR_REP",
            Self::Lap => "LAP",
            Self::Apr => "APR",
        }
    }
}

/// A MAD under construction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mad(pub [u8; LEN]);

impl Mad {
    /// A message with a correct header and nothing in it.
    #[must_use]
    pub fn new(kind: Cm, transaction: u64) -> Self {
        let mut mad = [0; LEN];
        mad[..4].copy_from_slice(&[1, 7, 2, 3]);
        mad[8..16].copy_from_slice(&transaction.to_be_bytes());
        mad[16..18].copy_from_slice(&(kind as u16).to_be_bytes());
        Self(mad)
    }

    /// One that came over the wire.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(Self)
    }

    /// A message that names both ends: the sender's communication ID, then the receiver's.
    #[must_use]
    pub fn between(kind: Cm, transaction: u64, [sender, receiver]: [u32; 2]) -> Self {
        Self::new(kind, transaction).put(0, &sender.to_be_bytes()).put(4, &receiver.to_be_bytes())
    }

    /// With these bytes at an offset of the message.
    #[must_use]
    pub fn put(mut self, at: usize, bytes: &[u8]) -> Self {
        self.0[BODY + at..BODY + at + bytes.len()].copy_from_slice(bytes);
        self
    }

    /// With one byte of the whole MAD changed.
    #[must_use]
    pub fn flip(mut self, at: usize, mask: u8) -> Self {
        self.0[at] ^= mask;
        self
    }

    /// A field of 32 bits of the message.
    #[must_use]
    pub fn word(&self, at: usize) -> u32 {
        u32::from_be_bytes(self.0[BODY + at..BODY + at + 4].try_into().unwrap())
    }

    /// A field of 64 bits of the message.
    #[must_use]
    pub fn word64(&self, at: usize) -> u64 {
        u64::from(self.word(at)) << 32 | u64::from(self.word(at + 4))
    }

    /// A field of 24 bits of the message.
    #[must_use]
    pub fn number(&self, at: usize) -> u32 {
        self.word(at) >> 8
    }

    /// The transaction ID.
    #[must_use]
    pub fn transaction(&self) -> u64 {
        u64::from_be_bytes(self.0[8..16].try_into().unwrap())
    }

    /// With another transaction ID.
    #[must_use]
    pub fn with_transaction(mut self, transaction: u64) -> Self {
        self.0[8..16].copy_from_slice(&transaction.to_be_bytes());
        self
    }

    /// MRA of a REQ (0), a REP (1) or another message (2), asking for `4.096 us * 2^timeout`.
    #[must_use]
    pub fn mra(transaction: u64, ids: [u32; 2], about: u8, timeout: u8) -> Self {
        Self::between(Cm::Mra, transaction, ids).put(8, &[about << 6, timeout << 3])
    }

    /// REJ of a REQ (0), a REP (1) or another message (2), with additional information.
    #[must_use]
    pub fn rej(transaction: u64, ids: [u32; 2], about: u8, reason: u16, ari: &[u8]) -> Self {
        let fields = [about << 6, (ari.len() as u8) << 1];
        let mad = Self::between(Cm::Rej, transaction, ids).put(8, &fields);
        mad.put(10, &reason.to_be_bytes()).put(12, ari)
    }

    /// DREQ that names the receiver's queue pair.
    #[must_use]
    pub fn dreq(transaction: u64, ids: [u32; 2], qpn: u32) -> Self {
        Self::between(Cm::Dreq, transaction, ids).put(8, &qpn.to_be_bytes()[1..])
    }

    /// REP with a queue pair, its first PSN and the sender's GUID.
    #[must_use]
    pub fn rep(transaction: u64, ids: [u32; 2], qpn: u32, psn: u32, guid: u64) -> Self {
        Self::between(Cm::Rep, transaction, ids)
            .put(12, &qpn.to_be_bytes()[1..])
            .put(20, &psn.to_be_bytes()[1..])
            .put(24, &[1, 1, 0, 0xe0])
            .put(28, &guid.to_be_bytes())
    }

    /// SIDR_REQ for a port of the UDP port space.
    #[must_use]
    pub fn sidr_req(transaction: u64, id: u32, port: u16, addrs: [IpAddr; 2]) -> Self {
        Self::new(Cm::SidrReq, transaction)
            .put(0, &id.to_be_bytes())
            .put(4, &[0xff, 0xff])
            .put(8, &(0x0111_0000 | u64::from(port)).to_be_bytes())
            .put(16, &ip_header(addrs))
    }

    /// SIDR_REP: status, queue pair and Q_Key.
    #[must_use]
    pub fn sidr_rep(transaction: u64, id: u32, status: u8, qpn: u32, qkey: u32) -> Self {
        Self::new(Cm::SidrRep, transaction)
            .put(0, &id.to_be_bytes())
            .put(4, &[status])
            .put(8, &qpn.to_be_bytes()[1..])
            .put(20, &qkey.to_be_bytes())
    }
}

/// What a REQ says.
#[derive(Clone, Copy, Debug)]
pub struct Req {
    /// Transaction ID.
    pub transaction: u64,
    /// Communication ID of the sender.
    pub id: u32,
    /// Port of the service, in the TCP port space.
    pub port: u16,
    /// Adapter of the sender.
    pub guid: u64,
    /// Queue pair of the sender.
    pub qpn: u32,
    /// First PSN that the sender expects.
    pub psn: u32,
    /// The sender's response time, and that which it grants: `4.096 us * 2^n`.
    pub response: u8,
    /// CM retries, 4 bits.
    pub retries: u8,
    /// Addresses of sender and receiver.
    pub addrs: [IpAddr; 2],
}

impl Req {
    /// A request as any rdma_cm program sends it.
    #[must_use]
    pub const fn new(n: u32, port: u16, addrs: [IpAddr; 2]) -> Self {
        Self {
            transaction: 0x6666_0000_0000_0000 | n as u64,
            id: 0x4000_0000 ^ n.wrapping_mul(0x9e37_79b1),
            port,
            guid: 0x0266_66ff_fe00_0000 | n as u64,
            qpn: 0x100 + n % 0xff_0000,
            psn: n.wrapping_mul(0x0101_0101) & 0xff_ffff,
            response: 20,
            retries: 15,
            addrs,
        }
    }

    /// The MAD.
    #[must_use]
    pub fn mad(&self) -> Mad {
        let [from, to] = self.addrs.map(gid);
        Mad::new(Cm::Req, self.transaction)
            .put(0, &self.id.to_be_bytes())
            .put(8, &(0x0106_0000 | u64::from(self.port)).to_be_bytes())
            .put(16, &self.guid.to_be_bytes())
            .put(32, &self.qpn.to_be_bytes()[1..])
            .put(35, &[1, 0, 0, 0, 1])
            .put(43, &[self.response << 3 | 1])
            .put(44, &self.psn.to_be_bytes()[1..])
            .put(47, &[self.response << 3 | 7])
            .put(48, &[0xff, 0xff, 0x37, self.retries << 4])
            .put(52, &[0xff; 4])
            .put(56, &from)
            .put(72, &to)
            .put(88, &[0x3c, 0x52, 0xa0, 0, 0, 64, 0, 19 << 3])
            .put(140, &ip_header(self.addrs))
    }
}

/// The GID of an address.
#[must_use]
pub fn gid(addr: IpAddr) -> [u8; 16] {
    match addr {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    }
}

/// The header of the RDMA IP CM service: version 0, IP version, source port, both addresses.
fn ip_header(addrs: [IpAddr; 2]) -> [u8; 36] {
    let mut header = [0; 36];
    header[1] = if addrs[0].is_ipv4() { 0x40 } else { 0x60 };
    header[2..4].copy_from_slice(&0xa25c_u16.to_be_bytes());
    for (n, addr) in addrs.into_iter().enumerate() {
        let bytes = match addr {
            IpAddr::V4(v4) => Ipv6Addr::from_bits(u128::from(v4.to_bits())).octets(),
            IpAddr::V6(v6) => v6.octets(),
        };
        header[4 + 16 * n..20 + 16 * n].copy_from_slice(&bytes);
    }
    header
}
