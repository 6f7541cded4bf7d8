//! One request to one call of [`FileSystem`], and its result to one reply.
//!
//! A handler runs on a worker, gets the arguments as a slice of the receive buffer and writes its
//! answer straight into the reply buffer. It holds nothing of this crate and never waits for
//! another request of the kernel: no invalidation is sent from here, and the file system below
//! knows nothing of the mount. What the kernel is told once with `ENOSYS` (OPEN, OPENDIR,
//! CREATE, FLUSH, ACCESS, BMAP, POLL; LSEEK under the kernel's write-back cache) it never asks again.
//!
//! The kernel drops a file's set-id bits itself, but for what `HANDLE_KILLPRIV_V2` moves here (`setid.rs`):
//! chown, a WRITE or a truncation that says so, and a SETATTR that changes nothing, which is how
//! it asks for the drop alone (before a write, or for a chown to nobody).

use crate::atime::Atimes;
use crate::caller::Caller;
use crate::counters::{Counters, STATS, stats_text};
use crate::fileattr;
use crate::host::confine::Looker;
use crate::host::record::MountRecord;
use crate::interrupt::Interrupts;
use crate::log::Log;
use crate::options::MountConfig;
use crate::prompt::Promptly;
use crate::proto::*;
use crate::upkeep;
use arbor_base::device::{Claim, Gate};
use arbor_base::vfs::{
    self, Attr, Cx, Entry, Errno, Error, FallocMode, FileSystem, FileType, Ino, RenameFlags, Seek, SetAttr, SetTime,
    Time, TrimRange, XattrMode, acl, mode,
};
use parking_lot::Mutex;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes};

/// Length of the head of a reply, before which an answer is written.
pub(crate) const OUT_HEAD: usize = size_of::<OutHeader>();

/// A reply in the reply buffer.
pub(crate) enum Reply {
    /// None is expected.
    None,
    /// So many bytes follow the head.
    Bytes(usize),
    /// The same, and the kernel now knows this inode once more.
    Entry(usize, Ino),
    /// The same for each entry of a READDIRPLUS.
    Entries(usize),
}

impl Reply {
    /// Bytes behind the head.
    pub(crate) fn len(&self) -> usize {
        match *self {
            Reply::None => 0,
            Reply::Bytes(n) | Reply::Entry(n, _) | Reply::Entries(n) => n,
        }
    }
}

/// What INIT agreed on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Agreed {
    pub(crate) flags: InitFlags,
    /// Extended attributes are carried.
    pub(crate) xattrs: bool,
    /// Version of the protocol, behind the point.
    pub(crate) minor: u32,
}

impl Agreed {
    /// POSIX ACLs are kept.
    fn acl(self) -> bool {
        self.flags.contains(InitFlags::POSIX_ACL)
    }
}

/// Serves requests on a file system.
pub(crate) struct Server {
    pub(crate) fs: Arc<dyn FileSystem>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) log: Log,
    pub(crate) interrupts: Arc<Interrupts>,
    /// Result of the final [`FileSystem::unmount`] if DESTROY has called it.
    pub(crate) destroyed: Mutex<Option<vfs::Result<()>>>,
    pub(crate) atimes: Atimes,
    promptly: Promptly,
    /// Given up when DESTROY is answered: who has waited for umount(2) finds the image free.
    pub(crate) claims: Vec<Arc<Claim>>,
    pub(crate) gate: Gate,
    pub(crate) agreed: Agreed,
    root: Ino,
    entry_timeout: Duration,
    attr_timeout: Duration,
    negative_timeout: Duration,
    pub(crate) shown: Shown,
    /// How the kernel treats an open file.
    open_flags: u32,
    /// What umount is told by; kept up to date with [`FileSystem::failure`].
    pub(crate) record: Mutex<Option<MountRecord>>,
    failure_told: AtomicBool,
    pub(crate) looker: Option<Looker>,
}

/// Owners and permissions that stand in for the stored ones.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shown {
    uid: Option<u32>,
    gid: Option<u32>,
    umask: u32,
}

impl Shown {
    /// Whether an owner or a group may stand in for the stored one.
    pub(crate) fn changes_owners(self) -> bool {
        self.uid.is_some() || self.gid.is_some()
    }

    /// Whether other ones than these are shown.
    pub(crate) fn hides_owner(self, uid: u32, gid: u32) -> bool {
        self.uid.is_some_and(|shown| shown != uid) || self.gid.is_some_and(|shown| shown != gid)
    }

    pub(crate) fn attr(self, a: &Attr) -> Attr {
        // Set-id bits were given together with the owner that is stored.
        let set_id = if self.hides_owner(a.uid, a.gid) { mode::ISUID | mode::ISGID } else { 0 };
        let mode = a.mode & !(self.umask | if a.file_type() == FileType::Dir { 0 } else { set_id });
        Attr { mode, uid: self.uid.unwrap_or(a.uid), gid: self.gid.unwrap_or(a.gid), ..*a }
    }
}

type Handled = vfs::Result<Reply>;

/// A request whose arguments are not as the protocol has them.
fn malformed() -> Error {
    Errno::EIO.into()
}

fn put<T: IntoBytes + Immutable>(out: &mut [u8], value: &T) -> usize {
    let bytes = value.as_bytes();
    out[..bytes.len()].copy_from_slice(bytes);
    bytes.len()
}

fn arg<T: FromBytes>(args: &mut &[u8]) -> vfs::Result<T> {
    take(args).ok_or_else(malformed)
}

fn name<'a>(args: &mut &'a [u8]) -> vfs::Result<&'a [u8]> {
    take_name(args).ok_or_else(malformed)
}

