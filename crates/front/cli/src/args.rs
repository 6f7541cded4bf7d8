//! The command line.

mod lab;

pub use lab::{
    Also, LabArgs, LabCommand, LabDiskArgs, LabDisksArgs, LabListArgs, LabReplayArgs, LabRunArgs, Merging, QueueArgs,
    QueueOrder, TraceSource,
};

use arbor_torture::share::Share;
use arboretum::vfs::parse_size;
use clap::{Args, CommandFactory, Parser, Subcommand};
use clap_complete::Shell;
use std::path::PathBuf;

/// File systems in one file: make, mount, check, look into and picture them.
#[derive(Debug, Parser)]
#[command(name = "arbor", version, max_term_width = 100, arg_required_else_help = true)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// Make a file system.
#[derive(Debug, Parser)]
#[command(name = "mkfs.arbor", version, max_term_width = 100, after_long_help = crate::docs::mkfs_options())]
pub struct MkfsCli {
    #[command(flatten)]
    pub(crate) mkfs: MkfsArgs,
}

/// Check a file system and repair it.
#[derive(Debug, Parser)]
#[command(name = "fsck.arbor",
    version,
    disable_version_flag = true, max_term_width = 100, after_long_help = crate::docs::FSCK_STATUS)]
pub struct FsckCli {
    #[command(flatten)]
    pub(crate) fsck: FsckArgs,
}

/// A command of `arbor`.
#[derive(Debug, Subcommand)]
#[allow(missing_docs)]
pub enum Command {
    /// Make a file system in an image file or on a block device.
    #[command(after_long_help = crate::docs::mkfs_options())]
    Mkfs(MkfsArgs),
    /// Mount an image on a directory.
    #[command(after_long_help = crate::docs::mount_options())]
    Mount(MountArgs),
    /// Take a mount off; everything is durable and the image free on return.
    ///
    /// Also one whose server has died; that is told then, and is an error (1), since what was not synced is lost. Of one
    /// that was shut down that is told, and is none.
    #[command(alias = "unmount")]
    Umount(DirArgs),
    /// Make everything on a mount durable.
    Sync(DirArgs),
    /// Stop a mount as a power cut would, but for the machine.
    ///
    /// Everything is made durable first, unless --now is given. From then on no request reaches the image, and all calls
    /// that reach the server fail, while the kernel still answers from what it keeps; the next mount recovers. For tests
    /// of programs, and for a mount that must not write any more. For root, and for whoever has mounted it.
    Shutdown(ShutdownArgs),
    /// Count what a mount was asked and what it did.
    Stats(StatsArgs),
    /// Check a file system and repair it.
    #[command(version, disable_version_flag = true, after_long_help = crate::docs::FSCK_STATUS)]
    Fsck(FsckArgs),
    /// Show what an image holds.
    ///
    /// Of engines with segments also how much of each lives. Instead of an image a directory on a mount may be named;
    /// then it is what was last put in place.
    Info(InfoArgs),
    /// Show the label of a file system, or change it.
    ///
    /// Instead of an image a directory on a mount may be named.
    Label(LabelArgs),
    /// Grow an unmounted file system, and its image file with it.
    ///
    /// Shrinking is not implemented. On a volume whose metadata have an area of their own (DualFS) `--meta` moves the border.
    Resize(ResizeArgs),
    /// Give free space back to the host.
    ///
    /// Instead of an image a directory on a mount may be named, by root: the mount goes on meanwhile.
    Trim(TrimArgs),
    /// Clean segments of a log; gather the free space of Evergreen.
    ///
    /// What lives in segments that are mostly dead is written anew at the end of the log, and they can be filled again.
    /// Goes on until nothing is gained by it. A mount cleans by itself when few segments are clean, though no more than
    /// it needs; cleaning at a quiet time saves it that. Instead of an image a directory on a mount may be named: the
    /// mount goes on meanwhile.
    ///
    /// On Evergreen blocks are moved out of stretches of the volume that are mostly free, so that what is free lies together. That
    /// makes commits: older ones stay only if -o retain= says so.
    Clean(CleanArgs),
    /// Verify all checksums, those of the contents of files too.
    ///
    /// Instead of an image a directory on a mount may be named: the mount goes on meanwhile.
    #[command(after_long_help = crate::docs::SCRUB_STATUS)]
    Scrub(ScrubArgs),
    /// List directories.
    Ls(LsArgs),
    /// Show a tree of directories.
    Tree(PathsArgs),
    /// Write files to the standard output.
    Cat(CatArgs),
    /// Show all attributes of files.
    Stat(JsonPathsArgs),
    /// Copy files and trees of the host into an image.
    ///
    /// Files that are there already are overwritten and directories merged; what is not a directory is never overwritten
    /// with one.
    Put(PutArgs),
    /// Copy files and trees out of an image.
    ///
    /// Files that are there already are overwritten and directories merged; what is not a directory is never overwritten
    /// with one. The files belong to who copies them, without set-id bits, and device nodes are left out: an image may
    /// come from anybody. --preserve keeps them. What is new is its owner's alone until it is whole.
    Get(GetArgs),
    /// Remove files and trees.
    Rm(RmArgs),
    /// Make directories.
    Mkdir(MkdirArgs),
    /// Move or rename files.
    Mv(MvArgs),
    /// Show how much space is left, in an image or on a mount.
    Df(DfArgs),
    /// Show how much space trees take.
    Du(DuArgs),
    /// Fill a file system from a tar archive, or write it as one.
    ///
    /// With --import files that are there already are overwritten and directories merged; what is not a directory is never
    /// overwritten with one. With --export an archive that is there already is overwritten; a new one is
    /// its owner's alone.
    Tar(TarArgs),
    /// Draw where everything lies.
    Map(MapArgs),
    /// Show a structure as it is stored.
    Dump(DumpArgs),
    /// Test an engine under power cuts, faults of the device, damaged images and concurrency.
    Torture(TortureArgs),
    /// Run the experiments of papers on simulated disks, and compare.
    Lab(LabArgs),
    /// Print completions for a shell.
    Completions(CompletionsArgs),
    /// Write the manual pages into a directory.
    #[command(hide = true)]
    Man(ManArgs),
}

