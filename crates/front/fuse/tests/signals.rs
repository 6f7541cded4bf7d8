//! Callers that are killed, or get a signal, while the device hangs. Needs root and
//! `/dev/fuse`; where they are missing each test says so and does nothing.

#[allow(dead_code)]
mod guard;
#[allow(dead_code)]
mod memfs;
mod mounts;
mod rings;

use arbor_fuse::MountConfig;
use mounts::*;
use rustix::io::Errno;
use std::fs::{self, File};
use std::os::unix::thread::JoinHandleExt;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

/// With a mount whose device hangs; it must work when it no longer does.
fn while_it_hangs(test: impl Fn(&Mounted)) {
    for transport in transports() {
        let Some(m) = Mounted::with(|c| c.transport = transport) else { return };
        fs::create_dir(m.path("d")).unwrap();
        fs::write(m.path("f"), b"before").unwrap();
        m.fs.hangs.store(true, SeqCst);
        test(&m);
        assert!(m.requests("interrupt") > 0);
        m.fs.hangs.store(false, SeqCst);
        eventually("nobody waits for ever", || m.fs.waiting.load(SeqCst) == 0);
        fs::write(m.path("f"), b"after").unwrap();
        File::open(m.path("f")).unwrap().sync_all().unwrap();
        assert_eq!(fs::read(m.path("f")).unwrap(), b"after");
        let counters = m.session.as_ref().unwrap().counters().get();
        assert!(!counters.iter().any(|c| c.0 == "panics"), "{counters:?}");
        m.end();
    }
}

/// SIGUSR1 runs a handler that does nothing, without `SA_RESTART`.
fn catch_sigusr1() {
    extern "C" fn nothing(_: libc::c_int) {}
    // SAFETY: zeros are an empty set and no flags, and the handler does nothing at all.
    let installed = unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = nothing as extern "C" fn(libc::c_int) as libc::sighandler_t;
        libc::sigaction(libc::SIGUSR1, &action, std::ptr::null_mut())
    };
    assert_eq!(installed, 0);
}

fn send_sigusr1<T>(to: &std::thread::JoinHandle<T>) {
    // SAFETY: a thread that was not joined, so its handle is good even if it has ended.
    unsafe { libc::pthread_kill(to.as_pthread_t(), libc::SIGUSR1) };
}

/// Runs `call` until it waits for the device, then sends its thread SIGUSR1.
fn signalled<T: Send + 'static>(m: &Mounted, call: impl FnOnce() -> T + Send + 'static) -> std::thread::JoinHandle<T> {
    catch_sigusr1();
    let waiting = m.fs.waiting.load(SeqCst);
    let caller = std::thread::spawn(call);
    eventually("it waits", || m.fs.waiting.load(SeqCst) > waiting);
    send_sigusr1(&caller);
    caller
}

fn ends_soon<T>(caller: std::thread::JoinHandle<T>) -> T {
    eventually("the caller is let go", || caller.is_finished());
    caller.join().unwrap()
}

#[test]
fn a_killed_caller_is_let_go_from_everything() {
    while_it_hangs(|m| {
        for name in ["d/hangs", "f"] {
            let mut caller = Command::new("sh");
            caller.arg("-c").arg("[ -d \"$1\" ] || exec sync \"$1\"").arg("sh").arg(m.path(name));
            let mut caller = start(caller.stderr(Stdio::null()));
            eventually("it waits", || m.fs.waiting.load(SeqCst) == 1);
            caller.kill().unwrap();
            eventually("a killed caller goes", || caller.try_wait().unwrap().is_some());
            assert_eq!(m.fs.waiting.load(SeqCst), 0);
        }
    });
}

/// Nobody reads an INTERRUPT then, or only when the first are let go.
#[test]
fn killed_callers_are_let_go_when_every_worker_waits() {
    for transport in transports() {
        let change = |c: &mut MountConfig| (c.transport, c.threads) = (transport, 2);
        let Some(m) = Mounted::with(change) else { return };
        fs::create_dir(m.path("d")).unwrap();
        m.fs.hangs.store(true, SeqCst);
        let call =
            |i| start(Command::new("sh").args(["-c", "[ -e \"$1\" ]", "sh"]).arg(m.path(&format!("d/hangs{i}"))));
        let mut callers: Vec<Child> = (0..12).map(call).collect();
        eventually("they wait", || m.fs.waiting.load(SeqCst) >= 2);
        std::thread::sleep(Duration::from_millis(100));
        for caller in &mut callers {
            caller.kill().unwrap();
        }
        eventually("they go", || callers.iter_mut().all(|caller| caller.try_wait().unwrap().is_some()));
        assert_eq!(m.fs.waiting.load(SeqCst), 0);
        m.fs.hangs.store(false, SeqCst);
        fs::write(m.path("f"), b"x").unwrap();
        m.end();
    }
}

