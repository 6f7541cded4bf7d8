//! Servers in a process of their own: their start, their end, and what they leave behind. Needs root and
//! `/dev/fuse`; where they are missing each test says so and does nothing.

#[allow(dead_code)]
mod guard;
#[allow(dead_code)]
mod memfs;
mod mounts;
mod rings;

use arbor_base::device::{Device, FileDevice, OpenMode};
use arbor_base::vfs::Options;
use arbor_fuse::Transport;
use guard::can_mount;
use memfs::MemFs;
use mounts::*;
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

/// What [`Server`] runs in a process of its own.
#[test]
#[ignore = "run by other tests, as a server"]
fn server_process() {
    let Some(dir) = std::env::var_os("ARBOR_FUSE_TEST_DIR") else { return };
    let options = std::env::var("ARBOR_FUSE_TEST_OPTIONS").unwrap_or("transport=offered".into());
    let (mut config, rest) = arbor_fuse::parse_options(&Options::parse(&options)).unwrap();
    assert_eq!(rest, Options::default());
    config.source = "image".into();
    config.handle_signals = true;
    let opened;
    if let Some(device) = std::env::var_os("ARBOR_FUSE_TEST_DEVICE") {
        opened = FileDevice::open(&device, OpenMode::ReadWrite).unwrap();
        config.block_device = opened.claim();
        config.claims.extend(opened.claim());
    }
    let fs = Arc::new(MemFs::new());
    // Slow enough that who does not wait would notice.
    fs.unmounts_slowly.store(true, SeqCst);
    let session = arbor_fuse::mount(fs.clone(), dir.as_ref(), &config).unwrap();
    session.ready().unwrap();
    let counters = session.counters();
    eprintln!("READY");
    session.wait().unwrap();
    eprintln!("served {:?}", counters.get());
    eprintln!("UNMOUNTED {} synced {}", fs.unmounted.load(SeqCst), fs.syncs.load(SeqCst));
}

/// A server in another process, which is killed if the test takes longer than a minute.
struct Server {
    child: Child,
    _limit: std::sync::mpsc::Sender<()>,
    lines: std::io::Lines<BufReader<std::process::ChildStderr>>,
    /// What it has said until it was ready, and between two things that were expected.
    said: Vec<String>,
    dir: PathBuf,
}

impl Server {
    fn command(dir: &Path) -> Command {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "server_process", "--ignored", "--nocapture"]);
        command.env("ARBOR_FUSE_TEST_DIR", dir).stdout(Stdio::null()).stderr(Stdio::piped());
        command
    }

    fn start(dir: &Path, change: impl FnOnce(&mut Command)) -> Server {
        let mut command = Server::command(dir);
        change(&mut command);
        let mut child = start(&mut command);
        let lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let pid = rustix::process::Pid::from_child(&child);
        let process = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()).unwrap();
        let (_limit, end) = std::sync::mpsc::channel::<()>();
        std::thread::spawn(move || {
            if end.recv_timeout(Duration::from_secs(60)) == Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
                eprintln!("a server hangs");
                let _ = rustix::process::pidfd_send_signal(process, rustix::process::Signal::KILL);
            }
        });
        let mut server = Server { child, _limit, lines, said: Vec::new(), dir: dir.to_path_buf() };
        server.expect("READY");
        server
    }

    fn expect(&mut self, text: &str) -> String {
        for line in &mut self.lines {
            let line = line.unwrap();
            if line.starts_with(text) {
                return line;
            }
            self.said.push(line);
        }
        panic!("the server did not say {text}: {}", self.said.join("\n"));
    }

    fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, signal).unwrap();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if self.child.try_wait().is_ok_and(|s| s.is_none()) {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
        let _ = arbor_fuse::clean_stale(&self.dir);
    }
}

#[test]
fn sigterm_unmounts() {
    if !can_mount() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let mut server = Server::start(dir.path(), |_| {});
    fs::write(dir.path().join("f"), b"x").unwrap();
    server.signal(rustix::process::Signal::TERM);
    assert_eq!(server.expect("UNMOUNTED"), "UNMOUNTED true synced 0");
    assert!(server.child.wait().unwrap().success());
    assert!(!is_mounted(dir.path()));
}

#[test]
fn a_classic_worker_goes_to_the_processor_of_its_only_caller() {
    use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
    let may = sched_getaffinity(None).unwrap();
    let two: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|&cpu| may.is_set(cpu)).take(2).collect();
    if !can_mount() || two.len() < 2 {
        eprintln!("NOT RUN: it takes a mount and two processors");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    for (options, follows) in [("transport=classic", true), ("transport=classic,spin=100", false)] {
        let mut server = Server::start(dir.path(), |command| {
            command.env("ARBOR_FUSE_TEST_OPTIONS", options);
        });
        for &cpu in &two {
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    let mut here = CpuSet::new();
                    here.set(cpu);
                    sched_setaffinity(None, &here).unwrap();
                    let call = || (0..200).for_each(|_| fs::write(dir.path().join("f"), b"x").unwrap());
                    if follows {
                        eventually("a worker is where its caller is", || {
                            call();
                            processors_of_workers(server.child.id()).contains(&cpu.to_string())
                        });
                    } else {
                        call();
                        let may = processors_of_workers(server.child.id());
                        assert!(may.iter().all(|list| list.parse::<usize>().is_err()), "{may:?}");
                    }
                });
            });
        }
        server.signal(rustix::process::Signal::TERM);
        server.expect("UNMOUNTED");
        server.child.wait().unwrap();
    }
}

