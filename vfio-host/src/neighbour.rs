//! A neighbour with a fixed MAC, as programs write it.

use std::net::IpAddr;

/// The address of a neighbour and its MAC, for `hca_mlx5::Config::neighbours`.
pub type Neighbour = (IpAddr, [u8; 6]);

/// Most of them that an adapter takes.
pub const MOST: usize = 32;

/// Parses `ADDRESS,MAC`, as in `192.168.7.2,02:00:00:00:00:0b`.
pub fn parse(text: &str) -> Result<Neighbour, String> {
    let (addr, mac) =
        text.split_once(',').ok_or("the MAC is missing, as in 192.168.7.2,02:00:00:00:00:0b")?;
    let addr = addr.parse().map_err(|_| format!("{addr} is no address"))?;
    let byte = |text: &str| match text.len() {
        2 if !text.starts_with('+') => u8::from_str_radix(text, 16).ok(),
        _ => None,
    };
    let bytes: Option<Vec<u8>> = mac.split(':').map(byte).collect();
    let bytes = bytes.and_then(|bytes| bytes.try_into().ok());
    Ok((addr, bytes.ok_or_else(|| format!("{mac} is no MAC, as 02:00:00:00:00:0b is"))?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_and_a_mac_are_read_and_anything_else_is_refused() {
        let six = ("fd00::2".parse().unwrap(), [2, 0, 0, 0, 0xff, 0x0b]);
        assert_eq!(parse("fd00::2,02:00:00:00:FF:0b"), Ok(six));
        for (text, named) in [
            ("", "MAC is missing"),
            ("192.168.7.2", "MAC is missing"),
            ("192.168.7,02:00:00:00:00:0b", "192.168.7 is no address"),
            ("192.168.7.2,02:00:00:00:00", "no MAC"),
            ("192.168.7.2,02:00:00:00:00:0b:1", "no MAC"),
            ("192.168.7.2,02:00:00:00:00:+b", "no MAC"),
            ("192.168.7.2,2:0:0:0:0:b", "no MAC"),
            ("192.168.7.2,02-00-00-00-00-0b", "no MAC"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(named), "{text}: {error}");
        }
    }
}
