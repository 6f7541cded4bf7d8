//! Contents: offsets, holes, sizes, space.

use super::*;
use crate::rng::{Rng, pattern};
use arbor_base::vfs::{FallocMode, Result, Seek, TrimRange};

const KEEP: FallocMode = FallocMode::KEEP_SIZE;
const PUNCH: FallocMode = FallocMode::KEEP_SIZE.union(FallocMode::PUNCH_HOLE);

fn file(fs: &dyn FileSystem) -> Ino {
    create(fs, fs.root(), "file")
}

/// Whether the engine carries this mode of fallocate; it may say that it does not.
fn carried(done: Result<()>) -> bool {
    match done {
        Ok(()) => true,
        Err(e) if e.errno() == Errno::EOPNOTSUPP => false,
        Err(e) => panic!("fallocate: {e}"),
    }
}

pub fn read_write(fs: &dyn FileSystem) {
    let f = file(fs);
    let all = pattern(1, 0, 300_000);
    for (from, to) in [(0, 1), (1, 4095), (4095, 4097), (4097, 12_288), (12_288, 100_001), (100_001, 300_000)] {
        write(fs, f, from as u64, &all[from..to]);
        assert_eq!(attr(fs, f).size, to as u64);
    }
    assert_eq!(read(fs, f, 0, 300_000), all);
    for (at, len) in [(0, 1), (4095, 2), (5000, 8192), (299_999, 1), (1, 299_999)] {
        assert_eq!(read(fs, f, at as u64, len), all[at..at + len], "{len} bytes at {at}");
    }
}

pub fn past_end(fs: &dyn FileSystem) {
    let f = file(fs);
    assert!(read(fs, f, 0, 10).is_empty());
    write(fs, f, 0, &pattern(1, 0, 5000));
    assert_eq!(read(fs, f, 4990, 100).len(), 10);
    for at in [5000, 5001, 8192, 1 << 40, i64::MAX as u64, u64::MAX] {
        assert!(read(fs, f, at, 100).is_empty(), "at {at}");
    }
    assert!(read(fs, f, 0, 0).is_empty());
}

pub fn empty_write(fs: &dyn FileSystem) {
    let f = file(fs);
    write(fs, f, 0, b"");
    write(fs, f, 100_000, b"");
    assert_eq!(attr(fs, f).size, 0);
}

pub fn holes(fs: &dyn FileSystem) {
    let f = file(fs);
    write(fs, f, 1_000_000, &pattern(1, 0, 10));
    write(fs, f, 500_001, &pattern(2, 0, 10));
    assert_eq!(attr(fs, f).size, 1_000_010);
    let all = read(fs, f, 0, 2_000_000);
    let mut should = vec![0; 1_000_010];
    should[1_000_000..].copy_from_slice(&pattern(1, 0, 10));
    should[500_001..500_011].copy_from_slice(&pattern(2, 0, 10));
    assert!(all == should);
}

pub fn seek(fs: &dyn FileSystem) {
    let f = file(fs);
    write(fs, f, 1 << 20, &pattern(1, 0, 70_000));
    write(fs, f, 8 << 20, &pattern(1, 0, 70_000));
    let data = |at| fs.seek(f, at, Seek::Data).expect("seek for data");
    let hole = |at| fs.seek(f, at, Seek::Hole).expect("seek for a hole");
    assert!(data(0) <= 1 << 20 && data((1 << 20) + 5) == (1 << 20) + 5);
    assert!(hole(1 << 20) >= (1 << 20) + 70_000);
    assert!(data(4 << 20) >= 4 << 20 && data(4 << 20) <= 8 << 20);
    assert_eq!(hole((8 << 20) + 69_000), (8 << 20) + 70_000, "the end of the file counts as a hole");
    let hole = hole(0);
    assert!(hole == 0 || hole >= (1 << 20) + 70_000, "data in a hole at {hole}");
}

