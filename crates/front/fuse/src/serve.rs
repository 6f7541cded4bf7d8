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
//!
//! | module | requests |
//! |---|---|
//! | `names` | on names: lookup, new ones, rename, unlink |
//! | `dirs` | that read directories |
//! | `attrs` | on attributes, which all answers with an entry carry too |
//! | `xattrs` | on extended attributes |
//! | `data` | on what files and symbolic links hold |
//! | `volume` | on the volume and the mount |

mod attrs;
mod data;
mod dirs;
mod names;
mod volume;
mod xattrs;

use crate::atime::Atimes;
use crate::caller::Caller;
use crate::counters::Counters;
use crate::fileattr;
use crate::host::confine::Looker;
use crate::host::record::MountRecord;
use crate::interrupt::Interrupts;
use crate::log::Log;
use crate::options::MountConfig;
use crate::prompt::Promptly;
use crate::proto::*;
use arbor_base::device::{Claim, Gate};
use arbor_base::vfs::{self, Cx, Errno, Error, FileSystem, Ino};
use attrs::Shown;
use parking_lot::Mutex;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;
use zerocopy::{FromBytes, Immutable, IntoBytes};

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
    /// Bytes after the head.
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
    /// Version of the protocol, after the point.
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

type Handled = vfs::Result<Reply>;

/// A request whose arguments are not as the protocol has them.
fn malformed() -> Error {
    Errno::EIO.into()
}

/// A request that is being handled.
struct Request<'a> {
    caller: Caller,
    cx: Cx,
    ino: Ino,
    /// What of its arguments is not read yet.
    args: &'a [u8],
}

impl<'a> Request<'a> {
    fn arg<T: FromBytes>(&mut self) -> vfs::Result<T> {
        take(&mut self.args).ok_or_else(malformed)
    }

    fn name(&mut self) -> vfs::Result<&'a [u8]> {
        take_name(&mut self.args).ok_or_else(malformed)
    }

    /// So many bytes of what is not read yet.
    fn bytes(&self, len: u32) -> vfs::Result<&'a [u8]> {
        self.args.get(..len as usize).ok_or_else(malformed)
    }
}

