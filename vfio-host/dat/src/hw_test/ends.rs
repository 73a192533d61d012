//! Step 10: ends: reset in traffic, opening again and again, a program that is killed.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use dat_core::CloseFlag;
use hca_mlx5::Config;
use vfio_host::{Address, Host, Nic, NicStorage};

use super::super::failure::Failure;
use super::super::hca::folder;
use super::Run;
use super::pair::{PLAIN, Pair, Terms};
use super::report::{Finding, Stop, fail, skip};
use super::watch::Mode;

/// How often the device is opened and closed.
const REOPENINGS: usize = 10;
/// How long a killed program had.
const HEAD_START: Duration = Duration::from_millis(300);
/// Longest wait until a reset shows.
const LIMIT: Duration = Duration::from_secs(20);

/// Enables a function that is enabled. Where the device takes that, it knows nothing any more of
/// what it had.
pub(super) fn enable<H: Host>(nic: &mut Nic<'_, '_, H>, run: &Run<'_>) -> Result<(), Failure> {
    run.report.check(10, "enable-again", || {
        let taken = nic.provider_mut().device_mut().enable_again()?;
        let setting = if taken { "taken" } else { "refused" };
        run.report.fact("enable-hca-live", setting);
        if taken {
            lose(nic)?;
        }
        Ok(setting.into())
    })?;
    Ok(())
}

/// Resets a device in traffic.
pub(super) fn reset<'p, H: Host>(nic: &mut Nic<'_, 'p, H>, run: &Run<'_>) -> Result<(), Failure> {
    run.report.check(10, "reset-in-traffic", || {
        let pair = Pair::connected(nic, run.net.addr, 1 << 16, Terms::default())?;
        for cookie in 0..16 {
            let far = pair.far(0x8000, 0x4000);
            nic.ep_post_rdma_write(pair.eps[0], &[pair.local(0, 0x4000)], cookie, &far, PLAIN)?;
        }
        Ok(format!("noticed after {:.3} s", lose(nic)?.as_secs_f64()))
    })?;
    Ok(())
}

/// Resets the function under the driver, and waits until that sees it.
fn lose<H: Host>(nic: &mut Nic<'_, '_, H>) -> Result<Duration, Stop> {
    nic.host().reset()?;
    let start = Instant::now();
    while nic.lost().is_none() {
        nic.advance();
        if start.elapsed() > LIMIT {
            return fail("the driver did not notice the reset");
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(start.elapsed())
}

/// Opens and closes the device again and again.
pub(super) fn reopen<H: Host>(host: &mut H, run: &Run<'_>) -> Result<(), Failure> {
    run.report.check(10, "reopenings", || {
        run.watch.set(Mode::Off);
        let start = Instant::now();
        for nth in 0..REOPENINGS {
            host.renew()?;
            let mut room = Box::new(NicStorage::new());
            let config = Config { observer: Some(run.watch), ..Config::default() };
            let mut nic = Nic::open(&*host, room.parts(), run.net, &config)?;
            nic.close(CloseFlag::Graceful)
                .or_else(|error| fail(format!("opening {nth}: closing: {error}")))?;
        }
        Ok(format!("{:.3} s each", start.elapsed().as_secs_f64() / REOPENINGS as f64))
    })?;
    run.watch.set(Mode::Brief);
    Ok(())
}

/// Kills a program that has the device open, while nothing else has.
pub(super) fn kill(run: &Run<'_>, device: &Address) -> Result<(), Failure> {
    run.report.check(10, "killed-program", || killed(device))?;
    Ok(())
}

fn killed(device: &Address) -> Finding {
    let spawned = std::env::current_exe().and_then(|own| {
        let mut command = Command::new(own);
        command.args(["listen", &device.to_string(), "--ip", "169.254.77.2/16"]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()
    });
    let mut child = match spawned {
        Ok(child) => child,
        Err(error) => return skip(format!("no second program can be started: {error}")),
    };
    std::thread::sleep(HEAD_START);
    let ended = child.try_wait();
    // SIGKILL.
    let _ = child.kill();
    let _ = child.wait();
    match ended {
        Ok(None) => Ok("the device was up, or coming up; opened again behind it".into()),
        Ok(Some(_)) | Err(_) => skip("the second program could not open the device"),
    }
}

/// A virtual function needs one.
pub(super) fn virtual_function(run: &Run<'_>, device: &Address) -> Result<(), Failure> {
    run.report.check(10, "virtual-function", || {
        let Address::Pci(address) = device else {
            return skip("a device behind a socket has none");
        };
        let folder = folder(address);
        if run.tree.exists(&format!("{folder}/physfn")) {
            return Ok("all of this was a virtual function".into());
        }
        let most = run.tree.number(&format!("{folder}/sriov_totalvfs")).unwrap_or(0);
        run.report.number("virtual functions possible", most, "");
        skip("run dat hw-test on a virtual function as well")
    })?;
    Ok(())
}