impl Server {
    pub(crate) fn new(
        fs: Arc<dyn FileSystem>,
        config: &MountConfig,
        agreed: Agreed,
        counters: Arc<Counters>,
    ) -> Server {
        let root = fs.root();
        Server {
            fs,
            counters,
            log: Log::default(),
            interrupts: Arc::default(),
            destroyed: Mutex::new(None),
            atimes: Atimes::new(config.access_times_kept(), config.clock.clone()),
            promptly: config.promptly,
            claims: config.claims.clone(),
            gate: config.gate.clone(),
            agreed,
            root,
            entry_timeout: config.entry_timeout,
            attr_timeout: config.attr_timeout,
            negative_timeout: config.negative_timeout,
            shown: Shown { uid: config.uid, gid: config.gid, umask: config.umask },
            open_flags: FOPEN_NOFLUSH | if config.direct_io { FOPEN_DIRECT_IO } else { FOPEN_KEEP_CACHE },
            record: Mutex::new(None),
            failure_told: AtomicBool::new(false),
            looker: Looker::start(config),
        }
    }

    /// Tells once that the file system has failed: in the log, and in the record for umount.
    pub(crate) fn look_for_failure(&self) {
        if self.failure_told.load(Relaxed) {
            return;
        }
        let Some(why) = self.fs.failure() else { return };
        // What fails behind a gate that was shut is no news; asked after the failure, so that none of it slips through.
        if self.gate.is_shut() || self.failure_told.swap(true, Relaxed) {
            return;
        }
        self.log.say(format_args!("the file system is read-only from now on: {why}"));
        if let Some(record) = self.record.lock().as_mut() {
            record.failure = Some(why);
            // Without it umount knows less, and that is all.
            let _ = record.write();
        }
    }

    /// The kernel's root is node 1; where the engine's is another inode the two change places.
    fn ino(&self, node: u64) -> Ino {
        match node {
            ROOT_NODE => self.root,
            n if n == self.root.0 => Ino(ROOT_NODE),
            n => Ino(n),
        }
    }

    fn node(&self, ino: Ino) -> u64 {
        match ino {
            i if i == self.root => ROOT_NODE,
            Ino(ROOT_NODE) => self.root.0,
            Ino(n) => n,
        }
    }

    /// Serves the request `head` with arguments `args` and answers into `out`, which has room
    /// for the head of the reply in front. Returns the length of the reply, 0 for none.
    pub(crate) fn serve(&self, head: &InHeader, args: &[u8], out: &mut [u8]) -> (usize, Reply) {
        let (reply_head, answer) = out.split_at_mut(OUT_HEAD);
        let (errno, reply) = self.answer(head, args, answer);
        if matches!(reply, Reply::None) {
            return (0, reply);
        }
        let len = OUT_HEAD + reply.len();
        put(reply_head, &OutHeader { len: len as u32, error: -errno, unique: head.unique });
        (len, reply)
    }

    /// The same without a head: returns the errno, 0 for success, and what it wrote to `out`.
    pub(crate) fn answer(&self, head: &InHeader, args: &[u8], out: &mut [u8]) -> (i32, Reply) {
        self.counters.count(head.opcode);
        match catch_unwind(AssertUnwindSafe(|| self.handle_promptly(head, args, out))) {
            Ok(Ok(reply)) => (0, reply),
            Ok(Err(e)) => (self.errno(head, &e), Reply::Bytes(0)),
            Err(_) => {
                self.log.say(format_args!("panic in {} of node {}, answered EIO", op_name(head.opcode), head.nodeid));
                self.panicked(op_name(head.opcode));
                (Errno::EIO.0, Reply::Bytes(0))
            }
        }
    }

    /// A panic was caught: nothing more is written.
    pub(crate) fn panicked(&self, what: &str) {
        self.counters.panics.fetch_add(1, Relaxed);
        let fail = || self.fs.fail(&format!("panic in {what}"));
        if catch_unwind(AssertUnwindSafe(fail)).is_err() {
            // Not even that: then the device takes nothing, nor are requests served.
            self.log.say(format_args!("panic again, the volume is shut down"));
            self.gate.shut();
        }
        self.look_for_failure();
    }

    /// The errno to answer with. `ENOSYS` of an engine must not reach the kernel: that would
    /// never ask again, and take a missing fsync for a successful one.
    fn errno(&self, head: &InHeader, e: &Error) -> i32 {
        self.counters.errors.fetch_add(1, Relaxed);
        if let Error::Corrupt(_) | Error::Io(_) | Error::Failed(_) = e {
            self.log.say(format_args!("{} of node {}: {e}", op_name(head.opcode), head.nodeid));
        }
        if matches!(e.errno(), Errno::EIO | Errno::EROFS | Errno::EUCLEAN) {
            self.look_for_failure();
        }
        match e.errno() {
            Errno(n) if !(1..512).contains(&n) => Errno::EIO.0,
            Errno::ENOSYS if !self.declined(head.opcode) => Errno::EOPNOTSUPP.0,
            Errno(n) => n,
        }
    }

    /// Requests that are answered with `ENOSYS` on purpose.
    fn declined(&self, opcode: u32) -> bool {
        match Op::from_number(opcode) {
            Some(Op::Open) => self.agreed.flags.contains(InitFlags::NO_OPEN_SUPPORT),
            Some(Op::Opendir) => self.agreed.flags.contains(InitFlags::NO_OPENDIR_SUPPORT),
            Some(Op::Getxattr | Op::Setxattr | Op::Listxattr | Op::Removexattr) => !self.agreed.xattrs,
            // The kernel does not write back before it asks, so what it has not written would be a hole or
            // behind the end. Declined, it takes the whole file for data.
            Some(Op::Lseek) => self.agreed.flags.contains(InitFlags::WRITEBACK_CACHE),
            Some(Op::Create | Op::Flush | Op::Access | Op::Bmap | Op::Poll) | None => true,
            _ => false,
        }
    }

