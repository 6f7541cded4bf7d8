//! What a file may have, found by trying; for the table of the documents.

use super::*;

/// Names and attributes beyond which nobody counts.
const MANY: (usize, usize) = (70_000, 5000);

/// The largest number up to `most` that `works`, if all below it do.
fn largest(most: u64, works: impl Fn(u64) -> bool) -> u64 {
    let (mut least, mut most) = (0, most);
    while least < most {
        let middle = most - (most - least) / 2;
        if works(middle) { least = middle } else { most = middle - 1 }
    }
    least
}

/// How many of `most` steps `work`, one after the other.
fn count(most: usize, works: impl FnMut(&usize) -> bool) -> String {
    match (0..most).take_while(works).count() {
        n if n == most => format!("{n} or more"),
        n => n.to_string(),
    }
}

/// The engine's row of the table: on a volume of 64 MiB as it is made without options.
pub fn what_a_file_may_have(engine: &dyn Engine) -> String {
    let config = Config::new(Profile::Small);
    let memory = config.memory();
    engine.format(config.devices(&memory), &config.format_options()).expect("format");
    let fs = mount(engine, &config, config.devices(&memory), &Arc::new(ManualClock::new(BEGIN))).expect("mount");
    let f = create(&*fs, fs.root(), "file");
    let size = largest(i64::MAX as u64, |size| truncate_to(&*fs, f, size).is_ok());
    truncate_to(&*fs, f, 0).expect("truncate");
    let set = |name: &str, len| fs.setxattr(f, name.as_bytes(), &vec![1; len], Default::default());
    let value = largest(65_536, |len| set("user.value", len as usize).is_ok());
    fs.removexattr(f, b"user.value").expect("removexattr");
    let attributes = count(MANY.1, |n| set(&format!("user.{n:05}"), 10).is_ok());
    let name = largest(1000, |len| fs.link(f, fs.root(), &vec![b'n'; len as usize]).is_ok());
    let links = |n: &usize| attr(&*fs, f).nlink > *n as u32 || fs.link(f, fs.root(), n.to_string().as_bytes()).is_ok();
    let links = count(MANY.0, links);
    let other = create(&*fs, fs.root(), "other");
    let after = match fs.fallocate(other, FallocMode::KEEP_SIZE, 0, 100_000) {
        Ok(()) => "yes",
        Err(_) => "no (`EOPNOTSUPP`)",
    };
    format!("| {} | {size} | {attributes} | {value} | {links} | {name} | {after} |", engine.name())
}
