//! The scenarios, in the order they begin: the longest one early.

mod bare_metal;
mod boot;
mod conformance;
mod first_boot;
mod gallery;
mod isolation;
mod package;
mod rude;
mod tinygrad;
mod two_guests;
mod vf;
mod vfio;

use anyhow::Result;

use crate::guest::stage::Stage;
use crate::matrix::{dat, linux, mpi};

/// A scenario: what it shows, and its function, which returns a line for the table.
pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    pub(crate) run: fn(&mut Stage<'_>) -> Result<String>,
    /// It takes stock Linux.
    pub(crate) stock: bool,
}

/// All of them.
pub(crate) const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "linux",
        about: "stock Linux on the model: a selection of the matrix that `--linux` runs in full",
        run: linux::quick,
        stock: true,
    },
    Scenario {
        name: "ib",
        about: "InfiniBand: OpenSM in a guest brings a switch and its ports up; stock Linux with itself and with the driver",
        run: linux::infiniband,
        stock: true,
    },
    Scenario {
        name: "ib-vfio",
        about: "InfiniBand: the tests of rdma-core's own driver over VFIO, in a guest of stock Linux",
        run: linux::vfio,
        stock: true,
    },
    Scenario {
        name: "ipxe",
        about: "InfiniBand: iPXE's own driver joins IPoIB on the model, and fetches a script from stock Linux",
        run: linux::ipxe,
        stock: true,
    },
    Scenario {
        name: "conformance",
        about: "every case of the conformance suite, through /dev/vfio",
        run: conformance::run,
        stock: false,
    },
    Scenario {
        name: "dat-guests",
        about: "the DAT programs of others in a guest and with Soft-RoCE: a selection of what `--dat` runs in full",
        run: dat::away,
        stock: true,
    },
    Scenario {
        name: "dat-ib",
        about: "the DAT programs of others on InfiniBand: a selection of what `--dat ib` runs in full",
        run: dat::in_subnet,
        stock: true,
    },
    Scenario {
        name: "dat",
        about: "the DAT programs of others on the host, all of them shortened; what processes leave behind, corners, and the cost",
        run: dat::here,
        stock: false,
    },
    Scenario {
        name: "mpi",
        about: "Intel MPI at 2 ranks over the uDAPL provider, if it was fetched before; `--mpi` runs all of it",
        run: mpi::here,
        stock: false,
    },
    Scenario {
        name: "boot",
        about: "a guest boots with an IOMMU, gives two HCAs to VFIO and powers off by itself",
        run: boot::run,
        stock: false,
    },
    Scenario {
        name: "vfio",
        about: "all the demo does, through /dev/vfio; interrupts, a reset in mid-traffic, a hundred opens",
        run: vfio::run,
        stock: false,
    },
    Scenario {
        name: "two-guests",
        about: "dat listen in one guest, dat ping and dat perf in another",
        run: two_guests::run,
        stock: false,
    },
    Scenario {
        name: "isolation",
        about: "the device reaches what the driver has mapped for it, and nothing else",
        run: isolation::run,
        stock: false,
    },
    Scenario {
        name: "first-boot",
        about: "from the boot to dat ping: a link that comes after 20 s, an MTU of 1500 on the way, functions without a MAC",
        run: first_boot::type1,
        stock: false,
    },
    Scenario { name: "vf", about: "the same on virtual functions", run: vf::run, stock: false },
    Scenario {
        name: "bare-metal",
        about: "the image without an operating system serves a Linux guest, and an image that calls",
        run: bare_metal::run,
        stock: false,
    },
    Scenario {
        name: "gallery",
        about: "the image on x86_64, aarch64 and riscv64, and as an UEFI application, serves ping and perf of the host",
        run: gallery::run,
        stock: false,
    },
    Scenario {
        name: "rude",
        about: "limits, shared groups, lost devices and dead servers end soon, with the message that helps",
        run: rude::run,
        stock: false,
    },
    Scenario {
        name: "tinygrad",
        about: "tinygrad's ConnectX driver between two models; in full, with every open fact otherwise",
        run: tinygrad::referee,
        stock: false,
    },
];

/// That of a Debian package.
pub(crate) const PACKAGE: &[Scenario] = &[Scenario {
    name: "package",
    about: "a Debian package in a guest with systemd: installed, bound, a service, its users, removed",
    run: package::run,
    stock: false,
}];

/// Those of guests whose kernel has iommufd.
pub(crate) const IOMMUFD: &[Scenario] = &[
    Scenario {
        name: "first-boot",
        about: "from the boot to dat ping, between a function on type 1 and one on iommufd, both ways",
        run: first_boot::both,
        stock: false,
    },
    Scenario {
        name: "vfio",
        about: "all the demo does, through iommufd; interrupts, a reset in mid-traffic, a hundred opens",
        run: vfio::run,
        stock: false,
    },
    Scenario {
        name: "isolation",
        about: "the device reaches what the driver has mapped by iommufd, and nothing else",
        run: isolation::run,
        stock: false,
    },
];
