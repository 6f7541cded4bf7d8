//! What a mount is told, in code ([`MountConfig`]) or by `-o` ([`parse_options`]).

use crate::atime::{Access, AccessTimes};
use crate::host::confine::MemoryLimit;
use crate::prompt::Promptly;
use arbor_base::device::{Claim, Gate};
use arbor_base::vfs::{self, Clock, Error, OptionSpec, Options, SystemClock};
use std::ffi::OsString;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// How requests come from the kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Transport {
    /// By io_uring if it is to be had, or else from `/dev/fuse`. Where the kernel does not offer it by itself root
    /// turns its switch on for the moment in which the mount is made.
    Auto,
    /// By io_uring if the kernel offers it by itself, or else from `/dev/fuse`.
    #[default]
    Offered,
    /// As `Auto`, but without io_uring the mount fails.
    Uring,
    /// From `/dev/fuse`.
    Classic,
}

/// How to mount.
#[derive(Clone)]
pub struct MountConfig {
    /// What `mount` and `df` show as the source: the image.
    pub source: OsString,
    /// Byte of the source at which the volume begins: for the record only.
    pub offset: u64,
    /// The device of the volume if it is a block device: root then mounts type `fuseblk`, where
    /// syncfs(2) arrives and umount(2) waits. If the kernel refuses, that is said on standard error,
    /// and an ordinary mount is made.
    pub block_device: Option<Arc<Claim>>,
    /// What keeps others from all devices of the volume; given up when the volume is unmounted, before
    /// umount(2) returns where that waits.
    pub claims: Vec<Arc<Claim>>,
    /// Refuse all changes. The engine has to be told on its own.
    pub read_only: bool,
    /// Write nothing to the device, not even recovery: for who opens it.
    pub no_recovery: bool,
    /// Which changes are durable when their call returns.
    pub promptly: Promptly,
    /// Which reads set the time of last access.
    pub access_times: AccessTimes,
    /// Let other users in; `None` is yes for root and no for all others.
    pub allow_other: Option<bool>,
    /// Ignore set-id bits. Only root can turn it off.
    pub nosuid: bool,
    /// Ignore device nodes. Only root can turn it off.
    pub nodev: bool,
    /// Run no programs.
    pub noexec: bool,
    /// Owner that every file is shown with; what is stored does not change.
    pub uid: Option<u32>,
    /// Group that every file is shown with.
    pub gid: Option<u32>,
    /// Permission bits that no file is shown with.
    pub umask: u32,
    /// How requests come.
    pub transport: Transport,
    /// Worker threads, at least 2, and by io_uring 2 a processor. 0 is one a processor; by io_uring four,
    /// or two where there are more than 16 processors.
    pub threads: usize,
    /// How long a worker asks again and again before it sleeps. With `None` it goes to the processor of a caller that
    /// stays there, and sleeps at once; else it asks for 100 us, on a machine with one processor not at all.
    pub spin: Option<Duration>,
    /// Added to the nice value of the workers of io_uring, if we may (root, `CAP_SYS_NICE`,
    /// `RLIMIT_NICE`). With a lower one than their callers' these are not moved to another processor
    /// each time they are answered.
    pub nice: i32,
    /// How long the kernel may keep a name.
    pub entry_timeout: Duration,
    /// How long the kernel may keep attributes.
    pub attr_timeout: Duration,
    /// How long the kernel may keep that there is no such name.
    pub negative_timeout: Duration,
    /// Let the kernel keep written data back.
    pub writeback_cache: bool,
    /// Files are read and written without the kernel's pages: each call is a request.
    pub direct_io: bool,
    /// Read-ahead in bytes, raised in the kernel too if we are root.
    pub max_read_ahead: u32,
    /// Carry extended attributes. Without, the kernel need not ask for `security.capability` of
    /// every file that is written to, which saves one request a file.
    pub xattrs: bool,
    /// Keep POSIX ACLs, by which the kernel then grants access. It asks for that of each file that others than
    /// its owner use.
    pub acl: bool,
    /// The gate that the volume's devices lie behind, for [`shutdown`](crate::shutdown); one that nothing lies behind
    /// stops requests only.
    pub gate: Gate,
    /// Let file handles be opened, as NFS and open_by_handle_at(2) do.
    pub nfs_export: bool,
    /// Take SIGTERM, SIGINT and SIGHUP as a call to unmount. For a process that does nothing else.
    pub handle_signals: bool,
    /// Leave a record of this mount, from which [`unmount`](crate::unmount) knows whom to wait for.
    pub record: bool,
    /// Give up what serving does not need. For a process that does nothing else, see
    /// [`confine_process`](crate::confine_process).
    pub confine: bool,
    /// What the process may have, for [`confine_process`](crate::confine_process).
    pub memory: MemoryLimit,
    /// Time for the engine's background work.
    pub clock: Arc<dyn Clock>,
}