pub fn seek_end(fs: &dyn FileSystem) {
    let f = file(fs);
    fails("seek in an empty file", fs.seek(f, 0, Seek::Data), &[Errno::ENXIO]);
    fails("seek in an empty file", fs.seek(f, 0, Seek::Hole), &[Errno::ENXIO]);
    write(fs, f, 0, b"12345");
    for at in [5, 6, 1 << 40, i64::MAX as u64] {
        fails("seek past the end", fs.seek(f, at, Seek::Data), &[Errno::ENXIO]);
        fails("seek past the end", fs.seek(f, at, Seek::Hole), &[Errno::ENXIO]);
    }
    assert_eq!(fs.seek(f, 4, Seek::Hole).expect("seek"), 5);
}

pub fn truncate(fs: &dyn FileSystem) {
    let f = file(fs);
    let bytes = pattern(1, 0, 100_000);
    write(fs, f, 0, &bytes);
    for (cut, grow) in [(70_001, 90_000), (65_536, 80_000), (5000, 5001), (1, 20_000), (0, 10_000)] {
        assert_eq!(truncate_to(fs, f, cut).expect("truncate").size, cut);
        assert_eq!(truncate_to(fs, f, grow).expect("truncate").size, grow);
        let now = read(fs, f, 0, 200_000);
        assert_eq!(now.len() as u64, grow);
        assert_eq!(now[..cut as usize], bytes[..cut as usize], "cut at {cut}");
        assert!(now[cut as usize..].iter().all(|b| *b == 0), "old bytes after a cut at {cut}");
    }
}

pub fn truncate_bounds(fs: &dyn FileSystem) {
    let f = file(fs);
    for size in [4095u64, 4096, 4097, 8191, 8192, 8193, 65_535, 65_536, 65_537] {
        truncate_to(fs, f, 0).expect("truncate");
        write(fs, f, 0, &pattern(size, 0, 70_000));
        truncate_to(fs, f, size).expect("truncate");
        write(fs, f, size + 3, b"!");
        let tail = read(fs, f, size - 1, 100);
        assert_eq!(tail[1..], [0, 0, 0, b'!'], "write after a cut at {size}");
        assert_eq!(tail[0], pattern(size, size - 1, 1)[0]);
    }
}

pub fn fallocate(fs: &dyn FileSystem) {
    let f = file(fs);
    write(fs, f, 0, b"abc");
    fs.fallocate(f, FallocMode::empty(), 0, 100_000).expect("fallocate");
    assert_eq!(attr(fs, f).size, 100_000);
    let all = read(fs, f, 0, 200_000);
    assert!(all[..3] == *b"abc" && all.len() == 100_000 && all[3..].iter().all(|b| *b == 0));
    fs.fallocate(f, FallocMode::empty(), 10, 20).expect("fallocate inside");
    assert_eq!(attr(fs, f).size, 100_000);
    write(fs, f, 50_000, b"xyz");
    assert_eq!(read(fs, f, 49_999, 5), b"\0xyz\0");
}

pub fn fallocate_keep(fs: &dyn FileSystem) {
    let f = file(fs);
    write(fs, f, 0, b"abc");
    if carried(fs.fallocate(f, KEEP, 0, 100_000)) {
        assert_eq!(attr(fs, f).size, 3);
        assert_eq!(read(fs, f, 0, 100), b"abc");
        truncate_to(fs, f, 60_000).expect("truncate");
        assert!(read(fs, f, 3, 100_000).iter().all(|b| *b == 0), "space reads as zeros");
    }
}

/// Takes all space that small and large writes can have.
fn fill_up(fs: &dyn FileSystem) {
    for n in 0..40 {
        let Ok(made) = fs.mknod(&CX, fs.root(), format!("fill{n}").as_bytes(), mode::IFREG | 0o644, 0) else { return };
        let mut at = 0;
        for len in [1 << 20, 65_536, 4096, 1000, 1] {
            while let Ok(took) = fs.write(made.ino, at, &pattern(n, at, len)) {
                at += took as u64;
            }
        }
        fs.syncfs().expect("syncfs of a full volume");
        fs.forget(made.ino, 1);
    }
}

