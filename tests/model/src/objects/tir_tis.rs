//! Steering ends: TIS (send side), TIR and RQT (receive side).

use super::rss::Hashing;
use crate::cmd::{Refusal, Status};
use crate::hca::Hca;
use crate::ifc::cmd::{head_in, head_out};
use crate::ifc::wq::{modify_tir_bitmask as chosen, rqt_in, rqtc, tir_in, tirc, tis_in, tisc};

/// Where a TIR hands its packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dispatch {
    /// One receive queue.
    Direct(u32),
    /// A table of receive queues.
    Indirect(u32),
}

/// A receive interface.
#[derive(Debug)]
pub(crate) struct Tir {
    /// Where packets go.
    pub(crate) dispatch: Dispatch,
    /// Hash that spreads packets over the queues of a table.
    pub(crate) hashing: Hashing,
    /// Frames of its own transport domain that it takes: bit 0 unicast, bit 1 multicast. The
    /// interface header calls the field `self_lb_block`, but three drivers set it where they
    /// want their own frames back, and have them.
    takes_own: u32,
    domain: u32,
}

impl Tir {
    /// Whether it turns away a frame that a queue of this transport domain sent.
    pub(crate) fn turns_away(&self, domain: u32, frame: &[u8]) -> bool {
        let multicast = frame.first().is_some_and(|first| first & 1 != 0);
        domain == self.domain && self.takes_own & if multicast { 2 } else { 1 } == 0
    }
}

/// A send interface.
#[derive(Debug)]
pub(crate) struct Tis {
    /// Transport domain.
    pub(crate) domain: u32,
}

/// A table of receive queues.
#[derive(Debug)]
pub(crate) struct Rqt {
    /// The queues.
    pub(crate) queues: Vec<u32>,
    most: usize,
}

impl Rqt {
    /// The queue for a hash: its low bits are the index.
    pub(crate) fn pick(&self, hash: u32) -> Option<u32> {
        let last = self.queues.len().checked_sub(1)?;
        self.queues.get(hash as usize & last).copied()
    }
}

/// CREATE_TIS.
pub(crate) fn create_tis(hca: &mut Hca, input: &[u8], output: &mut [u8]) -> Result<(), Refusal> {
    let domain = tisc::transport_domain.get(tis_in::tisc.bytes(input));
    if !hca.ids.td.contains(domain) {
        return Err(Status::BadResource.because(0x91_2010));
    }
    let number = hca.objects.tis_numbers.take()?;
    hca.ids.td.hold(domain)?;
    hca.objects.tiss.insert(number, Tis { domain });
    head_out::number.set(output, number);
    Ok(())
}

/// MODIFY_TIS: priority and LAG affinity, which nothing here depends on.
pub(crate) fn modify_tis(hca: &mut Hca, input: &[u8], _output: &mut [u8]) -> Result<(), Refusal> {
    let number = head_in::number.get(input) & 0xff_ffff;
    if !hca.objects.tiss.contains_key(&number) {
        return Err(Status::BadResource.because(0x91_3001));
    }
    Ok(())
}

/// DESTROY_TIS: refused while an SQ uses it.
pub(crate) fn destroy_tis(hca: &mut Hca, input: &[u8], _output: &mut [u8]) -> Result<(), Refusal> {
    let number = head_in::number.get(input) & 0xff_ffff;
    hca.objects.tis_numbers.free(number)?;
    if let Some(tis) = hca.objects.tiss.remove(&number) {
        hca.ids.td.release(tis.domain);
    }
    Ok(())
}

/// CREATE_TIR.
pub(crate) fn create_tir(hca: &mut Hca, input: &[u8], output: &mut [u8]) -> Result<(), Refusal> {
    let context = tir_in::tirc.bytes(input);
    let domain = tirc::transport_domain.get(context);
    if !hca.ids.td.contains(domain) {
        return Err(Status::BadResource.because(0x90_0010));
    }
    let dispatch = match tirc::disp_type.get(context) {
        0 => Dispatch::Direct(tirc::inline_rqn.get(context)),
        1 => Dispatch::Indirect(tirc::indirect_table.get(context)),
        _ => return Err(Status::BadParam.because(0x90_0011)),
    };
    check_hash(context)?;
    match dispatch {
        Dispatch::Direct(rqn) if !hca.objects.rqs.contains_key(&rqn) => {
            return Err(Status::BadResource.because(0x90_0013));
        }
        Dispatch::Direct(rqn) => hca.objects.queue_numbers.hold(rqn)?,
        Dispatch::Indirect(rqtn) => hca.objects.rqt_numbers.hold(rqtn)?,
    }
    let number = hca.objects.tir_numbers.take()?;
    hca.ids.td.hold(domain)?;
    let tir = Tir {
        dispatch,
        hashing: Hashing::of(context),
        takes_own: tirc::self_lb_block.get(context),
        domain,
    };
    hca.objects.tirs.insert(number, tir);
    head_out::number.set(output, number);
    Ok(())
}

