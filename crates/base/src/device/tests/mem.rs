use crate::device::*;

const MIB: u64 = 1 << 20;

#[test]
fn snapshots_are_independent() {
    let device = MemDevice::new(64 * MIB);
    let handle = device.clone();
    device.write_at(Kind::Data, 5 * MIB, &[1; 512]).unwrap();
    let snapshot = device.snapshot();
    handle.write_at(Kind::Data, 5 * MIB, &[2; 512]).unwrap();
    snapshot.write_at(Kind::Data, 40 * MIB, &[3; 512]).unwrap();
    snapshot.set_size(41 * MIB).unwrap();
    let read = |d: &MemDevice, at| {
        let mut sector = [0; 512];
        d.read_at(Kind::Data, at, &mut sector).unwrap();
        sector[511]
    };
    assert_eq!((read(&device, 5 * MIB), read(&device, 40 * MIB)), (2, 0));
    assert_eq!((read(&snapshot, 5 * MIB), read(&snapshot, 40 * MIB)), (1, 3));
    assert_eq!(device.geometry().size, 64 * MIB);
}

#[test]
fn memory_is_given_back() {
    let device = MemDevice::new(1 << 40);
    for i in 0..40 {
        device.write_at(Kind::Data, i * 3 * MIB, &[7; 4096]).unwrap();
    }
    assert_eq!(device.allocated(), 40 * (16 << 10));
    device.submit(vec![Request::discard(Kind::Data, 3 * MIB, 60 * MIB)]).wait_all().unwrap();
    assert_eq!(device.allocated(), 20 * (16 << 10));
    device.submit(vec![Request::discard(Kind::Data, 512, (1 << 40) - 512)]).wait_all().unwrap();
    assert_eq!(device.allocated(), 16 << 10, "the first sector is still there");
    device.set_size(0).unwrap();
    assert_eq!(device.allocated(), 0);
}

#[test]
fn refuses_what_the_contract_excludes() {
    let device = MemDevice::from_bytes(&[9; 1000]);
    assert_eq!(device.geometry().size, 1024);
    assert_eq!(device.to_bytes()[998..1002], [9, 9, 0, 0]);
    let error = device.read_at(Kind::Data, 512, &mut [0; 1024]).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::UnexpectedEof);
    assert_eq!(error.to_string(), "read of 1024 bytes at offset 512 goes past the end of the device of 1024 bytes");
    let error = device.read_at(Kind::Data, u64::MAX - 511, &mut [0; 512]).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::UnexpectedEof);
    let error = device.write_at(Kind::Data, 100, &[0; 512]).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput);
    device.set_read_only(true);
    assert!(device.geometry().read_only);
    let error = device.write_at(Kind::Data, 0, &[0; 512]).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ReadOnlyFilesystem);
    assert!(device.set_size(512).is_err());
    device.set_read_only(false);
    device.write_at(Kind::Data, 0, &[0; 512]).unwrap();
    assert!(device.set_size(100).is_err());
}