impl Default for MountConfig {
    fn default() -> MountConfig {
        const DAY: Duration = Duration::from_secs(86_400);
        MountConfig {
            source: "arbor".into(),
            offset: 0,
            block_device: None,
            claims: Vec::new(),
            read_only: false,
            no_recovery: false,
            promptly: Promptly::Asked,
            access_times: AccessTimes::default(),
            allow_other: None,
            nosuid: true,
            nodev: true,
            noexec: false,
            uid: None,
            gid: None,
            umask: 0,
            transport: Transport::Offered,
            threads: 0,
            spin: None,
            nice: -5,
            entry_timeout: DAY,
            attr_timeout: DAY,
            negative_timeout: DAY,
            writeback_cache: false,
            direct_io: false,
            max_read_ahead: 1 << 20,
            xattrs: true,
            acl: false,
            gate: Gate::default(),
            nfs_export: false,
            handle_signals: false,
            record: true,
            confine: false,
            memory: MemoryLimit::Auto,
            clock: Arc::new(SystemClock),
        }
    }
}

impl fmt::Debug for MountConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MountConfig")
            .field("source", &self.source)
            .field("offset", &self.offset)
            .field("block_device", &self.block_device)
            .field("claims", &self.claims)
            .field("read_only", &self.read_only)
            .field("no_recovery", &self.no_recovery)
            .field("promptly", &self.promptly)
            .field("access_times", &self.access_times)
            .field("allow_other", &self.allow_other)
            .field("nosuid", &self.nosuid)
            .field("nodev", &self.nodev)
            .field("noexec", &self.noexec)
            .field("uid", &self.uid)
            .field("gid", &self.gid)
            .field("umask", &format_args!("{:#o}", self.umask))
            .field("transport", &self.transport)
            .field("threads", &self.threads)
            .field("spin", &self.spin)
            .field("nice", &self.nice)
            .field("entry_timeout", &self.entry_timeout)
            .field("attr_timeout", &self.attr_timeout)
            .field("negative_timeout", &self.negative_timeout)
            .field("writeback_cache", &self.writeback_cache)
            .field("direct_io", &self.direct_io)
            .field("max_read_ahead", &self.max_read_ahead)
            .field("xattrs", &self.xattrs)
            .field("acl", &self.acl)
            .field("nfs_export", &self.nfs_export)
            .field("handle_signals", &self.handle_signals)
            .field("record", &self.record)
            .field("confine", &self.confine)
            .field("memory", &self.memory)
            .finish_non_exhaustive()
    }
}

impl MountConfig {
    /// On a mount that takes no changes nothing is noted either.
    pub(crate) fn access_times_kept(&self) -> AccessTimes {
        let access = if self.read_only { Access::Never } else { self.access_times.access };
        AccessTimes { access, ..self.access_times }
    }
}

const fn spec(key: &'static str, value: &'static str, default: &'static str, help: &'static str) -> OptionSpec {
    OptionSpec { key, value, default, help }
}