    /// Takes back what an answer that never arrived has counted.
    pub(crate) fn undelivered(&self, reply: &Reply, answer: &[u8]) {
        self.counters.undelivered.fetch_add(1, Relaxed);
        match *reply {
            Reply::Entry(_, ino) => self.forget(ino, 1),
            Reply::Entries(len) => {
                let mut rest = &answer[..len];
                while let Ok((entry, tail)) = EntryOut::read_from_prefix(rest) {
                    let Ok((dirent, _)) = Dirent::read_from_prefix(tail) else { return };
                    if entry.nodeid != 0 {
                        self.forget(self.ino(entry.nodeid), 1);
                    }
                    let len = record_len(size_of::<EntryOut>() + size_of::<Dirent>(), dirent.namelen as usize);
                    rest = rest.get(len..).unwrap_or_default();
                }
            }
            Reply::None | Reply::Bytes(_) => {}
        }
    }

    fn forget(&self, ino: Ino, count: u64) {
        // Behind it the number may be another file's.
        self.atimes.tell(&*self.fs, ino);
        self.fs.forget(ino, count);
    }

    fn handle_promptly(&self, head: &InHeader, args: &[u8], out: &mut [u8]) -> Handled {
        let reply = self.handle(head, args, out)?;
        let durable = self.promptly.make_durable(&*self.fs, |node| self.ino(node), (head, args), &reply);
        durable.inspect_err(|_| self.undelivered(&reply, out)).map(|()| reply)
    }

