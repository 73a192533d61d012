//! The device's address space in the IOMMU, by either of the kernel's interfaces: the container of
//! a group (type 1), or an I/O address space of iommufd with the device's own file (Linux 6.6).

use std::fs::File;
use std::io;
use std::ops::RangeInclusive;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use vfio_ioctls::{VfioContainer, VfioDevice};

use super::device::Device;
use super::info::IommuInfo;
use super::refusal::{self, Limits};
use super::{ioctl, iova};
use crate::address::PciAddress;
use crate::error::{Error, Kind};
use crate::host::{Interface, Mapping, Reach};
use crate::map::Promised;
use crate::memory::{Area, Iommu, Piece};
use crate::sysfs::{Access, Sysfs};

/// The address space, with what is locked in it.
#[derive(Debug)]
pub(super) struct Domain {
    space: Space,
    locked: AtomicU64,
    /// Upper limit of the bytes that will be locked.
    wanted: u64,
}

enum Space {
    Type1(Arc<VfioContainer>),
    /// The file of iommufd and the address space's ID.
    Iommufd(OwnedFd, u32),
}

impl std::fmt::Debug for Space {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Type1(_) => "Type1",
            Self::Iommufd(..) => "Iommufd",
        })
    }
}

impl Domain {
    /// Opens the function by an interface, and makes the address space that it is attached to.
    /// `wanted` is the upper limit of the bytes that will be locked.
    pub(super) fn open(
        sysfs: &Sysfs,
        address: PciAddress,
        access: &Access,
        wanted: u64,
    ) -> Result<(Self, Device), Error> {
        let name = address.to_string();
        let (space, device) = match access.interface {
            Interface::Iommufd => {
                let [iommu, node] = &access.files;
                let open = |path: &str| {
                    let file = File::options().read(true).write(true).open(path);
                    file.map(OwnedFd::from)
                        .map_err(|error| refusal::open(&error, path, address).because_of(&error))
                };
                let (fd, iommu) = (open(node)?, open(iommu)?);
                let refused =
                    |error: io::Error| refusal::iommufd(&error, address).because_of(&error);
                ioctl::bind_iommufd(&fd, &iommu).map_err(refused)?;
                let space = ioctl::ioas_alloc(&iommu).map_err(refused)?;
                ioctl::attach(&fd, space).map_err(refused)?;
                (Space::Iommufd(iommu, space), Device::new(fd, None, name)?)
            }
            Interface::Auto | Interface::Type1 | Interface::None => {
                let container = VfioContainer::new(None)
                    .map_err(|error| refusal::container(&error).because(error))?;
                let container = Arc::new(container);
                let held = VfioDevice::new(&sysfs.path(address), container.clone(), false)
                    .map_err(|error| {
                        refusal::device(&error, address, access.group, sysfs).because(error)
                    })?;
                let fd = ioctl::duplicate(&held).map_err(|error| {
                    Error::new(Kind::Memory, &name, format!("no file descriptor: {error}"), "")
                        .because_of(&error)
                })?;
                (Space::Type1(container), Device::new(fd, Some(held), name)?)
            }
        };
        Ok((Self { space, locked: AtomicU64::new(0), wanted }, device))
    }

    /// Returns the interface.
    pub(super) fn interface(&self) -> Interface {
        match self.space {
            Space::Type1(_) => Interface::Type1,
            Space::Iommufd(..) => Interface::Iommufd,
        }
    }

    fn info(&self) -> io::Result<IommuInfo> {
        match &self.space {
            Space::Type1(container) => {
                ioctl::iommu_info(&**container).map(|bytes| IommuInfo::parse(&bytes))
            }
            Space::Iommufd(iommu, space) => {
                Ok(IommuInfo { ranges: ioctl::iova_ranges(iommu, *space)?, entries: None })
            }
        }
    }

    /// Returns the device addresses that the IOMMU translates.
    pub(super) fn ranges(&self) -> io::Result<Vec<RangeInclusive<u64>>> {
        let ranges = self.info()?.ranges;
        Ok(if ranges.is_empty() { vec![iova::DEFAULT_APERTURE] } else { ranges })
    }
}

impl Iommu for Domain {
    fn map(&self, area: &Area<'_>) -> Result<(), Error> {
        let mapped = match &self.space {
            Space::Type1(container) => ioctl::map_dma(&**container, &area.mapping, area.addr),
            Space::Iommufd(iommu, space) => {
                ioctl::ioas_map(iommu, *space, &area.mapping, area.addr)
            }
        };
        mapped.map_err(|error| {
            let limits = Limits::now(self.locked.load(Ordering::Relaxed), self.wanted);
            refusal::map(&error, &area.mapping, limits).because_of(&error)
        })?;
        self.locked.fetch_add(area.mapping.len, Ordering::Relaxed);
        Ok(())
    }

    fn unmap(&self, mapping: &Mapping) -> Result<(), Error> {
        let done = match &self.space {
            Space::Type1(container) => ioctl::unmap_dma(&**container, mapping),
            Space::Iommufd(iommu, space) => ioctl::ioas_unmap(iommu, *space, mapping),
        };
        done.map_err(|error| {
            Error::new(
                Kind::Refused,
                mapping.purpose,
                format!("the kernel did not unmap it: {error}"),
                "",
            )
            .because_of(&error)
        })?;
        self.locked.fetch_sub(mapping.len, Ordering::Relaxed);
        Ok(())
    }

    fn entries_left(&self) -> Option<u32> {
        self.info().ok()?.entries
    }

    /// Returns the pages as one piece: the kernel pins them when they are mapped.
    fn hold(&self, memory: &Promised, _reach: Reach) -> Result<Vec<Piece>, Error> {
        memory.own();
        let pages = memory.pages();
        let len = pages.end - pages.start;
        Ok(vec![Piece { len, file: None }])
    }

    fn let_go(&self, _memory: &Promised) {}
}
