//! Runs every program of the book: those for Linux on HCAs of the device model behind vfio-user
//! sockets, the others on the loop provider.
#![expect(
    dead_code,
    unreachable_pub,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "programs as modules; a test"
)]

#[path = "../examples/bare.rs"]
mod bare;
#[path = "../examples/discovery.rs"]
mod discovery;
#[path = "../examples/echo.rs"]
mod echo;
#[path = "../examples/embassy.rs"]
mod embassy;
#[path = "../examples/files.rs"]
mod files;
#[path = "../examples/hooks.rs"]
mod hooks;
#[path = "../examples/pubsub.rs"]
mod pubsub;
#[path = "../examples/recovery.rs"]
mod recovery;
#[path = "../examples/rpc.rs"]
mod rpc;
#[path = "../examples/tokio.rs"]
mod tokio_client;

mod lab;

use std::io;
use std::sync::Mutex;
use std::thread;

use dat_core::Activity;
use hca_mlx5::Config;
use vfio_host::Error;
use vfio_host::user::VfioUser;

use lab::{LONG, Lab};

#[test]
fn chapter_1_echo() {
    let lab = Lab::new(2);
    let answer = lab.pair(
        |host, net| echo::serve(&host, net),
        |host, net| echo::ask(host, net, lab.server(), "hello, again"),
    );
    assert_eq!(answer, "hello, again");
}

#[test]
fn chapter_2_files() {
    let lab = Lab::new(2);
    // More than the reads that are outstanding at once, and no whole number of chunks.
    let file: Vec<u8> = (0..1_000_003_u32).map(|n| (n * 31).to_le_bytes()[1]).collect();
    let copy = lab.pair(
        |host, net| files::offer(&host, net, &file),
        |host, net| files::fetch(host, net, lab.server()),
    );
    assert!(copy == file, "{} bytes", copy.len());
}

#[test]
fn chapter_3_rpc() {
    let lab = Lab::new(2);
    let replies = lab.pair(
        |host, net| rpc::serve(&host, net),
        |host, net| rpc::call(host, net, lab.server(), &["one", "two", "and three"]),
    );
    assert_eq!(replies, ["ONE", "TWO", "AND THREE"]);
}

#[test]
fn chapter_4_pubsub() {
    let lab = Lab::new(3);
    let broker = |host: VfioUser, net| pubsub::serve(&host, net, 2);
    let publisher = |host: &_, net| pubsub::publish(host, net, lab.server(), "a message");
    let subscriber = |host: &_, net| pubsub::subscribe(host, net, lab.server());
    let (served, message) = lab.beside(0, broker, || {
        thread::scope(|scope| {
            scope.spawn(|| lab.client(1, publisher));
            lab.client(2, subscriber)
        })
    });
    served.unwrap();
    assert_eq!(message, "a message");
}

#[test]
fn chapter_5_tokio() {
    let lab = Lab::new(2);
    let answer = lab.pair(
        |host, net| echo::serve(&host, net),
        |host, net| {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.unwrap().block_on(tokio_client::ask(host, net, lab.server(), "a future"))
        },
    );
    assert_eq!(answer, "a future");
}

#[test]
fn chapter_5_embassy() {
    let answer = embassy::run().recv_timeout(LONG).unwrap().unwrap();
    assert_eq!(answer, b"hello from a task");
}

#[test]
fn chapter_6_discovery() {
    let lab = Lab::new(3);
    let hosts = [lab.net(0).addr, lab.net(2).addr];
    let names = lab.pair(
        |host, net| discovery::announce(&host, net, "printer"),
        |host, net| match discovery::find(host, net, &hosts) {
            Ok(names) if names.is_empty() => Err(Error::unexpected("nobody")),
            found => found,
        },
    );
    assert_eq!(names, ["printer"]);
}

#[test]
fn chapter_7_recovery() {
    static SEEN: Mutex<Vec<Activity>> = Mutex::new(Vec::new());
    static LINES: Mutex<Vec<u8>> = Mutex::new(Vec::new());
    struct Lines;
    impl io::Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            LINES.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    fn watch(activity: &Activity) {
        vfio_host::events::tracing(activity);
        SEEN.lock().unwrap().push(*activity);
    }
    let log = tracing_subscriber::fmt().with_ansi(false).with_writer(|| Lines);
    let log = log.with_max_level(tracing::Level::DEBUG).finish();
    // `init` would make it the logger of the crate `log` too, which another test here sets.
    tracing::subscriber::set_global_default(log).unwrap();
    let lab = Lab::new(2);
    let config = Config { hook: Some(&watch), ..Config::default() };
    let ask = |text| lab.client(1, |host, net| echo::ask(host, net, lab.server(), text));
    let (served, ()) = lab.beside(
        0,
        |host, net| recovery::serve(host, net, &config),
        || {
            assert_eq!(ask("before"), "before");
            lab.server.with(0, |function| function.hca().die(1));
            assert_eq!(ask("after"), "after");
            // Its connection ends without an answer.
            let stop = |host: VfioUser, net| echo::ask(&host, net, lab.server(), "stop");
            assert!(lab.beside(1, stop, || ()).0.is_err());
        },
    );
    served.unwrap();
    let seen = SEEN.lock().unwrap();
    let lost = seen.iter().position(|what| matches!(what, Activity::Lost(_))).unwrap();
    let opened = |what: &Activity| matches!(what, Activity::Opened(_));
    assert!(seen[..lost].iter().any(opened) && seen[lost..].iter().any(opened));
    let lines = String::from_utf8(LINES.lock().unwrap().clone()).unwrap();
    for line in ["DEBUG dat: ENABLE_HCA", "ERROR dat: the device is lost", "the function is reset"]
    {
        assert!(lines.contains(line), "{line} in {lines}");
    }
}

#[test]
fn chapter_7_hooks() {
    struct Lines(Mutex<Vec<String>>);
    static LINES: Lines = Lines(Mutex::new(Vec::new()));
    impl log::Log for Lines {
        fn enabled(&self, _: &log::Metadata<'_>) -> bool {
            true
        }

        fn log(&self, record: &log::Record<'_>) {
            let line = format!("{} {}: {}", record.level(), record.target(), record.args());
            self.0.lock().unwrap().push(line);
        }

        fn flush(&self) {}
    }
    log::set_logger(&LINES).unwrap();
    log::set_max_level(log::LevelFilter::Debug);
    hooks::run().unwrap();
    let lines = LINES.0.lock().unwrap();
    let expected = ["INFO dat: the adapter is open as 10.0.0.1", "INFO dat: the adapter is closed"];
    assert!(expected.iter().all(|line| lines.iter().any(|seen| seen == line)), "{lines:?}");
}

#[test]
fn chapter_8_bare() {
    assert_eq!(bare::run(b"no system").unwrap(), b"no system");
}
