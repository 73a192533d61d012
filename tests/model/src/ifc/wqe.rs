//! Work requests: the segments of which send and receive WQEs are made.
//!
//! PRM: send WQE construction; Linux `struct mlx5_wqe_ctrl_seg` and its neighbours. The key segment
//! of a UMR is a memory key's context, `mkc`.

layouts! {
    /// Control segment: the head of every send WQE.
    wqe_ctrl[16] {
        opmod: 8, wqe_index: 16, opcode: 8, qpn: 24, reserved_at_38: 2, ds: 6, signature: 8,
        reserved_at_48: 16, fm: 3, reserved_at_5b: 1, ce: 2, se: 1, reserved_at_5f: 1, imm: 32,
    }
    /// Where an XRC request is received.
    wqe_xrc[16] { reserved_at_0: 8, xrc_srqn: 24, reserved_at_20: 96 }
    /// Remote address.
    wqe_raddr[16] { raddr: 64, rkey: 32, reserved_at_60: 32 }
    /// Operands of an atomic.
    wqe_atomic[16] { swap_add: 64, compare: 64 }
    /// Data by pointer.
    wqe_data[16] { inline: 1, byte_count: 31, lkey: 32, addr: 64 }
    /// Head of data in the work request itself.
    wqe_inline[4] { inline: 1, reserved_at_1: 21, byte_count: 10 }
    /// Address vector of a datagram, extended form.
    wqe_av[48] {
        qkey: 32, reserved_at_20: 32, ext: 1, reserved_at_41: 7, dqpn: 24, stat_rate: 4, sl: 4,
        fl: 1, mlid: 7, rlid_udp_sport: 16, reserved_at_80: 32, rmac: 48, tclass: 8,
        hop_limit: 8, reserved_at_e0: 1, grh: 1, reserved_at_e2: 2, src_addr_index: 8,
        flow_label: 20, rgid: 128,
    }
    /// Ethernet segment.
    wqe_eth[16] {
        swp_outer_l4_offset: 8, swp_outer_l3_offset: 8, swp_inner_l4_offset: 8,
        swp_inner_l3_offset: 8, cs_flags: 8, swp_flags: 8, mss: 16, flow_table_metadata: 32,
        insert_vlan: 1, vlan_type: 5, inline_hdr_size: 10, inline_hdr_start_vlan: 16,
    }
    /// First segment of an entry of a shared receive queue.
    wqe_srq_next[16] { reserved_at_0: 16, next_wqe_index: 16, signature: 8, reserved_at_28: 88 }
}
