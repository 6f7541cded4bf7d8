//! Small files without a mount: the library beside embedded databases with a record for each file.
//!
//!     cargo bench                                # both sets, three rounds
//!     cargo bench -- --files 10000 --rounds 1 --json figures.json
//!
//! Every store makes its files durable after each 1,000, and is opened anew and its image dropped from
//! the host's page cache (if we are root) before a phase that is called cold. The rounds are
//! interleaved; the table has their medians.

use arboretum::Volume;
use clap::Parser;
use comfy_table::{CellAlignment, Table, presets};
use heed::types::{Bytes, Str};
use redb::ReadableDatabase;
use rusqlite::Connection;
use std::collections::BTreeMap;
use std::error::Error;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Files made or deleted between two commits.
const COMMIT: usize = 1000;
/// Mode, time of change and length, in front of the contents in a store that has no columns.
const HEAD: usize = 20;
const GIB: u64 = 1 << 30;

#[derive(Debug, Parser)]
struct Args {
    /// Files of each set.
    #[arg(long, default_value_t = 100_000)]
    files: usize,
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Work below this directory, instead of the system's for temporary files.
    #[arg(long)]
    dir: Option<PathBuf>,
    /// Only these stores.
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// All figures, in seconds and bytes; a path from the root of the checkout.
    #[arg(long)]
    json: Option<PathBuf>,
    /// What cargo passes.
    #[arg(long, hide = true)]
    bench: bool,
}

/// A set of files: names in the order they are made, and contents.
struct Set {
    name: &'static str,
    dirs: Vec<String>,
    files: Vec<(String, Vec<u8>)>,
}

fn sets(files: usize) -> [Set; 2] {
    let contents = |i: usize, len: usize| (0..len).map(|b| (i * 31 + b * 7) as u8).collect::<Vec<u8>>();
    let each = files.div_ceil(100).max(1);
    let small = |i: usize| (i.wrapping_mul(2_654_435_761) >> 8) % 251;
    [
        Set {
            name: "1 KiB, 100 directories",
            dirs: (0..files.div_ceil(each)).map(|d| format!("dir{d:03}")).collect(),
            files: (0..files).map(|i| (format!("dir{:03}/file{i:07}", i / each), contents(i, 1024))).collect(),
        },
        Set {
            name: "0-250 bytes, one directory",
            dirs: vec!["dir".into()],
            files: (0..files).map(|i| (format!("dir/file{i:07}"), contents(i, small(i)))).collect(),
        },
    ]
}

/// What is measured. Each phase opens the store anew, except `create`.
trait Store {
    fn create(&self, set: &Set) -> Result<()>;
    /// Looks at the attributes of all files; returns how many there are and their lengths together.
    fn stat(&self) -> Result<(usize, u64)>;
    /// Reads all files; returns how many there are and the bytes that were read.
    fn read(&self) -> Result<(usize, u64)>;
    fn delete(&self, set: &Set) -> Result<()>;
}

/// A volume of this engine.
struct Engine(String, PathBuf);

impl Store for Engine {
    fn create(&self, set: &Set) -> Result<()> {
        let volume = Volume::options().engine(&self.0).format(&self.1, 8 * GIB)?;
        for dir in &set.dirs {
            volume.create_dir(dir)?;
        }
        for batch in set.files.chunks(COMMIT) {
            for (name, data) in batch {
                volume.write(name, data)?;
            }
            volume.sync()?;
        }
        Ok(volume.close()?)
    }

    fn stat(&self) -> Result<(usize, u64)> {
        let volume = Volume::open_read_only(&self.1)?;
        let mut sum = (0, 0);
        for step in volume.walk("/")? {
            let meta = step?.entry.metadata();
            if meta.is_file() {
                sum = (sum.0 + 1, sum.1 + meta.len());
            }
        }
        Ok(sum)
    }

    fn read(&self) -> Result<(usize, u64)> {
        let volume = Volume::open_read_only(&self.1)?;
        let mut sum = (0, 0);
        for step in volume.walk("/")? {
            let entry = step?.entry;
            if entry.metadata().is_file() {
                sum = (sum.0 + 1, sum.1 + entry.read()?.len() as u64);
            }
        }
        Ok(sum)
    }

    fn delete(&self, set: &Set) -> Result<()> {
        let volume = Volume::open(&self.1)?;
        for batch in set.files.chunks(COMMIT) {
            for (name, _) in batch {
                volume.remove_file(name)?;
            }
            volume.sync()?;
        }
        Ok(volume.close()?)
    }
}

/// The table is that of SQLite's own archives.
struct Sqlite(PathBuf);

impl Sqlite {
    fn open(&self) -> Result<Connection> {
        let db = Connection::open(&self.0)?;
        db.execute_batch(
            "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA cache_size = -262144;
             CREATE TABLE IF NOT EXISTS sqlar(name TEXT PRIMARY KEY, mode INT, mtime INT, sz INT, data BLOB);",
        )?;
        Ok(db)
    }
}