pub fn fallocated_space_takes_writes(fs: &dyn FileSystem) {
    // Bytes written before, size set before, what is given.
    let given: [(usize, u64, u64, u64, FallocMode); 7] = [
        (0, 0, 0, 1 << 20, FallocMode::empty()),
        (0, 0, 1000, 50_001, FallocMode::empty()),
        (600, 600, 0, 20_000, FallocMode::empty()),
        (70_000, 70_000, 30_000, 100_000, FallocMode::empty()),
        (100, 1 << 20, 300_001, 70_000, FallocMode::empty()),
        (0, 0, 0, 150_000, KEEP),
        (600, 600, 65_537, 100_000, KEEP),
    ];
    let mut files = Vec::new();
    for (n, (bytes, size, offset, len, how)) in given.into_iter().enumerate() {
        let f = create(fs, fs.root(), &format!("given{n}"));
        let mut model = pattern(n as u64, 0, bytes);
        write(fs, f, 0, &model);
        truncate_to(fs, f, size).expect("truncate");
        if how == KEEP && !carried(fs.fallocate(f, how, offset, len)) {
            continue;
        } else if how != KEEP {
            fs.fallocate(f, how, offset, len).expect("fallocate");
        }
        model.resize(attr(fs, f).size as usize, 0);
        files.push((f, offset as usize, len as usize, model));
    }
    fill_up(fs);
    // Every other piece first, so that what is written lies between what is not.
    for (step, piece, odd) in [(0, 1, 0), (1, 4096, 0), (2, 7001, 0), (3, 7001, 1), (4, 300_000, 0), (5, 10_000, 0)] {
        for (f, offset, len, model) in &mut files {
            for at in (0..*len).step_by(piece * 2).map(|at| at + piece * odd).filter(|at| at < len).take(64) {
                let (at, n) = (*offset + at, piece.min(*len - at));
                let bytes = pattern(step, at as u64, n);
                let took = fs.write(*f, at as u64, &bytes);
                let took = took.unwrap_or_else(|e| panic!("{n} bytes at {at} of what was given at {offset}: {e}"));
                assert_eq!(took, n, "{n} bytes at {at} of what was given at {offset}");
                model.resize(model.len().max(at + n), 0);
                model[at..at + n].copy_from_slice(&bytes);
            }
            assert!(read(fs, *f, 0, 2 << 20) == *model, "what was given at {offset}, step {step}");
        }
        fs.syncfs().expect("syncfs of a full volume");
    }
}

/// More pieces than the nodes of a map hold that are there before, and free space in pieces too small for nodes.
pub fn fallocated_space_in_many_pieces(fs: &dyn FileSystem) {
    const PAGE: u64 = 4096;
    let f = file(fs);
    for n in 0..1500u64 {
        let small = create(fs, fs.root(), &format!("small{n}"));
        write(fs, small, 0, &pattern(n, 0, 5000 + (n as usize * 700) % 9000));
        fs.forget(small, 1);
    }
    fs.syncfs().expect("syncfs");
    fs.fallocate(f, FallocMode::empty(), 0, 16 << 20).expect("fallocate");
    for n in (0..1500).step_by(2) {
        fs.unlink(fs.root(), format!("small{n}").as_bytes()).expect("unlink");
    }
    fill_up(fs);
    for page in (0..(16 << 20) / PAGE).step_by(2) {
        let at = page * PAGE + 100;
        match fs.write(f, at, &pattern(page, at, 1000)) {
            Ok(n) => assert_eq!(n, 1000, "at {at}"),
            Err(e) => panic!("a write at {at} of what was given: {e}"),
        }
    }
    fs.syncfs().expect("syncfs of a full volume");
    for page in 0..(16 << 20) / PAGE {
        let mut should = vec![0; PAGE as usize];
        if page % 2 == 0 {
            should[100..1100].copy_from_slice(&pattern(page, page * PAGE + 100, 1000));
        }
        assert!(read(fs, f, page * PAGE, PAGE as usize) == should, "page {page}");
    }
}

