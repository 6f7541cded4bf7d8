//! Making a volume: cylinder groups, root directory, superblock. Inode tables are not written: a group records how much
//! of its table is in use.

use crate::bitmap::count;
use crate::format::*;
use crate::{options, superblock};
use arbor_base::device::{Device, Kind, Request};
use arbor_base::layout::crc;
use arbor_base::vfs::{Devices, Error, FormatOptions, Result, label_field, mode};
use arbor_kit::dirent::first_chunks;
use zerocopy::IntoBytes;

/// Formats the main device.
pub(crate) fn format(devices: Devices, o: &FormatOptions) -> Result<()> {
    let f = options::Format::parse(&o.options)?;
    let dev = &*devices.main;
    let mut sb = layout(&f, o, dev.geometry().size)?;
    let geom = superblock::geometry(&sb, 0, dev.geometry().size)?;
    // The old superblock goes first: a crash in the middle leaves no volume, not a mixed one.
    dev.write_at(Kind::Super, 0, &[0; SECTOR])?;
    dev.flush()?;
    let root = root_frag(&sb, &geom);
    let mut sums = Vec::with_capacity(geom.cg_count as usize * size_of::<Summary>());
    for cgx in 0..geom.cg_count {
        let cg = group(&sb, &geom, cgx, root);
        sums.extend_from_slice(&cg[CG_SUM_AT..CG_SUM_AT + size_of::<Summary>()]);
        write_changed(dev, geom.byte(geom.cg_block(cgx)), &cg)?;
        if cgx > 0 {
            superblock::write(dev, geom.byte(geom.cg_start(cgx)), &sb)?;
        }
    }
    sb.summary_crc = crc(&sums).into();
    sums.resize(geom.bytes_of(geom.summary_frags()), 0);
    dev.write_at(Kind::Group, geom.byte(Frag(sb.summary_start.get())), &sums)?;
    write_root(dev, &geom, root, o)?;
    if sb.journal_frags.get() > 0 {
        clear_journal(dev, &sb, &geom)?;
    }
    dev.flush()?;
    // The superblock itself comes last, when everything else is durable.
    superblock::write(dev, 0, &SuperBlock { clean: 1.into(), ..sb })?;
    Ok(dev.flush()?)
}

const CG_SUM_AT: usize = std::mem::offset_of!(CgHeader, sum);

/// Fragment of the root directory: after the summary area, in a block of its own.
fn root_frag(sb: &SuperBlock, geom: &Geom) -> Frag {
    Frag((sb.summary_start.get() + geom.summary_frags()).next_multiple_of(geom.block_frags()))
}

/// Blocks, fragments and cylinder groups of a volume of `size` bytes.
fn divide(f: &options::Format, size: u64) -> Result<Geom> {
    let too_small = || Error::refused(format!("{size} bytes are too few for a volume with these options"));
    let block_frags = 1u32 << (f.block_shift - f.frag_shift);
    let all = size >> f.block_shift << (f.block_shift - f.frag_shift);
    let all = u32::try_from(all).map_err(|_| {
        let most = ((1u64 << 32) - u64::from(block_frags)) << f.frag_shift;
        let frag = 1u64 << f.frag_shift;
        Error::refused(format!(
            "{size} bytes are too many: with fragments of {frag} bytes a volume has at most {most} (see block= and frag=)"
        ))
    })?;
    let cg = f.cg.unwrap_or_else(|| (size / 8).max(4 << 20));
    let wanted = u32::try_from(cg >> f.frag_shift).unwrap_or(u32::MAX).min(all.next_multiple_of(block_frags));
    let mut geom = Geom {
        block_shift: f.block_shift,
        frag_shift: f.frag_shift,
        cg_count: 0,
        cg_frags: wanted / block_frags * block_frags,
        cg_inodes: 0,
        frags: all,
        fsid: 0,
    };
    fit_group(&mut geom, f, cg)?;
    if geom.cg_frags < geom.meta_frags() + 2 * block_frags {
        return Err(too_small());
    }
    if geom.frags % geom.cg_frags < geom.meta_frags() + 2 * block_frags {
        geom.frags -= geom.frags % geom.cg_frags;
    }
    geom.cg_count = geom.frags.div_ceil(geom.cg_frags);
    if geom.cg_count == 0 || geom.cg_count.checked_mul(geom.cg_inodes).is_none() {
        return Err(too_small());
    }
    Ok(geom)
}

