use super::*;
use crate::host::Reach;

fn mapping() -> Mapping {
    Mapping {
        iova: 0x1_0000_0000,
        len: 12 << 20,
        reach: Reach::ReadWrite,
        purpose: "arena",
        huge: false,
    }
}

fn refused(errno: i32, limits: Limits) -> Error {
    map(&io::Error::from_raw_os_error(errno), &mapping(), limits)
}

#[test]
fn a_memlock_refusal_names_need_limit_and_remedy() {
    let error = refused(
        libc::ENOMEM,
        Limits { locked: 4 << 20, wanted: 144 << 20, memlock: Some(64 << 10), entries: None },
    );
    assert_eq!(error.kind(), Kind::Memlock);
    assert_eq!(
        error.to_string(),
        "arena of 12288 KiB at 0x100000000 (rw): the device needs 16384 KiB of locked memory now and up to 147456 KiB \
         later, and this process may lock 64 KiB; ulimit -l 147456, or in /etc/security/limits.conf: \
         USER - memlock 147456; in a systemd unit: LimitMEMLOCK=147456K"
    );
    // Within the limit, or without one, the machine itself is out of memory.
    for memlock in [None, Some(1 << 40)] {
        let limits = Limits { memlock, ..Limits::default() };
        assert_eq!(refused(libc::ENOMEM, limits).kind(), Kind::Memory);
    }
}

#[test]
fn a_full_iommu_names_its_limit_and_the_file_of_the_limit() {
    let limits = Limits { entries: Some(8), ..Limits::default() };
    let error = refused(libc::ENOSPC, limits);
    assert_eq!(error.kind(), Kind::DmaEntries);
    let text = error.to_string();
    assert!(text.contains("takes: 8;") && text.contains("dma_entry_limit"), "{text}");
}

#[test]
fn every_other_refusal_names_the_mapping() {
    for errno in [libc::EINVAL, libc::EEXIST, libc::EFAULT, libc::EPERM] {
        let text = refused(errno, Limits::default()).to_string();
        assert!(text.starts_with("arena of 12288 KiB at 0x100000000 (rw)"), "{text}");
    }
}

#[test]
fn a_refused_group_names_the_cause() {
    let address = "0000:3b:00.0".parse().unwrap();
    let open = |errno: i32| {
        let error = VfioError::OpenGroup(io::Error::from_raw_os_error(errno), "7".into());
        device(&error, address, 7, &Sysfs::at("/nowhere"))
    };
    for (errno, kind, remedy) in [
        (libc::EACCES, Kind::Permission, "chown $USER /dev/vfio/7"),
        (libc::EPERM, Kind::Permission, "--device /dev/vfio/7"),
        (libc::EBUSY, Kind::Busy, "fuser /dev/vfio/7"),
        (libc::ENOENT, Kind::NotBound, "modprobe vfio-pci"),
    ] {
        let error = open(errno);
        assert_eq!(error.kind(), kind);
        assert!(error.remedy().contains(remedy), "{error}");
        assert!(error.to_string().contains("0000:3b:00.0"), "{error}");
    }
    let viable = device(&VfioError::GroupViable, address, 7, &Sysfs::at("/nowhere"));
    assert_eq!(viable.kind(), Kind::Group);
}

#[test]
fn a_machine_without_vfio_names_the_module_to_load() {
    let open = |errno| container(&VfioError::OpenContainer(io::Error::from_raw_os_error(errno)));
    assert_eq!(open(libc::ENOENT).kind(), Kind::NoIommu);
    assert_eq!(open(libc::EACCES).kind(), Kind::Permission);
    for error in [open(libc::ENOENT), container(&VfioError::VfioExtension)] {
        assert!(error.remedy().contains("modprobe"), "{error}");
    }
}

#[test]
fn a_function_that_iommufd_refuses_names_the_cause() {
    let address = "0000:3b:00.0".parse().unwrap();
    for (errno, kind, remedy) in [
        (libc::EPERM, Kind::NoIommu, "/sys/module/iommufd/parameters/allow_unsafe_interrupts"),
        (libc::EBUSY, Kind::Busy, "fuser /dev/vfio/devices/*"),
        (libc::EINVAL, Kind::Busy, "fuser /dev/vfio/devices/*"),
        (libc::ENODEV, Kind::Refused, "dmesg"),
    ] {
        let error = iommufd(&io::Error::from_raw_os_error(errno), address);
        assert_eq!(error.kind(), kind);
        assert!(error.remedy().contains(remedy), "{error}");
    }
}