/// Many files whose maps are each just full, on a full volume: each needs space of its own for the next piece. A write
/// may be refused then, but what was taken is kept.
pub fn fallocated_space_of_many_files(fs: &dyn FileSystem) {
    const PAGE: usize = 4096;
    let files: Vec<Ino> = (0..300)
        .map(|n| {
            let f = create(fs, fs.root(), &format!("file{n}"));
            fs.fallocate(f, FallocMode::empty(), 0, 16 * PAGE as u64).expect("fallocate");
            (1..14).step_by(2).for_each(|page| write(fs, f, page * PAGE as u64, &pattern(page, 0, PAGE)));
            f
        })
        .collect();
    fs.syncfs().expect("syncfs");
    fill_up(fs);
    let last = 15 * PAGE as u64;
    let took = |f: Ino| match fs.write(f, last, &pattern(f.0, last, PAGE)) {
        Ok(n) => {
            assert_eq!(n, PAGE);
            true
        }
        Err(e) => {
            assert_eq!(e.errno(), Errno::ENOSPC);
            false
        }
    };
    let taken: Vec<Ino> = files.into_iter().filter(|f| took(*f)).collect();
    fs.syncfs().expect("syncfs of a full volume");
    assert!(!taken.is_empty(), "nothing of what was given takes a write");
    for f in taken {
        assert!(read(fs, f, last, PAGE) == pattern(f.0, last, PAGE), "a write that was taken is lost");
    }
}

pub fn overwriting_needs_no_space(fs: &dyn FileSystem) {
    let sizes = [100, 600, 5000, 20_000, 70_000, 300_000];
    let files = sizes.map(|size| {
        let f = create(fs, fs.root(), &format!("{size}"));
        write(fs, f, 0, &pattern(1, 0, size + 5000));
        truncate_to(fs, f, size as u64).expect("truncate");
        f
    });
    fill_up(fs);
    for (f, size) in files.into_iter().zip(sizes) {
        for at in [0, size / 2, size - 10] {
            let took =
                fs.write(f, at as u64, &pattern(2, at as u64, 10)).unwrap_or_else(|e| panic!("{size}, {at}: {e}"));
            assert_eq!(took, 10);
        }
        assert_eq!(attr(fs, f).size, size as u64);
    }
    fs.syncfs().expect("syncfs of a full volume");
}

pub fn trim_takes_a_range(fs: &dyn FileSystem) {
    const WHOLE: u64 = 64 << 20;
    write(fs, file(fs), 0, &pattern(1, 0, 5 << 20));
    let trim = |start, len, minlen| fs.trim(&TrimRange { start, len, minlen });
    let bytes = |start, len, minlen| trim(start, len, minlen).expect("trim");
    let all = bytes(0, u64::MAX, 0);
    let known = fs.statfs().expect("statfs");
    assert!(all <= known.blocks * u64::from(known.frsize), "{all} bytes are more than there are");
    // What was never used need not be given back.
    assert!(all > 1 << 20 && all <= WHOLE - (5 << 20), "{all} bytes");
    assert_eq!(bytes(0, WHOLE, 0), all, "what is free can be given back again");
    let half = 8 << 20;
    let halves = bytes(0, half, 0) + bytes(half, WHOLE - half, 0);
    assert!(halves >= all && halves <= WHOLE - (5 << 20), "{all} bytes, {halves} in halves");
    let odd = half + 777;
    let split = bytes(0, odd, 0) + bytes(odd, u64::MAX, 0);
    assert!(split <= halves && split + 65_536 >= all, "{split} of {all} bytes in two odd halves");
    assert!(bytes(half, 1 << 20, 0) <= 1 << 20);
    assert_eq!(bytes(half, 1 << 20, (1 << 20) + 1), 0, "runs that are too short");
    let long = bytes(0, WHOLE, 1 << 20);
    assert!(long > 0 && long <= all, "{long} bytes in runs of 1 MiB");
    for (what, start, len, minlen) in [
        ("nothing", 0, 0, 0),
        ("less than a block", 0, 511, 0),
        ("from the end on", WHOLE, WHOLE, 0),
        ("from far after the end on", u64::MAX, 4096, 0),
        ("longer runs than there are", 0, u64::MAX, 1 << 40),
    ] {
        fails(what, trim(start, len, minlen), &[Errno::EINVAL]);
    }
}