fn put<T: IntoBytes + Immutable>(out: &mut [u8], value: &T) -> usize {
    let bytes = value.as_bytes();
    out[..bytes.len()].copy_from_slice(bytes);
    bytes.len()
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
            shown: Shown::of(config),
            open_flags: FOPEN_NOFLUSH | if config.direct_io { FOPEN_DIRECT_IO } else { FOPEN_KEEP_CACHE },
            record: Mutex::new(None),
            failure_told: AtomicBool::new(false),
            looker: Looker::start(config),
        }
    }

    /// Tells the log of damage that no call has failed by.
    pub(crate) fn look_for_damage(&self) {
        for damage in self.fs.damage_passed_by() {
            self.log.say(format_args!("damage was met, `arbor fsck` should look: {damage}"));
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
            Errno::ENOSYS if Op::from_number(head.opcode).is_some_and(|op| !self.declined(op)) => Errno::EOPNOTSUPP.0,
            Errno(n) => n,
        }
    }

    /// Requests that are answered with `ENOSYS` on purpose.
    fn declined(&self, op: Op) -> bool {
        match op {
            Op::Open => self.agreed.flags.contains(InitFlags::NO_OPEN_SUPPORT),
            Op::Opendir => self.agreed.flags.contains(InitFlags::NO_OPENDIR_SUPPORT),
            Op::Getxattr | Op::Setxattr | Op::Listxattr | Op::Removexattr => !self.agreed.xattrs,
            // The kernel does not write back before it asks, so what it has not written would be a hole or
            // after the end. Declined, it takes the whole file for data.
            Op::Lseek => self.agreed.flags.contains(InitFlags::WRITEBACK_CACHE),
            Op::Create | Op::Flush | Op::Access | Op::Bmap | Op::Poll => true,
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

    fn handle_promptly(&self, head: &InHeader, args: &[u8], out: &mut [u8]) -> Handled {
        let reply = self.handle(head, args, out)?;
        let durable = self.promptly.make_durable(&*self.fs, |node| self.ino(node), (head, args), &reply);
        durable.inspect_err(|_| self.undelivered(&reply, out)).map(|()| reply)
    }

    fn handle(&self, head: &InHeader, args: &[u8], out: &mut [u8]) -> Handled {
        let Some(op) = Op::from_number(head.opcode).filter(|op| !self.declined(*op)) else {
            return Err(Errno::ENOSYS.into());
        };
        if self.gate.is_shut() && !fileattr::ends_something(op) {
            return Err(Errno::EIO.into());
        }
        let caller = Caller::of(head);
        let cx = Cx { uid: head.uid, gid: head.gid };
        self.dispatch(op, &mut Request { caller, cx, ino: self.ino(head.nodeid), args }, out)
    }

    // A call of its own costs each request some thirty instructions; likewise for those handlers that say so.
    #[inline(always)]
    fn dispatch(&self, op: Op, request: &mut Request<'_>, out: &mut [u8]) -> Handled {
        match op {
            Op::Lookup => self.lookup(request, out),
            Op::Mknod => self.mknod(request, out),
            Op::Mkdir => self.mkdir(request, out),
            Op::Symlink => self.symlink(request, out),
            Op::Tmpfile => self.tmpfile(request, out),
            Op::Link => self.link(request, out),
            Op::Unlink => self.unlink(request),
            Op::Rmdir => self.rmdir(request),
            Op::Rename => self.rename(request),
            Op::Rename2 => self.rename2(request),
            Op::Readdir => self.readdir(request, out),
            Op::Readdirplus => self.readdir_plus(request, out),
            Op::Getattr => self.getattr(request, out),
            Op::Statx => self.statx(request, out),
            Op::Setattr => self.setattr(request, out),
            Op::Getxattr => self.getxattr(request, out),
            Op::Listxattr => self.listxattr(request, out),
            Op::Setxattr => self.setxattr(request),
            Op::Removexattr => self.removexattr(request),
            Op::Readlink => self.readlink(request, out),
            Op::Read => self.read(request, out),
            Op::Write => self.write(request, out),
            Op::Fallocate => self.fallocate(request),
            Op::Lseek => self.lseek(request, out),
            Op::CopyFileRange => self.copy_file_range(request, out),
            Op::CopyFileRange64 => self.copy_file_range_64(request, out),
            // An fsync of the root is the sync of a mount that FUSE_SYNCFS does not reach.
            Op::Fsyncdir if request.ino == self.root => done(self.syncfs()),
            Op::Fsync | Op::Fsyncdir => self.fsync(request),
            Op::Syncfs => done(self.syncfs()),
            Op::Statfs => self.statfs(out),
            Op::Ioctl => self.ioctl(request, out),
            Op::Forget => self.forget_one(request),
            Op::BatchForget => self.batch_forget(request),
            Op::Interrupt => self.interrupt(request),
            Op::Destroy => self.destroy(),
            Op::NotifyReply => Ok(Reply::None),
            // Where these come the kernel keeps handles, which mean nothing here.
            Op::Open => Ok(Reply::Bytes(open_out(out, self.open_flags))),
            Op::Opendir => Ok(Reply::Bytes(open_out(out, FOPEN_KEEP_CACHE | FOPEN_CACHE_DIR))),
            Op::Release | Op::Releasedir => Ok(Reply::Bytes(0)),
            Op::Init => Err(malformed()),
            Op::Create | Op::Flush | Op::Access | Op::Bmap | Op::Poll => Err(Errno::ENOSYS.into()),
        }
    }
}

fn op_name(opcode: u32) -> &'static str {
    Op::from_number(opcode).map_or("unknown request", Op::name)
}

fn done(result: vfs::Result<()>) -> Handled {
    result.map(|()| Reply::Bytes(0))
}

fn open_out(out: &mut [u8], open_flags: u32) -> usize {
    put(out, &OpenOut { fh: 0, open_flags, padding: 0 })
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
mod tests;
