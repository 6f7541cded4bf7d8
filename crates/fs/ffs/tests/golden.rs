//! The golden images of format version 1, which today's code reads: an empty volume, which it also makes byte for
//! byte; one of every form of file, unmounted; and the same with a journal, after a power cut, so that all of it
//! stands in the journal and an open file without a name on the orphan list.

use arbor_ffs::Ffs;
use arbor_torture::golden::{Forms, Golden, Recorded, pack};

static GOLDEN: Golden = Golden::new(&Ffs, env!("CARGO_MANIFEST_DIR"), make_empty, make_full);
const FORMS: Forms = Forms { far: [12 << 12, (12 + 1024) << 12, (12 + 1024 + (1 << 20)) << 12] };

const EMPTY: &str = "v1-empty.bin";
const UNMOUNTED: &str = "v1.bin";
const JOURNAL: &str = "v1-journal.bin";
const WITHOUT: &str = "block=4K,cg=2M,journal=0";
const WITH: &str = "block=4K,cg=2M,journal=1M";

fn make_empty() -> Recorded {
    vec![(EMPTY, pack(&GOLDEN.format(WITH)))]
}

fn make_full() -> Recorded {
    let unmounted = GOLDEN.format(WITHOUT);
    let fs = GOLDEN.mount(&unmounted, "");
    FORMS.fill(&*fs);
    fs.unmount().unwrap();
    let cut = GOLDEN.format(WITH);
    let fs = GOLDEN.mount(&cut, "keep=journal");
    FORMS.fill(&*fs);
    vec![(UNMOUNTED, pack(&unmounted)), (JOURNAL, pack(&cut.snapshot()))]
}

#[test]
fn the_same_bytes_are_made() {
    GOLDEN.same_bytes_are_made();
}

#[test]
fn an_empty_volume_is_read() {
    GOLDEN.an_empty_volume_is_read(EMPTY, &FORMS);
}

#[test]
fn an_unmounted_volume_is_read() {
    GOLDEN.an_unmounted_volume_is_read(UNMOUNTED, &FORMS);
}

#[test]
fn a_journal_is_replayed() {
    GOLDEN.a_cut_volume_is_recovered(JOURNAL, "keep=journal", &FORMS);
}
