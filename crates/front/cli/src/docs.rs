//! Man pages and completions, and the option lists in `--help`, all from the definitions.

use crate::args::{self, FsckCli, MkfsCli, MountHelper};
use anyhow::{Context, Result};
use arboretum::vfs::{Engine, OptionSpec};
use clap::{Arg, Command, CommandFactory, Id};
use clap_complete::Shell;
use clap_mangen::Man;
use std::fmt::Write as _;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Exit status of the checker, for its help.
pub(crate) const FSCK_STATUS: &str = "Exit status: 0 clean, 1 errors corrected, 4 errors left, 8 operational error, \
    16 usage error; the sum where several apply. A volume that was not unmounted, with nothing else wrong, is no error \
    to -n: 0, though it needs recovery.";

/// Exit status of the scrubber, for its help.
pub(crate) const SCRUB_STATUS: &str = "Exit status: 0 all is well, 4 damage was found, 8 operational error, 130 \
    interrupted.";

/// Options of the mount itself.
#[cfg(target_os = "linux")]
fn fuse_options() -> &'static [OptionSpec] {
    arbor_fuse::OPTIONS
}

#[cfg(not(target_os = "linux"))]
fn fuse_options() -> &'static [OptionSpec] {
    &[]
}

const IMAGE_OPTIONS: &[OptionSpec] =
    &[OptionSpec { key: "offset", value: "SIZE", default: "0", help: "Where the volume begins in its file." }];

/// Lists of options with their headings.
type Lists = Vec<(String, Vec<OptionSpec>)>;

/// The options of an engine for what it is asked to do, its further devices first.
fn own_options(engine: &dyn Engine, specs: &[OptionSpec]) -> Vec<OptionSpec> {
    const HELP: &str = "A further device of the volume: it lies in this file, and every command must be told so.";
    let role = |key: &&'static str| OptionSpec { key, value: "FILE", default: "", help: HELP };
    engine.extra_devices().iter().map(role).chain(specs.iter().copied()).collect()
}

/// The options of each engine, of those that are examples last.
fn lists_of_engines(specs: impl Fn(&dyn Engine) -> &'static [OptionSpec]) -> Lists {
    let list =
        |e: &&dyn Engine, what: &str| (format!("Options of {}{what} (-o)", e.name()), own_options(*e, specs(*e)));
    let engines = arboretum::engines().iter().map(|e| list(e, ""));
    engines.chain(arboretum::examples().iter().map(|e| list(e, ", an example"))).collect()
}

fn mkfs_lists() -> Lists {
    let own = lists_of_engines(|e| e.format_options());
    [("Options of every engine (-o)".to_string(), IMAGE_OPTIONS.to_vec())].into_iter().chain(own).collect()
}

fn mount_lists() -> Lists {
    let own = lists_of_engines(|e| e.mount_options());
    let common = IMAGE_OPTIONS.iter().chain(fuse_options()).copied().collect();
    [("Options of every mount (-o)".to_string(), common)].into_iter().chain(own).collect()
}

fn option_name(spec: &OptionSpec) -> String {
    if spec.value.is_empty() { spec.key.to_string() } else { format!("{}={}", spec.key, spec.value) }
}

fn option_help(spec: &OptionSpec) -> String {
    if spec.default.is_empty() { spec.help.to_string() } else { format!("{} [default: {}]", spec.help, spec.default) }
}

fn as_help(lists: &Lists) -> String {
    let mut text = String::new();
    for (heading, specs) in lists.iter().filter(|(_, specs)| !specs.is_empty()) {
        let width = specs.iter().map(|s| option_name(s).len()).max().unwrap_or(0);
        let _ = writeln!(text, "{}{heading}:", if text.is_empty() { "" } else { "\n" });
        for spec in specs {
            let _ = writeln!(text, "  {:width$}  {}", option_name(spec), option_help(spec));
        }
    }
    text
}

/// Option lists for `arbor mkfs --help`.
pub(crate) fn mkfs_options() -> String {
    as_help(&mkfs_lists())
}

/// Option lists for `arbor mount --help`.
pub(crate) fn mount_options() -> String {
    as_help(&mount_lists())
}

/// Writes the completions for a shell.
pub(crate) fn completions(shell: Shell, out: &mut dyn Write) -> Result<()> {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut args::command(), "arbor", &mut text);
    Ok(out.write_all(&text)?)
}

/// Writes the man pages into a directory.
pub(crate) fn write_man(directory: &Path) -> Result<()> {
    fs::create_dir_all(directory).with_context(|| directory.display().to_string())?;
    for (name, text) in man_pages()? {
        let path = directory.join(name);
        fs::write(&path, text).with_context(|| path.display().to_string())?;
    }
    Ok(())
}

