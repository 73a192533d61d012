//! Stand-ins for what identifies a card and its owner: MACs, GUIDs, serial numbers, IP addresses.
//!
//! A name is learned where it first shows and replaced in all bytes and texts from there on, by one
//! of the same length. Equal names have equal stand-ins.

use std::net::IpAddr;

/// A MAC.
pub(crate) type Mac = [u8; 6];

/// The names found so far; the stand-in of each follows from its index.
#[derive(Debug)]
pub(crate) struct Names {
    hides: bool,
    macs: Vec<Mac>,
    guids: Vec<[u8; 8]>,
    ips: Vec<IpAddr>,
    texts: Vec<(String, &'static str)>,
}

/// Replaces each `from` by `to`, which is as long.
fn replace(bytes: &mut [u8], from: &[u8], to: &[u8]) {
    let mut at = 0;
    while let Some(window) = bytes.get_mut(at..at + from.len()) {
        if window == from {
            window.copy_from_slice(to);
            at += from.len();
        } else {
            at += 1;
        }
    }
}

/// The interface identifier that follows from a MAC: its EUI-64, modified or not.
fn eui(mac: Mac, flip: u8) -> [u8; 8] {
    let [a, b, c, d, e, f] = mac;
    [a ^ flip, b, c, 0xff, 0xfe, d, e, f]
}

/// The GUID that vendors make of a MAC.
fn guid(mac: Mac) -> [u8; 8] {
    let [a, b, c, d, e, f] = mac;
    [a, b, c, 3, 0, d, e, f]
}

/// The MAC of an address's solicited-node group, of the address that follows from a MAC.
fn solicited(mac: Mac) -> Mac {
    let [_, _, _, d, e, f] = mac;
    [0x33, 0x33, 0xff, d, e, f]
}

fn mac_stand_in(nth: usize) -> Mac {
    let [high, low] = u16::try_from(nth + 1).unwrap_or(u16::MAX).to_be_bytes();
    [2, 0, 0, 0, high, low]
}

fn guid_stand_in(nth: usize) -> [u8; 8] {
    (0x0200_0000_0000_0001_u64 + nth as u64).to_be_bytes()
}

fn ip_stand_in(ip: IpAddr, nth: usize) -> IpAddr {
    let nth = u8::try_from(nth + 1).unwrap_or(u8::MAX);
    match ip {
        IpAddr::V4(_) => IpAddr::from([192, 0, 2, nth]),
        IpAddr::V6(_) => IpAddr::from([0x2001, 0xdb8, 0, 0, 0, 0, 0, u16::from(nth)]),
    }
}

fn octets(ip: IpAddr) -> Vec<u8> {
    match ip {
        IpAddr::V4(ip) => ip.octets().to_vec(),
        IpAddr::V6(ip) => ip.octets().to_vec(),
    }
}

/// A MAC or a GUID as people write it.
fn words(bytes: &[u8], between: &str) -> String {
    let bytes: Vec<_> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    bytes.join(between)
}

impl Names {
    /// Makes an empty list. It replaces nothing if names are to be kept.
    pub(crate) fn new(hides: bool) -> Self {
        Self { hides, macs: Vec::new(), guids: Vec::new(), ips: Vec::new(), texts: Vec::new() }
    }

    /// Whether names are replaced.
    pub(crate) fn hides(&self) -> bool {
        self.hides
    }

    /// Learns the MAC of a station.
    pub(crate) fn mac(&mut self, mac: Mac) {
        let group = mac[0] & 1 == 1;
        if mac != [0; 6] && !group && !self.macs.contains(&mac) {
            self.macs.push(mac);
        }
    }

    /// Learns a GUID.
    pub(crate) fn guid(&mut self, guid: u64) {
        let guid = guid.to_be_bytes();
        if guid != [0; 8] && guid != [0xff; 8] && !self.guids.contains(&guid) {
            self.guids.push(guid);
        }
    }

    /// Learns an address.
    pub(crate) fn ip(&mut self, ip: IpAddr) {
        if !ip.is_unspecified() && !ip.is_loopback() && !self.ips.contains(&ip) {
            self.ips.push(ip);
        }
    }

    /// Learns a text, such as a path, and its stand-in.
    pub(crate) fn text(&mut self, text: &str, stand_in: &'static str) {
        if text.len() > 2 && !self.texts.iter().any(|(known, _)| known == text) {
            self.texts.push((text.to_owned(), stand_in));
        }
    }

