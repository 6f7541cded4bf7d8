use crate::device::*;

#[test]
fn the_chosen_operation_fails() {
    let device = FaultDevice::new(MemDevice::new(8192));
    let engine = device.clone();
    device.fail(FaultOp::Write, 2, FaultTimes::Once);
    device.fail(FaultOp::Flush, 2, FaultTimes::FromThenOn);

    let writes = (0..3).map(|i| Request::write(Kind::Data, i * 512, vec![vec![1; 512].into()])).collect();
    let done: Vec<bool> = engine.submit(writes).wait().iter().map(Result::is_ok).collect();
    assert_eq!(done, [true, false, true]);
    assert_eq!(device.inner().to_bytes()[512..1024], [0; 512], "a failed write does not reach the device");
    let flushes: Vec<bool> = (0..4).map(|_| engine.flush().is_ok()).collect();
    assert_eq!(flushes, [true, false, false, false]);
    assert_eq!((device.count(FaultOp::Write), device.count(FaultOp::Flush), device.count(FaultOp::Read)), (3, 4, 0));
    #[cfg(target_os = "linux")]
    assert_eq!(engine.flush().unwrap_err().raw_os_error(), Some(5));
}

#[test]
fn no_power_no_io() {
    let device = FaultDevice::new(MemDevice::new(8192));
    device.power_off();
    assert!(device.read_at(Kind::Data, 0, &mut [0; 512]).is_err());
    assert!(device.write_at(Kind::Data, 0, &[0; 512]).is_err());
    assert!(device.submit(vec![Request::discard(Kind::Data, 0, 512)]).wait_all().is_err());
    assert!(device.flush().is_err());
    assert!(device.set_size(512).is_err());
    device.heal();
    assert!(device.flush().is_ok());
    assert_eq!(device.count(FaultOp::Flush), 2);
}

fn ones(offset: u64, sectors: usize) -> Request {
    Request::write(Kind::Data, offset, vec![vec![1; sectors * 512].into()])
}

#[test]
fn a_torn_write_fails_and_leaves_some_sectors() {
    let device = FaultDevice::new(MemDevice::new(32 << 10));
    device.inject(FaultOp::Write, 1, FaultTimes::Once, Fault::Torn(7));
    assert!(device.submit(vec![ones(0, 64)]).wait_all().is_err());
    let bytes = device.inner().to_bytes();
    let there = bytes.chunks(512).filter(|s| **s == [1; 512]).count();
    assert!((1..64).contains(&there) && bytes.chunks(512).filter(|s| **s == [0; 512]).count() == 64 - there);
    assert_eq!(device.struck(), 1);
}

#[test]
fn a_late_write_is_seen_when_it_was_waited_for() {
    let device = FaultDevice::new(MemDevice::new(8192));
    device.inject(FaultOp::Write, 1, FaultTimes::FromThenOn, Fault::Late);
    let sees = || {
        let mut sector = [0; 512];
        device.read_at(Kind::Data, 512, &mut sector).unwrap();
        sector[0] == 1
    };
    let ticket = device.submit(vec![ones(0, 1), ones(512, 1)]);
    assert!(!ticket.is_done() && !sees());
    ticket.wait_all().unwrap();
    assert!(sees());
    device.inner().write_at(Kind::Data, 512, &[0; 512]).unwrap();
    drop(device.submit(vec![ones(512, 1)]));
    assert!(sees(), "dropping a ticket does not cancel");
}

#[test]
fn a_full_device_refuses_new_space_only() {
    let device = FaultDevice::new(MemDevice::new(64 << 10));
    device.write_at(Kind::Data, 4096, &[1; 4096]).unwrap();
    device.inject(FaultOp::Write, 1, FaultTimes::FromThenOn, Fault::Full);
    device.write_at(Kind::Data, 4096, &[2; 4096]).unwrap();
    assert_eq!(device.struck(), 0);
    let refused = device.write_at(Kind::Data, 8192, &[2; 512]).unwrap_err();
    assert_eq!((refused.kind(), device.struck()), (std::io::ErrorKind::StorageFull, 1));
    device.heal();
    device.write_at(Kind::Data, 8192, &[2; 512]).unwrap();
}

#[test]
fn a_failed_flush_may_forget() {
    let device = FaultDevice::new(MemDevice::new(8192));
    device.inject(FaultOp::Flush, 2, FaultTimes::Once, Fault::Forgotten(0));
    device.write_at(Kind::Data, 0, &[1; 512]).unwrap();
    device.flush().unwrap();
    device.write_at(Kind::Data, 0, &[2; 512]).unwrap();
    device.submit(vec![ones(512, 2)]).wait_all().unwrap();
    assert!(device.flush().is_err());
    let bytes = device.inner().to_bytes();
    assert_eq!((bytes[0], bytes[512], bytes[1024]), (1, 0, 0), "as at the last flush");
    assert!(device.flush().is_ok());
}

#[test]
fn a_device_may_lie() {
    let device = FaultDevice::new(MemDevice::new(8192));
    for (nth, fault) in [(1, Fault::Flipped(3)), (2, Fault::Misdirected(2)), (3, Fault::Lost)] {
        device.inject(FaultOp::Write, nth, FaultTimes::Once, fault);
    }
    device.inject(FaultOp::Read, 2, FaultTimes::Once, Fault::Flipped(4));
    for at in [0, 512, 1024] {
        device.write_at(Kind::Tree, at, &[1; 512]).unwrap();
    }
    let bytes = device.inner().to_bytes();
    let wrong: u32 = bytes[..512].iter().map(|b| (b ^ 1).count_ones()).sum();
    assert_eq!((wrong, bytes[512], bytes[1024], bytes[1536]), (1, 0, 0, 1));
    let mut read = [[0; 512]; 3];
    read.iter_mut().for_each(|b| device.read_at(Kind::Tree, 4096, b).unwrap());
    let ones = read.map(|b| b.iter().map(|b| b.count_ones()).sum::<u32>());
    assert_eq!((ones, device.struck()), ([0, 1, 0], 4));
}

#[test]
fn operations_are_recorded() {
    let device = FaultDevice::new(MemDevice::new(8192));
    device.record();
    device.write_at(Kind::Tree, 0, &[1; 512]).unwrap();
    device.flush().unwrap();
    assert_eq!(device.recorded(), [(FaultOp::Write, Kind::Tree), (FaultOp::Flush, Kind::Other)]);
}