pub fn punch(fs: &dyn FileSystem) {
    let f = file(fs);
    let mut all = pattern(1, 0, 100_000);
    write(fs, f, 0, &all);
    for (at, len) in [(10, 20), (4096, 4096), (8000, 9000), (65_536, 30_000), (99_000, 50_000), (200_000, 5)] {
        if !carried(fs.fallocate(f, PUNCH, at, len)) {
            return;
        }
        let end = (at + len).min(100_000) as usize;
        if at < 100_000 {
            all[at as usize..end].fill(0);
        }
        assert!(read(fs, f, 0, 200_000) == all, "punched {len} at {at}");
    }
}

pub fn zero_range(fs: &dyn FileSystem) {
    let f = file(fs);
    let mut all = pattern(1, 0, 50_000);
    write(fs, f, 0, &all);
    if !carried(fs.fallocate(f, FallocMode::ZERO_RANGE, 5000, 10_000)) {
        return;
    }
    all[5000..15_000].fill(0);
    assert!(read(fs, f, 0, 100_000) == all);
    if carried(fs.fallocate(f, FallocMode::ZERO_RANGE | KEEP, 45_000, 10_000)) {
        all[45_000..].fill(0);
        assert!(read(fs, f, 0, 100_000) == all, "the size is kept");
    }
    if carried(fs.fallocate(f, FallocMode::ZERO_RANGE, 45_000, 10_000)) {
        all.resize(55_000, 0);
        assert!(read(fs, f, 0, 100_000) == all, "the file grows");
    }
}

pub fn fallocate_bad(fs: &dyn FileSystem) {
    let f = file(fs);
    fails("length 0", fs.fallocate(f, FallocMode::empty(), 0, 0), &[Errno::EINVAL]);
    let no = [Errno::EOPNOTSUPP, Errno::EINVAL];
    fails("punch that changes the size", fs.fallocate(f, FallocMode::PUNCH_HOLE, 0, 10), &no);
    fails("punch and zero", fs.fallocate(f, PUNCH | FallocMode::ZERO_RANGE, 0, 10), &no);
    fails("unknown mode", fs.fallocate(f, FallocMode::from_bits_retain(0x40), 0, 10), &no);
    let far = [Errno::EFBIG, Errno::ENOSPC, Errno::EINVAL];
    fails("overflow", fs.fallocate(f, FallocMode::empty(), u64::MAX - 5, 10), &far);
    fails("too far", fs.fallocate(f, FallocMode::empty(), i64::MAX as u64, 10), &far);
    assert_eq!(attr(fs, f).size, 0);
}