impl Command {
    /// Its name on the command line.
    pub fn name(&self) -> &'static str {
        match self {
            Command::Mkfs(_) => "mkfs",
            Command::Mount(_) => "mount",
            Command::Umount(_) => "umount",
            Command::Sync(_) => "sync",
            Command::Shutdown(_) => "shutdown",
            Command::Stats(_) => "stats",
            Command::Fsck(_) => "fsck",
            Command::Info(_) => "info",
            Command::Label(_) => "label",
            Command::Resize(_) => "resize",
            Command::Trim(_) => "trim",
            Command::Clean(_) => "clean",
            Command::Scrub(_) => "scrub",
            Command::Ls(_) => "ls",
            Command::Tree(_) => "tree",
            Command::Cat(_) => "cat",
            Command::Stat(_) => "stat",
            Command::Put(_) => "put",
            Command::Get(_) => "get",
            Command::Rm(_) => "rm",
            Command::Mkdir(_) => "mkdir",
            Command::Mv(_) => "mv",
            Command::Df(_) => "df",
            Command::Du(_) => "du",
            Command::Tar(_) => "tar",
            Command::Map(_) => "map",
            Command::Dump(_) => "dump",
            Command::Torture(_) => "torture",
            Command::Lab(_) => "lab",
            Command::Completions(_) => "completions",
            Command::Man(_) => "man",
        }
    }
}

/// Why a size cannot be.
pub(crate) const TOO_LARGE: &str = "too large: a file has less than 8 EiB";

/// A size, or why it is none.
pub(crate) fn size(text: &str) -> Result<u64, String> {
    let unit = text.trim_start_matches(|c: char| c.is_ascii_digit());
    let is_number = unit.len() < text.len() && parse_size(&format!("1{unit}")).is_some();
    parse_size(text).ok_or_else(|| match is_number {
        true => TOO_LARGE.into(),
        false => "not a size: write a number, with K, M, G or T for powers of 1024, as in 64M".into(),
    })
}

fn seconds(text: &str) -> Result<u32, String> {
    let number = text.parse().ok().filter(|n| *n > 0);
    number.ok_or_else(|| "not a time: write a number of seconds from 1, as in 600".into())
}