    /// Replaces names in bytes.
    pub(crate) fn scrub(&self, bytes: &mut [u8]) {
        if !self.hides {
            return;
        }
        for (nth, mac) in self.macs.iter().enumerate() {
            let stand_in = mac_stand_in(nth);
            for flip in [0, 2] {
                replace(bytes, &eui(*mac, flip), &eui(stand_in, flip));
            }
            replace(bytes, &solicited(*mac), &solicited(stand_in));
            // Also in the order of a PCI capability.
            let mut serial = eui(*mac, 0);
            serial.reverse();
            replace(bytes, &serial, &eui(stand_in, 0));
        }
        for (nth, guid) in self.guids.iter().enumerate() {
            replace(bytes, guid, &guid_stand_in(nth));
        }
        for (nth, mac) in self.macs.iter().enumerate() {
            replace(bytes, &guid(*mac), &guid(mac_stand_in(nth)));
            replace(bytes, mac, &mac_stand_in(nth));
        }
        for (nth, ip) in self.ips.iter().enumerate() {
            replace(bytes, &octets(*ip), &octets(ip_stand_in(*ip, nth)));
        }
    }

    /// Replaces names in a text.
    pub(crate) fn scrub_text(&self, text: &str) -> String {
        let mut text = text.to_owned();
        if !self.hides {
            return text;
        }
        let mut swap = |from: &str, to: &str| {
            if text.contains(from) {
                text = text.replace(from, to);
            }
        };
        for (from, to) in &self.texts {
            swap(from, to);
        }
        for (nth, guid) in self.guids.iter().enumerate() {
            swap(&words(guid, ""), &words(&guid_stand_in(nth), ""));
        }
        for (nth, mac) in self.macs.iter().enumerate() {
            for between in [":", "-", ""] {
                swap(&words(mac, between), &words(&mac_stand_in(nth), between));
            }
        }
        for (nth, ip) in self.ips.iter().enumerate() {
            swap(&ip.to_string(), &ip_stand_in(*ip, nth).to_string());
        }
        text
    }
}

/// Replaces all that looks like a MAC or an address in a text of somebody else's.
pub(crate) fn blank_macs(text: &str) -> String {
    let hides = |word: &str| {
        let groups = |between: char, count: usize| {
            let parts: Vec<&str> = word.split(between).collect();
            parts.len() >= count
                && parts.iter().all(|part| {
                    part.len() <= 4 && part.bytes().all(|byte| byte.is_ascii_hexdigit())
                })
        };
        // A PCI address has three groups.
        groups(':', 4) || groups('-', 6) || word.parse::<IpAddr>().is_ok()
    };
    let ends = |letter: char| !(letter.is_ascii_hexdigit() || ":-.".contains(letter));
    let mut out = String::new();
    let mut rest = text;
    while !rest.is_empty() {
        let end = rest.find(ends).unwrap_or(rest.len());
        let (word, more) = rest.split_at(end);
        let trimmed = word.trim_matches([':', '.', '-']);
        if hides(trimmed) && !trimmed.is_empty() {
            out.push_str("<address>");
        } else {
            out.push_str(word);
        }
        let skip = more.chars().next().map_or(0, char::len_utf8);
        let (letter, more) = more.split_at(skip);
        out.push_str(letter);
        rest = more;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_one_stand_in_wherever_they_show() {
        let mut names = Names::new(true);
        let mac = [0xb8, 0xce, 0xf6, 0x11, 0x22, 0x33];
        names.mac(mac);
        names.mac([0xff; 6]);
        names.mac([0; 6]);
        names.guid(0xb8ce_f603_0011_2234);
        names.ip("10.1.2.3".parse().unwrap());
        let mut bytes = [&[9][..], &mac, &mac, &eui(mac, 2), &guid(mac), &[10, 1, 2, 3]].concat();
        bytes.extend(0xb8ce_f603_0011_2234_u64.to_be_bytes());
        names.scrub(&mut bytes);
        let own = [2, 0, 0, 0, 0, 1];
        let mut wanted = [&[9][..], &own, &own, &eui(own, 2), &guid(own), &[192, 0, 2, 1]].concat();
        wanted.extend(0x0200_0000_0000_0001_u64.to_be_bytes());
        assert_eq!(bytes, wanted);
        let text = "b8:ce:f6:11:22:33 at 10.1.2.3, b8cef60300112234";
        assert_eq!(names.scrub_text(text), "02:00:00:00:00:01 at 192.0.2.1, 0200000000000001");
    }

    #[test]
    fn lines_of_a_log_lose_their_addresses() {
        let line = "mlx5_core 0000:3b:00.0 ens1: b8:ce:f6:11:22:33, fe80::1:2:3 10.0.0.7 [12.5] ok";
        let wanted = "mlx5_core 0000:3b:00.0 ens1: <address>, <address> <address> [12.5] ok";
        assert_eq!(blank_macs(line), wanted);
    }

    #[test]
    fn nothing_is_replaced_if_names_are_kept() {
        let mut names = Names::new(false);
        names.mac([2, 3, 4, 5, 6, 7]);
        let mut bytes = [2, 3, 4, 5, 6, 7];
        names.scrub(&mut bytes);
        assert_eq!(bytes, [2, 3, 4, 5, 6, 7]);
        assert_eq!(names.scrub_text("02:03:04:05:06:07"), "02:03:04:05:06:07");
    }
}