pub fn far(fs: &dyn FileSystem) {
    let f = file(fs);
    let mut size = 0;
    for at in [(2 << 30) - 3, (4 << 30) - 3, 1 << 35, 1 << 42, 1 << 52, i64::MAX as u64 - 8] {
        match fs.write(f, at, b"far out") {
            Ok(n) => {
                assert_eq!((n, attr(fs, f).size), (7, at + 7));
                assert_eq!(read(fs, f, at, 100), b"far out");
                assert_eq!(read(fs, f, at - 4, 4), [0; 4]);
                size = at + 7;
            }
            Err(e) => assert!(e.errno() == Errno::EFBIG && at >= 2 << 30, "write at {at}: {e}"),
        }
    }
    fails("write past the largest size", fs.write(f, i64::MAX as u64, b"xx"), &[Errno::EFBIG, Errno::EINVAL]);
    fails("write past all sizes", fs.write(f, u64::MAX - 1, b"xxx"), &[Errno::EFBIG, Errno::EINVAL]);
    fails("truncate past all sizes", truncate_to(fs, f, u64::MAX), &[Errno::EFBIG, Errno::EINVAL]);
    assert_eq!(attr(fs, f).size, size);
}

fn copy_all(fs: &dyn FileSystem, from: (Ino, u64), to: (Ino, u64), len: u64) -> u64 {
    let mut done = 0;
    while done < len {
        match fs.copy_range(from.0, from.1 + done, to.0, to.1 + done, len - done).expect("copy_range") {
            0 => break,
            n => done += n,
        }
    }
    done
}

pub fn copy(fs: &dyn FileSystem) {
    let (a, b) = (create(fs, fs.root(), "a"), create(fs, fs.root(), "b"));
    let bytes = pattern(1, 0, 100_000);
    write(fs, a, 0, &bytes);
    assert_eq!(copy_all(fs, (a, 0), (b, 0), 100_000), 100_000);
    assert!(read(fs, b, 0, 200_000) == bytes);
    assert_eq!(copy_all(fs, (a, 90_000), (b, 5001), 50_000), 10_000, "the source ends");
    assert_eq!(read(fs, b, 5001, 10_000), bytes[90_000..]);
    assert_eq!(read(fs, b, 15_001, 100), bytes[15_001..15_101]);
    write(fs, a, 0, &pattern(2, 0, 100_000));
    assert_eq!(read(fs, b, 0, 100), bytes[..100], "a copy is a copy");
    assert_eq!(fs.copy_range(a, 100_000, b, 0, 10).expect("at the end"), 0);
    assert_eq!(fs.copy_range(a, 0, b, 0, 0).expect("nothing"), 0);
    assert_eq!(copy_all(fs, (a, 0), (b, 300_000), 10), 10);
    assert_eq!(attr(fs, b).size, 300_010);
}

pub fn copy_same(fs: &dyn FileSystem) {
    let a = file(fs);
    write(fs, a, 0, &pattern(1, 0, 40_000));
    fails("overlap", fs.copy_range(a, 0, a, 5000, 10_000), &[Errno::EINVAL]);
    fails("overlap", fs.copy_range(a, 5000, a, 0, 10_000), &[Errno::EINVAL]);
    fails("same place", fs.copy_range(a, 100, a, 100, 10), &[Errno::EINVAL]);
    assert_eq!(read(fs, a, 0, 50_000), pattern(1, 0, 40_000));
    assert_eq!(copy_all(fs, (a, 0), (a, 20_000), 20_000), 20_000);
    assert_eq!(read(fs, a, 20_000, 30_000), pattern(1, 0, 20_000));
}

pub fn open_unlinked(fs: &dyn FileSystem) {
    let f = file(fs);
    write(fs, f, 0, &pattern(1, 0, 100_000));
    fs.setxattr(f, b"user.a", b"value", Default::default()).expect("setxattr");
    fs.unlink(fs.root(), b"file").expect("unlink");
    assert_eq!(find(fs, fs.root(), "file"), None);
    assert_eq!((attr(fs, f).nlink, attr(fs, f).size), (0, 100_000));
    write(fs, f, 50_000, &pattern(2, 0, 100_000));
    fs.fsync(f, false).expect("fsync");
    fs.syncfs().expect("syncfs");
    assert_eq!(read(fs, f, 0, 50_000), pattern(1, 0, 50_000));
    assert_eq!(read(fs, f, 50_000, 200_000), pattern(2, 0, 100_000));
    truncate_to(fs, f, 10).expect("truncate");
    assert_eq!(fs.getxattr(f, b"user.a").expect("getxattr"), b"value");
    let dir = mkdir(fs, fs.root(), "dir");
    fs.rmdir(fs.root(), b"dir").expect("rmdir");
    assert_eq!(attr(fs, dir).nlink, 0);
    fs.forget(dir, 1);
    fs.forget(f, 1);
}

