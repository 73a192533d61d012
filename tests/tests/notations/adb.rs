//! The register tables of mstflint: XML of nodes and fields. An offset is a byte and a bit in the
//! dword there, counted from the least significant one; a size is bytes and bits.

use std::collections::BTreeMap;

use super::Item;

/// Nodes by name.
#[derive(Debug, Default)]
pub(crate) struct Tables(BTreeMap<String, Vec<Item>>);

impl Tables {
    pub(crate) fn parse(text: &str) -> Self {
        let mut all = BTreeMap::new();
        for node in text.split("<node ").skip(1) {
            let node = node.split("</node>").next().unwrap_or_default();
            let (head, body) = node.split_once('>').unwrap_or((node, ""));
            let fields = body.split("<field ").skip(1).filter_map(item).collect();
            all.insert(attribute(head, "name").unwrap_or_default().to_owned(), fields);
        }
        Self(all)
    }

    pub(crate) fn items(&self, name: &str) -> Option<Vec<Item>> {
        self.0.get(name).cloned()
    }
}

fn attribute<'t>(tag: &'t str, name: &str) -> Option<&'t str> {
    let (_, rest) = tag.split_once(&format!("{name}=\""))?;
    rest.split('"').next()
}

fn item(tag: &str) -> Option<Item> {
    let (byte, low) = offset(attribute(tag, "offset")?)?;
    let (bytes, bits) = offset(attribute(tag, "size")?)?;
    let (at, width) = (8 * byte, 8 * bytes + bits);
    // Within a dword the bits count from its end.
    let bit = match width {
        0..32 => (at & !31) + 32usize.checked_sub((at & 31) + low + width)?,
        _ => at,
    };
    Some(Item { name: attribute(tag, "name")?.to_owned(), bit, width })
}

/// `0x14.8`; either part may be missing.
fn offset(text: &str) -> Option<(usize, usize)> {
    let (bytes, bits) = text.split_once('.').unwrap_or((text, ""));
    let number = |text: &str| if text.is_empty() { Some(0) } else { text.parse().ok() };
    let bytes = match bytes.strip_prefix("0x") {
        Some(digits) => usize::from_str_radix(digits, 16).ok()?,
        None => number(bytes)?,
    };
    Some((bytes, number(bits)?))
}

#[test]
fn fields_of_a_register_are_read() {
    let tables = Tables::parse(
        "<info/><node name=\"thing_ext\" descr=\"a &lt; b\" size=\"0x10.0\" >\n\
         <field name=\"top\" descr=\"x\" offset=\"0x0.24\" size=\"0x0.8\" />\n\
         <field name=\"low\" descr=\"\" access=\"RW\" offset=\"0x4.0\" size=\"0x0.3\" />\n\
         <field name=\"half\" descr=\"\" offset=\"0x8.16\" size=\"0x2.0\" />\n\
         <field name=\"long\" descr=\"\" offset=\"0x8.0\" size=\"0x8.0\" />\n</node>\n",
    );
    let item = |name: &str, bit, width| Item { name: name.into(), bit, width };
    let expected =
        [item("top", 0, 8), item("low", 61, 3), item("half", 64, 16), item("long", 64, 64)];
    assert_eq!(tables.items("thing_ext").unwrap(), expected);
}