fn seed(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| "not a seed: write a number of at most 64 bits, as in 7".into())
}

/// An image, and how to find the volume in it.
#[derive(Clone, Debug, Args)]
pub struct ImageArgs {
    /// Options: offset=N for a volume inside a larger file, and those of the engine, as log=FILE
    /// of yfs for an external log and data=FILE of dualfs for data on a device of their own.
    #[arg(short = 'o', value_name = "KEY=VALUE,...")]
    pub options: Vec<String>,
    /// Image file or block device.
    pub image: PathBuf,
}

/// Arguments of `mkfs`.
#[derive(Clone, Debug, Args)]
pub struct MkfsArgs {
    /// Kind of file system.
    #[arg(short = 't', long = "type", value_name = "ENGINE")]
    pub engine: Option<String>,
    /// Size with K, M, G or T; the size of the file if it is there.
    ///
    /// A file that is larger is shortened only with -f, and with offset= not even then. On a disk that is larger the volume
    /// takes the first part.
    #[arg(short, long, value_parser = size)]
    pub size: Option<u64>,
    /// Label, at most 63 bytes.
    #[arg(short = 'L', long)]
    pub label: Option<String>,
    /// UUID: "random", "time", "null" or one in full.
    #[arg(short = 'U', long, default_value = "random")]
    pub uuid: String,
    /// Go on even if the image holds something.
    #[arg(short, long)]
    pub force: bool,
    /// Print nothing but errors.
    #[arg(short, long)]
    pub quiet: bool,
    /// Say what would be done, and do nothing.
    #[arg(short = 'n', long)]
    pub dry_run: bool,
    /// Fill it with this directory, or with this tar archive ("-" for the standard input).
    #[arg(short = 'd', long, value_name = "DIR|TAR")]
    pub directory: Option<PathBuf>,
    /// The image.
    #[command(flatten)]
    pub image: ImageArgs,
}

/// Arguments of `mount`.
#[derive(Clone, Debug, Args)]
pub struct MountArgs {
    /// Make the image first, with a file system of this size; it must not exist yet.
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub new: Option<u64>,
    /// Kind of file system; by default what the image holds.
    #[arg(short = 't', long = "type", value_name = "ENGINE")]
    pub engine: Option<String>,
    /// Stay in the foreground; messages go to standard error then, otherwise to syslog.
    #[arg(short, long)]
    pub foreground: bool,
    /// Do not say what was mounted where.
    #[arg(short, long)]
    pub quiet: bool,
    /// Say also how requests come from the kernel, and what is waited for.
    #[arg(short, long, conflicts_with = "quiet")]
    pub verbose: bool,
    /// Tell on this file descriptor that the mount works (used between two processes of arbor).
    #[arg(long, hide = true, value_name = "FD", value_parser = clap::value_parser!(u32).range(1..=1))]
    pub ready_fd: Option<u32>,
    /// Check the arguments and mount nothing (for mount.arbor).
    #[arg(skip)]
    pub fake: bool,
    /// Called by mount(8).
    #[arg(skip)]
    pub is_helper: bool,
    /// The image.
    #[command(flatten)]
    pub image: ImageArgs,
    /// Directory; if it is missing it is made, though none above it, and stays.
    pub dir: PathBuf,
}

/// Mount an image; called by mount(8).
#[derive(Debug, Parser)]
#[command(name = "mount.arbor", version, disable_version_flag = true, max_term_width = 100,
    after_long_help = crate::docs::mount_options())]
pub struct MountHelper {
    /// Image file or block device.
    spec: PathBuf,
    /// Directory; it must exist.
    dir: PathBuf,
    /// Tolerate unknown options.
    #[arg(short)]
    sloppy: bool,
    /// Check the arguments and mount nothing.
    #[arg(short)]
    fake: bool,
    /// Ignored: there is no mtab to write.
    #[arg(short)]
    no_mtab: bool,
    /// Say what was mounted where, how requests come from the kernel, and what is waited for.
    #[arg(short)]
    verbose: bool,
    /// Options of the mount and of the engine.
    #[arg(short, value_name = "OPTIONS")]
    options: Vec<String>,
    /// Type as mount(8) knows it: "arbor" or "fuse.arbor", and perhaps "." and the kind of file system.
    #[arg(short, value_name = "TYPE")]
    t: Option<String>,
}

