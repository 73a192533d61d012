//! What to mend first: causes before what follows from them.

use serde::Serialize;

use super::{Check, State};

/// The page that has a section for each check.
const PAGE: &str = "docs/doctor.md";

/// All checks. One that fails may be the cause of what fails behind it, and of nothing before it.
pub(crate) const ORDER: [&str; 26] = [
    "IOMMU",
    "no-IOMMU mode",
    "lockdown",
    "VFIO",
    "HCA",
    "device",
    "IOMMU group",
    "in use",
    "at boot",
    "driver_override",
    "driver",
    "IOMMU interface",
    "container",
    "rights",
    "locked memory",
    "DMA entries",
    "opens",
    "firmware",
    "link",
    "MAC",
    "GID",
    "path MTU",
    "node GUID",
    "memory windows",
    "PCI link",
    "huge pages",
];

/// A check that did not pass.
#[derive(Debug, Serialize)]
pub(super) struct Cause<'a> {
    check: &'static str,
    device: Option<&'a str>,
    /// It prevents traffic.
    prevents: bool,
    /// Where it is described.
    page: String,
}

/// Returns what did not pass: what prevents traffic first, causes before what follows from them.
pub(super) fn ranked<'a>(checks: &'a [Check]) -> Vec<Cause<'a>> {
    let mut found: Vec<&Check> = checks.iter().filter(|check| check.state != State::Ok).collect();
    let place = |check: &Check| ORDER.iter().position(|name| *name == check.check);
    found.sort_by_key(|check| (check.state != State::Fail, place(check).unwrap_or(ORDER.len())));
    let cause = |check: &'a Check| Cause {
        check: check.check,
        device: check.device.as_deref(),
        prevents: check.state == State::Fail,
        page: page(check.check),
    };
    found.into_iter().map(cause).collect()
}

/// The section of a check, as the headings of a page become addresses.
pub(crate) fn page(check: &str) -> String {
    format!("{PAGE}#{}", check.to_lowercase().replace(' ', "-"))
}

impl Cause<'_> {
    /// The line for people.
    pub(super) fn line(&self, number: usize) -> String {
        let Self { check, device, page, .. } = self;
        let device = device.map_or_else(String::new, |device| format!(" of {device}"));
        format!("  {number}. {check}{device}: {page}\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn causes_come_before_what_follows_from_them() {
        let checks = [
            Check::new("huge pages", State::Warn, ""),
            Check::new("rights", State::Fail, "").of(&"b"),
            Check::new("link", State::Ok, ""),
            Check::new("driver", State::Fail, "").of(&"a"),
            Check::new("IOMMU", State::Fail, ""),
        ];
        let ranked = ranked(&checks);
        let names: Vec<&str> = ranked.iter().map(|cause| cause.check).collect();
        assert_eq!(names, ["IOMMU", "driver", "rights", "huge pages"]);
        assert_eq!(ranked[1].line(2), "  2. driver of a: docs/doctor.md#driver\n");
        assert!(!ranked[3].prevents);
    }

    /// Each check has its place, and a section in the page.
    #[test]
    fn every_check_has_a_place_and_a_section() {
        let sources = [
            include_str!("access.rs"),
            include_str!("function.rs"),
            include_str!("machine.rs"),
            include_str!("mod.rs"),
            include_str!("../info.rs"),
        ];
        let names = sources.iter().flat_map(|source| source.split("Check::new(").skip(1));
        let names = names.filter_map(|rest| rest.trim_start().strip_prefix('"')?.split('"').next());
        let named = sources.iter().flat_map(|source| source.split("NAME: &str = \"").skip(1));
        let named = named.filter_map(|rest| rest.split('"').next());
        let found: std::collections::BTreeSet<&str> =
            names.chain(named).chain(["IOMMU interface"]).collect();
        assert_eq!(found, ORDER.into_iter().collect());
        let page = include_str!("../../../../docs/doctor.md");
        let sections: Vec<&str> =
            page.lines().filter_map(|line| line.strip_prefix("## ")).collect();
        assert_eq!(sections, ORDER);
    }
}
