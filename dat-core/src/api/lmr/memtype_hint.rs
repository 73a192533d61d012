//! dat_ia_memtype_hint, of kDAPL.

use crate::engine::Ia;
use crate::objects::lmr::MemType;
use crate::provider::Provider;
use crate::types::dat_return::{DatSubtype, DatType, Error};

/// `DAT_MEM_OPTIMIZE_FLAGS`: what a registration is to be good for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u32)]
pub enum MemOptimize {
    /// Whatever.
    #[default]
    DontCare = 0,
    /// The adapter: few entries in its tables.
    Ia = 1,
    /// As little beside the memory as the adapter can do.
    MinExposure = 2,
    /// Not a byte beside the memory.
    ExactExposure = 4,
}

/// Smallest page of the device's tables.
const PAGE: u64 = 4096;

impl<P: Provider> Ia<'_, P> {
    /// Length and alignment in which `len` bytes of that type are registered best.
    ///
    /// Ranges are exact to the byte, so for exposure any will do; pages are whole. The adapter has
    /// least to remember of memory that lies in one page of a power of two. `LENGTH_ERROR` for
    /// no bytes, `INVALID_PARAMETER` for more than an LMR has.
    #[doc(alias = "dat_ia_memtype_hint")]
    pub fn ia_memtype_hint(
        &self,
        mem_type: MemType,
        len: u64,
        optimize: MemOptimize,
    ) -> Result<(u64, u64), Error> {
        if len == 0 {
            return Err(Error::new(DatType::LengthError, DatSubtype::None));
        }
        let most = self.hca.limits().max_region;
        if len > most {
            return Err(Error::new(DatType::InvalidParameter, DatSubtype::InvalidArg3));
        }
        let paged = matches!(mem_type, MemType::Physical | MemType::Ia);
        Ok(match optimize {
            MemOptimize::DontCare | MemOptimize::Ia => {
                let align = len.next_power_of_two().max(PAGE);
                (len.next_multiple_of(PAGE).min(most.max(len)), align)
            }
            MemOptimize::MinExposure | MemOptimize::ExactExposure if paged => {
                (len.next_multiple_of(PAGE).min(most.max(len)), PAGE)
            }
            MemOptimize::MinExposure | MemOptimize::ExactExposure => (len, 1),
        })
    }
}