    fn handle(&self, head: &InHeader, args: &[u8], out: &mut [u8]) -> Handled {
        let Some(op) = Op::from_number(head.opcode) else { return Err(Errno::ENOSYS.into()) };
        if self.declined(head.opcode) {
            return Err(Errno::ENOSYS.into());
        }
        if self.gate.is_shut() && !fileattr::ends_something(op) {
            return Err(Errno::EIO.into());
        }
        let fs = &*self.fs;
        let caller = Caller::of(head);
        let cx = Cx { uid: head.uid, gid: head.gid };
        let ino = self.ino(head.nodeid);
        let args = &mut { args };
        match op {
            Op::Lookup => self.lookup(ino, name(args)?, out),
            Op::Getattr => Ok(Reply::Bytes(self.attr_out(out, &fs.getattr(ino)?))),
            Op::Statx => Ok(Reply::Bytes(self.statx_out(out, &fs.getattr(ino)?))),
            Op::Setattr => self.setattr(caller, ino, &arg(args)?, out),
            Op::Readlink => {
                let target = fs.readlink(ino)?;
                self.atimes.read(ino, false);
                let bytes = out.get_mut(..target.len()).ok_or(Errno::ENAMETOOLONG)?;
                bytes.copy_from_slice(&target);
                Ok(Reply::Bytes(target.len()))
            }
            Op::Mknod => {
                let what: MknodIn = arg(args)?;
                let name = name(args)?;
                Ok(self.entry(out, &self.create(&cx, (ino, name), (what.mode, what.rdev), what.umask)?))
            }
            Op::Mkdir => {
                let what: MkdirIn = arg(args)?;
                let (name, mode) = (name(args)?, mode::IFDIR | what.mode & 0o7777);
                Ok(self.entry(out, &self.create(&cx, (ino, name), (mode, 0), what.umask)?))
            }
            Op::Symlink => {
                let new = name(args)?;
                Ok(self.entry(out, &fs.symlink(&cx, ino, new, name(args)?)?))
            }
            Op::Tmpfile => {
                let what: CreateIn = arg(args)?;
                self.check_new_setid(&cx, ino, mode::IFREG | what.mode & 0o7777)?;
                let entry = match self.agreed.acl() {
                    true => acl::tmpfile(fs, &cx, ino, what.mode & 0o7777, what.umask)?,
                    false => fs.tmpfile(&cx, ino, what.mode & 0o7777)?,
                };
                let len = self.entry_out(out, &entry);
                Ok(Reply::Entry(len + open_out(&mut out[len..], self.open_flags), entry.ino))
            }
            Op::Link => {
                let what: LinkIn = arg(args)?;
                Ok(self.entry(out, &fs.link(self.ino(what.oldnodeid), ino, name(args)?)?))
            }
            Op::Unlink => done(fs.unlink(ino, name(args)?)),
            Op::Rmdir => done(fs.rmdir(ino, name(args)?)),
            Op::Rename => {
                let to: RenameIn = arg(args)?;
                self.rename(&cx, ino, to.newdir, 0, args)
            }
            Op::Rename2 => {
                let to: Rename2In = arg(args)?;
                self.rename(&cx, ino, to.newdir, to.flags, args)
            }
            Op::Read => {
                let what: ReadIn = arg(args)?;
                let len = out.len().min(what.size as usize);
                let got = fs.read(ino, what.offset, &mut out[..len])?;
                self.counters.read_bytes.fetch_add(got as u64, Relaxed);
                if what.flags & O_NOATIME == 0 {
                    self.atimes.read(ino, false);
                }
                Ok(Reply::Bytes(got))
            }
            Op::Write => self.write(caller, ino, &arg(args)?, args, out),
            // An fsync of the root is the sync of a mount that FUSE_SYNCFS does not reach.
            Op::Fsyncdir if head.nodeid == ROOT_NODE => done(self.syncfs()),
            Op::Fsync | Op::Fsyncdir => {
                let data_only = arg::<FsyncIn>(args)?.fsync_flags & FSYNC_FDATASYNC != 0;
                if !data_only {
                    self.atimes.tell(fs, ino);
                }
                done(fs.fsync(ino, data_only))
            }
            Op::Syncfs => done(self.syncfs()),
            Op::Readdir => self.readdir(ino, &arg(args)?, out),
            Op::Readdirplus => self.readdir_plus(ino, &arg(args)?, out),
            Op::Fallocate => {
                let what: FallocateIn = arg(args)?;
                let mode = FallocMode::from_bits(what.mode).ok_or(Errno::EOPNOTSUPP)?;
                self.drop_hidden(ino)?;
                fs.fallocate(ino, mode, what.offset, what.length)?;
                self.drop_setid_for(caller, ino)?;
                Ok(Reply::Bytes(0))
            }
            Op::Lseek => {
                let what: LseekIn = arg(args)?;
                let whence = match what.whence {
                    3 => Seek::Data,
                    4 => Seek::Hole,
                    _ => return Err(Errno::EINVAL.into()),
                };
                Ok(Reply::Bytes(put(out, &LseekOut { offset: fs.seek(ino, what.offset, whence)? })))
            }
            Op::CopyFileRange | Op::CopyFileRange64 => {
                let what: CopyFileRangeIn = arg(args)?;
                if what.flags != 0 {
                    return Err(Errno::EINVAL.into());
                }
                let to = self.ino(what.nodeid_out);
                self.drop_hidden(to)?;
                // The older reply has 32 bits for the count.
                let len = if op == Op::CopyFileRange { what.len.min(1 << 30) } else { what.len };
                let copied = self.copy_range(ino, to, &CopyFileRangeIn { len, ..what })?;
                self.drop_setid_for(caller, to)?;
                Ok(Reply::Bytes(match op {
                    Op::CopyFileRange => put(out, &WriteOut { size: copied as u32, padding: 0 }),
                    _ => put(out, &CopyFileRangeOut { bytes_copied: copied }),
                }))
            }
            Op::Getxattr => {
                let what: GetxattrIn = arg(args)?;
                let attribute = name(args)?;
                if ino == self.root && attribute == STATS.as_bytes() {
                    return xattr_out(out, what.size, stats_text(&self.counters, fs).as_bytes());
                }
                self.xattr_carried(attribute)?;
                xattr_out(out, what.size, &fs.getxattr(ino, attribute)?)
            }
            Op::Listxattr => {
                let what: GetxattrIn = arg(args)?;
                let mut list = Vec::new();
                for attribute in fs.listxattr(ino)? {
                    let is_listed = match self.xattr_carried(&attribute) {
                        Ok(()) => !attribute.starts_with(b"trusted.") || caller.is_root(),
                        Err(_) => false,
                    };
                    if is_listed {
                        list.extend_from_slice(&attribute);
                        list.push(0);
                    }
                }
                xattr_out(out, what.size, &list)
            }
            Op::Setxattr => {
                let what: SetxattrIn = arg(args)?;
                let more = match self.agreed.flags.contains(InitFlags::SETXATTR_EXT) {
                    true => arg::<SetxattrExt>(args)?.setxattr_flags,
                    false => 0,
                };
                let attribute = name(args)?;
                self.xattr_carried(attribute)?;
                let value = args.get(..what.size as usize).ok_or_else(malformed)?;
                if acl::is_acl(attribute) {
                    return done(acl::set(fs, ino, attribute, value, more & SETXATTR_ACL_KILL_SGID != 0));
                }
                let mode = match what.flags {
                    0 => XattrMode::Set,
                    1 => XattrMode::Create,
                    2 => XattrMode::Replace,
                    _ => return Err(Errno::EINVAL.into()),
                };
                done(fs.setxattr(ino, attribute, value, mode))
            }
            Op::Removexattr => {
                let attribute = name(args)?;
                self.xattr_carried(attribute)?;
                done(fs.removexattr(ino, attribute))
            }
            Op::Statfs => {
                let st = fs.statfs()?;
                Ok(Reply::Bytes(put(
                    out,
                    &StatfsOut {
                        blocks: st.blocks,
                        bfree: st.bfree,
                        bavail: st.bavail,
                        files: st.files,
                        ffree: st.ffree,
                        bsize: st.bsize,
                        namelen: st.namelen,
                        frsize: st.frsize,
                        padding: 0,
                        spare: [0; 6],
                    },
                )))
            }
            Op::Forget => {
                self.forget(ino, arg::<ForgetIn>(args)?.nlookup);
                Ok(Reply::None)
            }
            Op::BatchForget => {
                for _ in 0..arg::<BatchForgetIn>(args)?.count {
                    let Ok(one) = arg::<ForgetOne>(args) else { break };
                    self.forget(self.ino(one.nodeid), one.nlookup);
                }
                Ok(Reply::None)
            }
            Op::NotifyReply => Ok(Reply::None),
            // Where these come the kernel keeps handles, which mean nothing here.
            Op::Open => Ok(Reply::Bytes(open_out(out, self.open_flags))),
            Op::Opendir => Ok(Reply::Bytes(open_out(out, FOPEN_KEEP_CACHE | FOPEN_CACHE_DIR))),
            Op::Release | Op::Releasedir => Ok(Reply::Bytes(0)),
            Op::Ioctl => {
                let what: IoctlIn = arg(args)?;
                self.ioctl(caller, ino, &what, args, out)
            }
            Op::Destroy => {
                let result = self.unmount();
                if let Err(e) = &result {
                    self.log.say(format_args!("unmount: {e}"));
                }
                *self.destroyed.lock() = Some(result);
                self.claims.iter().for_each(|claim| claim.release());
                Ok(Reply::Bytes(0))
            }
            Op::Init => Err(malformed()),
            Op::Interrupt => {
                self.interrupts.interrupt(arg::<InterruptIn>(args)?.unique);
                Ok(Reply::None)
            }
            Op::Create | Op::Flush | Op::Access | Op::Bmap | Op::Poll => Err(Errno::ENOSYS.into()),
        }
    }

