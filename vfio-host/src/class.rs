//! Traffic classes and priorities, as programs write them.

use dat_core::Qos;
use dat_core::provider::{Class, Net};

/// The names of what a connection can be asked for with, besides best effort.
const NAMES: [(&str, Qos); 4] = [
    ("high-throughput", Qos::HighThroughput),
    ("low-latency", Qos::LowLatency),
    ("economy", Qos::Economy),
    ("premium", Qos::Premium),
];

/// Parses a traffic class: 0 to 255, or 0x00 to 0xff.
pub fn traffic_class(text: &str) -> Result<u8, String> {
    let number = match text.strip_prefix("0x") {
        Some(digits) if !digits.starts_with('+') => u8::from_str_radix(digits, 16),
        Some(_) | None => text.parse(),
    };
    number.map_err(|_| "a traffic class is 0 to 255, or 0x00 to 0xff: four times the DSCP".into())
}

/// Parses a priority: 0 to 7.
pub fn priority(text: &str) -> Result<u8, String> {
    let number = text.parse().ok().filter(|number| *number <= 7);
    number.ok_or_else(|| "a priority is 0 to 7".into())
}

/// Parses `NAME,CLASS,PRIORITY`, as in `premium,0x68,3`, for `hca_mlx5::Config::classes`.
pub fn quality(text: &str) -> Result<(Qos, Class), String> {
    let words: Vec<&str> = text.split(',').collect();
    let [name, class, number] = words[..] else {
        return Err("it is NAME,CLASS,PRIORITY, as in premium,0x68,3".into());
    };
    let known = NAMES.iter().find(|(known, _)| *known == name);
    let (_, qos) = known.ok_or_else(|| {
        format!("{name} is none of high-throughput, low-latency, economy and premium")
    })?;
    let class = Class { traffic_class: traffic_class(class)?, priority: priority(number)? };
    Ok((*qos, class))
}

/// Formats what [`quality`] parses.
#[must_use]
pub fn words(qos: Qos, class: Class) -> String {
    let name = NAMES.iter().find(|(_, known)| *known == qos).map_or("best-effort", |known| known.0);
    format!("{name},{:#04x},{}", class.traffic_class, class.priority)
}

/// Returns what a user should know of a priority that no frame carries.
#[must_use]
pub fn note(class: Class, net: &Net) -> Option<String> {
    let Class { priority, .. } = class;
    (priority != 0 && net.vlan.is_none()).then(|| {
        format!(
            "priority {priority} without a VLAN: frames have no tag for it, so it chooses this \
             port's egress queue only; switches go by the DSCP"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_read_and_anything_else_is_refused() {
        assert_eq!((traffic_class("104"), traffic_class("0xFF")), (Ok(0x68), Ok(0xff)));
        assert_eq!(traffic_class("0"), Ok(0));
        for bad in ["256", "-1", "0x100", "0x", "0x+1", "", "x"] {
            assert!(traffic_class(bad).unwrap_err().contains("0 to 255"), "{bad}");
        }
        assert_eq!((priority("7"), priority("0")), (Ok(7), Ok(0)));
        for bad in ["8", "-1", "0x1", ""] {
            assert!(priority(bad).unwrap_err().contains("0 to 7"), "{bad}");
        }
        let class = Class { traffic_class: 0x68, priority: 3 };
        assert_eq!(quality("premium,0x68,3"), Ok((Qos::Premium, class)));
        for (text, named) in [
            ("premium", "NAME,CLASS,PRIORITY"),
            ("premium,1,2,3", "NAME,CLASS,PRIORITY"),
            ("best-effort,1,2", "best-effort is none of"),
            ("premium,256,3", "0 to 255"),
            ("economy,1,8", "0 to 7"),
        ] {
            assert!(quality(text).unwrap_err().contains(named), "{text}");
        }
        for qos in [Qos::HighThroughput, Qos::LowLatency, Qos::Economy, Qos::Premium] {
            assert_eq!(quality(&words(qos, class)), Ok((qos, class)));
        }
    }

    #[test]
    fn a_priority_that_no_frame_carries_is_noted() {
        let net = Net::new([10, 0, 0, 1].into(), 8);
        let class = Class { traffic_class: 0, priority: 3 };
        assert!(note(class, &net).unwrap().contains("egress queue only"));
        assert_eq!(note(class, &Net { vlan: Some(5), ..net }), None);
        assert_eq!(note(Class::default(), &net), None);
    }
}
