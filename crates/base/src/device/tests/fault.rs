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