pub fn unlinked_name_again(fs: &dyn FileSystem) {
    let old = file(fs);
    write(fs, old, 0, b"old bytes");
    for i in 0..20 {
        fs.unlink(fs.root(), b"file").expect("unlink");
        let new = file(fs);
        assert_ne!(new, old, "a number in use is not given out again");
        assert_eq!(attr(fs, new).size, 0);
        write(fs, new, 0, b"new");
        assert_eq!(read(fs, old, 0, 100), b"old bytes", "round {i}");
        fs.forget(new, 1);
    }
}

pub fn made_whole(fs: &dyn FileSystem) {
    let dir = mkdir(fs, fs.root(), "dir");
    let set = SetAttr { gid: Some(7), mode: Some(0o2755), ..SetAttr::default() };
    fs.setattr(dir, &set).expect("setattr");
    let (before, cx) = (attr(fs, dir), Cx { uid: 3, gid: 4 });
    let name = |len: usize| format!("file{len}");
    let lens = [0, 1, 39, 40, 250, 255, 256, 257, 1023, 1024, 1025, 2048, 4000, 4096, 5000, 100_000];
    for len in lens {
        fs.make_file(&cx, dir, name(len).as_bytes(), 0o640, &pattern(len as u64, 0, len)).expect("make_file");
        let no = [Errno::EEXIST];
        fails("make_file", fs.make_file(&cx, dir, name(len).as_bytes(), 0o600, b"other"), &no);
        let made = fs.lookup(dir, name(len).as_bytes()).expect("lookup");
        let expected = (mode::IFREG | 0o640, 1, 3, 7, len as u64);
        assert_eq!((made.mode, made.nlink, made.uid, made.gid, made.size), expected);
        assert_eq!(made, attr(fs, made.ino));
        assert_eq!(read(fs, made.ino, 0, len + 10), pattern(len as u64, 0, len));
        assert_eq!(read(fs, made.ino, 7, len), pattern(len as u64, 0, len).get(7..).unwrap_or_default());
        write(fs, made.ino, len as u64, b"more");
        assert_eq!(attr(fs, made.ino).size, len as u64 + 4);
        fs.forget(made.ino, 1);
    }
    assert_eq!((list(fs, dir).len(), attr(fs, dir).nlink), (lens.len(), before.nlink));
    lens.iter().for_each(|len| fs.unlink(dir, name(*len).as_bytes()).expect("nobody has it"));
    fails("make_file", fs.make_file(&cx, file(fs), b"a", 0o600, b"x"), &[Errno::ENOTDIR]);
    fails("make_file", fs.make_file(&cx, dir, b"a/b", 0o600, b"x"), &[Errno::EINVAL]);
    fails("make_file", fs.make_file(&cx, dir, &[b'n'; 256], 0o600, b"x"), &[Errno::ENAMETOOLONG]);
    fs.rmdir(fs.root(), b"dir").expect("rmdir");
    fails("make_file", fs.make_file(&cx, dir, b"a", 0o600, b"x"), &[Errno::ENOENT]);
}

pub fn tmpfile(fs: &dyn FileSystem) {
    let dir = mkdir(fs, fs.root(), "dir");
    let tmp = fs.tmpfile(&CX, dir, 0o640).expect("tmpfile");
    assert_eq!((tmp.mode, tmp.nlink, tmp.size), (mode::IFREG | 0o640, 0, 0));
    assert!(list(fs, dir).is_empty());
    write(fs, tmp.ino, 0, &pattern(1, 0, 20_000));
    let named = fs.link(tmp.ino, dir, b"named").expect("link");
    assert_eq!((named.ino, named.nlink), (tmp.ino, 1));
    fs.forget(tmp.ino, 2);
    let found = fs.lookup(dir, b"named").expect("lookup");
    assert_eq!(read(fs, found.ino, 0, 30_000), pattern(1, 0, 20_000));
    fs.forget(found.ino, 1);
}