/// Lays out a volume on a device of `size` bytes.
fn layout(f: &options::Format, o: &FormatOptions, size: u64) -> Result<SuperBlock> {
    let geom = divide(f, size)?;
    let summary_start = geom.meta_frags();
    let block_frags = geom.block_frags();
    if summary_start + geom.summary_frags() + 2 * block_frags > geom.cg_len(0) {
        return Err(Error::refused("too many cylinder groups: choose larger blocks or groups"));
    }
    let (journal_start, journal_frags) = place_journal(f, &geom, size)?;
    let label = label_field(o.label.as_bytes())?;
    Ok(SuperBlock {
        magic: SUPER_MAGIC,
        crc: 0.into(),
        version: VERSION.into(),
        compat: 0.into(),
        ro_compat: 0.into(),
        incompat: 0.into(),
        clean: 0.into(),
        uuid: o.uuid,
        label,
        block_shift: f.block_shift.into(),
        frag_shift: f.frag_shift.into(),
        cg_count: geom.cg_count.into(),
        cg_frags: geom.cg_frags.into(),
        cg_inodes: geom.cg_inodes.into(),
        keeping: (Keeping::default() as u32).into(),
        frags: u64::from(geom.frags).into(),
        summary_start: summary_start.into(),
        summary_crc: 0.into(),
        journal_start: journal_start.into(),
        journal_frags: journal_frags.into(),
        orphan: 0.into(),
        avg_file_size: f.avg_file_size.into(),
        avg_files_per_dir: f.avg_files_per_dir.into(),
        minfree: f.minfree.into(),
        maxcontig: f.maxcontig.into(),
        maxbpg: f.maxbpg.into(),
        rotdelay: f.rotdelay.into(),
        reserved0: 0.into(),
        mounts: 0.into(),
        created: o.now.secs.into(),
        reserved: [0; 304],
    })
}

/// Chooses the number of inodes of a group, and shrinks the group until its bitmaps fit a block; fails instead if its
/// size was given.
fn fit_group(geom: &mut Geom, f: &options::Format, cg: u64) -> Result<()> {
    let sectors = (geom.block_size() / SECTOR) as u32 - 1;
    loop {
        let bytes = u64::from(geom.cg_frags) << geom.frag_shift;
        let inodes = u32::try_from(bytes / f.density).unwrap_or(u32::MAX / 2);
        geom.cg_inodes = inodes.max(1).next_multiple_of(geom.inodes_per_block());
        if geom.inode_sectors() + geom.frag_sectors() <= sectors {
            return Ok(());
        }
        if f.cg.is_some() {
            return Err(Error::refused(format!(
                "the bitmaps of a cylinder group of {cg} bytes do not fit a block: choose smaller groups"
            )));
        }
        geom.cg_frags = (geom.cg_frags - geom.cg_frags / 16) / geom.block_frags() * geom.block_frags();
    }
}

/// Start and length of the journal: in the middle group, after its inodes.
fn place_journal(f: &options::Format, geom: &Geom, size: u64) -> Result<(u32, u32)> {
    let least = superblock::least_journal(geom);
    let least_bytes = geom.bytes_of(least) as u64;
    let bytes = f.journal.unwrap_or_else(|| (size / 32).clamp(least_bytes, (32 << 20).max(least_bytes)));
    if bytes == 0 {
        return Ok((0, 0));
    }
    let middle = geom.cg_count / 2;
    let middle = if geom.cg_len(middle) < geom.cg_frags { 0 } else { middle };
    let before = if middle == 0 { geom.summary_frags().next_multiple_of(geom.block_frags()) } else { 0 };
    let start = geom.meta_frags() + before + if middle == 0 { geom.block_frags() } else { 0 };
    let room = geom.cg_len(middle).saturating_sub(start) / 4 * 3;
    let frags = u32::try_from(bytes.div_ceil(geom.block_size() as u64)).unwrap_or(u32::MAX);
    let frags = frags.saturating_mul(geom.block_frags());
    if (least..=room).contains(&frags) {
        return Ok((geom.cg_start(middle).0 + start, frags));
    }
    if f.journal.is_none() {
        return Ok((0, 0));
    }
    Err(Error::refused(format!(
        "a journal of {bytes} bytes does not fit: it takes {least_bytes} to {} (three quarters of a cylinder group)",
        geom.bytes_of(room)
    )))
}

