//! A real database over a server that is killed: SQLite with its default journal, on a mount, for
//! each way to keep metadata. Where no mount can be made, the test says so and does nothing.

#![cfg(target_os = "linux")]

mod common;
mod watch;

use common::root_can_mount;
use rusqlite::{Connection, params};
use rustix::process::Signal;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI64, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use watch::{Watch, arbor};

/// Accounts in the database; what they hold together never changes.
const ACCOUNTS: i64 = 2_000;
const TOTAL: i64 = ACCOUNTS * 100;

/// A volume that is mounted, killed and mounted again. Taken off when the value goes.
struct Volume {
    watch: Watch,
    dir: tempfile::TempDir,
    options: &'static str,
}

impl Volume {
    fn new(engine: &str, options: &'static str) -> Volume {
        let dir = tempfile::tempdir().unwrap();
        let volume = Volume { watch: Watch::new(dir.path()), dir, options };
        arbor(&["mkfs", "-q", "-t", engine, "-s", "64M"], &[&volume.image()]).well();
        volume
    }

    fn image(&self) -> PathBuf {
        self.dir.path().canonicalize().unwrap().join("x.img")
    }

    fn root(&self) -> PathBuf {
        self.dir.path().canonicalize().unwrap().join("mnt")
    }

    /// Mounts it, and has it watched from now on.
    fn mount(&mut self) {
        self.watch = Watch::new(self.dir.path());
        let paths: &[&Path] = &[&self.image(), &self.root()];
        match self.options {
            "" => arbor(&["mount"], paths).well(),
            options => arbor(&["mount", "-o", options], paths).well(),
        };
    }
}

/// Moves money about until the database gives an error. Counts the transactions that were answered.
fn work(db: &Connection, seed: i64, done: &AtomicI64) -> rusqlite::Result<()> {
    let mut x = seed;
    let mut next = || {
        x = x.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        x >> 33 & 0x3fff_ffff
    };
    loop {
        db.execute_batch("begin")?;
        for _ in 0..1 + next() % 8 {
            let (from, to, sum) = (next() % ACCOUNTS, next() % ACCOUNTS, next() % 10);
            db.execute("update a set n = n - ?2 where id = ?1", params![from, sum])?;
            db.execute("update a set n = n + ?2 where id = ?1", params![to, sum])?;
        }
        db.execute("update t set n = n + 1", [])?;
        db.execute_batch("commit")?;
        done.fetch_add(1, Ordering::Relaxed);
    }
}

fn fill(db: &mut Connection) -> rusqlite::Result<()> {
    let tx = db.transaction()?;
    tx.execute_batch("create table t (n); insert into t values (0); create table a (id integer primary key, n, pad)")?;
    for id in 0..ACCOUNTS {
        tx.execute("insert into a values (?1, 100, ?2)", params![id, "x".repeat(100 + id as usize % 300)])?;
    }
    tx.commit()
}

fn check(db: &Connection, why: &str) -> i64 {
    let ask =
        |sql: &str| db.query_row(sql, [], |row| row.get::<_, i64>(0)).unwrap_or_else(|e| panic!("{why}: {sql}: {e}"));
    let state: String =
        db.query_row("pragma integrity_check", [], |row| row.get(0)).unwrap_or_else(|e| panic!("{why}: {e}"));
    assert_eq!(state, "ok", "{why}");
    assert_eq!(ask("select sum(n) from a"), TOTAL, "{why}");
    ask("select n from t")
}

fn survives(engine: &str, options: &'static str, rounds: i64) {
    let mut volume = Volume::new(engine, options);
    let path = volume.root().join("db");
    let mut begun = 0;
    for round in 0..rounds {
        volume.mount();
        let mut db = Connection::open(&path).unwrap();
        // The removal of the journal counts only when its directory was synced.
        db.execute_batch("pragma synchronous = extra").unwrap();
        let why = format!("{engine} {options}, round {round}");
        match round {
            0 => fill(&mut db).unwrap(),
            // SQLite counts a removal as durable if it cannot open the directory any more to sync it.
            _ => assert!(check(&db, &why) >= begun - 1, "{why}: a transaction that was answered is gone"),
        }
        let before = check(&db, &why);
        let done = AtomicI64::new(0);
        thread::scope(|s| {
            let counter = &done;
            let worker = s.spawn(move || work(&db, 7 + round, counter));
            // Enough of them, and then in the middle of one.
            let limit = Instant::now() + Duration::from_secs(10);
            while done.load(Ordering::Relaxed) < 20 && Instant::now() < limit {
                thread::sleep(Duration::from_millis(1));
            }
            thread::sleep(Duration::from_micros(1700 * round.unsigned_abs()));
            volume.watch.signal(&volume.root(), Signal::KILL);
            assert!(worker.join().unwrap().is_err());
        });
        begun = before + done.load(Ordering::Relaxed);
        watch::umount_dead(&volume.root());
    }
}

#[test]
fn a_database_survives_the_death_of_the_server() {
    if !root_can_mount() {
        return;
    }
    for (engine, options) in
        [("ffs", "keep=sync"), ("ffs", "keep=softupdates"), ("ffs", "keep=journal"), ("yfs", ""), ("lfs", "")]
    {
        survives(engine, options, 8);
    }
}