/// Everything that is made from the definitions: path below `docs/` and content.
pub fn generate() -> Result<Vec<(PathBuf, Vec<u8>)>> {
    let mut files = Vec::new();
    for (name, text) in man_pages()? {
        files.push((Path::new("man").join(name), text));
    }
    for (shell, name) in [(Shell::Bash, "arbor.bash"), (Shell::Zsh, "_arbor"), (Shell::Fish, "arbor.fish")] {
        let mut text = Vec::new();
        completions(shell, &mut text)?;
        files.push((Path::new("completions").join(name), text));
    }
    Ok(files)
}

/// Files below `docs` that are missing, or not as [`generate`] makes them, or too many.
pub fn stale(docs: &Path) -> Result<Vec<PathBuf>> {
    let files = generate()?;
    let differs = |(path, text): &&(PathBuf, Vec<u8>)| fs::read(docs.join(path)).ok().as_ref() != Some(text);
    let mut stale: Vec<PathBuf> = files.iter().filter(differs).map(|(path, _)| path.clone()).collect();
    for room in ["man", "completions"] {
        for entry in fs::read_dir(docs.join(room)).into_iter().flatten().flatten() {
            let path = Path::new(room).join(entry.file_name());
            if !files.iter().any(|(known, _)| *known == path) {
                stale.push(path);
            }
        }
    }
    Ok(stale)
}

/// A page and what is special about it.
struct Page {
    command: Command,
    section: &'static str,
    lists: Lists,
    extra: &'static str,
}

fn man_pages() -> Result<Vec<(String, Vec<u8>)>> {
    let mut arbor = args::command();
    arbor.build();
    let mut pages = vec![page(args::command(), "1")];
    for sub in arbor.get_subcommands().filter(|s| !s.is_hide_set() && s.get_name() != "help") {
        pages.push(page(named(sub, "arbor"), "1"));
        let below = format!("arbor {}", sub.get_name());
        for inner in sub.get_subcommands() {
            pages.push(page(named(inner, &below), "1"));
        }
    }
    for command in [MkfsCli::command(), FsckCli::command(), MountHelper::command()] {
        pages.push(page(command, "8"));
    }
    pages.into_iter().map(|page| Ok((format!("{}.{}", page.command.get_name(), page.section), render(page)?))).collect()
}

/// A command below others, with its full name.
fn named(command: &Command, below: &str) -> Command {
    let bin = format!("{below} {}", command.get_name());
    command.clone().name(bin.replace(' ', "-")).bin_name(bin).disable_help_subcommand(true)
}

fn page(command: Command, section: &'static str) -> Page {
    let (lists, extra) = match command.get_name() {
        "arbor-mkfs" | "mkfs.arbor" => (mkfs_lists(), MKFS_EXTRA),
        "arbor-mount" | "mount.arbor" => (mount_lists(), MOUNT_EXTRA),
        "arbor-fsck" | "fsck.arbor" => (Vec::new(), FSCK_EXTRA),
        "arbor-scrub" => (Vec::new(), SCRUB_EXTRA),
        "arbor-map" => (Vec::new(), MAP_EXTRA),
        "arbor-lab-disk" => (Vec::new(), LAB_DISK_EXTRA),
        "arbor-lab-run" => (Vec::new(), LAB_RUN_EXTRA),
        "arbor-lab-replay" => (Vec::new(), LAB_REPLAY_EXTRA),
        _ => (Vec::new(), ""),
    };
    // The lists follow as a section of their own, laid out for paper.
    Page { command: command.after_long_help(None::<&str>), section, lists, extra }
}

const MKFS_EXTRA: &str = r".SH ENVIRONMENT
.TP
SOURCE_DATE_EPOCH
Time of creation in seconds; with
.B \-d
no file is younger, and with
.B \-U
the same tree gives the same bytes.
.SH EXAMPLES
.nf
arbor mkfs \-s 10G home.img
arbor mkfs \-s 1G \-d ./site site.img
curl https://example.org/root.tar | arbor mkfs \-s 4G \-d \- root.img
.fi
";