/// The kind of file system in a type of mount(8).
fn engine_of_type(kind: &str) -> Option<&str> {
    let ours = ["fuse.", "fuseblk."].iter().find_map(|prefix| kind.strip_prefix(prefix)).unwrap_or(kind);
    ours.split_once('.').map(|(_, engine)| engine)
}

impl From<MountHelper> for MountArgs {
    fn from(helper: MountHelper) -> MountArgs {
        let mut options = helper.options;
        if helper.sloppy {
            options.push("sloppy".into());
        }
        MountArgs {
            new: None,
            engine: helper.t.as_deref().and_then(engine_of_type).map(str::to_string),
            foreground: false,
            ready_fd: None,
            quiet: !helper.verbose,
            verbose: helper.verbose,
            fake: helper.fake,
            is_helper: true,
            image: ImageArgs { options, image: helper.spec },
            dir: helper.dir,
        }
    }
}

/// A mount.
#[derive(Clone, Debug, Args)]
pub struct DirArgs {
    /// Where it is mounted.
    pub dir: PathBuf,
}

/// Arguments of `shutdown`.
#[derive(Clone, Debug, Args)]
pub struct ShutdownArgs {
    /// Stop at once: what is not durable is lost.
    #[arg(long)]
    pub now: bool,
    /// Where it is mounted.
    pub dir: PathBuf,
}

/// Arguments of `label`.
#[derive(Clone, Debug, Args)]
pub struct LabelArgs {
    /// The image, or a directory on a mount.
    #[command(flatten)]
    pub image: ImageArgs,
    /// The new label, at most 63 bytes; "" for none.
    pub new: Option<String>,
}

/// Arguments of `stats`.
#[derive(Clone, Debug, Args)]
pub struct StatsArgs {
    /// As JSON.
    #[arg(long)]
    pub json: bool,
    /// Again and again, after so many seconds each: what has been added since.
    #[arg(short, long, value_name = "SECONDS", conflicts_with = "json")]
    pub watch: Option<u64>,
    /// Where it is mounted.
    pub dir: PathBuf,
}

/// Arguments of `fsck`.
#[derive(Clone, Debug, Args)]
pub struct FsckArgs {
    /// Change nothing (the default). What cannot be read is reported, and taken as zeros.
    #[arg(short = 'n', group = "repair")]
    pub no: bool,
    /// Repair what is safe, without asking.
    #[arg(short = 'p', visible_short_alias = 'a', group = "repair")]
    pub preen: bool,
    /// Repair everything that can be repaired. It ends where the device cannot be read.
    #[arg(short = 'y', group = "repair")]
    pub yes: bool,
    /// Check even if the file system says it is clean.
    #[arg(short, long)]
    pub force: bool,
    /// Check this file or directory and the way to it, nothing else; repairs nothing.
    #[arg(long, value_name = "PATH", conflicts_with_all = ["preen", "yes"])]
    pub path: Option<String>,
    /// Report as JSON.
    #[arg(long)]
    pub json: bool,
    /// List every issue, however many there are of one kind.
    #[arg(short, long)]
    pub verbose: bool,
    /// Show progress; a file descriptor may follow, as fsck(8) passes it.
    #[arg(short = 'C')]
    pub progress: bool,
    /// Accepted: nothing is ever asked.
    #[arg(short = 'r', hide = true)]
    pub interactive: bool,
    /// Ignored.
    #[arg(short = 'T', hide = true)]
    pub no_title: bool,
    /// Print the version.
    #[arg(short = 'V', action = clap::ArgAction::Version)]
    pub version: Option<bool>,
    /// The image.
    #[command(flatten)]
    pub image: ImageArgs,
}

/// Arguments of `info`.
#[derive(Clone, Debug, Args)]
pub struct InfoArgs {
    /// As JSON.
    #[arg(long, conflicts_with = "export")]
    pub json: bool,
    /// As KEY=VALUE lines, like blkid(8).
    #[arg(long)]
    pub export: bool,
    /// The image, or a directory on a mount.
    #[command(flatten)]
    pub image: ImageArgs,
}

