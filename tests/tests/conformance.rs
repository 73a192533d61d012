//! The conformance suite on the loop provider and on the driver over the model in process, by
//! Ethernet and by InfiniBand: one test for each case on each.
//!
//! `dat_tests::conformance` has the cases and says how to add one. The same cases run in a guest:
//! `cargo xtask qemu-test conformance`.
#![expect(
    clippy::panic,
    clippy::unwrap_used,
    reason = "test code: a panic here is a failed test with a line number"
)]

mod conformance {
    /// On the loop provider.
    mod loopback {
        macro_rules! tests {
            ($group:ident: $($case:ident)*) => {
                mod $group {
                    $(
                        #[test]
                        fn $case() {
                            use dat_tests::conformance::{$group, loopback};
                            loopback::run(|ias| $group::$case(ias));
                        }
                    )*
                }
            };
        }
        dat_tests::conformance_groups!(tests);
    }

    /// On the driver over the model.
    mod model {
        macro_rules! tests {
            ($group:ident: $($case:ident)*) => {
                mod $group {
                    $(
                        #[test]
                        fn $case() {
                            use dat_tests::conformance::{$group, hosted};
                            use mlx5_model::LinkLayer;
                            hosted::run(LinkLayer::Ethernet, |ias| $group::$case(ias));
                        }
                    )*
                }
            };
        }
        dat_tests::conformance_groups!(tests);
    }

    /// The same on ports of InfiniBand.
    mod infiniband {
        macro_rules! tests {
            ($group:ident: $($case:ident)*) => {
                mod $group {
                    $(
                        #[test]
                        fn $case() {
                            use dat_tests::conformance::{$group, hosted};
                            use mlx5_model::LinkLayer;
                            hosted::run(LinkLayer::InfiniBand, |ias| $group::$case(ias));
                        }
                    )*
                }
            };
        }
        dat_tests::conformance_groups!(tests);
    }

    /// The tables of rules.
    mod rules {
        use std::collections::BTreeSet;
        use std::path::Path;

        /// Rules at the least.
        const LEAST: usize = 1050;

        /// The lines of all tables as columns.
        fn table() -> Vec<[String; 4]> {
            let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../src/conformance/rules");
            let mut rows = Vec::new();
            for file in std::fs::read_dir(folder).unwrap() {
                let text = std::fs::read_to_string(file.unwrap().path()).unwrap();
                let lines = text.lines().map(str::trim);
                for line in lines.filter(|line| !line.is_empty() && !line.starts_with('#')) {
                    let columns: Vec<_> = line.split('|').map(|c| c.trim().to_owned()).collect();
                    rows.push(columns.try_into().unwrap_or_else(|_| panic!("{line}")));
                }
            }
            rows
        }

        /// Every case by name, in order.
        fn cases() -> Vec<&'static str> {
            let mut all = Vec::new();
            macro_rules! names {
                ($group:ident: $($case:ident)*) => {
                    $(all.push(concat!(stringify!($group), "::", stringify!($case)));)*
                };
            }
            dat_tests::conformance_groups!(names);
            all
        }

        #[test]
        fn every_rule_has_a_case_and_every_case_a_rule() {
            let table = table();
            let cases = cases();
            let listed: BTreeSet<&str> = cases.iter().copied().collect();
            assert_eq!(listed.len(), cases.len(), "a case is listed twice");
            let ruled: BTreeSet<&str> = table.iter().map(|row| row[3].as_str()).collect();
            let lost: Vec<_> = ruled.difference(&listed).collect();
            assert!(lost.is_empty(), "no such case: {lost:?}");
            let lonely: Vec<_> = listed.difference(&ruled).collect();
            assert!(lonely.is_empty(), "no rule: {lonely:?}");
            let rules: BTreeSet<_> = table.iter().map(|row| (&row[0], &row[1])).collect();
            assert_eq!(rules.len(), table.len(), "a rule stands twice");
            assert!(table.len() >= LEAST, "{} rules", table.len());
        }
    }
}