/// The structure of an empty group, with its checksums.
fn group(sb: &SuperBlock, geom: &Geom, cgx: u32, root: Frag) -> Vec<u8> {
    let mut cg = vec![0; geom.block_size()];
    let mut take = |first: u32, range: std::ops::Range<u32>| {
        for i in range {
            let (at, mask) = bit_place(first, i);
            cg[at] |= mask;
        }
    };
    let (inodes, frags) = (1, 1 + geom.inode_sectors());
    take(frags, 0..geom.meta_frags());
    take(frags, geom.cg_len(cgx)..geom.cg_frags);
    for (start, len) in
        [(sb.summary_start.get(), geom.summary_frags()), (sb.journal_start.get(), sb.journal_frags.get()), (root.0, 1)]
    {
        if len > 0 && geom.cg_of(Frag(start)) == cgx {
            let at = start - geom.cg_start(cgx).0;
            take(frags, at..at + len);
        }
    }
    if cgx == 0 {
        take(inodes, 0..ROOT.0 as u32 + 1);
    }
    let (mut sum, frsum) = count(geom, cgx, &cg);
    sum.ndir = u32::from(cgx == 0).into();
    let header = CgHeader {
        magic: CG_MAGIC.into(),
        fsid: geom.fsid.into(),
        cgx: cgx.into(),
        frags: geom.cg_len(cgx).into(),
        sum,
        frsum,
        initediblk: if cgx == 0 { geom.inodes_per_block() } else { 0 }.into(),
        inodes: geom.cg_inodes.into(),
        reserved: [0; 420],
        ..CgHeader::default()
    };
    cg[..SECTOR].copy_from_slice(header.as_bytes());
    seal_cg(&mut cg);
    cg
}

/// Writes those pages of a block that differ from the device: a sparse image stays sparse.
fn write_changed(dev: &dyn Device, at: u64, bytes: &[u8]) -> Result<()> {
    let mut old = vec![0; bytes.len()];
    dev.read_at(Kind::Group, at, &mut old)?;
    let mut batch = Vec::new();
    for (i, page) in bytes.chunks(4096).enumerate() {
        if old.get(i * 4096..i * 4096 + page.len()) != Some(page) {
            batch.push(Request::write(Kind::Group, at + i as u64 * 4096, vec![page.to_vec().into()]));
        }
    }
    Ok(dev.submit(batch).wait_all()?)
}

fn write_root(dev: &dyn Device, geom: &Geom, root: Frag, o: &FormatOptions) -> Result<()> {
    let stamp = Stamp::from(o.now);
    let mut inode = Dinode {
        mode: ((mode::IFDIR | 0o755) as u16).into(),
        nlink: 2.into(),
        uid: o.owner.0.into(),
        gid: o.owner.1.into(),
        frags: 1.into(),
        size: (geom.frag_size() as u64).into(),
        atime: stamp,
        mtime: stamp,
        ctime: stamp,
        btime: stamp,
        generation: 1.into(),
        ..Dinode::default()
    };
    inode.db[0] = root.0.into();
    let (block, at) = geom.inode_at(ROOT).ok_or_else(|| Error::refused("no room for the root directory"))?;
    let mut bytes = vec![0; geom.block_size()];
    bytes[at..at + INODE].copy_from_slice(inode.sealed(geom.fsid, ROOT).as_bytes());
    dev.write_at(Kind::Inode, geom.byte(block), &bytes)?;
    Ok(dev.write_at(Kind::Dir, geom.byte(root), &first_chunks(geom.frag_size(), ROOT, ROOT))?)
}

/// Empties the journal. Remains of another volume's journal do not matter, since its `fsid` differs, but a volume of
/// the same UUID may have left some.
fn clear_journal(dev: &dyn Device, sb: &SuperBlock, geom: &Geom) -> Result<()> {
    let start = geom.byte(Frag(sb.journal_start.get()));
    let len = u64::from(sb.journal_frags.get()) << geom.frag_shift;
    let (mut buf, zeros) = (vec![0; 1 << 20], vec![0; 1 << 20]);
    let mut at = 0;
    while at < len {
        let n = (len - at).min(1 << 20) as usize;
        dev.read_at(Kind::Log, start + at, &mut buf[..n])?;
        if buf[..n] != zeros[..n] {
            dev.write_at(Kind::Log, start + at, &zeros[..n])?;
        }
        at += n as u64;
    }
    crate::log::write_tail_at(dev, sb, geom, 0, (1, 1))
}
