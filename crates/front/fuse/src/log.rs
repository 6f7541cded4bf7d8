//! Where a server's complaints go: to standard error, or to syslog(3) as soon as a server in the background has none.
//!
//! A message is one datagram to `/dev/log`, in the form of RFC 3164 without the time, which the receiver knows.

use parking_lot::Mutex;
use std::fmt::{self, Write as _};
use std::io::{self, Write as _};
use std::os::unix::net::UnixDatagram;
use std::panic::PanicHookInfo;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Where journald and every syslogd listen.
const SOCKET: &str = "/dev/log";

/// Facility `daemon`, severity `err`.
const PRIORITY: u32 = 3 << 3 | 3;

/// Bytes of a message; what is longer is cut, because a receiver may drop it.
const LONGEST: usize = 8 << 10;

static SYSLOG: Mutex<Option<Syslog>> = Mutex::new(None);

/// From now on what the servers of this process have to say goes to syslog(3) instead of to standard error. `name` is
/// put before each message: the volume it is about.
pub fn log_to_syslog(name: &str) {
    *SYSLOG.lock() = Some(Syslog::new(SOCKET.as_ref(), name));
}

/// From now on the place and the text of every panic of this process go where its messages go.
pub fn log_panics() {
    static PANICS: Log = Log::new();
    std::panic::set_hook(Box::new(|panic| PANICS.say(format_args!("{}", Panic(panic)))));
}

/// A panic in one line.
struct Panic<'a>(&'a PanicHookInfo<'a>);

impl fmt::Display for Panic<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = self.0.payload();
        let text = text.downcast_ref::<&str>().copied().or_else(|| text.downcast_ref::<String>().map(String::as_str));
        f.write_str("panic")?;
        self.0.location().map_or(Ok(()), |place| write!(f, " at {place}"))?;
        write!(f, ": {}", text.unwrap_or("it has no text"))
    }
}

/// Complaints, a few a second at most.
#[derive(Debug, Default)]
pub(crate) struct Log(Mutex<Budget>);

impl Log {
    const fn new() -> Log {
        Log(Mutex::new(Budget { since: None, said: 0, swallowed: 0 }))
    }

    /// Says it, unless too much was said in this second. Never fails.
    pub(crate) fn say(&self, what: fmt::Arguments<'_>) {
        let Some(swallowed) = self.0.lock().take(Instant::now()) else { return };
        if swallowed > 0 {
            tell(&format!("{swallowed} more messages were not shown"));
        }
        tell(&plain(&what.to_string()));
    }
}

fn tell(text: &str) {
    if let Some(syslog) = &mut *SYSLOG.lock() {
        return syslog.send(text);
    }
    let _ = writeln!(io::stderr(), "arbor: {text}");
}

#[derive(Debug, Default)]
struct Budget {
    since: Option<Instant>,
    said: u32,
    swallowed: u64,
}

impl Budget {
    /// Messages in a second.
    const LIMIT: u32 = 10;

    /// Whether one more may be said now; how many could not be in the last second, if a new one begins.
    fn take(&mut self, now: Instant) -> Option<u64> {
        let mut before = 0;
        if self.since.is_none_or(|since| now.duration_since(since) > Duration::from_secs(1)) {
            before = self.swallowed;
            *self = Budget { since: Some(now), said: 0, swallowed: 0 };
        }
        if self.said == Budget::LIMIT {
            self.swallowed += 1;
            return None;
        }
        self.said += 1;
        Some(before)
    }
}