impl Store for Sqlite {
    fn create(&self, set: &Set) -> Result<()> {
        let mut db = self.open()?;
        for batch in set.files.chunks(COMMIT) {
            let tx = db.transaction()?;
            let mut insert = tx.prepare_cached("INSERT INTO sqlar VALUES (?, 33188, 1700000000, ?, ?)")?;
            for (name, data) in batch {
                insert.execute((name, data.len() as i64, data))?;
            }
            drop(insert);
            tx.commit()?;
        }
        Ok(())
    }

    fn stat(&self) -> Result<(usize, u64)> {
        let db = self.open()?;
        let mut all = db.prepare("SELECT name, mode, mtime, sz FROM sqlar")?;
        let mut rows = all.query(())?;
        let mut sum = (0, 0);
        while let Some(row) = rows.next()? {
            let (_, _, _, len): (String, u32, i64, i64) = row.try_into()?;
            sum = (sum.0 + 1, sum.1 + len.unsigned_abs());
        }
        Ok(sum)
    }

    fn read(&self) -> Result<(usize, u64)> {
        let db = self.open()?;
        let mut all = db.prepare("SELECT name, data FROM sqlar")?;
        let mut rows = all.query(())?;
        let mut sum = (0, 0);
        while let Some(row) = rows.next()? {
            let (_, data): (String, Vec<u8>) = row.try_into()?;
            sum = (sum.0 + 1, sum.1 + data.len() as u64);
        }
        Ok(sum)
    }

    fn delete(&self, set: &Set) -> Result<()> {
        let mut db = self.open()?;
        for batch in set.files.chunks(COMMIT) {
            let tx = db.transaction()?;
            let mut delete = tx.prepare_cached("DELETE FROM sqlar WHERE name = ?")?;
            for (name, _) in batch {
                delete.execute([name])?;
            }
            drop(delete);
            tx.commit()?;
        }
        Ok(())
    }
}

/// A store of keys and values: a value is a head and the contents.
trait Records {
    /// Gives the value of every key to `each`; returns how many there are, and the sum of what it said.
    fn all(&self, each: fn(&[u8]) -> Result<u64>) -> Result<(usize, u64)>;
    /// Makes or removes all files of a set, with a commit after each batch.
    fn change(&self, set: &Set, remove: bool) -> Result<()>;
}

impl<T: Records> Store for T {
    fn create(&self, set: &Set) -> Result<()> {
        self.change(set, false)
    }

    fn stat(&self) -> Result<(usize, u64)> {
        self.all(length)
    }

    fn read(&self) -> Result<(usize, u64)> {
        self.all(|record| Ok(record.get(HEAD..).ok_or("a short record")?.to_vec().len() as u64))
    }

    fn delete(&self, set: &Set) -> Result<()> {
        self.change(set, true)
    }
}

fn record(data: &[u8]) -> Vec<u8> {
    let mut all = Vec::with_capacity(HEAD + data.len());
    all.extend_from_slice(&0o100_644u32.to_le_bytes());
    all.extend_from_slice(&1_700_000_000u64.to_le_bytes());
    all.extend_from_slice(&(data.len() as u64).to_le_bytes());
    all.extend_from_slice(data);
    all
}

fn length(record: &[u8]) -> Result<u64> {
    Ok(u64::from_le_bytes(record.get(12..HEAD).ok_or("a short record")?.try_into()?))
}

const TABLE: redb::TableDefinition<'_, &str, &[u8]> = redb::TableDefinition::new("files");

struct Redb(PathBuf);

impl Records for Redb {
    fn all(&self, each: fn(&[u8]) -> Result<u64>) -> Result<(usize, u64)> {
        use redb::ReadableTable;
        let db = redb::Database::open(&self.0)?;
        let table = db.begin_read()?.open_table(TABLE)?;
        let mut sum = (0, 0);
        for one in table.iter()? {
            sum = (sum.0 + 1, sum.1 + each(one?.1.value())?);
        }
        Ok(sum)
    }

    fn change(&self, set: &Set, remove: bool) -> Result<()> {
        let db = redb::Database::create(&self.0)?;
        for batch in set.files.chunks(COMMIT) {
            let tx = db.begin_write()?;
            let mut table = tx.open_table(TABLE)?;
            for (name, data) in batch {
                match remove {
                    true => table.remove(name.as_str())?,
                    false => table.insert(name.as_str(), record(data).as_slice())?,
                };
            }
            drop(table);
            tx.commit()?;
        }
        Ok(())
    }
}

struct Lmdb(PathBuf);

impl Lmdb {
    fn open(&self) -> Result<(heed::Env, heed::Database<Str, Bytes>)> {
        fs::create_dir_all(&self.0)?;
        let mut options = heed::EnvOpenOptions::new();
        options.map_size(8 * GIB as usize);
        // SAFETY: nobody else has the directory.
        #[allow(unsafe_code)]
        let env = unsafe { options.open(&self.0)? };
        let mut tx = env.write_txn()?;
        let db = env.create_database(&mut tx, None)?;
        tx.commit()?;
        Ok((env, db))
    }
}

