//! Memory keys by command: CREATE_MKEY, QUERY_MKEY, DESTROY_MKEY.

use super::mkey::{ATOMIC, LR, LW, Mkey, Mode, RR, RW};
use super::umem::{self, Uses};
use crate::cmd::{Refusal, Status};
use crate::hca::Hca;
use crate::ifc::caps::cmd_hca_cap;
use crate::ifc::cmd::{head_in, head_out};
use crate::ifc::mkey::{create_mkey_in, mkc, query_mkey_out};

const RIGHTS: [(crate::ifc::Field, u8); 5] =
    [(mkc::lr, LR), (mkc::lw, LW), (mkc::rr, RR), (mkc::rw, RW), (mkc::a, ATOMIC)];

/// log2 of the largest page. The context's field has a sixth bit, which counts only on devices that
/// have `umr_log_entity_size_5` (`mlx5_ifc_cmd_hca_cap_2_bits`); none is modelled.
const LOG_LARGEST: u32 = 31;

/// CREATE_MKEY.
pub(crate) fn create(hca: &mut Hca, input: &[u8], output: &mut [u8]) -> Result<(), Refusal> {
    let context = create_mkey_in::memory_key_mkey_entry.bytes(input);
    let mode = (mkc::access_mode_4_2.get(context) << 2) | mkc::access_mode_1_0.get(context);
    let mode = Mode::from_bits(mode).ok_or(Status::BadParam.because(0x20_0010))?;
    let uses = Uses {
        ring: umem::named(create_mkey_in::mkey_umem_valid, create_mkey_in::mkey_umem_id, input),
        record: None,
    };
    let relaxed_write = mkc::relaxed_ordering_write.is_set(context);
    if relaxed_write && hca.caps.general(cmd_hca_cap::relaxed_ordering_write) == 0 {
        return Err(Status::BadParam.because(0x20_0017));
    }
    let relaxed_read = mkc::relaxed_ordering_read.is_set(context);
    if relaxed_read && hca.caps.general(cmd_hca_cap::relaxed_ordering_read) == 0 {
        return Err(Status::BadParam.because(0x20_0018));
    }
    let pd = mkc::pd.get(context);
    if !hca.ids.pd.contains(pd) {
        return Err(Status::BadResource.because(0x20_0012));
    }
    let octwords = mkc::translations_octword_size.get(context);
    let actual = create_mkey_in::translations_octword_actual_size.get(input);
    let free = mkc::free.is_set(context);
    let log_page_size = mkc::log_page_size.get(context);
    let (start, len) = (mkc::start_addr.get64(context), mkc::len.get64(context));
    let length64 = mkc::length64.is_set(context);
    // Pages of a umem are those of a range.
    if uses.ring.is_some() && (mode != Mode::Mtt || free || length64) {
        return Err(Status::BadParam.because(0x20_0011));
    }
    if !length64 && start.checked_add(len).is_none() {
        return Err(Status::BadParam.because(0x20_0013));
    }
    // Neither limit counts where the device does not state it.
    let limit = |log: u32| Some(log).filter(|log| *log != 0).and_then(|log| 1_u64.checked_shl(log));
    let longest = limit(hca.caps.general(cmd_hca_cap::log_max_mrw_sz));
    if !length64 && longest.is_some_and(|longest| len > longest) {
        return Err(Status::BadParam.because(0x20_001a));
    }
    match mode {
        Mode::Physical => {}
        Mode::Mtt | Mode::Klm | Mode::Ksm => {
            // The size overflowed to no translations at all in a driver once (syndrome 0x3bf6f).
            if octwords == 0 || actual > octwords {
                return Err(Status::BadParam.because(0x3bf6f));
            }
            if mode == Mode::Mtt && !(12..=LOG_LARGEST).contains(&log_page_size) {
                return Err(Status::BadParam.because(0x20_0014));
            }
            // The kernel's mlx5e holds its header keys against this before it makes them.
            let most = limit(hca.caps.general(cmd_hca_cap::log_max_klm_list_size));
            if mode != Mode::Mtt && most.is_some_and(|most| u64::from(octwords) > most) {
                return Err(Status::BadParam.because(0x20_0019));
            }
        }
    }
    let list = create_mkey_in::klm_pas_mtt.tail(input);
    let words = actual as usize * 2;
    if mode != Mode::Physical && uses.ring.is_none() && list.len() < words * 8 {
        return Err(Status::BadInputLength.because(0x20_0015));
    }
    if mode == Mode::Mtt && !free && !length64 {
        let page = 1u128 << log_page_size;
        let span = u128::from(start & (page as u64 - 1)) + u128::from(len);
        if span.div_ceil(page) > words as u128 {
            return Err(Status::BadParam.because(0x20_0016));
        }
    }
    let translation = if mode == Mode::Physical {
        Vec::new()
    } else if let Some(number) = uses.ring {
        let offset = create_mkey_in::mkey_umem_offset.get64(input);
        umem::translation(hca, (number, offset), (start, len), log_page_size)?
    } else {
        list.chunks_exact(8)
            .take(words)
            .map(|c| c.iter().fold(0u64, |acc, &b| (acc << 8) | u64::from(b)))
            .collect()
    };
    let rights = RIGHTS
        .iter()
        .filter(|(field, _)| field.is_set(context))
        .fold(0, |sum, (_, right)| sum | right);
    let index = hca.objects.mkey_numbers.take()?;
    hca.ids.pd.hold(pd)?;
    uses.hold(&mut hca.objects.umem_numbers)?;
    let key = Mkey {
        free,
        mode,
        rights,
        umr_en: mkc::umr_en.is_set(context),
        qpn: mkc::qpn.get(context),
        variant: mkc::mkey_7_0.get(context) as u8,
        length64,
        en_rinval: mkc::en_rinval.is_set(context),
        relaxed_write,
        relaxed_read,
        pd,
        created_in: pd,
        start,
        len,
        log_page_size,
        entry_bits: uses.ring.is_some(),
        uses,
        octwords,
        translation,
    };
    hca.objects.tpt.insert(index, key);
    head_out::number.set(output, index);
    Ok(())
}