const MOUNT_EXTRA: &str = r#".SH EXIT STATUS
0 mounted and working, 1 wrong usage, 32 the mount failed, as of
.BR mount (8).
.SH NOTES
The command returns when the root of the mount can be listed; the server goes on in the background until
.BR "arbor umount" ,
.BR umount (8)
or SIGTERM. With NOTIFY_SOCKET set, READY=1 is sent as
.BR sd_notify (3)
does.
.PP
.BR umount (8)
of an image file does not wait for the server to write the rest. The next mount does, up to ten seconds, where no other
mount has the image.
.PP
.B remount
changes what the kernel enforces on a mount that works; the volume itself stays as it was opened.
.BR mount (8)
finds
.B arbor
for it
.RB ( "mount \-o remount,ro DIR" )
where the links
.B mount.fuse.arbor
and
.B mount.fuseblk.arbor
stand beside
.BR mount.arbor .
.PP
Set-id bits and device nodes count where root mounts by
.BR mount (8)
and fstab, unless
.B nosuid
or
.B nodev
is said, or
.B user
and the like, which imply them; by
.B arbor mount
they do where root says
.B suid
and
.BR dev ,
and for all others never.
.PP
Requests come by io_uring where the kernel offers it, which is faster; as it boots it does not. For the moment of a
mount root turns
.I /sys/module/fuse/parameters/enable_uring
on, unless
.B transport=offered
is said. For the mounts of others the administrator can leave it on, by a line in
.IR /etc/modprobe.d/fuse.conf :
.PP
.nf
options fuse enable_uring=1
.fi
.SH EXAMPLES
.nf
arbor mount \-\-new 10G home.img ~/home
arbor mount \-o ro,offset=1M disk.img /mnt
.fi
.PP
In
.BR fstab (5):
.PP
.nf
/srv/home.img  /home  arbor  defaults,nofail  0 2
.fi
"#;

const FSCK_EXTRA: &str = r".SH EXIT STATUS
The sum of: 0 clean, 1 errors corrected, 4 errors left, 8 operational error, 16 usage error, as of
.BR fsck (8).
A volume that is mounted is not checked (8). One that was not unmounted and has nothing else wrong is told as such, and
is no error to
.B \-n
(0; in JSON clean is false), though it needs recovery before it can be mounted for reading only.
";

const SCRUB_EXTRA: &str = r".SH EXIT STATUS
0 all is well, 4 damage was found, 8 operational error, 130 interrupted.
";

const MAP_EXTRA: &str = r".SH EXAMPLES
.nf
arbor map home.img
arbor map \-o home.svg home.img
.fi
";

const LAB_DISK_EXTRA: &str = r#".SH EXAMPLES
.nf
arbor lab disk \-\-trace ext4.trace /mnt/disk &
until [ \-e /mnt/disk/disk ]; do sleep 0.1; done
device=$(losetup \-\-find \-\-show \-\-direct\-io=on /mnt/disk/disk)
mkfs.ext4 "$device"
losetup \-d "$device"
umount /mnt/disk
.fi
"#;

const LAB_RUN_EXTRA: &str = r".SH EXIT STATUS
0 everything was run, 1 a subject failed or something is not known, 2 wrong usage, 130 interrupted.
.SH EXAMPLES
.nf
arbor lab run yfs\-table3
arbor lab run all \-\-engine ffs \-\-runs 5 \-\-json rows.json \-\-report report.html
arbor lab run yfs\-table2 \-\-subject yFS\-inline,FFS\-SU \-\-disk 870evo \-\-divisor 10
arbor lab run yfs\-table3 \-\-subject yFS\-inline,FFS\-SU,ext4,XFS
arbor lab run yfs\-table3 \-\-subject mine=yfs:block=8K,frag=1K:cache=16M \-\-trace\-out run.trace
.fi
";

const LAB_REPLAY_EXTRA: &str = r".SH EXIT STATUS
0 the trace was replayed, 1 something is wrong with it or not known, 2 wrong usage.
.SH EXAMPLES
.nf
arbor lab replay run.trace \-\-disk st39140,hc310
blkparse sda | arbor lab replay \- \-\-disk 870evo \-\-wrap
arbor lab replay src1_0.csv \-\-disk hc310 \-\-closed \-\-depth 32
.fi
";

fn render(page: Page) -> Result<Vec<u8>> {
    let name = page.command.get_name().to_string();
    let has_subcommands = page.command.has_subcommands();
    let synopsis = synopsis(page.command.clone());
    let man = Man::new(page.command).title(name.to_uppercase()).section(page.section).manual("Arboretum").date("");
    let mut out = Vec::new();
    man.render_title(&mut out)?;
    man.render_name_section(&mut out)?;
    writeln!(out, ".SH SYNOPSIS\n{synopsis}")?;
    man.render_description_section(&mut out)?;
    man.render_options_section(&mut out)?;
    if has_subcommands {
        man.render_subcommands_section(&mut out)?;
    }
    for (heading, specs) in page.lists.iter().filter(|(_, specs)| !specs.is_empty()) {
        writeln!(out, ".SH {}", escaped(&heading.to_uppercase().replace("(-O)", "(-o)")))?;
        for spec in specs {
            writeln!(out, ".TP\n\\fB{}\\fR\n{}", escaped(&option_name(spec)), escaped(&option_help(spec)))?;
        }
    }
    out.write_all(page.extra.as_bytes())?;
    writeln!(out, ".SH SEE ALSO")?;
    let also = ["arbor(1)", "mkfs.arbor(8)", "fsck.arbor(8)", "mount.arbor(8)"];
    let own = format!("{name}({})", page.section);
    let also: Vec<String> =
        also.iter().filter(|a| **a != own).map(|a| a.replacen('(', "\\fR(", 1)).map(|a| format!("\\fB{a}")).collect();
    writeln!(out, "{}", also.join(", "))?;
    Ok(out)
}

