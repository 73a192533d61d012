//! Compares layouts and numbers with those that a C compiler finds in the headers of `libdapl-dev`.
//!
//! The compiler is the one that links Rust here. The headers are those of the machine, or stand
//! below the folder that `DAT_HEADERS` names; `cargo xtask test` unpacks the package and names it.
//! Without headers this fails: it is the only check by anybody else.

mod enums;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::Command;

use dat_core::{DatSubtype, DatType};

use super::code::{bad_arg, bad_handle};
use super::layout::Layout;
use super::sockaddr::SockAddr;
use super::va_list::VaList;
use super::{event, number, own, structs, table};

/// Returns the folder that contains `dat2`.
fn headers() -> PathBuf {
    let folder = std::env::var_os("DAT_HEADERS").map_or("/usr/include".into(), PathBuf::from);
    assert!(
        folder.join("dat2/udat.h").is_file(),
        "there is no dat2/udat.h below {}: install libdapl-dev, name another folder in DAT_HEADERS, or run `cargo xtask test`",
        folder.display()
    );
    folder
}

/// Every number that is written twice: here, and in a header.
fn numbers() -> Vec<(String, u64)> {
    let here = number::NUMBERS.iter().filter_map(|(name, value)| {
        // A cast to a pointer in C, and no field of the enumeration.
        (!name.starts_with("EVD_")).then_some(((*name).to_owned(), *value))
    });
    let types = DatType::ALL.iter().map(|ty| {
        let value = u64::from(ty.number()) << 16;
        (format!("DAT_{}", shouted(&format!("{ty:?}"))), value)
    });
    let subtypes = DatSubtype::ALL.iter().skip(1).map(|subtype| {
        let value = u64::from(subtype.number());
        (format!("DAT_{}", shouted(&format!("{subtype:?}"))), value)
    });
    here.chain(types).chain(subtypes).chain(enums::all()).collect()
}

/// `InvalidHandleEvdCr` as C writes it.
fn shouted(name: &str) -> String {
    let mut text = String::new();
    for (at, letter) in name.char_indices() {
        if at != 0 && (letter.is_uppercase() || letter.is_ascii_digit()) {
            // INVALID_HANDLE1 and INVALID_ARG1 have no line in between.
            if !letter.is_ascii_digit() && !text.ends_with(|c: char| c.is_ascii_digit()) {
                text.push('_');
            }
        }
        text.extend(letter.to_uppercase());
    }
    for (ours, theirs) in [
        ("_CONN_PENDING", "CONNPENDING"),
        ("_COMPL_PENDING", "_COMPLPENDING"),
        ("_DISC_PENDING", "_DISCPENDING"),
        ("PROVIDER_CONTROL", "PROVIDERCONTROL"),
        ("NOT_READY", "NOTREADY"),
        ("_UNCONF_", "_UNCONF"),
    ] {
        text = text.replace(ours, theirs);
    }
    match text.as_str() {
        "INTERRUPTED" => "SUB_INTERRUPTED".to_owned(),
        "NAME_NOT_FOUND" => "NAME_NOT_REGISTERED".to_owned(),
        _ if text.starts_with("ADDRESS_") => format!("INVALID_{text}"),
        _ => text,
    }
}

fn layouts() -> impl Iterator<Item = &'static Layout> {
    [structs::LAYOUTS, event::LAYOUTS, table::LAYOUTS, own::LAYOUTS].into_iter().flatten()
}

