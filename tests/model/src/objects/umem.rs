//! User memory: CREATE_UMEM, DESTROY_UMEM, and what queues, doorbell records and keys take of it.
//!
//! A umem is a list of pages, each with rights, and an offset into the first. Whatever lies in it is
//! named by the number of the umem and an offset in bytes, must lie inside as a whole, and needs the
//! rights on every page that it touches. A umem is not destroyed while something uses it.
//!
//! Linux `struct mlx5_ifc_umem_bits`; rdma-core `mlx5_vfio.c`. Not here: address translation services
//! (`ats`), user contexts: everything is of uid 0, for which `umem_uid_0` is the capability.

use crate::cmd::{Refusal, Status};
use crate::hca::Hca;
use crate::ifc::Field;
use crate::ifc::caps::cmd_hca_cap as cap;
use crate::ifc::cmd::{head_in, head_out};
use crate::ifc::umem::{create_umem_in, mtt, umem};
use crate::numbers::Numbers;
use crate::queue_memory::QueueMemory;

/// Rights of a page, as its entry has them.
pub(crate) const READ: u64 = 1;
pub(crate) const WRITE: u64 = 2;

/// Bits of an entry that are no address.
const NO_ADDRESS: u64 = 0xfff;
/// What a ring begins at is a multiple of this: a page of 4 KiB has 64 places for a ring.
const RING_ALIGNMENT: u64 = 64;
/// Entries of a key in a umem, which no list in a command bounds: 4 GiB of the smallest pages.
const MOST_ENTRIES: u64 = 1 << 20;
/// Bytes of a doorbell record.
const RECORD: u64 = 8;

/// One umem.
#[derive(Debug)]
pub(crate) struct Umem {
    /// Addresses of pages, with the rights in the low bits.
    pages: Vec<u64>,
    page_bits: u32,
    /// Where in the first page it begins.
    offset: u64,
}

/// The umems that an object uses, which it keeps alive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Uses {
    /// That of its ring, or of its pages.
    pub(crate) ring: Option<u32>,
    /// That of its doorbell record.
    pub(crate) record: Option<u32>,
}

impl Uses {
    /// Refers to them.
    pub(crate) fn hold(self, numbers: &mut Numbers) -> Result<(), Refusal> {
        self.each().try_for_each(|number| numbers.hold(number))
    }

    /// Does not refer to them any more.
    pub(crate) fn release(self, numbers: &mut Numbers) {
        self.each().for_each(|number| numbers.release(number));
    }

    fn each(self) -> impl Iterator<Item = u32> {
        [self.ring, self.record].into_iter().flatten()
    }
}

/// The number of a umem that a command names, if the bit beside it says so.
pub(crate) fn named(valid: Field, number: Field, bytes: &[u8]) -> Option<u32> {
    valid.is_set(bytes).then(|| number.get(bytes))
}

/// Where a command says that a ring is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place<'a> {
    /// In a umem, at that offset of it.
    pub(crate) umem: Option<(u32, u64)>,
    /// Else in the pages of this list.
    pub(crate) list: &'a [u8],
    /// log2 of the page, counted from 4 KiB.
    pub(crate) log_page_size: u32,
    /// 64ths of a page into the first of the list.
    pub(crate) page_offset: u32,
}

impl Place<'_> {
    /// The ring, of that many bytes; `short` is the answer to a list that is too short for it.
    pub(crate) fn ring(
        &self,
        hca: &Hca,
        bytes: u64,
        rights: u64,
        short: Refusal,
    ) -> Result<QueueMemory, Refusal> {
        let Some((number, offset)) = self.umem else {
            return QueueMemory::new(self.list, self.log_page_size, self.page_offset, bytes)
                .ok_or(short);
        };
        let umem = find(hca, number)?;
        // The umem says itself where it begins. Of larger pages than its own it promises nothing.
        if self.page_offset != 0 || self.log_page_size + 12 > umem.page_bits {
            return Err(Status::BadParam.because(0xa0_8010));
        }
        let start = umem.part(offset, bytes, rights)?;
        if start % RING_ALIGNMENT != 0 {
            return Err(Status::BadParam.because(0xa0_8011));
        }
        let first = (start >> umem.page_bits) as usize;
        let last = (start + bytes).div_ceil(umem.page()) as usize;
        let pages = umem.pages[first..last].iter().map(|page| page & !NO_ADDRESS).collect();
        Ok(QueueMemory::of_pages(pages, umem.page_bits, start & (umem.page() - 1)))
    }
}

/// Bus address of a doorbell record that is at `address`, of host memory or of a umem, aligned to
/// that many bytes; `askew` is the answer to one that is not.
pub(crate) fn record(
    hca: &Hca,
    umem: Option<u32>,
    address: u64,
    alignment: u64,
    askew: Refusal,
) -> Result<u64, Refusal> {
    let address = match umem {
        None => address,
        Some(number) => {
            let umem = find(hca, number)?;
            // One driver passes the address of the second word.
            let within = address % RECORD;
            let start = umem.part(address - within, RECORD, READ)? + within;
            umem.address(start)
        }
    };
    if address % alignment == 0 { Ok(address) } else { Err(askew) }
}

