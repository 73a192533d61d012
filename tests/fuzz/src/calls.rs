//! Programs of uDAPL calls, as a C consumer makes them through the dispatch table: any handles that
//! it ever had or never had, any numbers, any structures. What DAT asks of a consumer it does: an
//! address is valid for its call, or null.
//!
//! All programs of a process share one HCA of the model behind a socket; each opens an Interface
//! Adapter on it, and closes it abruptly. Time and threads are real.
#![expect(unsafe_code, reason = "calls functions by their addresses in a table, as C does")]

use std::ffi::{CString, c_void};
use std::sync::OnceLock;

use arbitrary::{Arbitrary, Unstructured};
use mlx5_model::server::{Handle, Server, Settings};

/// A call of any signature: its arguments are integers and addresses, or pairs of them, which the
/// ABI of x86-64 passes like these; a callee does not look at those that it does not have.
type Call = extern "C" fn(u64, u64, u64, u64, u64, u64, u64, u64, u64, u64, u64, u64, u64) -> u32;

/// Arguments of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Arg {
    /// The first handle: any that this program has had.
    First,
    /// Any handle, or any address.
    Other,
    Number,
    Long,
    /// Microseconds of a wait.
    Time,
    /// A structure that the call reads.
    In,
    /// One that it fills.
    Out,
    /// Where a new handle goes.
    New,
    /// Number of segments, and the list.
    List,
    /// Length of private data, and the data.
    Data,
    Address,
    /// Function and data of an agent: none.
    Agent,
    /// A piece of memory.
    Memory,
}
use Arg::*;

/// Offset in the table, and arguments, as `udat.h` has them.
const CALLS: &[(usize, &[Arg])] = &[
    (24, &[First, New, Long, Out, Long, Out]),
    (40, &[First, Long]),
    (48, &[First, Out]),
    (56, &[First, Out]),
    (64, &[First, Agent, New]),
    (80, &[First, Number, Out]),
    (88, &[First]),
    (96, &[First, Time, Out]),
    (104, &[First, Number, Out]),
    (112, &[First, Other, Data]),
    (120, &[First, Data]),
    (128, &[First, Long]),
    (136, &[First, Number, Other, Number, New]),
    (136, &[First, Number, Other, Number, New]),
    (144, &[First, Number, Out]),
    (152, &[First, Other]),
    (160, &[First]),
    (168, &[First]),
    (176, &[First, Time, Number, Out, Out]),
    (184, &[First, Number]),
    (192, &[First, In]),
    (200, &[First, Out]),
    (208, &[First]),
    (216, &[First, Other, Other, Other, Other, In, New]),
    (216, &[First, Other, Other, Other, Other, In, New]),
    (224, &[First, Long, Out]),
    (232, &[First, Long, In]),
    (240, &[First, Address, Long, Time, Data, Number, Number]),
    (248, &[First, Other, Time, Data, Number]),
    (256, &[First, Number]),
    (264, &[First, List, Long, Number]),
    (272, &[First, List, Long, Number]),
    (280, &[First, List, Long, In, Number]),
    (288, &[First, List, Long, In, Number]),
    (296, &[First, Out, Out, Out]),
    (304, &[First]),
    (312, &[First, Number, Memory, Other, Number, Number, New, Out, Out, Out, Out]),
    (320, &[First, Number, Out]),
    (328, &[First]),
    (336, &[First, New]),
    (344, &[First, Number, Out]),
    (352, &[First, Other, In, Number, Number, Other, Long, Number, Out]),
    (360, &[First]),
    (368, &[First, Long, Other, Number, New]),
    (376, &[First, Number, Out]),
    (384, &[First]),
    (392, &[First, Long, Other, Other, New]),
    (400, &[First, Number, Out]),
    (408, &[First]),
    (416, &[First, New]),
    (424, &[First, Number, Out]),
    (432, &[First]),
    (440, &[First, Out, Other, Number, New]),
    (448, &[First]),
    (456, &[First]),
    (464, &[First]),
    (488, &[First, Other, Other, Other, Other, Other, In, New]),
    (496, &[First, Out, Out]),
    (504, &[First, Number, Number]),
    (512, &[First, Other, In, New]),
    (520, &[First]),
    (528, &[First, List, Long]),
    (536, &[First, Number, Out]),
    (544, &[First, Number]),
    (552, &[First, Number]),
    (560, &[First, In, Address, Other, New]),
    (568, &[First, Number, Out]),
    (576, &[First]),
    (584, &[First, Address, Time, Data]),
    (592, &[First, New]),
    (600, &[First, List, Long, Number, Number, Number]),
    (608, &[First, In, Long, In, Number]),
    (624, &[First, Out]),
];
const IA_OPEN: usize = 16;
pub(crate) const IA_CLOSE: usize = 32;