    pub(crate) fn syncfs(&self) -> vfs::Result<()> {
        self.atimes.tell_all(&*self.fs);
        self.fs.syncfs()
    }

    /// Only these may be stored: POSIX ACLs that nobody enforces would be a lie, and the kernel
    /// has no other handlers.
    fn xattr_carried(&self, name: &[u8]) -> vfs::Result<()> {
        let known: [&[u8]; 3] = [b"user.", b"trusted.", b"security."];
        let is_known = known.iter().any(|prefix| name.starts_with(prefix) && name.len() > prefix.len());
        let carried = is_known || self.agreed.acl() && acl::is_acl(name);
        if carried { Ok(()) } else { Err(Errno::EOPNOTSUPP.into()) }
    }

    /// Creates a node or a directory. With ACLs the umask is left to us.
    fn create(&self, cx: &Cx, at: (Ino, &[u8]), (mode, rdev): (u32, u32), umask: u32) -> vfs::Result<Entry> {
        self.check_new_setid(cx, at.0, mode)?;
        match self.agreed.acl() {
            true => acl::create(&*self.fs, cx, at, (mode, rdev), umask),
            false if mode & mode::IFMT == mode::IFDIR => self.fs.mkdir(cx, at.0, at.1, mode & 0o7777),
            false => self.fs.mknod(cx, at.0, at.1, mode, rdev),
        }
    }

    fn lookup(&self, parent: Ino, name: &[u8], out: &mut [u8]) -> Handled {
        match self.fs.lookup(parent, name) {
            Ok(entry) => Ok(self.entry(out, &entry)),
            Err(Error::Errno(Errno::ENOENT)) if !self.negative_timeout.is_zero() => {
                let mut entry = EntryOut::new_zeroed();
                entry.entry_valid = self.negative_timeout.as_secs();
                entry.entry_valid_nsec = self.negative_timeout.subsec_nanos();
                Ok(Reply::Bytes(put(out, &entry)))
            }
            Err(e) => Err(e),
        }
    }

    /// Tells the file system the times of access, and unmounts it. What is shut down is left as a crash leaves it.
    pub(crate) fn unmount(&self) -> vfs::Result<()> {
        if self.gate.is_shut() {
            return Ok(());
        }
        let end = || {
            self.atimes.tell_all(&*self.fs);
            self.fs.unmount()
        };
        catch_unwind(AssertUnwindSafe(end)).unwrap_or_else(|_| {
            self.log.say(format_args!("panic while it is unmounted"));
            self.panicked("unmount");
            Err(Errno::EIO.into())
        })
    }

    fn rename(&self, cx: &Cx, parent: Ino, newdir: u64, flags: u32, args: &mut &[u8]) -> Handled {
        let flags = RenameFlags::from_bits(flags).ok_or(Errno::EINVAL)?;
        let (old, new) = (name(args)?, name(args)?);
        done(self.fs.rename(cx, parent, old, self.ino(newdir), new, flags))
    }

    fn setattr(&self, caller: Caller, ino: Ino, what: &SetattrIn, out: &mut [u8]) -> Handled {
        let valid = Fattr::from_bits_truncate(what.valid);
        let time = |given, now, secs: u64, nanos| match (valid.contains(given), valid.contains(now)) {
            (_, true) => Some(SetTime::Now),
            (true, false) => Some(SetTime::At(Time { secs: secs as i64, nanos })),
            (false, false) => None,
        };
        let mut set = SetAttr {
            mode: valid.contains(Fattr::MODE).then_some(what.mode & 0o7777),
            uid: valid.contains(Fattr::UID).then_some(what.uid),
            gid: valid.contains(Fattr::GID).then_some(what.gid),
            size: valid.contains(Fattr::SIZE).then_some(what.size),
            atime: time(Fattr::ATIME, Fattr::ATIME_NOW, what.atime, what.atimensec),
            mtime: time(Fattr::MTIME, Fattr::MTIME_NOW, what.mtime, what.mtimensec),
            ctime: valid
                .contains(Fattr::CTIME)
                .then_some(SetTime::At(Time { secs: what.ctime as i64, nanos: what.ctimensec })),
            btime: None,
        };
        if set.mode.is_some_and(|mode| mode & (mode::ISUID | mode::ISGID) != 0) {
            self.check_setid(ino, &set)?;
        }
        if set.size.is_some() {
            self.drop_hidden(ino)?;
        }
        let kills = valid.intersects(Fattr::KILL_SUIDGID | Fattr::UID | Fattr::GID) || set == SetAttr::default();
        if kills && set.mode.is_none() {
            set.mode = self.dropped_setid(caller, ino, valid.contains(Fattr::KILL_SUIDGID))?;
        }
        let change = || match self.agreed.acl() {
            true => acl::setattr(&*self.fs, ino, &set),
            false => self.fs.setattr(ino, &set),
        };
        let attr = match set.atime {
            _ if set == SetAttr::default() => self.fs.getattr(ino)?,
            None => change()?,
            Some(_) => self.atimes.set_by_hand(ino, change)?,
        };
        Ok(Reply::Bytes(self.attr_out(out, &attr)))
    }

