//! Show 5: a volume of 1 TiB lies in a file as large as what it holds.

use super::kit::{self, Kit, MIB, Random, below, mib_on_host};
use anyhow::{Result, ensure};
use rustix::fs::{FallocateFlags, SeekFrom};
use rustix::io::Errno;
use std::collections::HashSet;
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Instant;

const PAGE: u64 = 4096;

pub(crate) fn run(kit: &Kit, quick: bool, seed: u64) -> Result<()> {
    let (chunks, pages) = if quick { (256, 5_000) } else { (5 << 10, 100_000) };
    println!("show 5: a volume of 1 TiB, a file of {chunks} MiB, one of {pages} extents, holes; seed {seed}");
    kit.need_space((chunks + 1024) * MIB)?;
    let mut random = Random(seed);

    let (image, took) = kit.mkfs("huge.img", "1T")?;
    below("mkfs", took.as_secs_f64(), 1.0, "s")?;
    below("fresh image on the host", mib_on_host(&image)?, 32.0, "MiB")?;
    let mount = kit.mount(&image, "mnt")?;
    below("mount", mount.took.as_secs_f64(), 1.0, "s")?;
    let large = mount.dir().join("large");
    let extents = mount.dir().join("extents");

    let start = Instant::now();
    let chunk = random.bytes(MIB as usize);
    let written = write_large(&large, chunk, chunks)?;
    println!("  {chunks} MiB written in {:.1} s, checksum {written:08x}", start.elapsed().as_secs_f64());
    let holes = write_extents(&extents, seed, pages, &mut random)?;

    let mount = mount.again(&image)?;
    println!(
        "  mounted again in {:.2} s; image on the host: {:.0} MiB",
        mount.took.as_secs_f64(),
        mib_on_host(&image)?
    );
    let start = Instant::now();
    let read = checksum(&large)?;
    println!("  read back in {:.1} s, checksum {read:08x}", start.elapsed().as_secs_f64());
    ensure!(read == written, "the large file is not as written");
    check_extents(&extents, seed, pages, &holes)?;
    fs::remove_file(large)?;
    fs::remove_file(extents)?;
    mount.umount()?;
    below("image on the host after the deletes", mib_on_host(&image)?, 64.0, "MiB")?;
    kit.check(&image)?;
    println!("  fsck: clean");
    Ok(())
}

/// Writes every second page of a file in random order, so that no two ever join, and punches some of them, which it
/// returns.
fn write_extents(path: &Path, seed: u64, pages: u32, random: &mut Random) -> Result<HashSet<u32>> {
    let start = Instant::now();
    let file = OpenOptions::new().read(true).write(true).create_new(true).open(path)?;
    for (k, page) in random.shuffled(pages).into_iter().enumerate() {
        if k % 1000 == 0 {
            kit::go_on()?;
        }
        file.write_all_at(&content(seed, page), u64::from(page) * 2 * PAGE)?;
    }
    file.sync_all()?;
    println!("  {pages} pages written in random order in {:.1} s", start.elapsed().as_secs_f64());
    let holes: HashSet<u32> = random.shuffled(pages).into_iter().take(pages as usize / 20).collect();
    for &page in &holes {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        rustix::fs::fallocate(&file, flags, u64::from(page) * 2 * PAGE, PAGE)?;
    }
    file.sync_all()?;
    Ok(holes)
}

/// The pages, what was punched and the gaps between them are as they were left.
fn check_extents(path: &Path, seed: u64, pages: u32, holes: &HashSet<u32>) -> Result<()> {
    let file = File::open(path)?;
    let end = file.metadata()?.len();
    let mut wrong = 0;
    let mut space = vec![0; 2 * PAGE as usize];
    for page in 0..pages {
        // No gap lies after the last page.
        let len = (2 * PAGE).min(end - u64::from(page) * 2 * PAGE) as usize;
        file.read_exact_at(&mut space[..len], u64::from(page) * 2 * PAGE)?;
        let (data, gap) = space[..len].split_at(PAGE as usize);
        let expected = if holes.contains(&page) { vec![0; PAGE as usize] } else { content(seed, page) };
        wrong += u32::from(data != expected || gap.iter().any(|&b| b != 0));
    }
    let runs = data_runs(&file)?;
    println!("  {pages} pages read back, {} of them punched: {wrong} wrong; {runs} pieces of data", holes.len());
    ensure!(wrong == 0, "{wrong} pages are not as written");
    ensure!(runs == pages - holes.len() as u32, "{runs} pieces of data, not {}", pages - holes.len() as u32);
    Ok(())
}

/// Writes `count` variants of `chunk`, syncs them, and returns their checksum.
fn write_large(path: &Path, mut chunk: Vec<u8>, count: u64) -> Result<u32> {
    let mut file = File::create_new(path)?;
    let mut sum = 0;
    for i in 0..count {
        kit::go_on()?;
        chunk[..8].copy_from_slice(&i.to_le_bytes());
        file.write_all(&chunk)?;
        sum = crc32c::crc32c_append(sum, &chunk);
    }
    file.sync_all()?;
    Ok(sum)
}

fn checksum(path: &Path) -> Result<u32> {
    let mut file = File::open(path)?;
    let mut space = vec![0; MIB as usize];
    let mut sum = 0;
    loop {
        kit::go_on()?;
        match file.read(&mut space)? {
            0 => return Ok(sum),
            len => sum = crc32c::crc32c_append(sum, &space[..len]),
        }
    }
}

/// What is written to a page.
fn content(seed: u64, page: u32) -> Vec<u8> {
    Random(seed ^ (u64::from(page) << 32)).bytes(PAGE as usize)
}

/// How many stretches of data the file has, as lseek(2) tells.
fn data_runs(file: &File) -> Result<u32> {
    let mut runs = 0;
    let mut at = 0;
    loop {
        at = match rustix::fs::seek(file, SeekFrom::Data(at)) {
            Ok(data) => rustix::fs::seek(file, SeekFrom::Hole(data))?,
            Err(Errno::NXIO) => return Ok(runs),
            Err(e) => return Err(e.into()),
        };
        runs += 1;
    }
}
