//! Sequences that lead where drawn ones seldom come; the crash explorer runs them, with mistakes planted and without.

use arbor_base::vfs::Options;
use arbor_torture::config::Config;
use arbor_torture::generate::Profile;
use arbor_torture::ops::parse;

fn listed(device_size: u64, budget: usize, list: &str) -> Config {
    let replay = Some(parse(list).expect("a list of operations"));
    let format = Options::parse("segment=64K,block=4K");
    Config { device_size, budget, format, replay, count: 1, ..Config::crash(Profile::Full) }
}

/// One file, written over and over: between two checkpoints the log goes round the whole volume.
pub fn over_and_over() -> Config {
    let steps = (1..60).map(|n| format!("write /f 0 {} {n}; fsync /f 0", 30_000 + n % 7 * 4000));
    let list = format!("create /f 420 0; {}", steps.collect::<Vec<_>>().join("; "));
    listed(1200 << 10, 300, &list)
}

/// The inode map has several blocks, and the cleaner is the first who reads some of them.
pub fn many_inodes() -> Config {
    let made = (0..700).map(|n| format!("create /f{n} 420 0; write /f{n} 0 900 {n}"));
    let gone = (0..700).filter(|n| n % 3 > 0).map(|n| format!("unlink /f{n}"));
    let (made, gone) = (made.collect::<Vec<_>>().join("; "), gone.collect::<Vec<_>>().join("; "));
    let list = format!(
        "{made}; remount; {gone}; remount; create /big 420 0; write /big 0 300000 1; syncfs; unlink /big; \
         remount; clean 16777216; syncfs; remount; clean 16777216"
    );
    listed(6 << 20, 60, &list)
}
