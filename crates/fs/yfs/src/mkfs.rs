//! Making a volume: superblock, first AG, root directory. Further AGs are initialised when used.

use crate::format::*;
use crate::log::Log;
use crate::volume::{Core, Io, Volume};
use crate::{options, superblock};
use arbor_base::cache::Name;
use arbor_base::device::{Device, Kind};
use arbor_base::vfs::{Clock, Devices, Error, FormatOptions, Ino, Result, Time, label_field, mode};
use std::sync::Arc;

struct At(Time);

impl Clock for At {
    fn now(&self) -> Time {
        self.0
    }
}

/// Formats the main device, and an external log if one is given.
pub(crate) fn format(mut devices: Devices, o: &FormatOptions) -> Result<()> {
    let f = options::Format::parse(&o.options)?;
    let dev: Arc<dyn Device> = devices.main;
    let log = devices.extra.remove("log");
    let sb = layout(&f, o, dev.geometry().size, log.as_deref().map(|l| l.geometry().size))?;
    let geom = superblock::geometry(&SuperBlock { ag_used: 1.into(), ..sb }, 0, dev.geometry().size)?;
    // The old superblock goes first: a crash in the middle leaves no volume, not a mixed one.
    dev.write_at(Kind::Super, 0, &[0; SECTOR as usize])?;
    dev.flush()?;
    forget_copies(&*dev)?;
    dev.flush()?;
    clear_log(log.as_deref().unwrap_or(&*dev), &sb)?;
    let log_state = Log::new(&geom, &sb, 1, 1);
    let log_dev: &dyn Device = log.as_deref().unwrap_or(&*dev);
    let anchor = LogAnchor {
        fsid: geom.fsid.into(),
        seq: 1.into(),
        tail: Lsn::new(1, LOG_FIRST).0.into(),
        time: o.now.secs.into(),
        ..LogAnchor::default()
    };
    crate::recover::write_anchor(log_dev, sb.log_start.get() * SECTOR, anchor)?;
    log_dev.flush()?;
    let core = Core::new(geom, sb, dev.clone(), log_state, 64 << 20, false);
    let opts = options::Mount::parse(&Default::default())?;
    let volume = Volume::assemble(dev, log, Arc::new(At(o.now)), core, opts, Ino(0));
    volume.run(|core| {
        core.begin()?;
        core.init_ag()?;
        let mut root = core.inew(0, mode::IFDIR | 0o755, o.owner.0, o.owner.1, o.now)?;
        root.d.parent = root.ino.0.into();
        core.iput(&root)?;
        core.sb.root = root.ino.0.into();
        core.commit(o.now);
        Ok(())
    })?;
    let mut io = Io::default();
    let groups = if f.all_groups { geom.ag_count } else { 1 };
    for _ in 1..groups {
        // The log has room for one.
        settle(&volume, &mut io)?;
        volume.run(|core| {
            core.begin()?;
            core.init_ag()?;
            core.commit(o.now);
            Ok(())
        })?;
    }
    settle(&volume, &mut io)?;
    let sb = volume.core.lock().sb;
    for at in geom.early_copies() {
        superblock::write(&*volume.dev, at, &sb)?;
    }
    volume.dev.flush()?;
    // The superblock comes last, when everything else is durable.
    let sb = SuperBlock { clean: 1.into(), ..sb };
    superblock::write(&*volume.dev, 0, &sb)?;
    volume.dev.flush()?;
    Ok(())
}

/// Puts everything in its place but the superblock: the first AG's copy is the superblock itself, and there is no volume
/// before the rest of it.
fn settle(volume: &Volume, io: &mut Io) -> Result<()> {
    volume.flush_log(io)?;
    let mut core = volume.core.lock();
    core.dirty.forget(0);
    core.cache.set_clean(Name::Block(0));
    drop(core);
    volume.checkpoint(io, true)
}

/// Removes superblock copies of an older volume from where the checker would look for them first.
fn forget_copies(dev: &dyn Device) -> Result<()> {
    let mut bytes = vec![0; SECTOR as usize];
    for at in crate::check::copy_places().filter(|at| at + SECTOR <= dev.geometry().size) {
        dev.read_at(Kind::Super, at, &mut bytes)?;
        if bytes.starts_with(&SUPER_MAGIC) {
            dev.write_at(Kind::Super, at, &[0; SECTOR as usize])?;
        }
    }
    Ok(())
}

fn clear_log(log: &dyn Device, sb: &SuperBlock) -> Result<()> {
    let (start, len) = (sb.log_start.get() * SECTOR, sb.log_sectors.get() * SECTOR);
    let (mut buf, zeros) = (vec![0; 1 << 20], vec![0; 1 << 20]);
    let mut at = 0;
    while at < len {
        let n = (len - at).min(1 << 20) as usize;
        log.read_at(Kind::Log, start + at, &mut buf[..n])?;
        if buf[..n] != zeros[..n] {
            log.write_at(Kind::Log, start + at, &zeros[..n])?;
        }
        at += n as u64;
    }
    Ok(())
}