    fn write(&self, caller: Caller, ino: Ino, what: &WriteIn, data: &[u8], out: &mut [u8]) -> Handled {
        let data = data.get(..what.size as usize).ok_or_else(malformed)?;
        self.drop_hidden(ino)?;
        if what.write_flags & WRITE_KILL_SUIDGID != 0 {
            self.drop_setid(caller, ino)?;
        }
        let written = self.fs.write(ino, what.offset, data)?;
        self.counters.written_bytes.fetch_add(written as u64, Relaxed);
        Ok(Reply::Bytes(put(out, &WriteOut { size: written as u32, padding: 0 })))
    }

    /// Copies piece by piece, so that a caller with a signal gets what was copied until then.
    fn copy_range(&self, from: Ino, to: Ino, what: &CopyFileRangeIn) -> vfs::Result<u64> {
        const PIECE: u64 = 8 << 20;
        let mut done = 0;
        while done < what.len && !(done > 0 && vfs::interrupted()) {
            let piece = PIECE.min(what.len - done);
            let (Some(from_at), Some(to_at)) = (what.off_in.checked_add(done), what.off_out.checked_add(done)) else {
                break;
            };
            match self.fs.copy_range(from, from_at, to, to_at, piece) {
                Ok(copied) if copied == piece => done += copied,
                Ok(copied) => return Ok(done + copied),
                Err(e) if done == 0 => return Err(e),
                Err(_) => break,
            }
        }
        Ok(done)
    }

    fn readdir(&self, ino: Ino, what: &ReadIn, out: &mut [u8]) -> Handled {
        let max = out.len().min(what.size as usize);
        let out = &mut out[..max];
        let mut used = 0;
        self.fs.readdir(ino, what.offset, &mut |entry| {
            let len = record_len(size_of::<Dirent>(), entry.name.len());
            let Some(record) = out.get_mut(used..used + len).filter(|_| goes_on(used, len)) else { return false };
            put_dirent(record, entry);
            used += len;
            true
        })?;
        self.atimes.read(ino, true);
        Ok(Reply::Bytes(used))
    }

    fn readdir_plus(&self, ino: Ino, what: &ReadIn, out: &mut [u8]) -> Handled {
        const HEAD: usize = size_of::<EntryOut>();
        let max = out.len().min(what.size as usize);
        let out = &mut out[..max];
        let mut used = 0;
        let walked = self.fs.readdir_plus(ino, what.offset, &mut |entry, attr| {
            let len = record_len(HEAD + size_of::<Dirent>(), entry.name.len());
            let Some(record) = out.get_mut(used..used + len).filter(|_| goes_on(used, len)) else { return false };
            match attr {
                Some(attr) => {
                    self.entry_out(record, attr);
                }
                None => record[..HEAD].fill(0),
            }
            put_dirent(&mut record[HEAD..], entry);
            used += len;
            true
        });
        match walked {
            // What was offered before the error is counted, so it is answered.
            Err(e) if used == 0 => Err(e),
            _ => {
                self.atimes.read(ino, true);
                Ok(Reply::Entries(used))
            }
        }
    }

    /// FITRIM and our own are carried. They are for root, and ours for whoever runs the server too.
    fn ioctl(&self, caller: Caller, ino: Ino, what: &IoctlIn, args: &mut &[u8], out: &mut [u8]) -> Handled {
        let input = args.get(..what.in_size as usize).ok_or_else(malformed)?;
        if let Some(answer) = self.attribute_ioctl(caller, ino, what, input)? {
            return ioctl_out(out, &answer);
        }
        let is_ours = matches!(what.cmd, CLEAN | SCRUB);
        if !is_ours && what.cmd != FITRIM {
            // ENOTTY, which the seam has no name for.
            return Err(Errno(25).into());
        }
        if !(caller.is_root() || is_ours && caller.is_ours()) {
            return Err(Errno::EPERM.into());
        }
        let answer = match what.cmd {
            CLEAN => upkeep::serve_clean(&*self.fs, &arg(args)?)?.as_bytes().to_vec(),
            SCRUB => upkeep::serve_scrub(&*self.fs, &arg(args)?)?.as_bytes().to_vec(),
            _ => {
                let FstrimRange { start, len, minlen } = arg(args)?;
                let len = self.fs.trim(&TrimRange { start, len, minlen })?;
                FstrimRange { start, len, minlen }.as_bytes().to_vec()
            }
        };
        ioctl_out(out, &answer)
    }

    /// How long the kernel may keep attributes: not at all what changes without a call.
    fn attr_timeout(&self, a: &Attr) -> Duration {
        if a.unsettled { Duration::ZERO } else { self.attr_timeout }
    }

    fn wire_attr(&self, a: &Attr) -> crate::proto::Attr {
        let a = self.shown.attr(&self.atimes.shown(a));
        crate::proto::Attr {
            ino: a.ino.0,
            size: a.size,
            blocks: a.blocks,
            atime: a.atime.secs as u64,
            mtime: a.mtime.secs as u64,
            ctime: a.ctime.secs as u64,
            atimensec: a.atime.nanos,
            mtimensec: a.mtime.nanos,
            ctimensec: a.ctime.nanos,
            mode: a.mode,
            nlink: a.nlink,
            uid: a.uid,
            gid: a.gid,
            rdev: a.rdev,
            blksize: a.blksize,
            flags: 0,
        }
    }

    fn entry(&self, out: &mut [u8], entry: &Entry) -> Reply {
        Reply::Entry(self.entry_out(out, entry), entry.ino)
    }

