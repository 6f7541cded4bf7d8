//! `arbor mount`, `umount`, `sync` and `stats`.
//!
//! A mount in the background is served by this program run again: it mounts, tells its parent by
//! one byte on its standard output that the root can be listed, and lets go of the terminal. So
//! no thread is lost in a fork, and errors before that still go to the caller's standard error.

use crate::args::{DirArgs, MountArgs, ShutdownArgs, StatsArgs};
use crate::exit::Exit;
use anyhow::Result;
use std::io::Write;

/// Exit codes of mount(8).
#[cfg(target_os = "linux")]
const USAGE: u8 = 1;
#[cfg(target_os = "linux")]
const FAILED: u8 = 32;

#[cfg(target_os = "linux")]
pub(crate) use linux::{run, shutdown, stats, sync, umount};

#[cfg(not(target_os = "linux"))]
pub(crate) fn run(_args: &MountArgs) -> Result<u8, Exit> {
    Err(anyhow::anyhow!("mounting needs Linux").into())
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn umount(_args: &DirArgs) -> Result<()> {
    Err(anyhow::anyhow!("mounting needs Linux"))
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn sync(_args: &DirArgs) -> Result<()> {
    Err(anyhow::anyhow!("mounting needs Linux"))
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn shutdown(_args: &ShutdownArgs) -> Result<()> {
    Err(anyhow::anyhow!("mounting needs Linux"))
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn stats(_args: &StatsArgs, _out: &mut dyn Write) -> Result<()> {
    Err(anyhow::anyhow!("mounting needs Linux"))
}

#[cfg(target_os = "linux")]
mod linux {
    use super::*;
    use crate::holder;
    use crate::image::{Image, Job, check_options};
    use crate::mkfs;
    use crate::overlay;
    use crate::show;
    use anyhow::{Context, anyhow, bail};
    use arbor_fuse::{MountConfig, Transport, Unmounted};
    use arboretum::device::{Device, Gate};
    use arboretum::vfs::{Devices, Engine, MountOptions, Options, SystemClock, parse_size, with_flags};
    use std::fs::{self, OpenOptions};
    use std::io::{self, Read};
    use std::path::{Path, PathBuf};
    use std::process::{Command, Stdio};
    use std::sync::Arc;
    use std::time::{Duration, Instant};

    /// A server whose mount is off may go on writing for so long before the image is called in use.
    const PATIENCE: Duration = Duration::from_secs(10);

    /// What a server tells its parent when the mount works.
    const BY_RING: [u8; 1] = *b"u";
    const CLASSIC: [u8; 1] = *b"c";

    /// What somebody who is not root is told.
    const FASTER: &str = "the mount is slower than it could be: the administrator can put the line \
                          `options fuse enable_uring=1` into /etc/modprobe.d/fuse.conf, or Y into \
                          /sys/module/fuse/parameters/enable_uring";

    /// A mount whose arguments were understood.
    struct Plan {
        image: Image,
        config: MountConfig,
        engine: Option<&'static dyn Engine>,
        /// Options that the engine does not know are left out.
        is_sloppy: bool,
        dir: PathBuf,
        /// Limit of the server, in bytes.
        memory: Option<u64>,
    }

    pub(crate) fn run(args: &MountArgs) -> Result<u8, Exit> {
        let args = &as_promised(args);
        let options = Options::parse(&args.image.options.join(","));
        if options.get("remount").is_some() {
            check_remount(args).map_err(|e| Exit::with(USAGE, e))?;
            return if args.fake { Ok(0) } else { remount(args, &options).map_err(|e| Exit::with(FAILED, e)) };
        }
        let plan = plan(args).map_err(|e| Exit::with(USAGE, e))?;
        if args.fake {
            return Ok(0);
        }
        if args.new.is_some() && !is_missing(&plan.image.path) {
            return Err(Exit::with(USAGE, exists_already(&plan)));
        }
        let failed = |e| Exit::with(FAILED, e);
        check_places(&plan, args).map_err(failed)?;
        if args.foreground { serve(plan, args) } else { start_background(&plan, args).map_err(failed) }
    }

    /// mount(8) does not tell its helper of `suid` and `dev`: what is not taken away is promised. So it is for root;
    /// all others have to do without, also where mount(8) has lent them its rights.
    fn as_promised(args: &MountArgs) -> MountArgs {
        let mut args = args.clone();
        let is_root = rustix::process::getuid().is_root() && rustix::process::geteuid().is_root();
        if args.is_helper && is_root {
            args.image.options.insert(0, "rw,suid,dev,exec".into());
        }
        args
    }

    /// Refuses what a mount that works cannot be told. mount(8) tells its helper all that stands in fstab:
    /// there it goes by without a word.
    fn check_remount(args: &MountArgs) -> Result<()> {
        const CHANGES: [&str; 8] = ["ro", "rw", "suid", "nosuid", "dev", "nodev", "exec", "noexec"];
        let what = "what can be changed is ro, rw, suid, dev, exec and their opposites";
        if args.is_helper {
            return Ok(());
        }
        let image = Image::parse(&args.image.image, &args.image.options)?;
        let rest = Options(image.rest.0.into_iter().filter(|(key, _)| key != "remount").collect());
        let is_change = |key: &str| CHANGES.contains(&key);
        for (key, value) in rest.0.iter().filter(|(key, _)| !is_change(key)) {
            let one = Options(vec![(key.clone(), value.clone())]);
            let means_nothing = arbor_fuse::parse_options(&one).is_ok_and(|(_, rest)| rest.0.is_empty())
                && !arbor_fuse::OPTIONS.iter().any(|spec| spec.key == key);
            if !means_nothing {
                bail!("remount: {key}: {what}; for the rest unmount, and mount again");
            }
        }
        if !rest.0.iter().any(|(key, _)| is_change(key)) {
            bail!("remount: nothing is to be changed; {what}");
        }
        Ok(())
    }

    fn remount(args: &MountArgs, options: &Options) -> Result<u8> {
        let (dir, image) = (&args.dir, &args.image.image);
        if let Some(other) = holder::other_on(dir, image) {
            bail!("{}: {} is mounted there, not {}", dir.display(), other.display(), image.display());
        }
        arbor_fuse::remount(dir, options).map_err(|e| match e.kind() {
            io::ErrorKind::ResourceBusy => anyhow!("{}: busy: files on it are open for writing", dir.display()),
            io::ErrorKind::PermissionDenied => anyhow!("{}: only root can change a mount", dir.display()),
            _ => anyhow!("{}: {e}", dir.display()),
        })?;
        Ok(0)
    }

    fn is_missing(path: &Path) -> bool {
        matches!(fs::symlink_metadata(path), Err(e) if e.kind() == io::ErrorKind::NotFound)
    }

    /// Why `--new` makes nothing, and what to do instead.
    fn exists_already(plan: &Plan) -> anyhow::Error {
        let (path, dir) = (plan.image.path.display(), plan.dir.display());
        match (plan.image.info(), holder::mounted_on(&plan.image.path)) {
            (Ok(_), Some(at)) => anyhow!("{path}: exists already, and is mounted on {}", at.display()),
            (Ok(info), None) => anyhow!(
                "{path}: exists already and holds a volume of {}: `arbor mount {path} {dir}` mounts it, \
                 `arbor mkfs -f {path}` makes an empty one in its place",
                info.engine
            ),
            (Err(_), _) => anyhow!("{path}: exists already: `arbor mkfs {path}` makes a volume in it"),
        }
    }

    /// What can be said before anything is made or opened.
    fn check_places(plan: &Plan, args: &MountArgs) -> Result<()> {
        let (path, dir) = (&plan.image.path, &plan.dir);
        if args.new.is_none() && is_missing(path) {
            bail!("{}: no such file (`arbor mount --new SIZE` makes it, with an empty volume)", path.display());
        }
        match fs::metadata(dir) {
            Ok(meta) if !meta.is_dir() => bail!("{}: not a directory", dir.display()),
            Ok(_) => Ok(()),
            Err(_) => check_missing(dir, args),
        }
    }

    /// A typo in the path is not to be taken for the wish for new directories; mount(8) makes none at all.
    fn check_missing(dir: &Path, args: &MountArgs) -> Result<()> {
        if is_missing(dir) && args.is_helper {
            bail!("{}: the mount point does not exist", dir.display());
        }
        let above = dir.parent().filter(|above| !above.as_os_str().is_empty());
        match above.filter(|above| is_missing(above)) {
            Some(above) => bail!(
                "{}: the mount point does not exist; it would be made if {} were there",
                dir.display(),
                above.display()
            ),
            None => Ok(()),
        }
    }

    fn plan(args: &MountArgs) -> Result<Plan> {
        let mut options = Options::parse(&args.image.options.join(","));
        let is_sloppy = options.get("sloppy").is_some();
        options.0.retain(|(key, _)| key != "sloppy");
        let (mut config, rest) = arbor_fuse::parse_options(&options)?;
        let rest: Vec<String> =
            rest.0.iter().map(|(k, v)| if v.is_empty() { k.clone() } else { format!("{k}={v}") }).collect();
        let mut image = Image::parse(&args.image.image, &rest)?;
        let named = args.engine.is_some() || args.new.is_some();
        let engine = named.then(|| mkfs::engine(args.engine.as_deref())).transpose()?;
        match engine {
            Some(engine) => {
                image = image.of(engine, Job::Mount);
                check_engine_options(&mut image, engine, is_sloppy)?;
            }
            None => {
                image = image.settled();
                let engines = || arboretum::engines().iter().chain(arboretum::examples());
                let specs = || engines().flat_map(|e| e.mount_options());
                if is_sloppy {
                    image.rest.0.retain(|(key, _)| specs().any(|s| s.key == key));
                }
                check_options(&image.rest, specs(), "mount")?;
            }
        }
        if options.get("fsname").is_none() {
            // With --new there may be nothing yet to be resolved.
            let path = fs::canonicalize(&image.path).or_else(|_| std::path::absolute(&image.path))?;
            config.source = path.into();
        }
        config.handle_signals = true;
        config.confine = true;
        let memory = config.memory.bytes(cache(&image)?)?;
        Ok(Plan { image, config, engine, is_sloppy, dir: args.dir.clone(), memory })
    }

    /// How large the cache will be, at most: of which engine the image is nobody knows yet.
    fn cache(image: &Image) -> Result<u64> {
        let of_engines = arboretum::engines().iter().flat_map(|engine| engine.mount_options());
        let default = of_engines.filter(|spec| spec.key == "cache").filter_map(|spec| parse_size(spec.default)).max();
        Ok(image.rest.size("cache")?.or(default).unwrap_or_default())
    }

    fn check_engine_options(image: &mut Image, engine: &dyn Engine, is_sloppy: bool) -> Result<()> {
        if is_sloppy {
            image.rest.0.retain(|(key, _)| engine.mount_options().iter().any(|s| s.key == key));
        }
        image.check_options(engine, Job::Mount)?;
        Ok(engine.check_mount_options(&image.rest)?)
    }

    /// Runs this program again to serve the mount, and returns when the mount works.
    fn start_background(plan: &Plan, args: &MountArgs) -> Result<u8> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["mount", "--foreground", "--ready-fd", "1"]);
        if let Some(size) = args.new {
            command.arg("--new").arg(size.to_string());
        }
        if let Some(engine) = &args.engine {
            command.arg("-t").arg(engine);
        }
        for options in &args.image.options {
            command.arg("-o").arg(options);
        }
        if args.verbose {
            command.arg("--verbose");
        }
        command.arg("--").arg(&args.image.image).arg(&args.dir);
        // What the caller has open, a lock perhaps, must not stay so for as long as the mount is there.
        close_fds::set_fds_cloexec_threadsafe(3, &[]);
        let makes_dir = is_missing(&plan.dir);
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
        let mut ready = [0];
        let told = child.stdout.take().map(|mut pipe| pipe.read(&mut ready)).transpose()?;
        if told == Some(1) {
            tell_mounted(plan, args, makes_dir, ready == BY_RING);
            return Ok(0);
        }
        // It has said why on the standard error we share.
        let status = child.wait()?;
        Ok(status.code().and_then(|code| u8::try_from(code).ok()).filter(|code| *code != 0).unwrap_or(FAILED))
    }

    fn serve(mut plan: Plan, args: &MountArgs) -> Result<u8, Exit> {
        let failed = |e| Exit::with(FAILED, e);
        arbor_fuse::confine_process(plan.memory);
        let makes_dir = make_dir(&plan.dir).map_err(failed)?;
        let made = args.new.map(|_| mkfs::Made::before(&plan.image));
        let session = start(&mut plan, args).inspect_err(|_| {
            if makes_dir {
                let _ = fs::remove_dir(&plan.dir);
            }
            if let Some(made) = &made {
                made.undo();
            }
        })?;
        if args.ready_fd.is_none() {
            tell_mounted(&plan, args, makes_dir, session.is_by_ring());
        }
        serve_session(session, &plan, args).map_err(failed)
    }

    fn serve_session(session: arbor_fuse::Session, plan: &Plan, args: &MountArgs) -> Result<u8> {
        let name = name_in_logs(plan)?;
        // The directories we were called in must stay free to be unmounted.
        std::env::set_current_dir("/")?;
        notify_systemd();
        if args.ready_fd.is_some() {
            // A process group of its own: the terminal's signals are not meant for the server. Not a
            // session: the scheduler may treat each as a group (autogroup), and then moves a caller to
            // another processor with every reply of a server in another one, which costs more than the
            // request.
            rustix::process::setpgid(None, None).context("setpgid")?;
            arbor_fuse::log_to_syslog(&name);
            arbor_fuse::log_panics();
            tell_parent(session.is_by_ring()).context("telling the parent")?;
        }
        session.wait().map_err(|e| anyhow!("{}: {e}", plan.image.path.display()))?;
        Ok(0)
    }

    /// Which volume a message is about, for one who reads those of all. Asked before the working directory changes.
    fn name_in_logs(plan: &Plan) -> Result<String> {
        let (image, dir) = (std::path::absolute(&plan.image.path)?, std::path::absolute(&plan.dir)?);
        Ok(format!("{} on {}", image.display(), dir.display()))
    }

    /// Lines for people. That they cannot be written does not undo the mount.
    fn tell_mounted(plan: &Plan, args: &MountArgs, makes_dir: bool, by_ring: bool) {
        if !args.quiet {
            let made = if makes_dir { " (a new directory)" } else { "" };
            let how = format!("{made}{}", if plan.config.read_only { ", read-only" } else { "" });
            let (image, dir) = (plan.image.path.display(), plan.dir.display());
            let mut out = io::stdout();
            let _ = writeln!(out, "{image}: mounted on {dir}{how}").and_then(|()| out.flush());
        }
        if args.verbose {
            let from = if by_ring { "by io_uring" } else { "from /dev/fuse" };
            let _ = writeln!(io::stdout(), "requests come {from}");
        }
        let is_choice = plan.config.transport == Transport::Classic;
        // An older kernel knows no rings, and has nothing to be changed.
        let can_be_faster = Path::new("/sys/module/fuse/parameters/enable_uring").exists();
        let is_for_root = rustix::process::geteuid().is_root();
        if can_be_faster && !(args.quiet || by_ring || is_choice || is_for_root) {
            let _ = writeln!(io::stderr(), "{FASTER}");
        }
    }

    fn start(plan: &mut Plan, args: &MountArgs) -> Result<arbor_fuse::Session, Exit> {
        let failed = |e| Exit::with(FAILED, e);
        let (devices, found) = open(plan, args).map_err(failed)?;
        check_engine_options(&mut plan.image, found, plan.is_sloppy).map_err(|e| Exit::with(USAGE, e))?;
        mount(plan, devices, found).map_err(failed)
    }

    fn open(plan: &Plan, args: &MountArgs) -> Result<(Devices, &'static dyn Engine)> {
        let image = &plan.image;
        // The mount of a server that was killed still has its block device.
        arbor_fuse::clean_stale(&plan.dir).map_err(|e| anyhow!("{}: {e}", plan.dir.display()))?;
        if let Some(size) = args.new {
            mkfs::make_new(image, args.engine.as_deref(), size)?;
        }
        let (devices, found) = find(plan, args)?;
        if let Some(wanted) = plan.engine.filter(|e| e.name() != found.name()) {
            bail!("{}: a volume of {}, not of {}", image.path.display(), found.name(), wanted.name());
        }
        Ok((devices, found))
    }

    /// The volume, as soon as servers have released it that have lost their mounts: umount(8) does not wait for them.
    fn find(plan: &Plan, args: &MountArgs) -> Result<(Devices, &'static dyn Engine)> {
        let (image, read_only) = (&plan.image, plan.config.read_only);
        if let Ok(found) = image.find(read_only) {
            return Ok(found);
        }
        let end = Instant::now() + PATIENCE;
        let mut is_told = !args.verbose;
        loop {
            // Asked first: what ends between the two has released the image.
            let is_ending = holder::is_ending(&image.path);
            match image.find(read_only) {
                Err(_) if is_ending && Instant::now() < end => {}
                found => return found,
            }
            if !is_told {
                let path = image.path.display();
                let _ = writeln!(io::stderr(), "{path}: waiting for the server of its last mount to end");
                is_told = true;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn mount(plan: &Plan, devices: Devices, found: &dyn Engine) -> Result<arbor_fuse::Session> {
        let image = &plan.image;
        let options = MountOptions { read_only: plan.config.read_only, options: image.rest.clone() };
        let failed =
            |e: &dyn std::fmt::Display| image.advice(e).unwrap_or_else(|| anyhow!("{}: {e}", image.path.display()));
        let devices = match plan.config.no_recovery {
            true => {
                let found = overlay::recovered(devices, found, &image.rest).map_err(|e| failed(&e))?;
                if let Some(damage) = found.damage {
                    let path = image.path.display();
                    eprintln!("arbor mount: {path}: {damage}; what is shown is as `arbor fsck -y` would leave it");
                }
                found.devices
            }
            false => devices,
        };
        let mut config = plan.config.clone();
        config.offset = image.offset;
        config.block_device = devices.main.claim().filter(|claim| claim.block_device().is_some());
        config.claims = devices.claims();
        let fs = found
            .mount(behind(&config.gate, devices), &options, Arc::new(SystemClock))
            .map(with_flags)
            .map_err(|e| failed(&e))?;
        let dir = fs::canonicalize(&plan.dir).with_context(|| plan.dir.display().to_string())?;
        let session = arbor_fuse::mount(fs, &dir, &config).map_err(|e| anyhow!("{}: {e}", plan.dir.display()))?;
        session.ready().map_err(|e| match rustix::io::Errno::from_io_error(&e) {
            Some(rustix::io::Errno::UCLEAN) => {
                failed(&format!("the root directory is damaged; {}", image.what_mends()))
            }
            _ => anyhow!("{}: {e}", plan.dir.display()),
        })?;
        Ok(session)
    }

    /// The devices behind the gate by which a mount is shut down.
    fn behind(gate: &Gate, devices: Devices) -> Devices {
        let extra = devices.extra.into_iter();
        let gated = |device| -> Arc<dyn Device> { Arc::new(gate.before(device)) };
        Devices { main: gated(devices.main), extra: extra.map(|(role, device)| (role, gated(device))).collect() }
    }

    /// Makes the directory if it is missing; tells whether it did. A dead mount answers with other errors; the
    /// mount takes it off.
    fn make_dir(dir: &Path) -> Result<bool> {
        if !is_missing(dir) {
            return Ok(false);
        }
        fs::create_dir(dir).map_err(|e| anyhow!("{}: cannot be made: {e}", dir.display()))?;
        Ok(true)
    }

    /// Lets go of the caller's terminal, then says that the mount works.
    fn tell_parent(by_ring: bool) -> Result<()> {
        let null = OpenOptions::new().read(true).write(true).open("/dev/null")?;
        rustix::stdio::dup2_stdin(&null)?;
        rustix::stdio::dup2_stderr(&null)?;
        let mut out = io::stdout();
        out.write_all(if by_ring { &BY_RING } else { &CLASSIC })?;
        out.flush()?;
        rustix::stdio::dup2_stdout(&null)?;
        Ok(())
    }

    /// Tells a service manager that waits for it; one that does not listen is no error.
    fn notify_systemd() {
        use std::os::linux::net::SocketAddrExt;
        use std::os::unix::ffi::OsStrExt;
        use std::os::unix::net::{SocketAddr, UnixDatagram};
        let Some(name) = std::env::var_os("NOTIFY_SOCKET") else { return };
        let address = match name.as_bytes().strip_prefix(b"@") {
            Some(name) => SocketAddr::from_abstract_name(name),
            None => SocketAddr::from_pathname(&name),
        };
        let text = format!("READY=1\nMAINPID={}\n", std::process::id());
        if let (Ok(address), Ok(socket)) = (address, UnixDatagram::unbound()) {
            let _ = socket.send_to_addr(text.as_bytes(), &address);
        }
    }

    pub(crate) fn umount(args: &DirArgs) -> Result<()> {
        let dir = args.dir.display();
        let was = arbor_fuse::unmount(&args.dir, true).map_err(|e| match e.kind() {
            io::ErrorKind::ResourceBusy => anyhow!(
                "{dir}: busy: files on it are open, or it is the working directory of a process \
                 (`fuser -vm {dir}` shows which)"
            ),
            _ => anyhow!("{dir}: {e}"),
        })?;
        let note = match was {
            Unmounted::Served => return Ok(()),
            Unmounted::ShutDown => "it had been shut down: nothing was written since; the next mount recovers",
            Unmounted::DeadReadOnly => "its server had died; nothing waited to be written",
            Unmounted::Dead => {
                bail!("{dir}: unmounted, but its server had died: what was not synced is lost; the next mount recovers")
            }
        };
        let _ = writeln!(io::stderr(), "arbor umount: {dir}: unmounted; {note}");
        Ok(())
    }

    pub(crate) fn sync(args: &DirArgs) -> Result<()> {
        // An fsync of the root makes all of the mount durable.
        let synced = holder::mount_of(&args.dir).and_then(|(root, _)| arbor_fuse::sync(&root));
        synced.map_err(|e| anyhow!("{}: {e}", args.dir.display()))
    }

    pub(crate) fn shutdown(args: &ShutdownArgs) -> Result<()> {
        let (root, _) = holder::mount_of(&args.dir).map_err(|e| anyhow!("{}: {e}", args.dir.display()))?;
        arbor_fuse::shutdown(&root, args.now).map_err(|e| match e.kind() {
            io::ErrorKind::PermissionDenied => {
                anyhow!("{}: only root, and the user who has mounted it, may ask for this", args.dir.display())
            }
            _ => anyhow!("{}: {e}", args.dir.display()),
        })
    }

    pub(crate) fn stats(args: &StatsArgs, out: &mut dyn Write) -> Result<()> {
        let (root, _) = holder::mount_of(&args.dir).map_err(|e| anyhow!("{}: {e}", args.dir.display()))?;
        let ask = || arbor_fuse::stats(&root).map_err(|e| anyhow!("{}: {e}", args.dir.display()));
        let mut before = ask()?;
        if args.json {
            let mut groups = serde_json::Map::new();
            for (group, name, n) in before {
                groups.entry(group).or_insert_with(|| serde_json::json!({}))[name] = n.into();
            }
            return Ok(writeln!(out, "{}", serde_json::to_string_pretty(&groups)?)?);
        }
        let lines = |stats: &arbor_fuse::Stats, since: Option<&arbor_fuse::Stats>| {
            let mut text = String::new();
            for (group, name, n) in stats {
                let old = since.and_then(|s| s.iter().find(|(g, m, _)| (g, m) == (group, name))).map_or(0, |s| s.2);
                // What can shrink, as the bytes in a cache, has a sign then.
                let sign = if *n < old { "-" } else { "" };
                if since.is_none() || *n != old {
                    text += &format!("{group:<7} {name:<22} {sign:>1}{:>16}\n", show::count(n.abs_diff(old)));
                }
            }
            text
        };
        write!(out, "{}", lines(&before, None))?;
        while let Some(seconds) = args.watch {
            out.flush()?;
            std::thread::sleep(std::time::Duration::from_secs(seconds.max(1)));
            let now = ask()?;
            write!(out, "\n{}", lines(&now, Some(&before)))?;
            before = now;
        }
        Ok(())
    }

    #[cfg(test)]
    mod tests {
        use super::*;
        use crate::args::ImageArgs;

        fn args(options: &str) -> MountArgs {
            let image = ImageArgs { options: vec![options.into()], image: "/no/such.img".into() };
            let dir = "/mnt".into();
            let (foreground, quiet, verbose, fake, is_helper) = Default::default();
            let (new, engine, ready_fd) = Default::default();
            MountArgs { new, engine, foreground, quiet, verbose, ready_fd, fake, is_helper, image, dir }
        }

        #[test]
        fn options_go_where_they_belong() {
            let plan = plan(&args("ro,offset=1M,noatime,x-systemd.automount,threads=3")).unwrap();
            assert!(plan.config.read_only);
            assert_eq!(plan.config.threads, 3);
            assert_eq!(plan.image.offset, 1 << 20);
            assert_eq!(plan.config.source, "/no/such.img");
        }

        #[test]
        fn unknown_options_are_a_wrong_command_line() {
            let exit = run(&args("nosuchoption")).unwrap_err();
            assert_eq!(exit.code, USAGE);
            assert!(exit.error.to_string().contains("nosuchoption"));
            assert!(plan(&args("nosuchoption,sloppy")).is_ok());
        }
    }
}
