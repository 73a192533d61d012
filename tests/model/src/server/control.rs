//! The control socket: lines that ask or do something to a function.

use super::function::Function;
use super::sockets::{self, SocketFile};
use super::wires::Impairment;
use crate::wire::impair::Rates;
use std::fmt::Write as _;
use std::io::{self, Read, Write as _};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::PoisonError;

/// The lines of the control socket, for people.
pub const CONTROL: &str = "\
Lines of the control socket:
  Each is answered with any number of lines of data and one that begins with ok or error:. HCA counts
  from 0 in the order of the sockets; numbers are decimal, or hexadecimal with 0x.

  maps HCA                      a line IOVA SIZE RIGHTS for each mapping, by address; rights are r, w or -
  read HCA IOVA LEN             tries a DMA read as a broken device would: ok HEX, or error: and why
  write HCA IOVA LEN [BYTE]     tries a DMA write of LEN times BYTE (0xa5); nothing is written unless all
                                of it may be
  stats HCA                     one line of JSON: counters, refusals, commands by opcode
  complaints HCA                a line for each thing that silicon would let pass although it is wrong
  die HCA [SYNDROME]            the firmware falls
  link HCA up|down              the cable is plugged or pulled
  gone HCA, back HCA            the device falls off the bus (reads give all ones), or returns
  address HCA                   the owner of the physical function gives this virtual one its MAC and GUIDs
  flr HCA                       somebody resets the function
  error HCA, request HCA        signals VFIO's error interrupt, or its device request interrupt
  impair [roce] [KIND=N]...     of a thousand frames (of RoCE, if so said) N are hit, on all wires: KIND is
                                drop, duplicate, corrupt, reorder or pkey (another P_Key, and the ICRC to
                                it); what is not named is 0
  quit                          the server ends";

/// Longest line that is read.
const LONGEST: usize = 4096;
/// Longest probe.
const MOST_PROBE: u64 = 1 << 20;

/// The listener and its clients.
#[derive(Debug)]
pub(super) struct Control {
    listener: UnixListener,
    _file: SocketFile,
    clients: Vec<Option<Client>>,
}

#[derive(Debug)]
struct Client {
    stream: UnixStream,
    line: Vec<u8>,
    unsent: Vec<u8>,
}

/// Result of a line.
enum Done {
    Said(String),
    Quit,
}

impl Control {
    pub(super) fn new(path: &Path) -> io::Result<Self> {
        let (listener, file) = sockets::listen(path)?;
        Ok(Self { listener, _file: file, clients: Vec::new() })
    }

    pub(super) fn listener(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }

    /// Descriptors of the clients, in their order, and whether answers wait there to be fetched.
    pub(super) fn connections(&self) -> impl Iterator<Item = (BorrowedFd<'_>, bool)> {
        let all = self.clients.iter().flatten();
        all.map(|client| (client.stream.as_fd(), !client.unsent.is_empty()))
    }

    pub(super) fn accept(&mut self) {
        while let Ok((stream, _)) = self.listener.accept() {
            if stream.set_nonblocking(true).is_ok() {
                self.clients.push(Some(Client { stream, line: Vec::new(), unsent: Vec::new() }));
            }
        }
    }

    /// Does what the `nth` connection asks; false when it asks for the end.
    pub(super) fn serve(
        &mut self,
        nth: usize,
        functions: &mut [Function],
        impairment: &Impairment,
    ) -> bool {
        let mut running = true;
        if let Some(slot) = self.clients.get_mut(nth) {
            let alive = slot
                .as_mut()
                .is_some_and(|client| client.serve(functions, impairment, &mut running));
            if !alive {
                *slot = None;
            }
        }
        running
    }

    /// Forgets clients that have gone. Not while a turn still counts connections.
    pub(super) fn sweep(&mut self) {
        self.clients.retain(Option::is_some);
    }
}

impl Client {
    /// False when it has gone.
    fn serve(
        &mut self,
        functions: &mut [Function],
        impairment: &Impairment,
        running: &mut bool,
    ) -> bool {
        let mut bytes = [0; 1024];
        // A client must fetch its replies before its next line is served.
        while self.flush() && self.unsent.is_empty() {
            match self.stream.read(&mut bytes) {
                Ok(0) => return false,
                Ok(n) => self.line.extend(bytes.iter().take(n)),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return error.kind() == io::ErrorKind::WouldBlock,
            }
            while let Some(end) = self.line.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.line.drain(..=end).collect();
                let said = match perform(&String::from_utf8_lossy(&line), functions, impairment) {
                    Ok(Done::Said(text)) => text,
                    Ok(Done::Quit) => {
                        *running = false;
                        "ok\n".into()
                    }
                    Err(why) => format!("error: {why}\n"),
                };
                self.unsent.extend_from_slice(said.as_bytes());
            }
            if self.line.len() > LONGEST {
                return false;
            }
        }
        !self.unsent.is_empty()
    }

    /// Sends what the socket takes; false when nobody is there to fetch it.
    fn flush(&mut self) -> bool {
        while !self.unsent.is_empty() {
            match self.stream.write(&self.unsent) {
                Ok(n) => drop(self.unsent.drain(..n)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => {
                    self.unsent.clear();
                    return false;
                }
            }
        }
        true
    }
}

