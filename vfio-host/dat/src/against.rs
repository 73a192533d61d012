//! `dat info --against FILE`: what differs from an earlier report.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Serialize;
use serde_json::Value;

use super::failure::Failure;
use super::out::table;

/// What differs.
#[derive(Debug, Serialize)]
pub(crate) struct Differences {
    against: String,
    differences: Vec<Difference>,
}

/// A property that differs; `None` where a report does not have it.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct Difference {
    property: String,
    there: Option<String>,
    here: Option<String>,
}

impl Differences {
    /// Compares a report with one in a file, which `dat info --json` has written.
    pub(crate) fn find(report: &impl Serialize, file: &Path) -> Result<Self, Failure> {
        let name = file.display();
        let remedy = "give --against what dat info --json has written";
        let text = std::fs::read_to_string(file)
            .map_err(|error| Failure::usage(format!("{name}: {error}")).remedy(remedy))?;
        let there: Value = serde_json::from_str(&text).map_err(|error| {
            Failure::usage(format!("{name} is no report: {error}")).remedy(remedy)
        })?;
        if there.get("device").is_none() {
            return Err(Failure::usage(format!("{name} is no report of dat info")).remedy(remedy));
        }
        let here = serde_json::to_value(report)
            .map_err(|error| Failure::new(format!("the report cannot be compared: {error}")))?;
        Ok(Self { against: name.to_string(), differences: differences(&there, &here) })
    }

    /// Whether there are none.
    pub(crate) fn none(&self) -> bool {
        self.differences.is_empty()
    }

    /// Returns them as a table.
    pub(crate) fn words(&self) -> String {
        if self.none() {
            return format!("nothing differs from {}\n", self.against);
        }
        let mut rows = vec![["property", &self.against, "here"].map(str::to_owned).to_vec()];
        let cell = |value: &Option<String>| value.clone().unwrap_or_else(|| "-".into());
        rows.extend(self.differences.iter().map(|difference| {
            let Difference { property, there, here } = difference;
            vec![property.clone(), cell(there), cell(here)]
        }));
        table(&rows)
    }
}

fn differences(there: &Value, here: &Value) -> Vec<Difference> {
    let (mut one, mut other) = (BTreeMap::new(), BTreeMap::new());
    flatten("", there, &mut one);
    flatten("", here, &mut other);
    let names: std::collections::BTreeSet<&String> = one.keys().chain(other.keys()).collect();
    let all = names.into_iter().map(|name| Difference {
        property: name.clone(),
        there: one.get(name).cloned(),
        here: other.get(name).cloned(),
    });
    all.filter(|one| one.there != one.here).collect()
}

/// Lists the properties of a value by their paths. The elements of a list stay together: they have no
/// names.
fn flatten(path: &str, value: &Value, into: &mut BTreeMap<String, String>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                flatten(&path, value, into);
            }
        }
        Value::Null => {}
        Value::String(text) => drop(into.insert(path.into(), text.clone())),
        Value::Bool(_) | Value::Number(_) | Value::Array(_) => {
            drop(into.insert(path.into(), value.to_string()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn properties_that_differ_are_found_by_their_paths() {
        let there = json!({ "a": 1, "b": { "c": "x", "d": [1, 2] }, "gone": true, "e": null });
        let here = json!({ "a": 1, "b": { "c": "y", "d": [1, 3] }, "new": {} , "e": 0 });
        let found = differences(&there, &here);
        let of = |property: &str, there: Option<&str>, here: Option<&str>| Difference {
            property: property.into(),
            there: there.map(str::to_owned),
            here: here.map(str::to_owned),
        };
        assert_eq!(
            found,
            [
                of("b.c", Some("x"), Some("y")),
                of("b.d", Some("[1,2]"), Some("[1,3]")),
                of("e", None, Some("0")),
                of("gone", Some("true"), None),
            ]
        );
        assert!(differences(&here, &here).is_empty());
    }
}