/// Where the workers of a server may run, as the kernel lists it.
fn processors_of_workers(server: u32) -> Vec<String> {
    let threads = fs::read_dir(format!("/proc/{server}/task")).unwrap().flatten().map(|thread| thread.path());
    let workers =
        threads.filter(|t| fs::read_to_string(t.join("comm")).is_ok_and(|name| name.starts_with("arbor-fuse")));
    let list =
        |status: String| status.lines().find_map(|l| Some(l.strip_prefix("Cpus_allowed_list:")?.trim().to_string()));
    workers.filter_map(|thread| list(fs::read_to_string(thread.join("status")).ok()?)).collect()
}

#[test]
fn two_sigterms_end_a_busy_mount() {
    if !can_mount() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let mut server = Server::start(dir.path(), |_| {});
    let f = File::create(dir.path().join("f")).unwrap();
    server.signal(rustix::process::Signal::TERM);
    server.expect("arbor: ");
    eventually("it is detached", || !is_mounted(dir.path()));
    f.write_all_at(b"grace", 0).unwrap();
    server.signal(rustix::process::Signal::INT);
    assert_eq!(server.expect("UNMOUNTED"), "UNMOUNTED true synced 1000000");
    assert!(server.child.wait().unwrap().success());
}

#[test]
fn unmount_waits_for_the_server() {
    if !can_mount() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let mut server = Server::start(dir.path(), |_| {});
    fs::write(dir.path().join("f"), b"x").unwrap();
    let record = arbor_fuse::mounts().into_iter().find(|r| r.mountpoint == dir.path()).unwrap();
    assert_eq!((record.pid, record.image.to_str()), (server.child.id(), Some("image")));
    arbor_fuse::unmount(dir.path(), true).unwrap();
    assert!(!arbor_fuse::mounts().iter().any(|r| r.mountpoint == dir.path()), "the server is at work still");
    assert_eq!(server.expect("UNMOUNTED"), "UNMOUNTED true synced 1000000", "and it syncs first");
    assert!(!is_mounted(dir.path()));
    assert!(server.child.wait().unwrap().success());
}

#[test]
fn a_stale_mount_is_taken_off() {
    if !can_mount() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    for round in 0..2 {
        let mut server = Server::start(dir.path(), |_| {});
        server.child.kill().unwrap();
        server.child.wait().unwrap();
        let error = fs::read_dir(dir.path()).unwrap_err().raw_os_error();
        // ENOTCONN; ECONNABORTED or ECANCELED for who asks while the kernel is still taking it down.
        assert!(matches!(error, Some(107 | 103 | 125)), "{error:?}");
        if round == 0 {
            // The next round's mount cleans, and makes the directory too.
            std::mem::forget(server);
        } else {
            assert!(arbor_fuse::clean_stale(dir.path()).unwrap());
            assert!(!arbor_fuse::clean_stale(dir.path()).unwrap());
        }
    }
    assert!(!is_mounted(dir.path()));
    let missing = dir.path().join("a/b");
    let mut server = Server::start(&missing, |_| {});
    server.signal(rustix::process::Signal::TERM);
    server.expect("UNMOUNTED true");
}

#[test]
fn ordinary_users_mount_by_fusermount() {
    if !can_mount() {
        return;
    }
    if !users_can_mount() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    std::os::unix::fs::chown(dir.path(), Some(65534), Some(65534)).unwrap();
    let mut server = Server::start(dir.path(), |c| {
        c.uid(65534).gid(65534).env_remove("XDG_RUNTIME_DIR");
    });
    let at = dir.path().display();
    assert_eq!(as_nobody(&format!("cat {at}/f 2>/dev/null; ls {at} | wc -l")), "0\n");
    assert_eq!(fs::read_dir(dir.path()).unwrap_err().raw_os_error(), Some(13), "not even root may look");
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let line = table.lines().find(|l| l.split(' ').nth(4) == dir.path().to_str()).unwrap();
    assert!(line.contains("nosuid,nodev") && line.contains("- fuse.arbor image "), "{line}");
    server.signal(rustix::process::Signal::TERM);
    server.expect("UNMOUNTED true");
    assert!(server.child.wait().unwrap().success());
    assert!(!is_mounted(dir.path()));
}

