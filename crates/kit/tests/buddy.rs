//! The buddy summary: decisions as a text file (`buddy.txt`), and its agreement with a bitmap of
//! booleans.
//!
//! The text file has cases of a command line, `----` and the output, with an empty line after it.
//! With `ARBOR_RERECORD=1` in the environment the outputs are written anew.

use arbor_kit::buddy::{NOFREE, Summary, bitmap};
use proptest::prelude::*;
use std::fmt::Write;

/// A bitmap with its summary, driven by command lines.
#[derive(Default)]
struct Space {
    bm: Vec<u8>,
    bits: u32,
    summary: Option<Summary>,
}

impl Space {
    fn run(&mut self, line: &str) -> String {
        let mut words = line.split_whitespace();
        let command = words.next().unwrap();
        let words: Vec<&str> = words.collect();
        let number =
            |key: &str| words.iter().find_map(|w| w.strip_prefix(key)).map_or(0, |n| n.parse::<u32>().unwrap());
        if command == "build" {
            self.build(number("bits="), &words);
            return self.show();
        }
        let summary = self.summary.as_mut().expect("build comes first");
        let out = match command {
            "used" | "freed" => {
                for (start, len) in words.iter().filter_map(|w| range(w)) {
                    if command == "used" {
                        bitmap::set_used(&mut self.bm, start, len);
                        summary.used(&self.bm, start, len);
                    } else {
                        bitmap::set_free(&mut self.bm, start, len);
                        summary.freed(&self.bm, start, len);
                    }
                }
                self.show()
            }
            "find" => format!("{:?}\n", summary.find(&self.bm, number("order=") as u8, number("from="))),
            "run" => match summary.find_run(&self.bm, number("want="), number("from=")) {
                Some((start, len)) => format!("{start}..{} ({len})\n", start + len),
                None => "none\n".into(),
            },
            "show" => self.show(),
            other => panic!("unknown command {other}"),
        };
        self.summary.as_ref().unwrap().check(&self.bm).unwrap();
        out
    }

    fn build(&mut self, bits: u32, words: &[&str]) {
        (self.bits, self.bm) = (bits, vec![0; bits.div_ceil(8) as usize]);
        for (start, len) in words.iter().filter_map(|w| range(w)) {
            bitmap::set_used(&mut self.bm, start, len);
        }
        self.summary = Some(Summary::build(&self.bm, bits));
    }

    /// The encodings, equal ones counted, and what is free.
    fn show(&self) -> String {
        let summary = self.summary.as_ref().unwrap();
        let mut out = String::from("groups");
        for same in summary.groups().chunk_by(|a, b| a == b) {
            match same[0] {
                NOFREE => out.push_str(" none"),
                v => write!(out, " {v}").unwrap(),
            }
            if same.len() > 1 {
                write!(out, "*{}", same.len()).unwrap();
            }
        }
        let free = bitmap::count_free(&self.bm, self.bits);
        writeln!(out, "\nfree {free} of {}, largest {:?}", self.bits, summary.largest()).unwrap();
        out
    }
}

/// `a..b` as start and length.
fn range(word: &str) -> Option<(u32, u32)> {
    let (a, b) = word.split_once("..")?;
    let (a, b) = (a.parse::<u32>().ok()?, b.parse::<u32>().ok()?);
    Some((a, b - a))
}

#[test]
fn recorded_decisions() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/buddy.txt");
    let text = std::fs::read_to_string(path).unwrap();
    let mut space = Space::default();
    let (mut got, mut in_output) = (String::new(), false);
    for line in text.lines() {
        match (in_output, line) {
            (true, "") => in_output = false,
            (true, _) => continue,
            (false, "----") => in_output = true,
            _ => {}
        }
        if line == "----" {
            continue;
        }
        writeln!(got, "{line}").unwrap();
        if !line.is_empty() && !line.starts_with('#') {
            write!(got, "----\n{}", space.run(line)).unwrap();
        }
    }
    if std::env::var_os("ARBOR_RERECORD").is_some() {
        std::fs::write(path, got).unwrap();
        return;
    }
    for (n, (got, want)) in got.lines().zip(text.lines()).enumerate() {
        assert_eq!(got, want, "line {} of buddy.txt", n + 1);
    }
    assert_eq!(got.lines().count(), text.lines().count());
}

/// The first group at or after that of `from`, or else the first of all, that starts or holds a
/// free buddy, by looking at every bit.
fn naive_find(used: &[bool], order: u8, from: u32) -> Option<u32> {
    let size = 1usize << order;
    let starts: Vec<usize> = (0..used.len())
        .step_by(size)
        .filter(|&s| used.get(s..s + size).is_some_and(|run| run.iter().all(|u| !u)))
        .collect();
    let near = from as usize / 32 * 32;
    starts.iter().find(|&&s| s >= near).or(starts.first()).map(|&s| s as u32)
}