/// A part of `torture`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum TorturePart {
    /// Power cuts at every write and flush.
    Crash,
    /// Faults of the device while it runs.
    Fault,
    /// Damaged images.
    Fuzz,
    /// Several tasks at once, under chosen schedules.
    Concurrency,
}

/// Arguments of `torture`.
#[derive(Clone, Debug, Args)]
pub struct TortureArgs {
    /// The engine.
    #[arg(short = 't', long, default_value = "yfs")]
    pub engine: String,
    /// Ends after so many seconds; without it everything that is planned is done, which takes an
    /// hour or two.
    #[arg(long, value_name = "N", value_parser = seconds)]
    pub seconds: Option<u32>,
    /// Seed of everything that is drawn; drawn itself and printed if it is not given.
    #[arg(long, value_name = "S", value_parser = seed)]
    pub seed: Option<u64>,
    /// Only this part.
    #[arg(long)]
    pub only: Option<TorturePart>,
    /// Of the crash part, one share of several: those of one seed add up to the whole, and each can
    /// be run at another time or on another machine.
    #[arg(long, value_name = "K/N", requires = "seed", conflicts_with = "seconds")]
    pub share: Option<Share>,
    /// Writes the counts to this file as JSON.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Does once more what the line of a failure says.
    #[arg(long, value_name = "LINE")]
    pub repeat: Option<String>,
}

/// Arguments of `resize`.
#[derive(Clone, Debug, Args)]
pub struct ResizeArgs {
    /// The image.
    #[command(flatten)]
    pub image: ImageArgs,
    /// New size with K, M, G or T; +SIZE grows by so much.
    #[arg(allow_hyphen_values = true, required_unless_present = "meta")]
    pub size: Option<String>,
    /// New size of the area for metadata, of DualFS; +SIZE grows by so much. On one device the area for data loses it.
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true)]
    pub meta: Option<String>,
}

/// Arguments of `trim`.
#[derive(Clone, Debug, Args)]
pub struct TrimArgs {
    /// The image, or a directory on a mount.
    #[command(flatten)]
    pub image: ImageArgs,
}

/// Arguments of `clean`.
#[derive(Clone, Debug, Args)]
pub struct CleanArgs {
    /// Read about so much at most, with K, M, G or T; at least one segment.
    #[arg(short, long, value_name = "SIZE", value_parser = size)]
    pub budget: Option<u64>,
    /// The image, or a directory on a mount.
    #[command(flatten)]
    pub image: ImageArgs,
}

/// Arguments of `scrub`.
#[derive(Clone, Debug, Args)]
pub struct ScrubArgs {
    /// The image, or a directory on a mount.
    #[command(flatten)]
    pub image: ImageArgs,
}

/// Arguments of `ls`.
#[derive(Clone, Debug, Args)]
pub struct LsArgs {
    /// With mode, links, owner, size and time.
    #[arg(short)]
    pub long: bool,
    /// Names that begin with a dot, too.
    #[arg(short)]
    pub all: bool,
    /// Directories in directories, too.
    #[arg(short = 'R')]
    pub recursive: bool,
    /// As JSON.
    #[arg(long)]
    pub json: bool,
    /// The image.
    #[command(flatten)]
    pub image: ImageArgs,
    /// Files and directories.
    #[arg(default_value = "/")]
    pub paths: Vec<PathBuf>,
}

/// Arguments of commands on paths.
#[derive(Clone, Debug, Args)]
pub struct PathsArgs {
    /// The image.
    #[command(flatten)]
    pub image: ImageArgs,
    /// Files or directories in it.
    #[arg(default_value = "/")]
    pub paths: Vec<PathBuf>,
}

/// Arguments of `cat`.
#[derive(Clone, Debug, Args)]
pub struct CatArgs {
    /// The image.
    #[command(flatten)]
    pub image: ImageArgs,
    /// Files in it.
    #[arg(required = true)]
    pub paths: Vec<PathBuf>,
}

