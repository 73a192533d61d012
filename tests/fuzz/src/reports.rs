//! Reports of `dat hw-test` that are continued: their text may have been changed in any way. What
//! is left in the file is a report that can be continued again.

use std::cell::RefCell;
use std::fs;
use std::path::PathBuf;

/// A folder in memory, if there is one.
const SHARED: &str = "/dev/shm";

thread_local! {
    static FILE: RefCell<Option<PathBuf>> = const { RefCell::new(None) };
}

fn file() -> PathBuf {
    let name = format!("dat-fuzz-{}-{:?}", std::process::id(), std::thread::current().id());
    let shared = PathBuf::from(SHARED);
    let folder = if shared.is_dir() { shared } else { std::env::temp_dir() };
    folder.join(name)
}

/// Runs the target.
pub fn run(data: &[u8]) {
    FILE.with_borrow_mut(|name| {
        let name = name.get_or_insert_with(file);
        fs::write(&*name, data).unwrap();
        if dat::read_report(name).is_ok() {
            assert_eq!(dat::read_report(name), Ok(()), "{}", String::from_utf8_lossy(data));
        }
        fs::remove_file(&*name).unwrap();
    });
}