/// 0 none, 1 inverted XOR8, 2 Toeplitz; with fields to hash over only Toeplitz is accepted (one
/// driver sent 1 for years until newer firmware refused it).
fn check_hash(context: &[u8]) -> Result<(), Refusal> {
    let hashed = tirc::rx_hash_field_selector_outer.is_set(context);
    let function = tirc::rx_hash_fn.get(context);
    if function > 2 || (hashed && function == 1) {
        return Err(Status::BadParam.because(0x90_0012));
    }
    Ok(())
}

/// MODIFY_TIR: what the bitmask names of the hash and of own frames; LRO is not offered.
pub(crate) fn modify_tir(hca: &mut Hca, input: &[u8], _output: &mut [u8]) -> Result<(), Refusal> {
    let number = head_in::number.get(input) & 0xff_ffff;
    let context = tir_in::tirc.bytes(input);
    let bits = tir_in::modify_bitmask.bytes(input);
    let tir = hca.objects.tirs.get_mut(&number).ok_or(Status::BadResource.because(0x90_1001))?;
    if chosen::packet_merge.is_set(bits) && tirc::packet_merge_mask.is_set(context) {
        return Err(Status::BadParam.because(0x90_1002));
    }
    if chosen::hash.is_set(bits) {
        check_hash(context)?;
        tir.hashing = Hashing::of(context);
    }
    if chosen::self_lb_en.is_set(bits) {
        tir.takes_own = tirc::self_lb_block.get(context);
    }
    Ok(())
}

/// DESTROY_TIR: refused while a flow entry leads to it.
pub(crate) fn destroy_tir(hca: &mut Hca, input: &[u8], _output: &mut [u8]) -> Result<(), Refusal> {
    let number = head_in::number.get(input) & 0xff_ffff;
    hca.objects.tir_numbers.free(number)?;
    if let Some(tir) = hca.objects.tirs.remove(&number) {
        hca.ids.td.release(tir.domain);
        match tir.dispatch {
            Dispatch::Direct(rqn) => hca.objects.queue_numbers.release(rqn),
            Dispatch::Indirect(rqtn) => hca.objects.rqt_numbers.release(rqtn),
        }
    }
    Ok(())
}

fn rq_list(hca: &Hca, input: &[u8]) -> Result<Vec<u32>, Refusal> {
    let context = rqt_in::rqtc.bytes(input);
    let count = rqtc::rqt_actual_size.get(context) as usize;
    let list: Vec<u32> = rqt_in::rq_num
        .tail(input)
        .chunks_exact(4)
        .take(count)
        .map(|c| u32::from_be_bytes([0, c[1], c[2], c[3]]))
        .collect();
    if list.len() != count || !count.is_power_of_two() {
        return Err(Status::BadParam.because(0x91_6010));
    }
    if list.iter().any(|rqn| !hca.objects.rqs.contains_key(rqn)) {
        return Err(Status::BadResource.because(0x91_6011));
    }
    Ok(list)
}

/// CREATE_RQT.
pub(crate) fn create_rqt(hca: &mut Hca, input: &[u8], output: &mut [u8]) -> Result<(), Refusal> {
    let queues = rq_list(hca, input)?;
    let most = rqtc::rqt_max_size.get(rqt_in::rqtc.bytes(input)) as usize;
    if queues.len() > most {
        return Err(Status::BadParam.because(0x91_6012));
    }
    let number = hca.objects.rqt_numbers.take()?;
    for &rqn in &queues {
        hca.objects.queue_numbers.hold(rqn)?;
    }
    hca.objects.rqts.insert(number, Rqt { queues, most });
    head_out::number.set(output, number);
    Ok(())
}

/// MODIFY_RQT: another list.
pub(crate) fn modify_rqt(hca: &mut Hca, input: &[u8], _output: &mut [u8]) -> Result<(), Refusal> {
    let number = head_in::number.get(input) & 0xff_ffff;
    let queues = rq_list(hca, input)?;
    let objects = &mut hca.objects;
    let rqt = objects.rqts.get_mut(&number).ok_or(Status::BadResource.because(0x91_7001))?;
    if queues.len() > rqt.most {
        return Err(Status::BadParam.because(0x91_7002));
    }
    for &rqn in &queues {
        objects.queue_numbers.hold(rqn)?;
    }
    for rqn in core::mem::replace(&mut rqt.queues, queues) {
        objects.queue_numbers.release(rqn);
    }
    Ok(())
}

/// DESTROY_RQT: refused while a TIR uses it.
pub(crate) fn destroy_rqt(hca: &mut Hca, input: &[u8], _output: &mut [u8]) -> Result<(), Refusal> {
    let number = head_in::number.get(input) & 0xff_ffff;
    hca.objects.rqt_numbers.free(number)?;
    if let Some(rqt) = hca.objects.rqts.remove(&number) {
        for rqn in rqt.queues {
            hca.objects.queue_numbers.release(rqn);
        }
    }
    Ok(())
}
