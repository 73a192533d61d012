//! Options of the demo.

use std::path::PathBuf;

use clap::Parser;

/// Connects two Interface Adapters over two emulated mlx5 HCAs and moves data between them.
#[derive(Parser, Clone, Debug)]
#[command(name = "cargo xtask demo", version)]
pub struct Options {
    /// Per cent of the frames that the wire loses, each way
    #[arg(long, default_value_t = 0.0, value_name = "PERCENT", value_parser = percent)]
    pub loss: f64,
    /// Path MTU: 256, 512, 1024, 2048 or 4096
    #[arg(long, default_value_t = 4096, value_parser = mtu)]
    pub mtu: u16,
    /// Bytes of one bulk transfer (K and M are understood)
    #[arg(long, default_value = "64K", value_parser = size)]
    pub size: usize,
    /// Bulk transfers
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub count: u32,
    /// Link layer of both ports: Ethernet, or InfiniBand, where one side manages the subnet
    #[arg(long, value_enum, default_value_t = Link::Eth)]
    pub link: Link,
    /// IPv6 addresses
    #[arg(long)]
    pub ipv6: bool,
    /// 802.1Q VLAN of both ports
    #[arg(long, conflicts_with = "link", value_parser = clap::value_parser!(u16).range(1..=4094))]
    pub vlan: Option<u16>,
    /// Writes every frame on the wire to a capture file
    #[arg(long, value_name = "FILE")]
    pub pcap: Option<PathBuf>,
    /// Writes every device command in mlx5_core's own hexdump form
    #[arg(long, value_name = "FILE")]
    pub trace: Option<PathBuf>,
    /// Prints the table as JSON
    #[arg(long)]
    pub json: bool,
    /// Seed of every random choice
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
}

/// A link layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Link {
    /// Ethernet, with RoCE v2.
    Eth,
    /// InfiniBand.
    Ib,
}

/// Most bytes of one transfer: more than this says nothing new and only takes longer.
const MOST: usize = 16 << 20;

fn percent(text: &str) -> Result<f64, String> {
    match text.trim_end_matches('%').parse::<f64>() {
        Ok(value) if (0.0..=50.0).contains(&value) => Ok(value),
        Ok(_) => Err("more than half of all frames lost is no wire; give 0 to 50".into()),
        Err(error) => Err(error.to_string()),
    }
}

fn mtu(text: &str) -> Result<u16, String> {
    match text.parse() {
        Ok(value @ (256 | 512 | 1024 | 2048 | 4096)) => Ok(value),
        _ => Err("a path MTU is 256, 512, 1024, 2048 or 4096".into()),
    }
}

fn size(text: &str) -> Result<usize, String> {
    let (digits, unit) = match text.to_ascii_uppercase() {
        t if t.ends_with('K') => (t[..t.len() - 1].to_owned(), 1 << 10),
        t if t.ends_with('M') => (t[..t.len() - 1].to_owned(), 1 << 20),
        t => (t, 1),
    };
    let value: usize = digits.parse().map_err(|error| format!("{error}"))?;
    match value.checked_mul(unit) {
        Some(bytes @ 1..=MOST) => Ok(bytes),
        _ => Err("a transfer has 1 byte to 16M".into()),
    }
}