/// QUERY_MKEY.
pub(crate) fn query(hca: &mut Hca, input: &[u8], output: &mut [u8]) -> Result<(), Refusal> {
    let index = head_in::number.get(input) & 0xff_ffff;
    let key = hca.objects.tpt.get(index).ok_or(Status::BadResource.because(0x20_1001))?;
    let context = query_mkey_out::memory_key_mkey_entry.bytes_mut(output);
    mkc::free.set(context, u32::from(key.free));
    mkc::umr_en.set(context, u32::from(key.umr_en));
    mkc::access_mode_4_2.set(context, key.mode.bits() >> 2);
    mkc::access_mode_1_0.set(context, key.mode.bits() & 3);
    for (field, right) in RIGHTS {
        field.set(context, u32::from(key.rights & right != 0));
    }
    mkc::qpn.set(context, key.qpn);
    mkc::mkey_7_0.set(context, u32::from(key.variant));
    mkc::length64.set(context, u32::from(key.length64));
    mkc::en_rinval.set(context, u32::from(key.en_rinval));
    mkc::relaxed_ordering_write.set(context, u32::from(key.relaxed_write));
    mkc::relaxed_ordering_read.set(context, u32::from(key.relaxed_read));
    mkc::pd.set(context, key.pd);
    mkc::start_addr.set64(context, key.start);
    mkc::len.set64(context, key.len);
    mkc::log_page_size.set(context, key.log_page_size);
    mkc::translations_octword_size.set(context, key.octwords);
    Ok(())
}

/// DESTROY_MKEY. A key another key is bound to may go: the window above it then fails on use.
pub(crate) fn destroy(hca: &mut Hca, input: &[u8], _output: &mut [u8]) -> Result<(), Refusal> {
    let index = head_in::number.get(input) & 0xff_ffff;
    hca.objects.mkey_numbers.free(index)?;
    if let Some(key) = hca.objects.tpt.remove(index) {
        hca.ids.pd.release(key.created_in);
        key.uses.release(&mut hca.objects.umem_numbers);
    }
    Ok(())
}