/// Arguments of commands on paths that speak JSON.
#[derive(Clone, Debug, Args)]
pub struct JsonPathsArgs {
    /// As JSON.
    #[arg(long)]
    pub json: bool,
    /// The image.
    #[command(flatten)]
    pub image: ImageArgs,
    /// Files or directories in it.
    #[arg(default_value = "/")]
    pub paths: Vec<PathBuf>,
}

/// Arguments of `put`.
#[derive(Clone, Debug, Args)]
pub struct PutArgs {
    /// Owner of everything put in, instead of the owners on the host.
    #[arg(long, value_name = "UID:GID", value_parser = owner)]
    pub owner: Option<(u32, u32)>,
    /// The image.
    #[command(flatten)]
    pub image: ImageArgs,
    /// Files and trees of the host, then the place in the image.
    #[arg(required = true, num_args = 2.., value_names = ["SRC", "DST"])]
    pub paths: Vec<PathBuf>,
}

fn owner(text: &str) -> Result<(u32, u32), String> {
    let parts = text.split_once(':').and_then(|(u, g)| Some((u.parse().ok()?, g.parse().ok()?)));
    parts.ok_or_else(|| "not two numbers with a colon between".into())
}

/// What `get` keeps only when it is asked to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Preserve {
    /// Owners and groups.
    Owner,
    /// Set-id bits and the attributes "security.*" and "trusted.*", of files whose owner is kept too.
    Setid,
    /// Device nodes.
    Devices,
    /// All of these.
    All,
}

/// Arguments of `get`.
#[derive(Clone, Debug, Args)]
pub struct GetArgs {
    /// Keep this too. Only root can.
    #[arg(long, value_name = "WHAT,...", value_delimiter = ',')]
    pub preserve: Vec<Preserve>,
    /// The image.
    #[command(flatten)]
    pub image: ImageArgs,
    /// Files and trees of the image, then the place on the host.
    #[arg(required = true, num_args = 2.., value_names = ["SRC", "DST"])]
    pub paths: Vec<PathBuf>,
}

/// Arguments of `rm`.
#[derive(Clone, Debug, Args)]
pub struct RmArgs {
    /// Directories too, with all they hold.
    #[arg(short, visible_short_alias = 'R')]
    pub recursive: bool,
    /// Names that do not exist are fine.
    #[arg(short)]
    pub force: bool,
    /// The image.
    #[command(flatten)]
    pub image: ImageArgs,
    /// What to remove.
    #[arg(required = true)]
    pub paths: Vec<PathBuf>,
}

/// Arguments of `mkdir`.
#[derive(Clone, Debug, Args)]
pub struct MkdirArgs {
    /// Those above too; one that exists is fine.
    #[arg(short)]
    pub parents: bool,
    /// The image.
    #[command(flatten)]
    pub image: ImageArgs,
    /// What to make.
    #[arg(required = true)]
    pub paths: Vec<PathBuf>,
}

/// Arguments of `mv`.
#[derive(Clone, Debug, Args)]
pub struct MvArgs {
    /// The image.
    #[command(flatten)]
    pub image: ImageArgs,
    /// What to move, then where to.
    #[arg(required = true, num_args = 2.., value_names = ["SRC", "DST"])]
    pub paths: Vec<PathBuf>,
}

/// Arguments of `df`.
#[derive(Clone, Debug, Args)]
pub struct DfArgs {
    /// As JSON.
    #[arg(long)]
    pub json: bool,
    /// The image, or a directory on a mount.
    #[command(flatten)]
    pub image: ImageArgs,
}

/// Arguments of `du`.
#[derive(Clone, Debug, Args)]
pub struct DuArgs {
    /// Totals only.
    #[arg(short)]
    pub summarize: bool,
    /// As JSON.
    #[arg(long)]
    pub json: bool,
    /// The image.
    #[command(flatten)]
    pub image: ImageArgs,
    /// Files or directories in it.
    #[arg(default_value = "/")]
    pub paths: Vec<PathBuf>,
}

