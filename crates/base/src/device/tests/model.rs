//! All devices against a vector of bytes.

use crate::device::*;
use proptest::prelude::*;

/// One step of a run; positions and lengths are in sectors and are cut to the device.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    Write {
        at: u64,
        len: u64,
        fill: u8,
    },
    /// Several requests at once, each after the other on the device.
    WriteBatch {
        at: u64,
        lens: Vec<u64>,
        fill: u8,
    },
    Discard {
        at: u64,
        len: u64,
    },
    Read {
        at: u64,
        len: u64,
    },
    Flush,
    SetSize(u64),
}

pub fn step(sectors: u64) -> impl Strategy<Value = Step> {
    let at = 0..sectors;
    let len = prop_oneof![3 => 1..4u64, 1 => 1..sectors];
    prop_oneof![
        6 => (at.clone(), len.clone(), 1..255u8).prop_map(|(at, len, fill)| Step::Write { at, len, fill }),
        2 => (at.clone(), prop::collection::vec(1..4u64, 1..6), 1..255u8)
            .prop_map(|(at, lens, fill)| Step::WriteBatch { at, lens, fill }),
        2 => (at.clone(), len.clone()).prop_map(|(at, len)| Step::Discard { at, len }),
        3 => (at, len).prop_map(|(at, len)| Step::Read { at, len }),
        1 => Just(Step::Flush),
        1 => (sectors / 2..sectors).prop_map(Step::SetSize),
    ]
}

/// Bytes that tell the sectors of a write, and writes, from one another.
pub fn pattern(fill: u8, len: usize) -> Vec<u8> {
    (0..len).map(|i| fill.wrapping_add((i / SECTOR) as u8).wrapping_mul(31).wrapping_add(i as u8)).collect()
}

/// Cuts a range in sectors to a device of `size` bytes, in bytes.
pub fn cut(size: usize, at: u64, len: u64) -> (usize, usize) {
    let at = (at as usize * SECTOR).min(size);
    (at, (len as usize * SECTOR).min(size - at))
}

/// Does a step to a device and to the model; compares what is read.
pub fn run(device: &dyn Device, model: &mut Vec<u8>, step: &Step) {
    let size = model.len();
    match step {
        Step::Write { at, len, fill } => {
            let (at, len) = cut(size, *at, *len);
            let bytes = pattern(*fill, len);
            device.write_at(Kind::Data, at as u64, &bytes).unwrap();
            model[at..at + len].copy_from_slice(&bytes);
        }
        Step::WriteBatch { at, lens, fill } => write_batch(device, model, *at, lens, *fill),
        Step::Discard { at, len } => {
            let (at, len) = cut(size, *at, *len);
            device.submit(vec![Request::discard(Kind::Data, at as u64, len as u64)]).wait_all().unwrap();
            // Both zeros and the old bytes are right: take over what the device has.
            let mut now = vec![0; len];
            device.read_at(Kind::Data, at as u64, &mut now).unwrap();
            assert!(now.iter().zip(&model[at..at + len]).all(|(new, old)| *new == 0 || new == old));
            model[at..at + len].copy_from_slice(&now);
        }
        Step::Read { at, len } => {
            let (at, len) = cut(size, *at, *len);
            let mut bytes = vec![1; len];
            device.read_at(Kind::Data, at as u64, &mut bytes).unwrap();
            assert_eq!(bytes, model[at..at + len]);
        }
        Step::Flush => device.flush().unwrap(),
        Step::SetSize(sectors) => {
            device.set_size(sectors * SECTOR as u64).unwrap();
            model.resize(*sectors as usize * SECTOR, 0);
        }
    }
    assert_eq!(device.geometry().size, model.len() as u64);
}

fn write_batch(device: &dyn Device, model: &mut [u8], at: u64, lens: &[u64], fill: u8) {
    let mut batch = Vec::new();
    let mut sector = at;
    for (i, len) in lens.iter().enumerate() {
        let (at, bytes) = cut(model.len(), sector, *len);
        let data = pattern(fill.wrapping_add(i as u8), bytes);
        model[at..at + bytes].copy_from_slice(&data);
        // In two pieces where there is room, to have vectors.
        let split = bytes / 2 / SECTOR * SECTOR;
        let bufs = vec![data[..split].to_vec().into(), data[split..].to_vec().into()];
        batch.push(Request::write(Kind::Data, at as u64, bufs));
        sector += len;
    }
    batch.reverse();
    device.submit(batch).wait_all().unwrap();
}

fn check(device: &dyn Device, steps: &[Step]) {
    let mut model = vec![0; device.geometry().size as usize];
    for step in steps {
        run(device, &mut model, step);
    }
    let mut all = vec![0; model.len()];
    device.read_at(Kind::Data, 0, &mut all).unwrap();
    assert!(all == model, "the whole content differs");
    let halves = [0, model.len() / 2 / SECTOR * SECTOR, model.len()];
    let batch = halves.windows(2).map(|w| Request::read(Kind::Data, w[0] as u64, w[1] - w[0])).collect();
    let parts: Vec<u8> = device.submit(batch).wait().into_iter().flat_map(|c| c.unwrap()).collect();
    assert!(parts == model, "the whole content, read in a batch, differs");
}

const SECTORS: u64 = 700;

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn devices_agree_with_the_model(steps in prop::collection::vec(step(SECTORS), 1..60)) {
        let size = SECTORS * SECTOR as u64;
        check(&MemDevice::new(size), &steps);
        check(&RecordingDevice::new(MemDevice::new(size)), &steps);
        check(&FaultDevice::new(MemDevice::new(size)), &steps);
        let no_resize: Vec<Step> = steps.iter().filter(|s| !matches!(s, Step::SetSize(_))).cloned().collect();
        let window = OffsetDevice::new(MemDevice::new(size * 3), size / 2 / 512 * 512, size).unwrap();
        check(&window, &no_resize);
    }

    #[test]
    fn files_agree_with_the_model(steps in prop::collection::vec(step(SECTORS), 1..40)) {
        let dir = tempfile::tempdir().unwrap();
        let image = dir.path().join("image");
        let device = FileDevice::create(&image, SECTORS * SECTOR as u64).unwrap();
        // Holes are filled where it may.
        device.confine(0..u64::MAX);
        check(&device, &steps);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn direct_files_agree_with_the_model(steps in prop::collection::vec(step(SECTORS), 1..40)) {
        let dir = tempfile::tempdir().unwrap();
        let image = dir.path().join("image");
        drop(FileDevice::create(&image, SECTORS * SECTOR as u64).unwrap());
        let options = FileOptions { mode: OpenMode::ReadWrite, direct: true };
        // A host without direct I/O (an old tmpfs) has nothing to test.
        if let Ok(device) = FileDevice::open_with(&image, options) {
            check(&device, &steps);
        }
    }
}
