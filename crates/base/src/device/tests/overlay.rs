use super::model::{Step, run, step};
use crate::device::*;
use proptest::prelude::*;
use std::io::ErrorKind;

const SIZE: usize = 64 * SECTOR;

proptest! {
    #[test]
    fn it_holds_what_was_written_and_nothing_is_written_below(
        steps in prop::collection::vec(step(SIZE as u64 / SECTOR as u64), 1..60),
    ) {
        let below: Vec<u8> = (0..SIZE).map(|i| (i / 7) as u8).collect();
        let inner = MemDevice::from_bytes(&below);
        inner.set_read_only(true);
        let device = OverlayDevice::new(inner.clone(), 1 << 20);
        let mut model = below.clone();
        for step in steps.iter().filter(|step| !matches!(step, Step::SetSize(_) | Step::Discard { .. })) {
            run(&device, &mut model, step);
        }
        let mut whole = vec![0; SIZE];
        device.read_at(Kind::Other, 0, &mut whole).unwrap();
        prop_assert!(whole == model);
        prop_assert!(inner.to_bytes() == below);
    }
}

#[test]
fn what_it_keeps_is_bounded() {
    // The device ends within a chunk.
    let inner = MemDevice::from_bytes(&[5; 9 * 4096 + 512]);
    let device = OverlayDevice::new(inner, 2 * 4096);
    device.write_at(Kind::Data, 9 * 4096, &[6; 512]).unwrap();
    device.write_at(Kind::Data, 512, &[7; 1024]).unwrap();
    assert_eq!(device.kept(), 2 * 4096);
    device.write_at(Kind::Data, 2048, &[7; 2048]).unwrap();
    let more = device.write_at(Kind::Data, 4096, &[8; 512]).unwrap_err();
    assert_eq!(more.kind(), ErrorKind::StorageFull);
    assert!(device.write_at(Kind::Data, 9 * 4096 + 512, &[0; 512]).is_err(), "after the end");
    let mut found = [0; 512];
    for (at, byte) in [(0, 5), (512, 7), (1536, 5), (2048, 7), (4096, 5), (9 * 4096, 6)] {
        device.read_at(Kind::Data, at, &mut found).unwrap();
        assert_eq!(found, [byte; 512], "at {at}");
    }
    device.submit(vec![Request::discard(Kind::Data, 0, 4096)]).wait_all().unwrap();
    assert_eq!(device.set_size(4096).unwrap_err().kind(), ErrorKind::Unsupported);
}
