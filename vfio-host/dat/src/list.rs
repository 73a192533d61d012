//! `dat list`.

use super::args::List;
use super::failure::Failure;
use super::out::{Out, note, table};
use super::{End, hca};

pub(crate) fn run(list: &List, out: &Out) -> Result<End, Failure> {
    let tree = list.root.tree();
    let all = hca::all(&tree);
    if all.is_empty() {
        note(
            "dat: there is no HCA here: no PCI network controller of NVIDIA/Mellanox (vendor 15b3)",
        );
    }
    let heads =
        ["ADDRESS", "DEVICE", "ID", "DRIVER", "GROUP", "LINK", "NUMA", "FIRMWARE", "NETWORK"];
    let mut rows = vec![heads.map(str::to_owned).to_vec()];
    let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".into());
    for hca in &all {
        rows.push(vec![
            hca.address.to_string(),
            hca.name.to_owned(),
            format!("15b3:{:04x}", hca.device_id),
            or_dash(hca.driver.clone()),
            or_dash(hca.iommu_group.map(|group| group.to_string())),
            or_dash(hca.link.words()),
            or_dash(hca.numa_node.map(|node| node.to_string())),
            or_dash(hca.firmware.clone()),
            or_dash((!hca.netdevs.is_empty()).then(|| hca.netdevs.join(","))),
        ]);
    }
    let text = if all.is_empty() { String::new() } else { table(&rows) };
    out.result(&all, &text)?;
    Ok(End::Ok)
}
