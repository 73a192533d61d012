//! Headers of a RoCEv2 packet, as far as the model reads them by field.
//!
//! RFC 791, RFC 8200; IBTA volume 1, 9.2 and 9.3.

layouts! {
    /// IPv4 header without options.
    ipv4[20] {
        version: 4, ihl: 4, tos: 8, total_length: 16, identification: 16, flags_fragment: 16,
        ttl: 8, protocol: 8, header_checksum: 16, source: 32, destination: 32,
    }
    /// IPv6 header.
    ipv6[40] {
        version: 4, traffic_class: 8, flow_label: 20, payload_length: 16, next_header: 8,
        hop_limit: 8, source: 128, destination: 128,
    }
    /// UDP header.
    udp[8] { source_port: 16, destination_port: 16, length: 16, checksum: 16 }
    /// Base transport header.
    bth[12] {
        opcode: 8, se: 1, migreq: 1, pad_count: 2, tver: 4, p_key: 16, congestion_resv8a: 8,
        dest_qp: 24, ackreq: 1, resv7: 7, psn: 24,
    }
    /// ACK extended transport header.
    aeth[4] { syndrome: 8, msn: 24 }
}