    fn entry_out(&self, out: &mut [u8], entry: &Entry) -> usize {
        put(
            out,
            &EntryOut {
                nodeid: self.node(entry.ino),
                generation: entry.generation,
                entry_valid: self.entry_timeout.as_secs(),
                attr_valid: self.attr_timeout(entry).as_secs(),
                entry_valid_nsec: self.entry_timeout.subsec_nanos(),
                attr_valid_nsec: self.attr_timeout(entry).subsec_nanos(),
                attr: self.wire_attr(entry),
            },
        )
    }

    fn attr_out(&self, out: &mut [u8], attr: &Attr) -> usize {
        put(
            out,
            &AttrOut {
                attr_valid: self.attr_timeout(attr).as_secs(),
                attr_valid_nsec: self.attr_timeout(attr).subsec_nanos(),
                dummy: 0,
                attr: self.wire_attr(attr),
            },
        )
    }

    fn statx_out(&self, out: &mut [u8], a: &Attr) -> usize {
        let a = self.shown.attr(&self.atimes.shown(a));
        let time = |t: Time| SxTime { tv_sec: t.secs, tv_nsec: t.nanos, reserved: 0 };
        put(
            out,
            &StatxOut {
                attr_valid: self.attr_timeout(&a).as_secs(),
                attr_valid_nsec: self.attr_timeout(&a).subsec_nanos(),
                flags: 0,
                spare: [0; 2],
                mask: STATX_MASK,
                blksize: a.blksize,
                attributes: 0,
                nlink: a.nlink,
                uid: a.uid,
                gid: a.gid,
                mode: a.mode as u16,
                spare0: 0,
                ino: a.ino.0,
                size: a.size,
                blocks: a.blocks,
                attributes_mask: 0,
                atime: time(a.atime),
                btime: time(a.btime),
                ctime: time(a.ctime),
                mtime: time(a.mtime),
                rdev_major: a.rdev >> 8 & 0xfff,
                rdev_minor: a.rdev & 0xff | a.rdev >> 12 & 0xf_ff00,
                dev_major: 0,
                dev_minor: 0,
                spare2: [0; 14],
            },
        )
    }
}

fn op_name(opcode: u32) -> &'static str {
    Op::from_number(opcode).map_or("unknown request", Op::name)
}

fn done(result: vfs::Result<()>) -> Handled {
    result.map(|()| Reply::Bytes(0))
}

/// A walk with something to show ends when its caller is let go, which is asked every 4 KiB.
fn goes_on(used: usize, len: usize) -> bool {
    used == 0 || used >> 12 == (used + len) >> 12 || !vfs::interrupted()
}

fn ioctl_out(out: &mut [u8], answer: &[u8]) -> Handled {
    let head = put(out, &IoctlOut { result: 0, flags: 0, in_iovs: 0, out_iovs: 0 });
    let end = head + answer.len();
    out.get_mut(head..end).ok_or_else(malformed)?.copy_from_slice(answer);
    Ok(Reply::Bytes(end))
}

fn open_out(out: &mut [u8], open_flags: u32) -> usize {
    put(out, &OpenOut { fh: 0, open_flags, padding: 0 })
}

fn xattr_out(out: &mut [u8], room: u32, value: &[u8]) -> Handled {
    if room == 0 {
        return Ok(Reply::Bytes(put(out, &GetxattrOut { size: value.len() as u32, padding: 0 })));
    }
    if value.len() > out.len().min(room as usize) {
        return Err(Errno::ERANGE.into());
    }
    out[..value.len()].copy_from_slice(value);
    Ok(Reply::Bytes(value.len()))
}

fn put_dirent(record: &mut [u8], entry: &vfs::DirEntry<'_>) {
    let head = put(
        record,
        &Dirent {
            ino: entry.ino.0,
            off: entry.cookie,
            namelen: entry.name.len() as u32,
            kind: entry.file_type.mode() >> 12,
        },
    );
    let end = head + entry.name.len();
    record[head..end].copy_from_slice(entry.name);
    record[end..].fill(0);
}

/// Requests after which work may have piled up.
pub(crate) fn changes_something(opcode: u32) -> bool {
    !matches!(
        Op::from_number(opcode),
        None | Some(
            Op::Lookup
                | Op::Getattr
                | Op::Statx
                | Op::Readlink
                | Op::Read
                | Op::Readdir
                | Op::Readdirplus
                | Op::Statfs
                | Op::Getxattr
                | Op::Listxattr
                | Op::Lseek
                | Op::Open
                | Op::Opendir
                | Op::Release
                | Op::Releasedir
                | Op::Interrupt
                | Op::Destroy
        )
    )
}

/// Requests that wait for the device for long, as a rule.
pub(crate) fn takes_long(opcode: u32) -> bool {
    matches!(
        Op::from_number(opcode),
        Some(
            Op::Fsync
                | Op::Fsyncdir
                | Op::Syncfs
                | Op::Destroy
                | Op::Fallocate
                | Op::CopyFileRange
                | Op::CopyFileRange64
                | Op::Ioctl
        )
    )
}

#[cfg(test)]
#[path = "../tests/memfs/mod.rs"]
#[allow(dead_code, missing_docs)]
pub(crate) mod memfs;

#[cfg(test)]
mod tests {
    use super::*;
    use arbor_base::device::{Device, FileDevice, OpenMode};
    use memfs::MemFs;

    fn server() -> (Arc<MemFs>, Server) {
        server_of(MINOR)
    }

    fn server_of(minor: u32) -> (Arc<MemFs>, Server) {
        let fs = Arc::new(MemFs::new());
        let agreed = Agreed { flags: InitFlags::all(), xattrs: true, minor };
        let server = Server::new(fs.clone(), &MountConfig::default(), agreed, Arc::new(Counters::new()));
        (fs, server)
    }