fn shared() -> &'static Shared {
    static SHARED: OnceLock<Shared> = OnceLock::new();
    SHARED.get_or_init(|| Shared::start("calls", 1))
}

/// HCAs of the model on one wire, which all programs share, and a line of `dat.conf` for each.
pub(crate) struct Shared {
    _server: Handle,
    names: Vec<CString>,
    /// Dispatch table of the first; they differ in the name only.
    table: usize,
}

impl Shared {
    /// HCA n of a target has the address 192.168.7.n, counted from 1.
    pub(crate) fn start(target: &str, hcas: usize) -> Self {
        let name = |nth| format!("dat-fuzz-{target}-{}-{nth}", std::process::id());
        let sockets: Vec<_> = (1..=hcas).map(|nth| std::env::temp_dir().join(name(nth))).collect();
        let device = dat_tests::bringup::light();
        let server = Server::start(Settings::with_device(&device, sockets.clone())).unwrap();
        let (mut names, mut table) = (Vec::new(), 0);
        for (nth, socket) in (1..).zip(&sockets) {
            let text = format!(
                "vfio-user:{} ip=192.168.7.{nth}/24 endpoints=16 memory=8 log=off",
                socket.display()
            );
            let name = CString::new(name(nth)).unwrap();
            table = dapldat::add_line(&name, &text).unwrap() as usize;
            names.push(name);
        }
        let shared = Self { _server: server, names, table };
        for (nth, socket) in sockets.iter().enumerate() {
            // Stays open, and the HCA with it.
            assert_ne!(shared.open(nth)[1], 0, "the HCA does not open");
            let _ = std::fs::remove_file(socket);
        }
        shared
    }

    /// Opens an Interface Adapter on an HCA: its asynchronous Event Dispatcher, and itself.
    pub(crate) fn open(&self, hca: usize) -> [u64; 2] {
        let mut handles = [0_u64; 2];
        let [async_evd, ia] = handles.each_mut().map(std::ptr::from_mut);
        let name = self.names[hca].as_ptr() as u64;
        let refused = self.call(IA_OPEN, &[name, 8, async_evd as u64, ia as u64]);
        assert_eq!(refused, 0, "dat_ia_open: {refused:#x}");
        handles
    }

    /// Calls the function at an offset of the table.
    pub(crate) fn call(&self, offset: usize, args: &[u64]) -> u32 {
        let entry = (self.table + offset) as *const *const c_void;
        // SAFETY: the table is never freed and has an address at each of these offsets.
        let address = unsafe { *entry };
        // SAFETY: it is that of a function whose arguments are passed as this type's.
        let call = unsafe { std::mem::transmute::<*const c_void, Call>(address) };
        let mut all = [0; 13];
        all[..args.len()].copy_from_slice(args);
        let [a, b, c, d, e, f, g, h, i, j, k, l, m] = all;
        call(a, b, c, d, e, f, g, h, i, j, k, l, m)
    }
}

/// Bytes of a program's memory, and of a page.
pub(crate) const LEN: u64 = 1 << 14;
const PAGE: u64 = 4096;

/// Handles that a program remembers.
const POOL: usize = 64;

struct Program {
    handles: Vec<u64>,
    /// Structures that calls read, fill, and where handles go. 8 bytes each, so aligned.
    input: [u64; 64],
    output: [[u64; 256]; 5],
    list: [[u64; 3]; 8],
    data: [u8; 256],
    address: [u8; 28],
}

/// Runs the target.
pub fn run(data: &[u8]) {
    let shared = shared();
    let [async_evd, ia] = shared.open(0);
    let mut program = Program {
        handles: vec![ia, async_evd],
        input: [0; 64],
        output: [[0; 256]; 5],
        list: [[0; 3]; 8],
        data: [0x5a; 256],
        address: [0; 28],
    };
    let mut bytes = Unstructured::new(data);
    for _ in 0..48 {
        if bytes.is_empty() || program.step(shared, &mut bytes).is_err() {
            break;
        }
    }
    let _ = shared.call(IA_CLOSE, &[ia, 0]);
}

