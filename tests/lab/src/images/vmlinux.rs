//! A kernel that QEMU enters without decompressing it: the ELF file inside a bzImage.
//!
//! Under emulation the kernel's own decompressor costs seconds of every boot. The layout of the
//! header is that of `Documentation/arch/x86/boot.rst` in the Linux source.

use std::io::Write;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, anyhow, bail, ensure};

const ELF: &[u8] = b"\x7fELF";
const BOOT: &[u8] = b"HdrS";

fn byte(image: &[u8], at: usize) -> Result<usize> {
    image.get(at).map(|&b| b.into()).ok_or_else(|| anyhow!("the kernel is too short"))
}

fn word(image: &[u8], at: usize) -> Result<usize> {
    let bytes = image.get(at..at + 4).and_then(|b| b.try_into().ok());
    let bytes = bytes.ok_or_else(|| anyhow!("the kernel is too short"))?;
    Ok(usize::try_from(u32::from_le_bytes(bytes))?)
}

/// The version that a bzImage names, as in `/lib/modules`.
pub(crate) fn version(image: &[u8]) -> Result<String> {
    let text = if image.starts_with(ELF) {
        let mark = b"Linux version ";
        let at = image.windows(mark.len()).position(|w| w == mark);
        let at = at.ok_or_else(|| anyhow!("the kernel does not name its version"))?;
        image.get(at + mark.len()..)
    } else {
        let at = byte(image, 0x20e)? | byte(image, 0x20f)? << 8;
        image.get(at + 0x200..)
    };
    let word = text.unwrap_or_default().split(|b| *b == b' ' || *b == 0);
    let word = word.into_iter().next().unwrap_or_default();
    Ok(String::from_utf8_lossy(word).into_owned())
}

/// The ELF file of a kernel. `tool` gives the command of a decompressor.
pub(crate) fn extract(image: &[u8], tool: impl Fn(&str) -> Result<Command>) -> Result<Vec<u8>> {
    if image.starts_with(ELF) {
        return Ok(image.to_vec());
    }
    ensure!(
        image.get(0x202..0x206) == Some(BOOT),
        "the kernel is neither an ELF file nor a bzImage"
    );
    let sectors = match byte(image, 0x1f1)? {
        0 => 4,
        n => n,
    };
    let start = (sectors + 1) * 512 + word(image, 0x248)?;
    let payload = image
        .get(start..start + word(image, 0x24c)?)
        .ok_or_else(|| anyhow!("the kernel's payload lies outside the file"))?;
    let command = match payload {
        [0xfd, b'7', b'z', b'X', b'Z', ..] => {
            let mut xz = tool("xz")?;
            xz.args(["-dc", "--single-stream"]);
            xz
        }
        [0x28, 0xb5, 0x2f, 0xfd, ..] => {
            let mut zstd = tool("zstd")?;
            zstd.arg("-dcq");
            zstd
        }
        [0x1f, 0x8b, ..] => {
            let mut gzip = tool("gzip")?;
            gzip.arg("-dcq");
            gzip
        }
        _ => bail!("the kernel is packed in a way that is not known here"),
    };
    // Four bytes of size follow the packed kernel, of which the tools complain behind complete
    // output.
    let elf = filter(command, payload)?;
    ensure!(elf.starts_with(ELF), "what was packed in the kernel is no ELF file");
    Ok(elf)
}

/// What `command` makes of `input`, whatever it says of it.
pub(crate) fn filter(mut command: Command, input: &[u8]) -> Result<Vec<u8>> {
    let shown = crate::run::shown(&command);
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .with_context(|| format!("cannot start `{shown}`"))?;
    let mut stdin = child.stdin.take().context("no standard input")?;
    let output = std::thread::scope(|scope| {
        // A tool that has seen enough closes its end.
        scope.spawn(move || stdin.write_all(input));
        child.wait_with_output()
    })?;
    Ok(output.stdout)
}