    fn ask(server: &Server, op: u32, args: &[u8], out: &mut [u8]) -> (i32, Reply) {
        let head = InHeader {
            len: (size_of::<InHeader>() + args.len()) as u32,
            opcode: op,
            unique: 2,
            nodeid: ROOT_NODE,
            uid: 0,
            gid: 0,
            pid: 1,
            total_extlen: 0,
            padding: 0,
        };
        let (len, reply) = server.serve(&head, args, out);
        let error = OutHeader::read_from_prefix(out).map_or(0, |(h, _)| h.error);
        (if len == 0 { 0 } else { error }, reply)
    }

    #[test]
    fn truncated_requests_are_errors() {
        let (_, server) = server();
        let mut out = vec![0; 1 << 16];
        for op in 0..64 {
            for len in 0..100 {
                let (error, _) = ask(&server, op, &vec![0; len], &mut out);
                assert!((-511..=0).contains(&error), "{op} {len}: {error}");
            }
        }
        assert_eq!(server.counters.panics.load(Relaxed), 0);
    }

    #[test]
    fn what_does_not_arrive_is_not_counted() {
        let (fs, server) = server();
        let mut out = vec![0; 1 << 16];
        let mut mknod = vec![0; size_of::<MknodIn>()];
        mknod[..4].copy_from_slice(&(mode::IFREG | 0o644).to_ne_bytes());
        for name in [&b"a\0"[..], b"bb\0", b"a-longer-name\0"] {
            let (error, reply) = ask(&server, Op::Mknod as u32, &[&mknod, name].concat(), &mut out);
            assert_eq!(error, 0);
            server.undelivered(&reply, &out[OUT_HEAD..]);
        }
        assert_eq!(fs.lookups(), 1);
        let mut readdir = ReadIn::new_zeroed();
        readdir.size = 4096;
        let (_, reply) = ask(&server, Op::Readdirplus as u32, readdir.as_bytes(), &mut out);
        assert_eq!(fs.lookups(), 4);
        server.undelivered(&reply, &out[OUT_HEAD..]);
        assert_eq!(fs.lookups(), 1);
        let (_, reply) = ask(&server, Op::Lookup as u32, b"bb\0", &mut out);
        assert_eq!(fs.lookups(), 2);
        server.undelivered(&reply, &out[OUT_HEAD..]);
        assert_eq!(fs.lookups(), 1);
    }

    #[test]
    fn flags_are_carried_where_the_kernel_checks_who_asks() {
        let mut out = vec![0; 1 << 16];
        for (minor, is_carried) in [(31, false), (33, false), (34, true), (MINOR, true)] {
            let (_, server) = server_of(minor);
            for cmd in [GETFLAGS, FSGETXATTR, SETFLAGS, FSSETXATTR] {
                let input = [0u8; 64];
                let what = IoctlIn { cmd, in_size: input.len() as u32, ..IoctlIn::new_zeroed() };
                let (error, _) = ask(&server, Op::Ioctl as u32, &[what.as_bytes(), &input].concat(), &mut out);
                assert_eq!(error != -25, is_carried, "{minor} {cmd:#x}: {error}");
            }
        }
    }

    #[test]
    fn what_is_shut_down_is_not_unmounted() {
        let (fs, server) = server();
        server.gate.shut();
        server.unmount().unwrap();
        assert!(!fs.unmounted.load(Relaxed));
        let (fs, server) = self::server();
        server.unmount().unwrap();
        assert!(fs.unmounted.load(Relaxed));
    }

    #[test]
    fn an_image_is_free_when_the_kernel_hears_of_the_end() {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(1 << 20).unwrap();
        let open = || FileDevice::open(file.path(), OpenMode::ReadWrite);
        let device = open().unwrap();
        let config = MountConfig { claims: device.claim().into_iter().collect(), ..MountConfig::default() };
        let agreed = Agreed { flags: InitFlags::all(), xattrs: true, minor: MINOR };
        let server = Server::new(Arc::new(MemFs::new()), &config, agreed, Arc::new(Counters::new()));
        assert!(open().is_err());
        assert_eq!(ask(&server, Op::Destroy as u32, &[], &mut [0; 4096]).0, 0);
        open().expect("it is free");
    }

    #[test]
    fn a_panic_at_the_end_is_an_error() {
        let (fs, server) = server();
        fs.panics.store(true, Relaxed);
        server.atimes.read(server.root, true);
        assert_eq!(server.unmount().unwrap_err().errno(), Errno::EIO);
        assert_eq!(server.counters.panics.load(Relaxed), 1);
    }

    #[test]
    fn owners_and_permissions_can_be_shown_otherwise() {
        let (fs, _) = server();
        let stored = Attr { mode: mode::IFREG | 0o4755, uid: 0, gid: 5, ..fs.getattr(fs.root()).unwrap() };
        let shown = |uid, gid, umask| {
            let a = Shown { uid, gid, umask }.attr(&stored);
            (a.uid, a.gid, a.mode)
        };
        assert_eq!(shown(None, None, 0), (0, 5, mode::IFREG | 0o4755));
        assert_eq!(shown(None, Some(5), 0o022), (0, 5, mode::IFREG | 0o4755));
        assert_eq!(shown(Some(7), None, 0o077), (7, 5, mode::IFREG | 0o700));
    }

    #[test]
    fn the_root_and_inode_one_change_places() {
        let (_, server) = server();
        assert_eq!(server.ino(ROOT_NODE), server.root);
        assert_eq!(server.ino(server.root.0), Ino(1));
        for n in [1, 2, 77, 78] {
            assert_eq!(server.ino(server.node(Ino(n))), Ino(n));
        }
    }
}