pub fn tmpfile_vanishes(fs: &dyn FileSystem) {
    for i in 0..100 {
        let tmp = fs.tmpfile(&CX, fs.root(), 0o600).expect("tmpfile");
        write(fs, tmp.ino, 0, &pattern(i, 0, 1 << 20));
        fs.forget(tmp.ino, 1);
    }
    let left = fs.tmpfile(&CX, fs.root(), 0o600).expect("tmpfile");
    write(fs, left.ino, 0, b"still referenced at the unmount");
    assert!(list(fs, fs.root()).is_empty());
}

pub fn blocks(fs: &dyn FileSystem) {
    let f = file(fs);
    truncate_to(fs, f, 1 << 30).expect("truncate");
    assert!(attr(fs, f).blocks < 2048, "a hole takes space");
    truncate_to(fs, f, 0).expect("truncate");
    write(fs, f, 0, &pattern(1, 0, 1 << 20));
    fs.fsync(f, false).expect("fsync");
    let full = attr(fs, f).blocks;
    assert!((2048..=4096).contains(&full), "1 MiB takes {full} blocks of 512 bytes");
    truncate_to(fs, f, 0).expect("truncate");
    fs.fsync(f, false).expect("fsync");
    assert!(attr(fs, f).blocks < 64, "an empty file takes {} blocks", attr(fs, f).blocks);
}

pub fn statfs(fs: &dyn FileSystem) {
    let free = || {
        fs.syncfs().expect("syncfs");
        let s = fs.statfs().expect("statfs");
        assert!(s.bfree <= s.blocks && s.bavail <= s.bfree && s.ffree <= s.files && s.namelen == 255, "{s:?}");
        (s.bfree * u64::from(s.frsize), s.ffree)
    };
    let churn = || {
        let dir = mkdir(fs, fs.root(), "dir");
        for i in 0..50 {
            let f = create(fs, dir, &format!("f{i}"));
            write(fs, f, 0, &pattern(i, 0, 40_000));
            fs.forget(f, 1);
        }
        let full = free();
        for i in 0..50 {
            fs.unlink(dir, format!("f{i}").as_bytes()).expect("unlink");
        }
        fs.rmdir(fs.root(), b"dir").expect("rmdir");
        fs.forget(dir, 1);
        full
    };
    let fresh = free();
    let full = churn();
    assert!(fresh.0 - full.0 >= 50 * 40_000, "2 MB take {} bytes", fresh.0 - full.0);
    let first = free();
    // A structure may stay for the next time, but nothing may be lost with every round.
    assert!(first.0 + (1 << 20) >= fresh.0, "{} bytes did not come back", fresh.0 - first.0);
    for _ in 0..3 {
        churn();
    }
    let last = free();
    assert!(last.0 + 65_536 >= first.0, "space is lost: {} after {}", last.0, first.0);
}

pub fn overwrites(fs: &dyn FileSystem) {
    let (f, mut rng) = (file(fs), Rng::new(5));
    let mut model = Vec::new();
    for tag in 0..400 {
        let (at, len) = (rng.below(400_000) as usize, 1 + rng.below(30_000) as usize);
        let bytes = pattern(tag, at as u64, len);
        model.resize(model.len().max(at + len), 0);
        model[at..at + len].copy_from_slice(&bytes);
        write(fs, f, at as u64, &bytes);
        if tag % 50 == 0 {
            fs.fsync(f, true).expect("fdatasync");
        }
    }
    assert!(read(fs, f, 0, 1 << 20) == model);
}
