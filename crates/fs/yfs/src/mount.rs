//! Mounting and unmounting.

use crate::format::*;
use crate::log::Log;
use crate::planted::{Flaw, planted};
use crate::volume::{Core, Volume};
use crate::{options, recover, superblock, validate};
use arbor_base::cache::Name;
use arbor_base::device::{Device, Kind, Request, WaryDevice};
use arbor_base::layout::Corrupt;
use arbor_base::vfs::{Clock, Devices, Errno, Error, Ino, MountOptions, Result, Time};
use std::sync::Arc;

/// Mounts: superblock, recovery, AG headers, recovery lists.
pub(crate) fn mount(mut devices: Devices, options: &MountOptions, clock: Arc<dyn Clock>) -> Result<Arc<Volume>> {
    let opts = options::Mount::parse(&options.options)?;
    let dev = WaryDevice::over(devices.main);
    let Some(mut sb) = superblock::read(&*dev, 0)? else {
        return Err(Error::refused("no yFS superblock"));
    };
    let read_only = arbor_kit::options::read_only(superblock::features(&sb), KNOWN, options, &*dev)?;
    let geom = superblock::geometry(&sb, 0, dev.geometry().size)?;
    let log = devices.extra.remove("log");
    // To look at a volume that was unmounted nobody needs its log.
    if log.is_some() || !read_only || sb.clean.get() == 0 {
        superblock::check_log(&sb, log.is_some())?;
    }
    let now = clock.now();
    if let Some(log) = &log {
        recover::is_ours(&**log, &sb, &geom)?;
        recover::is_of_this_time(&**log, &sb, &geom)?;
    }
    let log_dev: &dyn Device = log.as_deref().unwrap_or(&*dev);
    let (cycle, anchor_seq, is_doubtful) = recover_log(&*dev, log_dev, &mut sb, &geom, read_only, now)?;
    // The log may have grown the volume.
    let geom = superblock::geometry(&sb, 0, dev.geometry().size)?;
    dev.confine(0..geom.frags.saturating_mul(geom.frag_size()));
    let log_state = Log::new(&geom, &sb, cycle, anchor_seq);
    let mut core = Core::new(geom, sb, dev.clone(), log_state, opts.cache_bytes, read_only);
    opts.dirty.limit(&mut core.cache);
    core.windows.set_only_ahead(!opts.windows);
    core.ways = opts.ways;
    let volume = Arc::new(Volume::assemble(dev, log, clock, core, opts, Ino(sb.root.get())));
    if is_doubtful {
        volume.core.lock().health.pass_by("blocks that the log changes were damaged, as far as one can know");
    }
    volume.order().checkpointed_at = now;
    volume.load_ags()?;
    volume.run(|core| core.iget(Ino(sb.root.get())).map(drop))?;
    if !read_only {
        volume.drain_inactive()?;
    }
    Ok(volume)
}

/// Replays the log unless the volume is clean, and starts an empty one. Returns its cycle, the counter of its anchor, and whether
/// blocks were met that look damaged: they have right checksums now, so fsck should look.
fn recover_log(
    dev: &dyn Device,
    log: &dyn Device,
    sb: &mut SuperBlock,
    geom: &Geom,
    read_only: bool,
    now: Time,
) -> Result<(u32, u64, bool)> {
    let start = sb.log_start.get() * SECTOR;
    let clean = sb.clean.get() != 0;
    if read_only {
        // The superblock may say so although there is nothing to replay: damage was met, which fsck should look at.
        let recovered = || recover::replay_what_is_there(dev, log, sb, geom).map(|r| r.records == 0 && !r.anchors_lost);
        if !clean && !recovered()? {
            return Err(Error::refused("the volume needs recovery: mount it for writing once, or run fsck"));
        }
        return Ok((1, 0, false));
    }
    let (cycle, seq, is_doubtful) = if clean {
        let anchor = recover::read_anchor(log, start, geom.fsid)?;
        let lost = || (recover::highest_cycle(log, sb, geom), 0, false);
        anchor.map_or_else(lost, |a| (Lsn(a.tail.get()).cycle(), a.seq.get(), false))
    } else {
        let replay = recover::replay(dev, log, sb, geom)?;
        if replay.anchors_lost {
            return Err(Corrupt::new(
                "log anchor",
                "crc",
                recover::log_location(sb, 0),
                "nothing valid in both copies",
                "a valid anchor (fsck can go on without)",
            )
            .into());
        }
        let is_doubtful = !(replay.suspect.is_empty() && replay.rotten.is_empty() && replay.shut.is_empty());
        recover::write_back(dev, geom, &replay)?;
        if let Some(now) = superblock::read(dev, 0)? {
            *sb = now;
        }
        (replay.cycle, recover::hand_over(dev, log, sb, geom, replay.anchor_seq)?, is_doubtful)
    };
    // A cycle that no record on disk has, not even one after the gap where recovery stopped.
    let skip = if planted(Flaw::CycleKept) { 0 } else { 2 };
    let (cycle, seq) = (cycle.saturating_add(skip), seq.wrapping_add(1));
    // The log says first which mount it is of ([`recover::is_of_this_time`]).
    sb.mounts = recover::next_mount(sb);
    let anchor = LogAnchor {
        fsid: geom.fsid.into(),
        seq: seq.into(),
        tail: Lsn::new(cycle, LOG_FIRST).0.into(),
        time: now.secs.into(),
        mounts: sb.mounts,
        ..LogAnchor::default()
    };
    recover::write_anchor(log, start, anchor)?;
    log.flush()?;
    sb.clean = 0.into();
    superblock::write(dev, 0, sb)?;
    dev.flush()?;
    Ok((cycle, seq, is_doubtful))
}