impl Records for Lmdb {
    fn all(&self, each: fn(&[u8]) -> Result<u64>) -> Result<(usize, u64)> {
        let (env, db) = self.open()?;
        let tx = env.read_txn()?;
        let mut sum = (0, 0);
        for one in db.iter(&tx)? {
            sum = (sum.0 + 1, sum.1 + each(one?.1)?);
        }
        Ok(sum)
    }

    fn change(&self, set: &Set, remove: bool) -> Result<()> {
        let (env, db) = self.open()?;
        for batch in set.files.chunks(COMMIT) {
            let mut tx = env.write_txn()?;
            for (name, data) in batch {
                match remove {
                    true => drop(db.delete(&mut tx, name)?),
                    false => db.put(&mut tx, name, &record(data))?,
                }
            }
            tx.commit()?;
        }
        Ok(())
    }
}

const OTHERS: [&str; 3] = ["SQLite", "redb", "LMDB"];
const PHASES: [&str; 4] = ["create", "stat, cold", "read, cold", "delete"];
const SPACE: &str = "space";

fn store(name: &str, dir: &Path) -> Box<dyn Store> {
    let path = dir.join("store");
    match name {
        "SQLite" => Box::new(Sqlite(path)),
        "redb" => Box::new(Redb(path)),
        "LMDB" => Box::new(Lmdb(path)),
        engine => Box::new(Engine(engine.into(), path)),
    }
}

/// Bytes that the files of a directory take on the host.
fn space(dir: &Path) -> Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(dir)? {
        let meta = entry?.metadata()?;
        bytes += if meta.is_dir() { space(&dir.join("store"))? } else { meta.blocks() * 512 };
    }
    Ok(bytes)
}

/// Drops what the host has cached; whether it could.
fn drop_caches() -> bool {
    rustix::fs::sync();
    fs::write("/proc/sys/vm/drop_caches", "3").is_ok()
}

/// Seconds of each phase, and bytes.
type Figures = BTreeMap<&'static str, Vec<f64>>;

fn measure(store: &dyn Store, set: &Set, dir: &Path, figures: &mut Figures) -> Result<()> {
    let mut time = |phase, work: &mut dyn FnMut() -> Result<()>| -> Result<()> {
        let begun = Instant::now();
        work()?;
        figures.entry(phase).or_default().push(begun.elapsed().as_secs_f64());
        Ok(())
    };
    let wanted = (set.files.len(), set.files.iter().map(|f| f.1.len() as u64).sum());
    let check = |found| if found == wanted { Ok(()) } else { Err(format!("{found:?} instead of {wanted:?}")) };
    time(PHASES[0], &mut || store.create(set))?;
    let used = space(dir)?;
    drop_caches();
    time(PHASES[1], &mut || Ok(check(store.stat()?)?))?;
    drop_caches();
    time(PHASES[2], &mut || Ok(check(store.read()?)?))?;
    time(PHASES[3], &mut || store.delete(set))?;
    figures.entry(SPACE).or_default().push(used as f64);
    Ok(())
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
}

fn main() -> Result<()> {
    let args = Args::parse();
    let all = arboretum::engines().iter().map(|engine| engine.name()).chain(OTHERS);
    let known = |s: &&str| args.only.is_empty() || args.only.iter().any(|o| o.eq_ignore_ascii_case(s));
    let stores: Vec<&str> = all.filter(known).collect();
    let below = args.dir.clone().unwrap_or_else(std::env::temp_dir);
    // cargo runs benchmarks in the directory of their package.
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..");
    let mut file = args.json.map(|path| fs::File::create(root.join(path))).transpose()?;
    if !drop_caches() {
        eprintln!("not root: the phases that are called cold find the image in the page cache");
    }
    let mut json = serde_json::Map::new();
    for set in sets(args.files) {
        let mut all: BTreeMap<&str, Figures> = BTreeMap::new();
        for round in 0..args.rounds {
            for n in 0..stores.len() {
                let name = stores[(n + round) % stores.len()];
                eprintln!("{}, round {} of {}: {name}", set.name, round + 1, args.rounds);
                let dir = tempfile::tempdir_in(&below)?;
                measure(&*store(name, dir.path()), &set, dir.path(), all.entry(name).or_default())?;
            }
        }
        println!("{} files of {}; seconds, and MB", args.files, set.name);
        println!("{}\n", table(&stores, &all));
        json.insert(set.name.into(), serde_json::to_value(&all)?);
    }
    if let Some(file) = &mut file {
        serde_json::to_writer_pretty(file, &json)?;
    }
    Ok(())
}

fn table(stores: &[&str], all: &BTreeMap<&str, Figures>) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_header([""].iter().chain(stores));
    for what in PHASES.into_iter().chain([SPACE]) {
        let value = |store: &&str| match median(&all[store][what]) {
            bytes if what == SPACE => format!("{:.1}", bytes / 1e6),
            seconds => format!("{seconds:.3}"),
        };
        table.add_row([what.to_string()].into_iter().chain(stores.iter().map(value)));
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}