#[test]
fn a_caller_with_a_handler_gets_eintr_where_calls_are_long() {
    while_it_hangs(|m| {
        let file = File::open(m.path("f")).unwrap();
        assert_eq!(ends_soon(signalled(m, move || rustix::fs::fsync(&file))), Err(Errno::INTR));
        let root = File::open(m.dir.path()).unwrap();
        m.fs.hangs.store(false, SeqCst);
        rustix::fs::fsync(root).unwrap();
        m.fs.hangs.store(true, SeqCst);
    });
}

/// Nobody looks for `EINTR` after stat(2). SIGKILL is heeded though, of which the kernel says no more.
#[test]
fn a_caller_with_a_handler_waits_where_calls_are_short_until_it_is_killed() {
    while_it_hangs(|m| {
        let hangs = m.path("d/hangs");
        let caller = signalled(m, move || fs::metadata(hangs).unwrap_err().kind());
        eventually("the server knows", || m.requests("interrupt") > 0);
        std::thread::sleep(Duration::from_millis(50));
        assert!(!caller.is_finished());
        m.fs.hangs.store(false, SeqCst);
        assert_eq!(ends_soon(caller), std::io::ErrorKind::NotFound);
        m.fs.hangs.store(true, SeqCst);

        let before = m.requests("interrupt");
        let mut shell = Command::new("sh");
        shell.arg("-c").arg("trap : USR1; [ -e \"$1\" ]").arg("sh").arg(m.path("d/hangs too"));
        let mut shell = start(&mut shell);
        eventually("it waits", || m.fs.waiting.load(SeqCst) == 1);
        rustix::process::kill_process(rustix::process::Pid::from_child(&shell), rustix::process::Signal::USR1).unwrap();
        eventually("the server knows", || m.requests("interrupt") > before);
        std::thread::sleep(Duration::from_millis(50));
        assert!(shell.try_wait().unwrap().is_none());
        shell.kill().unwrap();
        eventually("a killed caller goes", || shell.try_wait().unwrap().is_some());
    });
}

/// Signals that come before, during and after requests.
#[test]
fn signals_at_any_time_do_no_harm() {
    while_it_hangs(|m| {
        m.fs.hangs.store(false, SeqCst);
        catch_sigusr1();
        let (path, new) = (m.path("f"), m.path("d/new"));
        let caller = std::thread::spawn(move || {
            let file = File::open(&path).unwrap();
            for _ in 0..200 {
                assert!(matches!(rustix::fs::fsync(&file), Ok(()) | Err(Errno::INTR)));
                fs::write(&new, b"x").unwrap();
                assert_eq!(fs::read(&new).unwrap(), b"x");
                fs::remove_file(&new).unwrap();
            }
        });
        for round in 0.. {
            if caller.is_finished() {
                break;
            }
            m.fs.hangs.store(true, SeqCst);
            send_sigusr1(&caller);
            std::thread::sleep(Duration::from_micros(round % 16 * 300));
            m.fs.hangs.store(false, SeqCst);
            send_sigusr1(&caller);
            std::thread::sleep(Duration::from_micros(200));
        }
        caller.join().unwrap();
    });
}

#[test]
fn a_large_copy_is_whole_or_what_was_done_before_a_signal() {
    while_it_hangs(|m| {
        const PIECE: usize = 8 << 20;
        m.fs.hangs.store(false, SeqCst);
        let data: Vec<u8> = (0..3 * PIECE as u32).map(|i| (i / 251) as u8).collect();
        for size in [3 * PIECE, 2 * PIECE + 5] {
            fs::write(m.path("from"), &data[..size]).unwrap();
            let (from, to) = (File::open(m.path("from")).unwrap(), File::create(m.path("to")).unwrap());
            let copy = move || rustix::fs::copy_file_range(&from, Some(&mut 0), &to, Some(&mut 0), 1 << 30);
            assert_eq!(copy(), Ok(size));
            assert!(fs::read(m.path("to")).unwrap() == data[..size]);
            m.fs.hangs.store(true, SeqCst);
            assert_eq!(ends_soon(signalled(m, copy)), Ok(PIECE));
            m.fs.hangs.store(false, SeqCst);
        }
    });
}