/// The options of a mount, whatever the engine.
pub const OPTIONS: &[OptionSpec] = &[
    spec("ro", "", "", "Mount read-only."),
    spec("rw", "", "yes", "Mount for reading and writing."),
    spec("norecovery", "", "", "With ro: recover in memory, and write nothing to the image."),
    spec("sync", "", "", "Let every change be durable when its call returns."),
    spec("dirsync", "", "", "Let changes of names be durable when their call returns."),
    spec("async", "", "yes", "Write later; an fsync makes durable."),
    spec("relatime", "", "yes", "Set the time of access by the first read after a change, and by one a day."),
    spec("strictatime", "", "", "Set it by every read that the kernel's own pages do not answer."),
    spec("noatime", "", "", "Set it by no read."),
    spec("nodiratime", "", "", "Set it by no read of a directory."),
    spec("lazytime", "", "", "Store times of access within a day, not within seconds."),
    spec("allow_other", "", "yes for root", "Let other users in; permissions are always checked."),
    spec("noallow_other", "", "yes for others", "Let nobody else in."),
    spec("suid", "", "", "Heed set-id bits (root only)."),
    spec("nosuid", "", "yes", "Ignore set-id bits."),
    spec("dev", "", "", "Heed device nodes (root only)."),
    spec("nodev", "", "yes", "Ignore device nodes."),
    spec("exec", "", "yes", "Let programs be run."),
    spec("noexec", "", "", "Let no programs be run."),
    spec("uid", "N", "as stored", "Show every file as this user's; what is stored stays."),
    spec("gid", "N", "as stored", "Show every file as this group's; what is stored stays."),
    spec("umask", "OCTAL", "0", "Show no file with these permission bits."),
    spec(
        "remount",
        "",
        "",
        "Change ro, rw, suid, dev, exec and their opposites of a mount that works; all else stays (root only).",
    ),
    spec(
        "transport",
        "auto|offered|uring|classic",
        "auto",
        "Take requests by io_uring (Linux 6.14) or from /dev/fuse. Unless Y is in \
         /sys/module/fuse/parameters/enable_uring, root writes it for the moment of the mount; offered does without.",
    ),
    spec(
        "threads",
        "N",
        "one a processor",
        "Worker threads, at least 2. By io_uring as many on each processor as make N or more, at least 2; 4 by default, \
         2 where there are more than 16 processors.",
    ),
    spec(
        "spin",
        "US|auto",
        "auto",
        "Microseconds a worker asks /dev/fuse for requests before it sleeps; 0 sleeps at once. auto goes to the \
         processor of a caller that stays there, and sleeps at once; else it is 100. None by io_uring.",
    ),
    spec("nice", "N", "-5", "Added to the nice value of the workers of io_uring, where that is allowed (root)."),
    spec("entry_timeout", "S", "86400", "Seconds the kernel may keep a name."),
    spec("attr_timeout", "S", "86400", "Seconds the kernel may keep attributes."),
    spec("negative_timeout", "S", "86400", "Seconds the kernel may keep that there is no such name."),
    spec(
        "writeback_cache",
        "",
        "",
        "Let the kernel keep written data back: better for small overwrites, worse for many files.",
    ),
    spec("max_read_ahead", "SIZE", "1M", "Read-ahead."),
    spec("xattr", "", "yes", "Carry extended attributes."),
    spec("noxattr", "", "", "Carry none, which saves a request for every file written to."),
    spec(
        "acl",
        "",
        "",
        "Keep POSIX ACLs, and grant access by them; a request more for each use of a file by others than its owner and root.",
    ),
    spec("noacl", "", "yes", "Keep none: they are refused."),
    spec(
        "memory",
        "SIZE|auto|none",
        "auto",
        "Memory limit of the server (RLIMIT_DATA), which ends when it asks for more: at least four times the cache and 128 MiB. \
         auto is four times the cache, 512 MiB and a quarter of the machine's memory.",
    ),
    spec("nfs_export", "", "", "Let file handles be opened, for NFS."),
    spec("fsname", "NAME", "the image", "What mount and df show as the source."),
];

/// The number above it stands for no user.
const MAX_ID: u64 = u32::MAX as u64 - 1;

/// What mount(8), fstab and systemd say that means nothing here.
const IGNORED: &[&str] = &[
    "defaults",
    "auto",
    "noauto",
    "nofail",
    "_netdev",
    "user",
    "nouser",
    "users",
    "owner",
    "group",
    "mand",
    "nomand",
    "iversion",
    "noiversion",
    "default_permissions",
    "subtype",
    "comment",
    "loud",
    "silent",
];

