//! The memory key context and the message that carries it.
//!
//! PRM "CREATE_MKEY", "Memory Key Context"; Linux `mlx5_ifc_mkc_bits`. A key is an entry of the
//! translation and protection table (TPT): upper 24 bits index, low 8 bits a variant of the owner's
//! choice that every use must match.

#![expect(clippy::len_without_is_empty, reason = "`len` is the manual's name of a field")]

use super::layout;

/// A whole key: index and variant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Mkey(pub u32);

impl Mkey {
    /// From the index that the device gave and the variant that the owner chose.
    #[must_use]
    pub const fn new(index: u32, variant: u8) -> Self {
        Self(index << 8 | variant as u32)
    }

    /// The index, by which commands name it.
    #[must_use]
    pub const fn index(self) -> u32 {
        self.0 >> 8
    }
}

/// Offset of the context in a CREATE_MKEY input.
pub const CONTEXT_AT: usize = 0x10;
/// Offset of the dword in a CREATE_MKEY input that says how many octowords of translation follow.
pub const ACTUAL_SIZE_AT: usize = 0x60;
/// Offset of the translation in a CREATE_MKEY input.
pub const TRANSLATION_AT: usize = 0x110;

/// [`MkeyContext::access_mode_1_0`] of a key that translates nothing: addresses are the device's
/// own.
pub const MODE_PA: u8 = 0;
/// [`MkeyContext::access_mode_1_0`] of a key translated by a list of pages.
pub const MODE_MTT: u8 = 1;
/// [`MkeyContext::access_mode_1_0`] of a key that stands for spans of other keys.
pub const MODE_KLM: u8 = 2;

layout! {
    /// Memory key context (`mkc`).
    MkeyContext, 64;
    /// Opens nothing until a UMR binds it.
    0x00[30] free, set_free: bool;
    0x00[28:26] access_mode_4_2, set_access_mode_4_2: u8;
    0x00[18] relaxed_ordering_write, set_relaxed_ordering_write: bool;
    0x00[16] small_fence_on_rdma_read_response, set_small_fence_on_rdma_read_response: bool;
    /// A UMR may change it.
    0x00[15] umr_en, set_umr_en: bool;
    /// Atomics.
    0x00[14] a, set_a: bool;
    /// Remote write.
    0x00[13] rw, set_rw: bool;
    /// Remote read.
    0x00[12] rr, set_rr: bool;
    /// Local write.
    0x00[11] lw, set_lw: bool;
    /// Local read.
    0x00[10] lr, set_lr: bool;
    0x00[9:8] access_mode_1_0, set_access_mode_1_0: u8;
    /// The one queue pair that may use it; all ones for any.
    0x04[31:8] qpn, set_qpn: u32;
    0x04[7:0] mkey_7_0, set_mkey_7_0: u8;
    /// No limits: start and length do not count.
    0x0c[31] length64, set_length64: bool;
    0x0c[30] bsf_en, set_bsf_en: bool;
    0x0c[24] en_rinval, set_en_rinval: bool;
    0x0c[23:0] pd, set_pd: u32;
    0x10(64) start_addr, set_start_addr: u64;
    0x18(64) len, set_len: u64;
    0x20(32) bsf_octword_size, set_bsf_octword_size: u32;
    /// Room for translation, in 16-byte words.
    0x34(32) translations_octword_size, set_translations_octword_size: u32;
    0x38[6] relaxed_ordering_read, set_relaxed_ordering_read: bool;
    /// log2 of the page size itself, unlike in queue contexts.
    0x38[5:0] log_page_size, set_log_page_size: u8;
}
