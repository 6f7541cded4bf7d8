use super::model::{Step, cut, pattern, run, step};
use crate::device::*;
use proptest::prelude::*;

const SECTORS: u64 = 100;

fn choice() -> impl Strategy<Value = CrashChoice> {
    let fate = prop_oneof![Just(Fate::Kept), Just(Fate::Dropped), any::<u64>().prop_map(Fate::Torn)];
    prop_oneof![
        Just(CrashChoice::AllKept),
        Just(CrashChoice::NoneKept),
        (0..8usize).prop_map(CrashChoice::DropOne),
        (0..8usize).prop_map(CrashChoice::KeepOne),
        (0..8usize).prop_map(CrashChoice::Prefix),
        any::<u64>().prop_map(CrashChoice::Seeded),
        prop::collection::vec(fate, 0..8).prop_map(CrashChoice::List),
    ]
}

/// The disk by the words of the contract: everything from the beginning, sector by sector.
fn naive(base: &[u8], events: &[Event], choice: &CrashChoice) -> Vec<u8> {
    let durable = events.iter().rposition(|e| *e == Event::Flush).map_or(0, |i| i + 1);
    let undecided = |e: &&Event| match e {
        Event::SetSize { from, to } => to > from,
        e => **e != Event::Flush,
    };
    let mut fates = choice.fates(events[durable..].iter().filter(undecided).count()).into_iter();
    let mut disk = base.to_vec();
    for (i, event) in events.iter().enumerate() {
        let fate = if i >= durable && undecided(&event) { fates.next().unwrap() } else { Fate::Kept };
        match event {
            Event::Write { offset, data, .. } => {
                for (s, sector) in data.chunks(SECTOR).enumerate().filter(|(s, _)| fate.keeps(*s as u64)) {
                    let at = *offset as usize + s * SECTOR;
                    disk.get_mut(at..at + SECTOR).into_iter().for_each(|there| there.copy_from_slice(sector));
                }
            }
            Event::Discard { offset, len } => {
                // Short enough here to fall into pieces of one or two sectors.
                let piece = if *len > 64 * SECTOR as u64 && matches!(fate, Fate::Torn(_)) { 2 } else { 1 };
                for s in (0..*len as usize / SECTOR).filter(|s| fate.keeps((s / piece) as u64)) {
                    let at = *offset as usize + s * SECTOR;
                    disk.get_mut(at..at + SECTOR).into_iter().for_each(|there| there.fill(0));
                }
            }
            Event::Flush => {}
            Event::SetSize { to, .. } if fate.keeps(0) => disk.resize(*to as usize, 0),
            Event::SetSize { .. } => {}
        }
    }
    disk
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn crash_states_agree_with_the_model(
        steps in prop::collection::vec(step(SECTORS), 1..40),
        choices in prop::collection::vec(choice(), 3),
        jumps in prop::collection::vec(any::<prop::sample::Index>(), 10),
    ) {
        let base = pattern(1, SECTORS as usize * SECTOR);
        let device = RecordingDevice::new(MemDevice::from_bytes(&base));
        let mut model = base.clone();
        for step in &steps {
            run(&device, &mut model, step);
        }
        let events: Vec<Event> = (0..device.events()).map(|i| device.event(i).unwrap()).collect();
        let forward = 0..=events.len();
        let anywhere = jumps.iter().map(|j| j.index(events.len() + 1));
        for at in forward.chain(anywhere) {
            for choice in &choices {
                let state = device.crash_state(at, choice).to_bytes();
                prop_assert!(state == naive(&base, &events[..at], choice), "after {at} events, {choice:?}");
                let list = CrashChoice::List(choice.fates(device.pending_at(at)));
                prop_assert!(state == device.crash_state(at, &list).to_bytes());
            }
        }
        prop_assert!(device.crash_state(events.len(), &CrashChoice::AllKept).to_bytes() == model);
    }

    /// The contract seen from outside, without the tables of fates: after a cut each sector holds
    /// what the last flush left there or what one of the later writes put there.
    #[test]
    fn each_sector_is_old_or_new(steps in prop::collection::vec(step(SECTORS), 1..40), seed in any::<u64>()) {
        let device = RecordingDevice::new(MemDevice::new(SECTORS * SECTOR as u64));
        let size = SECTORS as usize * SECTOR;
        let mut model = vec![0; size];
        let mut allowed: Vec<Vec<Vec<u8>>> = vec![vec![vec![0; SECTOR]]; SECTORS as usize];
        for step in steps.iter().filter(|s| !matches!(s, Step::SetSize(_))) {
            run(&device, &mut model, step);
            for (values, now) in allowed.iter_mut().zip(model.chunks(SECTOR)) {
                if *step == Step::Flush {
                    values.clear();
                }
                values.push(now.to_vec());
            }
        }
        let state = device.crash_state(device.events(), &CrashChoice::Seeded(seed)).to_bytes();
        for (values, sector) in allowed.iter().zip(state.chunks(SECTOR)) {
            prop_assert!(values.iter().any(|v| v == sector));
        }
    }
}