#[test]
fn layouts_and_numbers_are_those_of_the_headers() {
    let headers = headers();
    let folder = tempfile::tempdir().unwrap();
    let mut source = String::from(
        "#include <stddef.h>\n#include <stdio.h>\n#include <netinet/in.h>\n#include <dat2/udat.h>\n#include <dat2/dat_registry.h>\n#include <dat2/dat_ib_extensions.h>\n#include <dat_dapldat.h>\nint main(void) {\n",
    );
    let mut stated = BTreeMap::new();
    for layout in layouts() {
        let c = layout.name;
        writeln!(source, "printf(\"{c} %zu\\n\", sizeof({c}));").unwrap();
        stated.insert(c.to_owned(), layout.size as u64);
        for (field, at) in layout.fields {
            let field = field.strip_prefix("r#").unwrap_or(field);
            writeln!(source, "printf(\"{c}.{field} %zu\\n\", offsetof({c}, {field}));").unwrap();
            stated.insert(format!("{c}.{field}"), *at as u64);
        }
    }
    for (name, value) in numbers() {
        let other = stated.get(&name).is_some_and(|stated| *stated != value);
        assert!(!other, "{name} is stated as two numbers");
        writeln!(source, "printf(\"{name} %llu\\n\", (unsigned long long) ({name}));").unwrap();
        stated.insert(name, value);
    }
    source.push_str("return 0; }\n");
    let (file, program) = (folder.path().join("layout.c"), folder.path().join("layout"));
    std::fs::write(&file, source).unwrap();
    let made = Command::new(std::env::var_os("CC").unwrap_or("cc".into()))
        .args(["-w", "-I", concat!(env!("CARGO_MANIFEST_DIR"), "/include"), "-I"])
        .arg(&headers)
        .arg("-o")
        .args([&program, &file])
        .output()
        .expect("a C compiler: Rust links with one as well");
    let said = String::from_utf8_lossy(&made.stderr);
    assert!(made.status.success(), "the headers lack something:\n{said}");
    let out = Command::new(&program).output().unwrap();
    let found: BTreeMap<String, u64> = String::from_utf8(out.stdout)
        .unwrap()
        .lines()
        .filter_map(|line| line.split_once(' '))
        .map(|(name, value)| (name.to_owned(), value.parse().unwrap()))
        .collect();
    assert!(found.len() > 400, "only {} answers", found.len());
    let wrong: Vec<_> = stated
        .iter()
        .filter(|(name, value)| found.get(*name) != Some(value))
        .map(|(name, value)| (name, value, found.get(name)))
        .collect();
    assert!(wrong.is_empty(), "name, here, in the headers: {wrong:?}");
}

#[test]
fn arguments_and_handles_have_their_places_in_the_codes() {
    assert_eq!(bad_arg(1).raw(), 0x8006_0025);
    assert_eq!(bad_arg(10).raw(), 0x8006_002e);
    assert_eq!(bad_handle(DatSubtype::InvalidHandlePsp).raw(), 0x8005_0010);
}

#[test]
fn addresses_read_back() {
    for text in ["192.168.7.1:45248", "[fd00::7:2]:1"] {
        let address: std::net::SocketAddr = text.parse().unwrap();
        let there = SockAddr::new(address.ip(), address.port());
        assert_eq!(there.read(), Some(address));
    }
    assert_eq!(SockAddr::NONE.read(), None);
}

/// A program in C passes more arguments than registers hold, and words that are narrower.
/// Consumers keep results in packed messages.
#[test]
fn values_are_stored_at_any_address() {
    let mut bytes = [0xff_u8; 32];
    super::Out(bytes.as_mut_ptr().wrapping_add(3).cast::<u64>()).put_all(&[1, 2]);
    assert_eq!(bytes[3..19], [1_u64.to_ne_bytes(), 2_u64.to_ne_bytes()].concat());
    assert!(bytes[..3].iter().chain(&bytes[19..]).all(|byte| *byte == 0xff));
}

#[test]
fn arguments_of_an_extension_are_read_in_their_order() {
    extern "C" fn looked(mut list: VaList) -> u64 {
        let mut sum = 0_u64;
        for place in 1..=8 {
            sum = sum.wrapping_mul(31).wrapping_add(list.word() * place);
        }
        sum.wrapping_mul(31).wrapping_add(u64::from(list.word32()))
    }
    let folder = tempfile::tempdir().unwrap();
    let (file, library) = (folder.path().join("pass.c"), folder.path().join("pass.so"));
    let source = "#include <stdarg.h>\n#include <stdint.h>\n\
        uint64_t pass(uint64_t (*to)(va_list), int unused, ...) {\n\
        va_list list; va_start(list, unused); uint64_t got = to(list); va_end(list); return got; }\n\
        uint64_t run(uint64_t (*to)(va_list)) {\n\
        return pass(to, 0, (uint64_t) 1, (uint64_t) 2, (uint64_t) 3, (uint64_t) 4, (uint64_t) 5,\n\
        (uint64_t) 6, (uint64_t) 7, (uint64_t) 8, (uint32_t) 9); }\n";
    std::fs::write(&file, source).unwrap();
    let made = Command::new(std::env::var_os("CC").unwrap_or("cc".into()))
        .args(["-shared", "-fPIC", "-O1", "-o"])
        .args([&library, &file])
        .status()
        .expect("a C compiler: Rust links with one as well");
    assert!(made.success());
    let mut expected = 0_u64;
    for place in 1..=8_u64 {
        expected = expected.wrapping_mul(31).wrapping_add(place * place);
    }
    expected = expected.wrapping_mul(31).wrapping_add(9);
    assert_eq!(super::va_list::run_in(&library, looked), expected);
}