/// Names and damaged contents may hold what a terminal obeys or what looks like a message of somebody else.
fn plain(text: &str) -> String {
    let obeyed = |c: char| c.is_control() || matches!(c, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    text.chars().fold(String::with_capacity(text.len()), |mut plain, c| {
        match obeyed(c) {
            true => plain.extend(c.escape_default()),
            false => plain.push(c),
        }
        plain
    })
}

/// The way to syslog. Sending neither waits nor fails: what cannot be sent is lost.
#[derive(Debug)]
struct Syslog {
    path: PathBuf,
    /// What stands before each text.
    head: String,
    /// Kept, because a server may be so confined later that it reaches no path.
    socket: Option<UnixDatagram>,
}

impl Syslog {
    fn new(path: &Path, name: &str) -> Syslog {
        let mut head = String::new();
        let _ = write!(head, "<{PRIORITY}>arbor[{}]: {}: ", std::process::id(), plain(name));
        Syslog { path: path.into(), head, socket: Syslog::connect(path).ok() }
    }

    fn connect(path: &Path) -> io::Result<UnixDatagram> {
        let socket = UnixDatagram::unbound()?;
        socket.set_nonblocking(true)?;
        socket.connect(path)?;
        Ok(socket)
    }

    fn send(&mut self, text: &str) {
        let mut message = format!("{}{text}", self.head);
        if message.len() > LONGEST {
            let end = (0..=LONGEST).rev().find(|&end| message.is_char_boundary(end));
            message.truncate(end.unwrap_or(0));
        }
        match self.socket.as_ref().map(|socket| socket.send(message.as_bytes())) {
            Some(Ok(_)) => return,
            // The receiver is there and has no room; it will not have more for another socket.
            Some(Err(e)) if e.kind() == io::ErrorKind::WouldBlock => return,
            // The receiver was started anew, or was not there yet.
            Some(Err(_)) | None => self.socket = Syslog::connect(&self.path).ok(),
        }
        if let Some(socket) = &self.socket {
            let _ = socket.send(message.as_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;
    use std::thread;

    const LIMIT: Duration = Duration::from_secs(30);

    fn listen(path: &Path) -> UnixDatagram {
        let socket = UnixDatagram::bind(path).unwrap();
        socket.set_read_timeout(Some(LIMIT)).unwrap();
        socket
    }

    fn next(socket: &UnixDatagram) -> String {
        let mut bytes = vec![0; 64 << 10];
        let len = socket.recv(&mut bytes).unwrap();
        String::from_utf8(bytes[..len].to_vec()).unwrap()
    }

    #[test]
    fn a_message_names_the_volume_and_is_one_line() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let receiver = listen(&path);
        let mut syslog = Syslog::new(&path, "/a\n<0>b.img on /mnt");
        syslog.send(&plain("read of \x1b[2Jnode\u{202e} 7\r\n<0>kernel: é"));
        let id = std::process::id();
        let want =
            format!("<27>arbor[{id}]: /a\\n<0>b.img on /mnt: read of \\u{{1b}}[2Jnode\\u{{202e}} 7\\r\\n<0>kernel: é");
        assert_eq!(next(&receiver), want);
        syslog.send(&"é".repeat(LONGEST));
        let long = next(&receiver);
        assert!((LONGEST - 1..=LONGEST).contains(&long.len()), "{}", long.len());
    }

    #[test]
    fn a_receiver_may_come_late_and_be_started_anew() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let mut syslog = Syslog::new(&path, "x");
        syslog.send("nobody hears it");
        let receiver = listen(&path);
        syslog.send("first");
        assert!(next(&receiver).ends_with("]: x: first"));
        drop(receiver);
        syslog.send("nobody hears it");
        std::fs::remove_file(&path).unwrap();
        let receiver = listen(&path);
        syslog.send("second");
        assert!(next(&receiver).ends_with("]: x: second"));
    }

    #[test]
    fn a_receiver_that_does_not_read_holds_nobody_up() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let receiver = listen(&path);
        let (done, is_done) = mpsc::channel();
        let mut syslog = Syslog::new(&path, "x");
        thread::spawn(move || {
            // More than any queue of datagrams and any buffer of a socket hold.
            (0..20_000).for_each(|_| syslog.send(&"much ".repeat(200)));
            let _ = done.send(());
        });
        is_done.recv_timeout(LIMIT).expect("sending waits for the receiver");
        assert!(next(&receiver).contains("]: x: much "));
    }

    #[test]
    fn a_second_has_ten_messages() {
        let mut budget = Budget::default();
        let begin = Instant::now();
        let taken: Vec<_> = (0..25).map(|n| budget.take(begin + Duration::from_millis(n * 40))).collect();
        assert_eq!(taken[..10], [Some(0); 10]);
        assert_eq!(taken[10..], [None; 15]);
        let later = begin + Duration::from_millis(1001);
        assert_eq!([budget.take(later), budget.take(later)], [Some(15), Some(0)]);
    }
}