/// Where everything goes on a device of `size` bytes.
fn layout(f: &options::Format, o: &FormatOptions, size: u64, log_size: Option<u64>) -> Result<SuperBlock> {
    let frag = 1u64 << f.frag_shift;
    let mut geom = Geom {
        frag_shift: f.frag_shift,
        block_shift: f.block_shift,
        inode_shift: f.inode_shift,
        ag_frags: 0,
        frags: 0,
        ag_count: 0,
        bitmap_blocks: 0,
        fsid: 0,
        hash_seed: 0,
    };
    let chunk = u64::from(geom.chunk_frags());
    let ag = f.ag.unwrap_or_else(|| (size / 16).next_power_of_two().clamp(16 << 20, 1 << 30));
    let ag_frags = (ag / frag).min(1 << 24).min((size / frag).next_multiple_of(chunk)) / chunk * chunk;
    let too_small = || Error::refused(format!("{size} bytes are too few for a volume with these options"));
    if ag_frags == 0 {
        return Err(too_small());
    }
    geom.ag_frags = ag_frags;
    geom.frags = size / frag;
    geom.bitmap_blocks = (ag_frags as u32).div_ceil(geom.bits_per_bitmap());
    let least = u64::from(geom.first_chunk() + geom.chunk_frags());
    if geom.frags % ag_frags < least {
        geom.frags -= geom.frags % ag_frags;
    }
    geom.ag_count = u32::try_from(geom.frags.div_ceil(ag_frags)).map_err(|_| too_small())?;
    if geom.ag_count == 0 {
        return Err(too_small());
    }
    let (log_start, log_bytes) = place_log(f, &geom, size, log_size)?;
    let label = label_field(o.label.as_bytes())?;
    let maxblkpg = f.maxblkpg.unwrap_or((ag_frags as u32 / geom.block_frags() / 2).max(1));
    Ok(SuperBlock {
        magic: SUPER_MAGIC,
        crc: 0.into(),
        version: VERSION.into(),
        compat: 0.into(),
        ro_compat: 0.into(),
        incompat: if log_size.is_some() { INCOMPAT_EXTERNAL_LOG } else { INCOMPAT_WITNESS }.into(),
        clean: 0.into(),
        uuid: o.uuid,
        label,
        frag_shift: f.frag_shift.into(),
        block_shift: f.block_shift.into(),
        inode_shift: f.inode_shift.into(),
        ag_count: geom.ag_count.into(),
        frags: geom.frags.into(),
        ag_frags: geom.ag_frags.into(),
        ag_used: 0.into(),
        bitmap_blocks: geom.bitmap_blocks.into(),
        log_start: (log_start / SECTOR).into(),
        log_sectors: (log_bytes / SECTOR).into(),
        root: 0.into(),
        hash_seed: u32::from_le_bytes([o.uuid[8], o.uuid[9], o.uuid[10], o.uuid[11]]).into(),
        avg_file_size: f.avg_file_size.into(),
        avg_files_per_dir: f.avg_files_per_dir.into(),
        maxblkpg: maxblkpg.into(),
        mounts: 0.into(),
        created: o.now.secs.into(),
        reserved: [0; 304],
    })
}

/// Start and length of the log area in bytes: in the middle AG (4.3), or all of its own device.
fn place_log(f: &options::Format, geom: &Geom, size: u64, log_size: Option<u64>) -> Result<(u64, u64)> {
    let unit = geom.block_size() as u64;
    let least = Log::min_bytes(geom).next_multiple_of(unit);
    if let Some(have) = log_size {
        let bytes = have.min(1 << 31) / unit * unit;
        return if bytes < least {
            Err(Error::refused(format!("the log device needs {least} bytes")))
        } else {
            Ok((0, bytes))
        };
    }
    let middle = geom.ag_count / 2;
    let middle = if u64::from(geom.ag_len(middle)) < geom.ag_frags { 0 } else { middle };
    let room = u64::from(geom.ag_len(middle)) * geom.frag_size() / 2;
    let bytes = f.log.unwrap_or((size / 32).clamp(least, (32 << 20).max(least))).next_multiple_of(unit).min(1 << 31);
    if bytes < least || bytes > room {
        return Err(Error::refused(format!(
            "a log of {bytes} bytes does not fit: it takes {least} to {room} (half of an allocation group)"
        )));
    }
    let at = geom.ag_start(middle).0 + u64::from(geom.first_chunk() + geom.chunk_frags());
    Ok((at * geom.frag_size(), bytes))
}