fn number(word: Option<&str>, what: &str) -> Result<u64, String> {
    let word = word.ok_or_else(|| format!("{what} is missing"))?;
    let parsed = match word.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => word.parse(),
    };
    parsed.map_err(|_| format!("{what} {word}: no number"))
}

/// The chances that a line names.
fn rates<'a>(words: impl Iterator<Item = &'a str>) -> Result<(Rates, bool), String> {
    let mut rates = Rates::default();
    let mut only_roce = false;
    for word in words {
        if word == "roce" {
            only_roce = true;
            continue;
        }
        let (kind, chance) =
            word.split_once('=').ok_or_else(|| format!("{word}: KIND=N is wanted"))?;
        let place = match kind {
            "drop" => &mut rates.drop,
            "duplicate" => &mut rates.duplicate,
            "corrupt" => &mut rates.corrupt,
            "reorder" => &mut rates.reorder,
            "pkey" => &mut rates.pkey,
            other => return Err(format!("{other}: no such kind")),
        };
        let chance = number(Some(chance), "N")?;
        let chance = u32::try_from(chance).ok().filter(|n| *n <= 1000);
        *place = chance.ok_or("N: 0 to 1000")?;
    }
    Ok((rates, only_roce))
}

fn perform(
    line: &str,
    functions: &mut [Function],
    impairment: &Impairment,
) -> Result<Done, String> {
    let mut words = line.split_whitespace();
    let verb = words.next().ok_or("empty line")?;
    if verb == "quit" {
        return Ok(Done::Quit);
    }
    if verb == "impair" {
        *impairment.lock().unwrap_or_else(PoisonError::into_inner) = rates(words)?;
        return Ok(Done::Said("ok\n".into()));
    }
    let nth = number(words.next(), "HCA")?;
    let many = functions.len();
    let one = usize::try_from(nth)
        .ok()
        .and_then(|nth| functions.get_mut(nth))
        .ok_or_else(|| format!("HCA {nth}: there are {many}, counted from 0"))?;
    let mut said = String::new();
    match verb {
        "maps" => {
            let maps = one.maps();
            for map in &maps {
                let _ = writeln!(said, "{map}");
            }
            let _ = writeln!(said, "ok {}", maps.len());
        }
        "complaints" => {
            for complaint in one.complaints() {
                let _ = writeln!(said, "{complaint}");
            }
            let _ = writeln!(said, "ok {}", one.complaints().len());
        }
        "stats" => {
            let _ = writeln!(said, "{}\nok", one.report().json());
        }
        "read" | "write" => {
            let iova = number(words.next(), "IOVA")?;
            let length = number(words.next(), "LEN")?;
            if length > MOST_PROBE {
                return Err(format!("LEN {length}: at most {MOST_PROBE}"));
            }
            let length = usize::try_from(length).map_err(|_| "LEN")?;
            let text = |error: crate::host::DmaError| error.to_string();
            if verb == "read" {
                let bytes = one.dma_read(iova, length).map_err(text)?;
                said.push_str("ok ");
                for byte in bytes {
                    let _ = write!(said, "{byte:02x}");
                }
                said.push('\n');
            } else {
                let byte = match words.next() {
                    None => 0xa5,
                    word => u8::try_from(number(word, "BYTE")?).map_err(|_| "BYTE: above 255")?,
                };
                one.dma_write(iova, &vec![byte; length]).map_err(text)?;
                said.push_str("ok\n");
            }
        }
        _ => {
            act(verb, words, one)?;
            said.push_str("ok\n");
        }
    }
    Ok(Done::Said(said))
}

/// Verbs whose answer is that they were done.
fn act<'a>(
    verb: &str,
    mut words: impl Iterator<Item = &'a str>,
    one: &mut Function,
) -> Result<(), String> {
    match verb {
        "die" => {
            let syndrome = match words.next() {
                None => 1,
                word => number(word, "SYNDROME")?,
            };
            let syndrome = u8::try_from(syndrome).ok().filter(|s| *s != 0);
            one.hca().die(syndrome.ok_or("SYNDROME: 1 to 255")?);
        }
        "link" => match words.next() {
            Some("up") => one.hca().set_link(true),
            Some("down") => one.hca().set_link(false),
            _ => return Err("link HCA up|down".into()),
        },
        "gone" => one.set_gone(true),
        "back" => one.set_gone(false),
        "address" => one.hca().give_address(),
        "flr" => one.hca().flr(),
        "error" => one.signal_error(),
        "request" => one.request_back(),
        other => return Err(format!("{other}: no such command")),
    }
    Ok(())
}