#[test]
fn flushed_writes_are_whole() {
    let device = RecordingDevice::new(MemDevice::new(8192));
    let engine = device.clone();
    device.mark("first");
    engine.write_at(Kind::Log, 0, &[1; 2048]).unwrap();
    engine.flush().unwrap();
    device.mark("second");
    engine.write_at(Kind::Log, 2048, &[2; 2048]).unwrap();
    assert_eq!(device.marks(), [(0, "first".to_string()), (2, "second".to_string())]);
    assert_eq!((device.events(), device.durable_at(1), device.durable_at(3)), (3, 0, 2));
    assert_eq!((device.pending_at(1), device.pending_at(2), device.pending_at(3)), (1, 0, 1));

    let none = device.crash_state(3, &CrashChoice::NoneKept).to_bytes();
    assert!(none[..2048] == [1; 2048] && none[2048..] == [0; 6144]);
    assert!(device.crash_state(1, &CrashChoice::NoneKept).to_bytes() == [0; 8192]);
    assert!(engine.read_at(Kind::Log, 8192, &mut [0; 512]).is_err());
    assert!(engine.write_at(Kind::Log, 8192, &[0; 512]).is_err());
    assert_eq!(device.events(), 3, "what failed is not in the log");
}

#[test]
fn seeds_reach_every_fate() {
    let mut torn_parts = std::collections::BTreeSet::new();
    let (mut all, mut none) = (0, 0);
    for seed in 0..400 {
        let fates = CrashChoice::Seeded(seed).fates(4);
        assert_eq!(fates, CrashChoice::Seeded(seed).fates(4));
        all += usize::from(fates.iter().all(|f| *f == Fate::Kept));
        none += usize::from(fates.iter().all(|f| *f == Fate::Dropped));
        let torn = fates.iter().filter(|f| matches!(f, Fate::Torn(_)));
        torn_parts.extend(torn.map(|f| (0..3).map(|s| f.keeps(s)).collect::<Vec<_>>()));
    }
    assert!(all > 0 && none > 0);
    assert_eq!(torn_parts.len(), 8, "every subset of three sectors");
}

#[test]
fn discards_can_be_lost_or_torn() {
    let device = RecordingDevice::new(MemDevice::from_bytes(&[1; 64 * SECTOR]));
    let (at, len) = cut(64 * SECTOR, 8, 32);
    device.submit(vec![Request::discard(Kind::Data, at as u64, len as u64)]).wait_all().unwrap();
    let zeros = |choice| device.crash_state(1, &choice).to_bytes().chunks(SECTOR).filter(|s| s[0] == 0).count();
    assert_eq!((zeros(CrashChoice::AllKept), zeros(CrashChoice::NoneKept)), (32, 0));
    assert!((1..32).contains(&zeros(CrashChoice::List(vec![Fate::Torn(3)]))));
}

#[test]
fn a_growth_is_durable_with_the_next_flush() {
    let device = RecordingDevice::new(MemDevice::from_bytes(&[1; 1024]));
    device.set_size(2048).unwrap();
    device.write_at(Kind::Data, 512, &[2; 1024]).unwrap();
    device.flush().unwrap();
    assert_eq!(device.pending_at(2), 2);
    let grown = |at, choice| device.crash_state(at, &choice).to_bytes();
    assert_eq!(grown(2, CrashChoice::AllKept), [[1; 512], [2; 512], [2; 512], [0; 512]].concat());
    assert_eq!(grown(2, CrashChoice::NoneKept), [1; 1024]);
    assert_eq!(grown(2, CrashChoice::DropOne(0)), [[1; 512], [2; 512]].concat());
    assert_eq!(grown(3, CrashChoice::NoneKept), grown(2, CrashChoice::AllKept));
    device.set_size(512).unwrap();
    assert_eq!((device.pending_at(4), grown(4, CrashChoice::NoneKept).len()), (0, 512));
}

#[test]
fn a_crash_state_is_independent() {
    let device = RecordingDevice::new(MemDevice::new(8192));
    device.write_at(Kind::Data, 0, &[1; 512]).unwrap();
    device.flush().unwrap();
    let state = device.crash_state(2, &CrashChoice::AllKept);
    state.write_at(Kind::Data, 0, &[2; 512]).unwrap();
    state.set_size(512).unwrap();
    assert_eq!(device.crash_state(2, &CrashChoice::AllKept).to_bytes()[..512], [1; 512]);
    assert_eq!(device.geometry().size, 8192);
}