/// The pages of a key of a range, from an offset of a umem on, as an MTT has them: with rights.
pub(crate) fn translation(
    hca: &Hca,
    (number, offset): (u32, u64),
    (start, len): (u64, u64),
    log_page_size: u32,
) -> Result<Vec<u64>, Refusal> {
    let umem = find(hca, number)?;
    let at = umem.part(offset, len, 0)?;
    let page = 1 << log_page_size;
    // An address and the byte that it names are at the same place of their pages.
    if page > umem.page() || at % page != start % page {
        return Err(Status::BadParam.because(0xa0_8012));
    }
    let first = at - at % page;
    let count = (at + len - first).div_ceil(page);
    if count > MOST_ENTRIES {
        return Err(Status::NoResources.because(0xa0_8016));
    }
    let starts = (0..count).map(|nth| first + nth * page);
    let entry = |at: u64| umem.address(at) | umem.rights(at);
    Ok(starts.map(entry).collect())
}

fn find(hca: &Hca, number: u32) -> Result<&Umem, Refusal> {
    hca.objects.umems.get(&number).ok_or(Status::BadResource.because(0xa0_8013))
}

impl Umem {
    const fn page(&self) -> u64 {
        1 << self.page_bits
    }

    /// Where a part stands in the pages, counted from the first byte of the first page: refused if
    /// it is not inside, or lacks a right.
    fn part(&self, offset: u64, bytes: u64, rights: u64) -> Result<u64, Refusal> {
        let size = (self.pages.len() as u64) << self.page_bits;
        let start = self.offset.checked_add(offset);
        let end = start.and_then(|start| start.checked_add(bytes));
        let (Some(start), Some(_)) = (start, end.filter(|end| *end <= size)) else {
            return Err(Status::BadParam.because(0xa0_8014));
        };
        let pages = start >> self.page_bits..(start + bytes).div_ceil(self.page());
        if pages.into_iter().any(|nth| self.rights(nth << self.page_bits) & rights != rights) {
            return Err(Status::BadParam.because(0xa0_8015));
        }
        Ok(start)
    }

    /// The entry of the page that a byte is in.
    fn entry(&self, at: u64) -> u64 {
        self.pages.get((at >> self.page_bits) as usize).copied().unwrap_or_default()
    }

    fn rights(&self, at: u64) -> u64 {
        self.entry(at) & (READ | WRITE)
    }

    /// Bus address of a byte.
    fn address(&self, at: u64) -> u64 {
        (self.entry(at) & !NO_ADDRESS) + (at & (self.page() - 1))
    }
}

/// CREATE_UMEM.
pub(crate) fn create(hca: &mut Hca, input: &[u8], output: &mut [u8]) -> Result<(), Refusal> {
    if hca.caps.general(cap::umem_uid_0) == 0 {
        return Err(Status::BadOp.because(0xa0_8001));
    }
    let given = create_umem_in::umem.tail(input);
    if umem::ats.is_set(given) {
        return Err(Status::BadParam.because(0xa0_8002));
    }
    let page_bits = umem::log_page_size.get(given) + 12;
    let page = 1_u64 << page_bits;
    let offset = u64::from(umem::page_offset.get(given));
    let count = umem::num_of_mtt.get64(given);
    if count == 0 || offset >= page {
        return Err(Status::BadParam.because(0xa0_8003));
    }
    let list = umem::mtt.tail(given);
    let len = usize::try_from(count).ok().and_then(|count| count.checked_mul(8));
    let list = len.and_then(|len| list.get(..len));
    let list = list.ok_or(Status::BadInputLength.because(0xa0_8004))?;
    let entry = |bytes: &[u8; 8]| {
        let address = u64::from_be_bytes(*bytes) & !NO_ADDRESS;
        let rights = mtt::rd_en.get64(bytes) | mtt::wr_en.get64(bytes) << 1;
        // A page is where its size puts it, below the end of addresses, and of some use.
        let reserved = mtt::reserved_at_38.is_set(bytes) || bytes[6] & 0xf != 0;
        let sound = address % page == 0 && rights != 0 && !reserved;
        sound.then_some(address | rights)
    };
    let list = list.chunks_exact(8).filter_map(<[_]>::first_chunk::<8>);
    let pages: Option<Vec<u64>> = list.map(entry).collect();
    let pages = pages.ok_or(Status::BadParam.because(0xa0_8005))?;
    let number = hca.objects.umem_numbers.take()?;
    hca.objects.umems.insert(number, Umem { pages, page_bits, offset });
    head_out::number.set(output, number);
    Ok(())
}

/// DESTROY_UMEM: refused while a queue, a record or a key is in it.
pub(crate) fn destroy(hca: &mut Hca, input: &[u8], _output: &mut [u8]) -> Result<(), Refusal> {
    let number = head_in::number.get(input) & 0xff_ffff;
    hca.objects.umem_numbers.free(number)?;
    hca.objects.umems.remove(&number);
    Ok(())
}