/// A command with its options and what follows each of them, which clap_mangen leaves out.
fn synopsis(mut command: Command) -> String {
    command.build();
    let is_required = |id: &Id| command.get_groups().any(|g| g.is_required_set() && g.get_args().any(|arg| arg == id));
    let shown = command.get_arguments().filter(|arg| !arg.is_hide_set());
    let (positional, options): (Vec<&Arg>, Vec<&Arg>) = shown.partition(|arg| arg.is_positional());
    let (one_of, options): (Vec<&Arg>, Vec<&Arg>) = options.into_iter().partition(|arg| is_required(arg.get_id()));
    let mut words = vec![bold(command.get_bin_name().unwrap_or(command.get_name()))];
    words.extend(options.into_iter().map(|arg| if_optional(arg, option(arg))));
    if !one_of.is_empty() {
        words.push(format!("{{{}}}", one_of.into_iter().map(option).collect::<Vec<_>>().join(" | ")));
    }
    words.extend(positional.into_iter().map(|arg| if_optional(arg, value_of(arg))));
    if command.has_subcommands() {
        words.push(italic("COMMAND"));
    }
    words.join(" ")
}

fn option(arg: &Arg) -> String {
    let short = arg.get_short().map(|c| bold(&format!("-{c}")));
    let long = arg.get_long().map(|word| bold(&format!("--{word}")));
    let name: Vec<String> = short.into_iter().chain(long).collect();
    match arg.get_action().takes_values() {
        true => format!("{} {}", name.join("|"), value_of(arg)),
        false => name.join("|"),
    }
}

fn value_of(arg: &Arg) -> String {
    let names = arg.get_value_names().unwrap_or_default().join(" ");
    // A name of several words says by itself how many there are.
    let more = arg.is_positional() && arg.get_num_args().is_some_and(|n| n.max_values() > 1) && !names.contains(' ');
    format!("{}{}", italic(&names), if more { "..." } else { "" })
}

fn if_optional(arg: &Arg, text: String) -> String {
    if arg.is_required_set() { text } else { format!("[{text}]") }
}

fn bold(text: &str) -> String {
    format!("\\fB{}\\fR", escaped(text))
}

fn italic(text: &str) -> String {
    format!("\\fI{}\\fR", escaped(text))
}

/// Text that roff takes as it is.
fn escaped(text: &str) -> String {
    let text = text.replace('\\', "\\\\").replace('-', "\\-");
    if text.starts_with(['.', '\'']) { format!("\\&{text}") } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `cargo xtask docs` writes them.
    #[test]
    fn the_written_pages_are_up_to_date() {
        let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../docs");
        let stale = stale(&docs).unwrap();
        assert!(stale.is_empty(), "run `cargo xtask docs`: {stale:?}");
    }

    #[test]
    fn a_synopsis_says_what_follows_an_option() {
        let pages = man_pages().unwrap();
        let synopsis = |name: &str| {
            let text = String::from_utf8(pages.iter().find(|(page, _)| page == name).unwrap().1.clone()).unwrap();
            let text = text.split_once(".SH SYNOPSIS\n").unwrap().1.lines().next().unwrap().to_string();
            text.replace("\\fB", "").replace("\\fI", "").replace("\\fR", "").replace("\\-", "-")
        };
        assert_eq!(synopsis("arbor-cat.1"), "arbor cat [-o KEY=VALUE,...] [-h|--help] IMAGE PATHS...");
        assert!(synopsis("mkfs.arbor.8").contains(" [-s|--size SIZE] "));
        assert!(synopsis("arbor-tar.1").contains(" {--import FILE | --export FILE} IMAGE"));
        assert!(synopsis("arbor.1").ends_with(" COMMAND"));
    }

    #[test]
    fn options_are_listed_with_defaults() {
        let text = mount_options();
        assert!(text.starts_with("Options of every mount (-o):\n"));
        assert!(text.contains("offset=SIZE") && text.contains("[default: 0]"));
    }
}