impl Program {
    fn step(&mut self, shared: &Shared, bytes: &mut Unstructured<'_>) -> arbitrary::Result<()> {
        let (offset, args) = CALLS[usize::from(u8::arbitrary(bytes)?) % CALLS.len()];
        let mut words = Vec::new();
        let (mut outputs, mut new) = (0, None);
        for arg in args {
            match arg {
                First => words.push(self.handle(bytes)?),
                Other => words.push(match u8::arbitrary(bytes)? {
                    0 => 0,
                    1 => 0x1234_5678,
                    2 => self.data.as_ptr() as u64,
                    _ => self.handle(bytes)?,
                }),
                Number => words.push(number(bytes)?),
                Long => words.push(if bool::arbitrary(bytes)? {
                    number(bytes)?
                } else {
                    u64::arbitrary(bytes)?
                }),
                Time => words.push(u64::from(u8::arbitrary(bytes)?) * 2),
                In => {
                    let null = self.fill(bytes)?;
                    words.push(if null { 0 } else { self.input.as_ptr() as u64 });
                }
                Out | New => {
                    let to = self.output[outputs].as_mut_ptr();
                    if *arg == New {
                        self.output[outputs][0] = 0;
                        new = Some(outputs);
                    }
                    outputs += 1;
                    words.push(if u8::arbitrary(bytes)? == 255 { 0 } else { to as u64 });
                }
                List => {
                    let count = u64::from(u8::arbitrary(bytes)? % 9);
                    let word = u64::arbitrary(bytes)?;
                    let pages = pages();
                    self.list = std::array::from_fn(|n| [pages, word >> n, word]);
                    words.extend([count, self.list.as_ptr() as u64]);
                }
                Data => {
                    words.extend([u64::from(u8::arbitrary(bytes)?), self.data.as_ptr() as u64]);
                }
                Address => {
                    let family = [2, 10, 0, 7][usize::from(u8::arbitrary(bytes)? % 4)];
                    self.address = [0; 28];
                    self.address[0] = family;
                    self.address[4..8].copy_from_slice(&[192, 168, 7, u8::arbitrary(bytes)?]);
                    words.push(self.address.as_ptr() as u64);
                }
                Agent => words.extend([number(bytes)?, 0]),
                Memory => {
                    // With the name of shared memory where the description has its address.
                    let at = u64::from(u16::arbitrary(bytes)?) % LEN;
                    let len = u64::from(u16::arbitrary(bytes)?);
                    words.extend([pages() + at, self.data.as_ptr() as u64, len.min(LEN - at)]);
                }
            }
        }
        let returned = shared.call(offset, &words);
        if returned == 0 {
            if let Some(new) = new {
                if self.output[new][0] != 0
&& self.handles.len() < POOL
            // What a query gives is the Interface Adapter's.
&& offset != 24
                {
                    self.handles.push(self.output[new][0]);
                }
            }
        }
        Ok(())
    }

    /// Any of the handles that the program has had.
    fn handle(&self, bytes: &mut Unstructured<'_>) -> arbitrary::Result<u64> {
        let number = usize::from(u8::arbitrary(bytes)?) % self.handles.len();
        Ok(self.handles[number])
    }

    /// Puts any bytes into the structure that is read next, without the addresses that some have.
    /// Whether none is given instead.
    fn fill(&mut self, bytes: &mut Unstructured<'_>) -> arbitrary::Result<bool> {
        /// Addresses of `DAT_EP_ATTR`, and of `DAT_EP_PARAM` with one in it, as words.
        const ADDRESSES: [usize; 6] = [8, 10, 3, 5, 20, 22];
        let (null, fill) = (u8::arbitrary(bytes)? & 3 == 0, u8::arbitrary(bytes)?);
        self.input = [0; 64];
        for word in &mut self.input[..usize::from(fill % 32)] {
            *word = number(bytes)? | number(bytes)? << 32;
        }
        ADDRESSES.into_iter().for_each(|word| self.input[word] = 0);
        Ok(null)
    }
}

/// Address of the memory of all programs, whole pages of it.
pub(crate) fn pages() -> u64 {
    static PAGES: OnceLock<&[u8]> = OnceLock::new();
    let memory = PAGES.get_or_init(|| Box::leak(vec![0; (LEN + PAGE) as usize].into_boxed_slice()));
    (memory.as_ptr() as u64).next_multiple_of(PAGE)
}

/// A small number, a power of two, or any.
pub(crate) fn number(bytes: &mut Unstructured<'_>) -> arbitrary::Result<u64> {
    Ok(match u8::arbitrary(bytes)? {
        n @ 0..0xc0 => u64::from(n & 0x3f),
        n @ 0xc0..0xe0 => 1 << (n & 31),
        n @ 0xe0..0xf0 => (1_u64 << (n & 15)).wrapping_sub(1) & 0xffff_ffff,
        _ => u32::arbitrary(bytes)?.into(),
    })
}