impl Volume {
    /// Reads the headers of all AGs in use, and the inode recovery lists. An AG whose headers are damaged is in use and full, as far
    /// as is known.
    fn load_ags(&self) -> Result<()> {
        let (geom, used) = {
            let core = self.core.lock();
            (core.geom, core.sb.ag_used.get())
        };
        let len = geom.block_size();
        for group in (0..used).collect::<Vec<_>>().chunks(256) {
            let read = |ag: &u32| Request::read(Kind::Group, geom.group_block(*ag).byte(), 2 * len);
            let found = self.dev.submit(group.iter().map(read).collect()).wait();
            for (ag, bytes) in group.iter().zip(found) {
                let mut loaded = bytes.map_err(Error::Io).and_then(|bytes| self.load_ag(*ag, &bytes));
                if let Err(Error::Corrupt(_) | Error::Io(_)) = loaded {
                    let again = self.dev.submit(vec![read(ag)]).wait().pop().unwrap_or_else(|| Ok(Vec::new()));
                    loaded = again.map_err(Error::Io).and_then(|bytes| self.load_ag(*ag, &bytes));
                }
                if let Err(e @ (Error::Corrupt(_) | Error::Io(_))) = &loaded {
                    let mut core = self.core.lock();
                    core.shut(*ag, e);
                    core.space[*ag].unknown = true;
                } else {
                    loaded?;
                }
            }
        }
        self.run(|core| {
            core.lives.clear_orphans();
            (0..used).try_for_each(|ag| core.load_orphans(ag))
        })
    }

    fn load_ag(&self, ag: u32, bytes: &[u8]) -> Result<()> {
        let mut core = self.core.lock();
        let (geom, (a, b)) = (core.geom, bytes.split_at_checked(core.geom.block_size()).ok_or(Errno::EIO)?);
        check_block(&geom, BlockType::Group, geom.group_block(ag), a)?;
        check_block(&geom, BlockType::Inodes, geom.inode_block(ag), b)?;
        validate::block(BlockType::Inodes, geom.inode_block(ag), b)?;
        core.cache.insert(Name::Block(geom.group_block(ag).0), Arc::new(a.to_vec()));
        core.cache.insert(Name::Block(geom.inode_block(ag).0), Arc::new(b.to_vec()));
        core.attempt.set_blocking(true);
        let loaded = core.load_ag(ag);
        core.attempt.set_blocking(false);
        loaded
    }

    /// Unmounts: makes everything durable and in place, empties the log, marks the superblock clean.
    pub(crate) fn close(&self) -> Result<()> {
        if let Some(done) = self.core.lock().health.begin_unmount() {
            return done;
        }
        let drained = self.drain_inactive();
        let failed = self.core.lock().health.has_failed();
        // What could not be freed keeps nobody else's changes from the disk.
        let done = if failed { drained } else { self.sync_all().and_then(|()| self.settle()).and(drained) };
        self.core.lock().health.end_unmount(done)
    }

    /// Empties the log and marks the superblock clean.
    fn settle(&self) -> Result<()> {
        let mut io = self.order();
        self.run_bitmap_daemon(&mut io, true)?;
        self.flush_log(&mut io)?;
        if planted(Flaw::CleanTooEarly) {
            let sb = self.core.lock().current_super();
            superblock::write(&*self.dev, 0, &SuperBlock { clean: 1.into(), ..sb })?;
        }
        self.checkpoint(&mut io, true)?;
        let (mut sb, damaged) = {
            let mut core = self.core.lock();
            // A caller that waits for the commit lock must not write to a volume that is marked clean.
            core.health.unmount();
            (core.current_super(), core.health.has_met_damage())
        };
        sb.clean = u32::from(!damaged).into();
        self.or_fail(superblock::write(&*self.dev, 0, &sb))?;
        self.or_fail(self.dev.flush().map_err(Error::Io))
    }
}
