//! The `arbor` command as a library, so that its manual and its completions can be made from it.
//!
//! | module | what it does |
//! |---|---|
//! | [`args`] | the command line, as clap sees it |
//! | `image` | images: options `offset=` and extra devices, what an image holds |
//! | `holder` | who has an image, and where it is mounted |
//! | `mkfs`, `mount`, `fsck`, `info` | the life of a volume |
//! | `overlay` | recovery in memory |
//! | `interrupt` | Ctrl-C during long work |
//! | `upkeep` | cleaning and scrubbing |
//! | `segments` | how much of each segment lives, as a histogram and a picture |
//! | `trial` | whether a volume can be made as asked |
//! | `used` | whether something lies where it is to be made |
//! | `files`, `archive` | what is in it |
//! | `torture` | tests of an engine |
//! | `lab` | experiments of papers on simulated disks |
//! | `map` | a picture of where everything lies |
//! | [`docs`] | man pages and completions |
//!
//! The command is one binary; called as `mkfs.arbor`, `fsck.arbor`, `mount.arbor` or
//! `mount.fuse.arbor` it behaves as mkfs(8), fsck(8) and mount(8) expect of their helpers.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod archive;
pub mod args;
pub mod docs;
mod exit;
mod files;
mod fsck;
mod holder;
mod image;
mod info;
mod interrupt;
mod lab;
mod label;
pub mod map;
mod mkfs;
mod mount;
#[cfg(target_os = "linux")]
mod overlay;
mod progress;
mod segments;
mod show;
mod torture;
mod trial;
mod upkeep;
mod used;

use args::{Cli, Command, FsckCli, MkfsCli, MountHelper};
use clap::Parser;
use exit::{Exit, exit_code};
use std::ffi::OsString;
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

/// Runs the command with these arguments, the first of which is its name.
pub fn main(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let args: Vec<OsString> = args.into_iter().collect();
    let name = args.first().and_then(|a| Path::new(a).file_name()).unwrap_or_default().to_string_lossy().into_owned();
    let (who, parsed) = match name.as_str() {
        "mkfs.arbor" => ("mkfs.arbor", MkfsCli::try_parse_from(args).map(|c| Command::Mkfs(c.mkfs))),
        "fsck.arbor" => ("fsck.arbor", FsckCli::try_parse_from(plain_progress(args)).map(|c| Command::Fsck(c.fsck))),
        name if is_mount_helper(name) => {
            ("mount.arbor", MountHelper::try_parse_from(args).map(|c| Command::Mount(c.into())))
        }
        _ => {
            let is_fsck = args.get(1).is_some_and(|a| a == "fsck");
            ("arbor", Cli::try_parse_from(if is_fsck { plain_progress(args) } else { args }).map(|c| c.command))
        }
    };
    match parsed {
        Ok(command) => {
            let who = if who == "arbor" { format!("arbor {}", command.name()) } else { who.to_string() };
            finish(&who, execute(command))
        }
        Err(e) => {
            let printed = e.print();
            match (e.use_stderr(), printed) {
                (true, _) => exit_code(usage_code(&name)),
                (false, Ok(())) => ExitCode::SUCCESS,
                (false, Err(e)) => finish(who, Err(Output::named(e).into())),
            }
        }
    }
}

/// The last two are what mount(8) looks for when it has a mount of ours to change: their names are its type.
fn is_mount_helper(name: &str) -> bool {
    matches!(name, "mount.arbor" | "mount.fuse.arbor" | "mount.fuseblk.arbor")
}

/// What fsck(8) and mount(8) expect for a wrong command line.
fn usage_code(name: &str) -> u8 {
    let words: Vec<String> = std::env::args().take(2).collect();
    match (name, words.get(1).map(String::as_str)) {
        ("fsck.arbor", _) | ("arbor", Some("fsck")) => 16,
        ("arbor", Some("mount")) => 1,
        (name, _) if is_mount_helper(name) => 1,
        _ => 2,
    }
}

/// `-C`, or `-C` with a file descriptor as fsck(8) passes it, is the same to us.
fn plain_progress(args: Vec<OsString>) -> Vec<OsString> {
    let is_progress = |a: &OsString| {
        let text = a.to_string_lossy();
        text.strip_prefix("-C").is_some_and(|fd| fd.trim_start_matches('-').bytes().all(|b| b.is_ascii_digit()))
    };
    args.into_iter().map(|a| if is_progress(&a) { "-C".into() } else { a }).collect()
}

/// The standard output, whose errors say that it is it.
struct Output(io::StdoutLock<'static>);

impl Output {
    fn named(e: io::Error) -> io::Error {
        io::Error::new(e.kind(), format!("standard output: {e}"))
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes).map_err(Output::named)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush().map_err(Output::named)
    }
}

fn execute(command: Command) -> Result<u8, Exit> {
    let mut out = io::BufWriter::new(Output(io::stdout().lock()));
    let is_fsck = matches!(command, Command::Fsck(_));
    let code = run(command, &mut out)?;
    // What was repaired stays repaired, told or not.
    out.flush().map_err(|e| if is_fsck { fsck::untold(code, e) } else { e.into() })?;
    Ok(code)
}

fn run(command: Command, out: &mut dyn Write) -> Result<u8, Exit> {
    match command {
        Command::Mkfs(a) => mkfs::run(&a, out)?,
        Command::Mount(a) => return mount::run(&a),
        Command::Umount(a) => mount::umount(&a)?,
        Command::Sync(a) => mount::sync(&a)?,
        Command::Shutdown(a) => mount::shutdown(&a)?,
        Command::Label(a) => label::label(&a, out)?,
        Command::Stats(a) => mount::stats(&a, out)?,
        Command::Fsck(a) => return fsck::run(&a, out),
        Command::Info(a) => info::run(&a, out)?,
        Command::Resize(a) => info::resize(&a, out)?,
        Command::Trim(a) => info::trim(&a, out)?,
        Command::Clean(a) => return upkeep::clean(&a, out),
        Command::Scrub(a) => return upkeep::scrub(&a, out),
        Command::Dump(a) => info::dump(&a, out)?,
        Command::Ls(a) => files::ls(&a, out)?,
        Command::Tree(a) => files::tree(&a, out)?,
        Command::Cat(a) => files::cat(&a, out)?,
        Command::Stat(a) => files::stat(&a, out)?,
        Command::Put(a) => files::put(&a)?,
        Command::Get(a) => files::get(&a)?,
        Command::Rm(a) => files::rm(&a)?,
        Command::Mkdir(a) => files::mkdir(&a)?,
        Command::Mv(a) => files::mv(&a)?,
        Command::Df(a) => files::df(&a, out)?,
        Command::Du(a) => files::du(&a, out)?,
        Command::Tar(a) => archive::run(&a, out)?,
        Command::Map(a) => map::run(&a, out)?,
        Command::Torture(a) => return torture::run(&a, out),
        Command::Lab(a) => return lab::run(&a, out),
        Command::Completions(a) => docs::completions(a.shell, out)?,
        Command::Man(a) => docs::write_man(&a.directory)?,
    }
    Ok(0)
}

fn finish(who: &str, result: Result<u8, Exit>) -> ExitCode {
    match result {
        Ok(code) => exit_code(code),
        Err(exit) => {
            exit.tell(who);
            exit_code(exit.code)
        }
    }
}