/// Those that are said or not, and have no value.
const WORDS: &[&str] = &[
    "ro",
    "rw",
    "norecovery",
    "sync",
    "dirsync",
    "async",
    "allow_other",
    "noallow_other",
    "suid",
    "nosuid",
    "dev",
    "nodev",
    "exec",
    "noexec",
    "writeback_cache",
    "xattr",
    "noxattr",
    "acl",
    "noacl",
    "nfs_export",
];

/// Takes the options of the mount out of `options`; what it does not know is left for the engine,
/// in order. Values that make no sense are refused with the name of the option.
pub fn parse_options(options: &Options) -> vfs::Result<(MountConfig, Options)> {
    let mut config = MountConfig { transport: Transport::Auto, ..MountConfig::default() };
    let mut rest = Options::default();
    for (key, value) in &options.0 {
        if !value.is_empty() && WORDS.contains(&key.as_str()) {
            return Err(Error::refused(format!("option {key} takes no value, and {value:?} was given")));
        }
        match key.as_str() {
            "ro" => config.read_only = true,
            "rw" => config.read_only = false,
            "norecovery" => config.no_recovery = true,
            "sync" => config.promptly = Promptly::Everything,
            "dirsync" => config.promptly = config.promptly.max(Promptly::Names),
            "async" if config.promptly == Promptly::Everything => config.promptly = Promptly::Asked,
            "async" => {}
            word if value.is_empty() && config.access_times.take(word) => {}
            "allow_other" => config.allow_other = Some(true),
            "noallow_other" => config.allow_other = Some(false),
            "suid" => config.nosuid = false,
            "nosuid" => config.nosuid = true,
            "dev" => config.nodev = false,
            "nodev" => config.nodev = true,
            "exec" => config.noexec = false,
            "noexec" => config.noexec = true,
            "uid" => config.uid = Some(number(key, value, 0, MAX_ID)? as u32),
            "gid" => config.gid = Some(number(key, value, 0, MAX_ID)? as u32),
            "umask" => config.umask = permissions(key, value)?,
            "transport" => config.transport = transport(key, value)?,
            "threads" => config.threads = number(key, value, 2, 256)? as usize,
            "spin" if value == "auto" => config.spin = None,
            "spin" => config.spin = Some(Duration::from_micros(number(key, value, 0, 1_000_000)?)),
            "nice" => config.nice = nice(key, value)?,
            "entry_timeout" => config.entry_timeout = seconds(key, value)?,
            "attr_timeout" => config.attr_timeout = seconds(key, value)?,
            "negative_timeout" => config.negative_timeout = seconds(key, value)?,
            "writeback_cache" => config.writeback_cache = true,
            "max_read_ahead" => {
                let size = options.size(key)?.filter(|n| *n <= 1 << 30);
                config.max_read_ahead =
                    size.ok_or_else(|| Error::refused(format!("option {key}: {value:?} is too much")))? as u32;
            }
            "xattr" => config.xattrs = true,
            "noxattr" => config.xattrs = false,
            "acl" => config.acl = true,
            "noacl" => config.acl = false,
            "memory" => config.memory = memory(key, value)?,
            "nfs_export" => config.nfs_export = true,
            "fsname" => config.source = value.into(),
            known if IGNORED.contains(&known) || known.starts_with("x-") || known.starts_with("X-") => {}
            _ => rest.0.push((key.clone(), value.clone())),
        }
    }
    if config.no_recovery && !config.read_only {
        return Err(Error::refused("option norecovery: it needs ro"));
    }
    if config.acl && !config.xattrs {
        return Err(Error::refused("option acl: lists are extended attributes, so noxattr does not go with it"));
    }
    Ok((config, rest))
}

fn memory(key: &str, value: &str) -> vfs::Result<MemoryLimit> {
    match (value, vfs::parse_size(value)) {
        ("auto", _) => Ok(MemoryLimit::Auto),
        ("none", _) => Ok(MemoryLimit::Unlimited),
        (_, Some(bytes)) => Ok(MemoryLimit::Bytes(bytes)),
        (_, None) => Err(Error::refused(format!("option {key}: {value:?} is not a size, auto or none"))),
    }
}