/// Arguments of `tar`.
#[derive(Clone, Debug, Args)]
#[command(group(clap::ArgGroup::new("direction").required(true)))]
pub struct TarArgs {
    /// Archive to unpack over the file system; "-" for the standard input.
    #[arg(long, value_name = "FILE", group = "direction")]
    pub import: Option<PathBuf>,
    /// Archive to write; "-" for the standard output.
    #[arg(long, value_name = "FILE", group = "direction")]
    pub export: Option<PathBuf>,
    /// The image.
    #[command(flatten)]
    pub image: ImageArgs,
}

/// Arguments of `map`.
#[derive(Clone, Debug, Args)]
pub struct MapArgs {
    /// Write a picture (SVG) there, instead of a map in letters here; "-" for the standard output.
    #[arg(short, long, value_name = "MAP.SVG")]
    pub output: Option<PathBuf>,
    /// Options of the image, as -o of the other commands.
    #[arg(short = 'O', long, value_name = "KEY=VALUE,...")]
    pub options: Vec<String>,
    /// Counts of fragments as JSON, and no map.
    #[arg(long, conflicts_with = "output")]
    pub json: bool,
    /// Image file or block device.
    pub image: PathBuf,
}

/// Arguments of `dump`.
#[derive(Clone, Debug, Args)]
pub struct DumpArgs {
    /// As JSON.
    #[arg(long)]
    pub json: bool,
    /// The image.
    #[command(flatten)]
    pub image: ImageArgs,
    /// Path to the structure, e.g. "superblock" or "inode 129"; a wrong one lists what there is.
    #[arg(required = true)]
    pub what: Vec<String>,
}

/// Arguments of `completions`.
#[derive(Clone, Debug, Args)]
pub struct CompletionsArgs {
    /// The shell.
    pub shell: Shell,
}

/// Arguments of `man`.
#[derive(Clone, Debug, Args)]
pub struct ManArgs {
    /// Where to write the pages.
    pub directory: PathBuf,
}

/// The command line of `arbor`, complete.
pub fn command() -> clap::Command {
    Cli::command()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definitions_are_consistent() {
        command().debug_assert();
        MkfsCli::command().debug_assert();
        FsckCli::command().debug_assert();
        MountHelper::command().debug_assert();
    }

    fn parse(line: &str) -> Command {
        Cli::try_parse_from(line.split(' ')).unwrap().command
    }

    #[test]
    fn mkfs_takes_what_mkfs_takes() {
        let Command::Mkfs(a) = parse("arbor mkfs -t yfs -s 3G -L home -U null -f -q -n -d dir -o a=1,b -o c x.img")
        else {
            panic!()
        };
        assert_eq!((a.size, a.engine.as_deref(), a.uuid.as_str()), (Some(3 << 30), Some("yfs"), "null"));
        assert!(a.force && a.quiet && a.dry_run);
        assert_eq!(a.image.options, ["a=1,b", "c"]);
        assert!(Cli::try_parse_from(["arbor", "mkfs", "-s", "3X", "x.img"]).is_err());
    }

    #[test]
    fn fsck_takes_what_fsck_8_passes() {
        let Command::Fsck(a) = parse("arbor fsck -a -T -C -f x.img") else { panic!() };
        assert!(a.preen && a.force && a.progress);
        assert!(Cli::try_parse_from(["arbor", "fsck", "-n", "-y", "x.img"]).is_err());
    }

    #[test]
    fn mount_helper_takes_what_mount_8_passes() {
        let line = "mount.arbor /x.img /mnt -s -f -n -v -o rw,noatime -t arbor.yfs";
        let helper = MountHelper::try_parse_from(line.split(' ')).unwrap();
        let args = MountArgs::from(helper);
        assert_eq!(args.engine.as_deref(), Some("yfs"));
        assert!(args.fake && !args.foreground);
        assert_eq!(args.image.options, ["rw,noatime", "sloppy"]);
        for (kind, engine) in [("arbor", None), ("fuse.arbor", None), ("fuseblk.arbor.lfs", Some("lfs"))] {
            assert_eq!(engine_of_type(kind), engine, "{kind}");
        }
    }

    #[test]
    fn the_last_path_is_the_target() {
        let Command::Put(a) = parse("arbor put x.img a b /dst") else { panic!() };
        assert_eq!(a.paths.len(), 3);
        assert!(Cli::try_parse_from(["arbor", "put", "x.img", "a"]).is_err());
    }
}