#[test]
fn block_devices_get_syncfs_and_a_umount_that_waits() {
    if !can_mount() {
        return;
    }
    let image = tempfile::NamedTempFile::new().unwrap();
    image.as_file().set_len(1 << 20).unwrap();
    let losetup = output(Command::new("losetup").args(["-f", "--show"]).arg(image.path()));
    let Some(made) = losetup.ok().filter(|o| o.status.success()) else {
        eprintln!("NOT RUN: this test needs a loop device");
        return;
    };
    struct Loop(String);
    impl Drop for Loop {
        fn drop(&mut self) {
            let _ = output(Command::new("losetup").arg("-d").arg(&self.0));
        }
    }
    let device = Loop(String::from_utf8(made.stdout).unwrap().trim().to_string());
    // Also where the first mount of the device had to be given up.
    for refuse in [false, true] {
        if refuse && !can_refuse_rings() {
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let mut server = Server::start(dir.path(), |c| {
            c.env("ARBOR_FUSE_TEST_DEVICE", &device.0);
            if refuse {
                refuse_rings(c, 0);
            }
        });
        let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
        let line = table.lines().find(|l| l.split(' ').nth(4) == dir.path().to_str()).unwrap();
        assert!(line.contains(&format!("- fuseblk.arbor {} ", device.0)), "{line}");
        // A child of another test would keep the file open.
        let forks = FORKS.write().unwrap_or_else(PoisonError::into_inner);
        let f = File::create(dir.path().join("f")).unwrap();
        rustix::fs::syncfs(&f).unwrap();
        drop(f);
        rustix::mount::unmount(dir.path(), rustix::mount::UnmountFlags::empty()).unwrap();
        drop(forks);
        let said = server.expect("UNMOUNTED true synced ");
        assert!(said.rsplit(' ').next().unwrap().parse::<u64>().unwrap() >= 1_000_000, "{said}");
        assert!(server.child.wait().unwrap().success());
    }
}

/// Lets the system call that brings rings to the kernel fail with `EPERM`, as containers do, in the process
/// that `command` starts; `uid` is given up to last, so that `fusermount3` still gets its rights.
fn refuse_rings(command: &mut Command, uid: u32) {
    let code = |code: u32, k: u32, jf| libc::sock_filter { code: code as u16, jt: 0, jf, k };
    let (load, jump, ret) = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, libc::BPF_JMP | libc::BPF_JEQ, libc::BPF_RET);
    let program = [
        code(load, std::mem::offset_of!(libc::seccomp_data, nr) as u32, 0),
        code(jump, libc::SYS_io_uring_enter as u32, 1),
        code(ret, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32, 0),
        code(ret, libc::SECCOMP_RET_ALLOW, 0),
    ];
    let install = move || {
        let mut program = program;
        let filter = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
        // SAFETY: the kernel copies a program of that length; the other calls take numbers.
        let done = unsafe {
            libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &filter) == 0
                && libc::setgid(uid) == 0
                && libc::setuid(uid) == 0
        };
        if done { Ok(()) } else { Err(std::io::Error::last_os_error()) }
    };
    // SAFETY: between fork and exec it makes system calls only, and takes no memory.
    unsafe { command.pre_exec(install) };
}

/// Whether rings are offered, so that they can be refused; says aloud if not.
fn can_refuse_rings() -> bool {
    let can = can_mount() && transports().contains(&Transport::Uring);
    if !can {
        eprintln!("NOT RUN: io_uring is not offered, so it cannot be refused");
    }
    can
}

#[test]
fn refused_rings_are_done_without() {
    if !can_refuse_rings() {
        return;
    }
    const NOBODY: u32 = 65534;
    for uid in [0, NOBODY] {
        if uid == NOBODY && !users_can_mount() {
            continue;
        }
        let dir = tempfile::tempdir().unwrap();
        std::os::unix::fs::chown(dir.path(), Some(uid), Some(uid)).unwrap();
        let mut server = Server::start(dir.path(), |c| {
            refuse_rings(c.env_remove("XDG_RUNTIME_DIR"), uid);
        });
        let said = server.said.join("\n");
        assert!(said.contains("io_uring was refused") && said.contains("not permitted"), "{said}");
        let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
        assert_eq!(table.lines().filter(|l| l.split(' ').nth(4) == dir.path().to_str()).count(), 1);
        if uid == 0 {
            fs::write(dir.path().join("f"), b"x").unwrap();
            assert_eq!(fs::read(dir.path().join("f")).unwrap(), b"x");
            assert!(arbor_fuse::mounts().iter().any(|r| r.mountpoint == dir.path()));
        }
        server.signal(rustix::process::Signal::TERM);
        let served = server.expect("served");
        assert!(!served.contains("by_ring"), "{served}");
        assert_eq!(server.expect("UNMOUNTED"), "UNMOUNTED true synced 0");
        assert!(server.child.wait().unwrap().success());
        assert!(!is_mounted(dir.path()));
    }
}

#[test]
fn refused_rings_are_an_error_where_they_were_asked_for() {
    if !can_refuse_rings() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let mut command = Server::command(dir.path());
    refuse_rings(command.env("ARBOR_FUSE_TEST_OPTIONS", "transport=uring"), 0);
    let output = output(&mut command).unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success());
    assert!(said.contains("transport=uring: FUSE over io_uring was refused: Operation not permitted"), "{said}");
    assert!(!is_mounted(dir.path()));
}