fn number(key: &str, value: &str, least: u64, most: u64) -> vfs::Result<u64> {
    match value.parse() {
        Ok(n) if (least..=most).contains(&n) => Ok(n),
        _ => Err(Error::refused(format!("option {key}: {value:?} is not a number from {least} to {most}"))),
    }
}

fn nice(key: &str, value: &str) -> vfs::Result<i32> {
    match value.parse() {
        Ok(n) if (-20..=19).contains(&n) => Ok(n),
        _ => Err(Error::refused(format!("option {key}: {value:?} is not a number from -20 to 19"))),
    }
}

fn transport(key: &str, value: &str) -> vfs::Result<Transport> {
    match value {
        "auto" => Ok(Transport::Auto),
        "offered" => Ok(Transport::Offered),
        "uring" => Ok(Transport::Uring),
        "classic" => Ok(Transport::Classic),
        _ => Err(Error::refused(format!("option {key}: {value:?} is not auto, offered, uring or classic"))),
    }
}

fn permissions(key: &str, value: &str) -> vfs::Result<u32> {
    match u32::from_str_radix(value, 8) {
        Ok(bits) if bits <= 0o777 => Ok(bits),
        _ => Err(Error::refused(format!("option {key}: {value:?} is not an octal number from 0 to 777"))),
    }
}

fn seconds(key: &str, value: &str) -> vfs::Result<Duration> {
    let parsed = value.parse().ok().filter(|s| (0.0..1e9).contains(s));
    let seconds: f64 = parsed.ok_or_else(|| Error::refused(format!("option {key}: {value:?} is not a time")))?;
    Ok(Duration::from_secs_f64(seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mount_options_are_taken_and_the_others_left() {
        let options =
            Options::parse("ro,threads=3,cache=64M,x-systemd.automount,nofail,entry_timeout=1.5,log=/dev/x,dev");
        let (config, rest) = parse_options(&options).unwrap();
        assert!(config.read_only && !config.nodev && config.nosuid);
        assert_eq!(config.threads, 3);
        assert_eq!(config.entry_timeout, Duration::from_millis(1500));
        assert_eq!(rest, Options::parse("cache=64M,log=/dev/x"));
    }

    #[test]
    fn options_of_mount_8_are_taken() {
        let parsed = |text: &str| parse_options(&Options::parse(text)).map(|(config, rest)| (config, rest.0.len()));
        let (config, left) = parsed("mand,nomand,iversion,noiversion,silent,loud,lazytime,nodiratime").unwrap();
        assert_eq!((left, config.access_times.lazy, config.access_times.of_directories), (0, true, false));
        for (text, promptly) in [
            ("dirsync", Promptly::Names),
            ("sync,dirsync", Promptly::Everything),
            ("dirsync,async", Promptly::Names),
            ("sync,async", Promptly::Asked),
        ] {
            assert_eq!(parsed(text).unwrap().0.promptly, promptly, "{text}");
        }
        for (text, access) in [
            ("rw", Access::Relative),
            ("noatime", Access::Never),
            ("noatime,atime", Access::Relative),
            ("noatime,strictatime", Access::Strict),
            ("strictatime,nostrictatime", Access::Relative),
        ] {
            assert_eq!(parsed(text).unwrap().0.access_times.access, access, "{text}");
        }
        assert!(parsed("norecovery,ro").unwrap().0.no_recovery);
        assert_eq!(parsed("norecovery").unwrap_err().to_string(), "option norecovery: it needs ro");
    }

    #[test]
    fn nonsense_is_refused_by_name() {
        for bad in [
            "threads=0",
            "threads=x",
            "threads=1",
            "attr_timeout=-1",
            "attr_timeout=NaN",
            "max_read_ahead=9T",
            "spin=",
            "nice=-21",
            "uid=-1",
            "gid=4294967295",
            "umask=8",
            "umask=1777",
            "transport=fast",
            "acl,noxattr",
            "acl=0",
            "memory=much",
            "ro=0",
        ] {
            let error = parse_options(&Options::parse(bad)).unwrap_err().to_string();
            assert!(error.contains(bad.split(['=', ',']).next().unwrap()), "{error}");
        }
    }
}