fn naive_run(used: &[bool], start: u32) -> u32 {
    used[start as usize..].iter().take_while(|u| !**u).count() as u32
}

fn check_run(used: &[bool], summary: &Summary, bm: &[u8], want: u32, from: u32) {
    let Some((start, len)) = summary.find_run(bm, want, from) else {
        assert!(want == 0 || used.iter().all(|u| *u));
        return;
    };
    assert!(len > 0 && len <= want && naive_run(used, start) >= len);
    let size = want.next_power_of_two() as usize;
    if used.chunks_exact(size).any(|run| run.iter().all(|u| !u)) {
        assert_eq!(len, want);
    }
    // Whatever is found is no smaller than the largest buddy.
    assert!(len >= want.min(1 << summary.largest().unwrap()));
}

fn check_bitmap(used: &[bool], bm: &[u8], start: u32, len: u32) {
    let bits = used.len() as u32;
    let part = &used[start as usize..(start + len) as usize];
    assert_eq!(bitmap::all_free(bm, start, len), part.iter().all(|u| !u));
    assert_eq!(bitmap::all_used(bm, start, len), part.iter().all(|u| *u));
    assert_eq!(bitmap::free_run(bm, start, len, bits), part.iter().take_while(|u| !**u).count() as u32);
    let before = &used[start.saturating_sub(len) as usize..start as usize];
    assert_eq!(bitmap::free_run_before(bm, start, len), before.iter().rev().take_while(|u| !**u).count() as u32);
    let next = used.iter().skip(start as usize).position(|u| !u).map(|at| start + at as u32);
    assert_eq!(bitmap::next_free(bm, start, bits), next);
    assert_eq!(bitmap::count_free(bm, bits), used.iter().filter(|u| !**u).count() as u32);
    assert!(start == bits || bitmap::is_free(bm, start) != used[start as usize]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn agrees_with_a_bitmap(
        bits in prop_oneof![1..200u32, 1..5000u32, Just(4096)],
        full in any::<bool>(),
        ops in prop::collection::vec((any::<bool>(), any::<u32>(), any::<u32>(), 0..14u32), 1..60),
    ) {
        let mut used = vec![full; bits as usize];
        let mut bm = vec![if full { 0xff } else { 0 }; bits.div_ceil(8) as usize];
        let mut summary = Summary::build(&bm, bits);
        for (take, at, len, scale) in ops {
            let start = at % (bits + 1);
            let len = (len % (1 << scale)).min(bits - start);
            used[start as usize..(start + len) as usize].fill(take);
            if take {
                bitmap::set_used(&mut bm, start, len);
                summary.used(&bm, start, len);
            } else {
                bitmap::set_free(&mut bm, start, len);
                summary.freed(&bm, start, len);
            }
            summary.check(&bm).map_err(TestCaseError::fail)?;
            check_bitmap(&used, &bm, start, len);
            for order in 0..14 {
                prop_assert_eq!(summary.find(&bm, order, start), naive_find(&used, order, start));
            }
            for want in [1, 2, 3, len, len + 1, bits] {
                check_run(&used, &summary, &bm, want, start);
            }
        }
    }

    #[test]
    fn edges_of_the_bitmap(fill in prop::collection::vec(any::<u8>(), 1..40), cut in 0..8u32, at in any::<u32>(), len in any::<u32>()) {
        let bits = fill.len() as u32 * 8 - cut;
        let used: Vec<bool> = (0..bits).map(|i| fill[i as usize / 8] >> (i % 8) & 1 == 1).collect();
        let start = at % (bits + 1);
        check_bitmap(&used, &fill, start, len % (bits - start + 1));
        Summary::build(&fill, bits).check(&fill).map_err(TestCaseError::fail)?;
    }
}

#[test]
fn nothing_at_all() {
    let mut summary = Summary::build(&[], 0);
    summary.used(&[], 0, 0);
    assert_eq!((summary.largest(), summary.find(&[], 0, 7), summary.find_run(&[], 1, 7)), (None, None, None));
    // A bitmap that is too short is in use where it ends.
    assert_eq!(Summary::build(&[0; 2], 4096).largest(), Some(4));
}

#[test]
fn a_large_bitmap() {
    let bits = 1 << 22;
    let mut bm = vec![0; bits as usize / 8];
    let mut summary = Summary::build(&bm, bits);
    assert_eq!(summary.largest(), Some(22));
    assert!(summary.memory() < bits as usize / 32 * 2);
    for i in 0..200_000u32 {
        let (start, len) = summary.find_run(&bm, 1 + i % 21, i.wrapping_mul(2_654_435_761) % bits).unwrap();
        bitmap::set_used(&mut bm, start, len);
        summary.used(&bm, start, len);
    }
    summary.check(&bm).unwrap();
}
