//! What is compared: engines with their options, and file systems of the kernel.

use anyhow::{Result, anyhow, bail};
use arbor_bench::{Setup, Subject, System};

/// A subject as `arbor lab list` shows it.
pub(super) struct Known {
    pub name: &'static str,
    /// One sentence.
    pub about: &'static str,
    pub engine: &'static str,
    /// Options of `mkfs` and of `mount`.
    pub format: &'static str,
    pub mount: &'static str,
    /// Further devices by role with their sizes in bytes.
    pub extra: &'static [(&'static str, u64)],
}

const YFS: &str = "block=16K,frag=2K,ag=178M,logsize=32M";
const FFS: &str = "block=16K,frag=2K,cg=178M,journal=0";
/// 128 MB of memory; of changed buffers, FreeBSD 4 keeps 390 of 16 KiB there: with nbuf = 50 + 65536 / 64 +
/// (131072 - 65536) * 2 / (64 * 5) = 1483 (i386/machdep.c), a quarter of them and 20 (kern/vfs_bio.c,
/// hidirtybuffers).
const CACHE: &str = "cache=128M,dirty=6240K";

/// All subjects. Sizes are those of the yFS paper, section 6.
pub(super) const KNOWN: &[Known] = &[
    Known {
        name: "yFS-inline",
        about: "yFS with its log on the same disk.",
        engine: "yfs",
        format: YFS,
        mount: CACHE,
        extra: &[],
    },
    Known {
        name: "yFS-external",
        about: "yFS with its log on a disk of its own.",
        engine: "yfs",
        format: YFS,
        mount: CACHE,
        extra: &[("log", 32 << 20)],
    },
    Known {
        name: "FFS-SU",
        about: "FFS with soft updates, the reference of the yFS paper.",
        engine: "ffs",
        format: FFS,
        mount: "keep=softupdates,cache=128M,dirty=6240K",
        extra: &[],
    },
    Known {
        name: "FFS-sync",
        about: "FFS that writes metadata at once and waits for them.",
        engine: "ffs",
        format: FFS,
        mount: "keep=sync,cache=128M,dirty=6240K",
        extra: &[],
    },
    Known {
        name: "FFS-async",
        about: "FFS that writes metadata in any order.",
        engine: "ffs",
        format: FFS,
        mount: "keep=async,cache=128M,dirty=6240K",
        extra: &[],
    },
    Known {
        name: "FFS-journal",
        about: "FFS with a journal of its metadata.",
        engine: "ffs",
        format: "block=16K,frag=2K,cg=178M,journal=32M",
        mount: "keep=journal,cache=128M,dirty=6240K",
        extra: &[],
    },
];

/// A file system of the kernel as `arbor lab list` shows it.
pub(in crate::lab) struct Peer {
    pub name: &'static str,
    /// One sentence.
    pub about: &'static str,
    /// Its type for mount(2).
    pub kind: &'static str,
    /// The program that makes it, and its arguments before the device.
    pub mkfs: &'static [&'static str],
    /// The package of Debian that has the program.
    pub package: &'static str,
}

/// All of them, made and mounted by the defaults of their tools. Tables of inodes and logs are cleared by mkfs: the
/// kernel would do it in the background, by the real clock.
pub(in crate::lab) const PEERS: &[Peer] = &[
    Peer {
        name: "ext2",
        about: "ext2, without a journal.",
        kind: "ext2",
        mkfs: &["mkfs.ext2", "-q", "-F"],
        package: "e2fsprogs",
    },
    Peer {
        name: "ext3",
        about: "ext3: ext2 with a journal.",
        kind: "ext3",
        mkfs: &["mkfs.ext3", "-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0"],
        package: "e2fsprogs",
    },
    Peer {
        name: "ext4",
        about: "ext4: extents, delayed allocation, a journal.",
        kind: "ext4",
        mkfs: &["mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0"],
        package: "e2fsprogs",
    },
    Peer {
        name: "XFS",
        about: "XFS: extents in B+ trees, a log of changes.",
        kind: "xfs",
        mkfs: &["mkfs.xfs", "-q", "-f"],
        package: "xfsprogs",
    },
    Peer {
        name: "btrfs",
        about: "btrfs: trees that are never changed in place.",
        kind: "btrfs",
        mkfs: &["mkfs.btrfs", "-q", "-f"],
        package: "btrfs-progs",
    },
];

/// The subjects of these names, in any case, and engines; an empty list means all engines, and `peer` starts those of the kernel.
pub(super) fn chosen(
    names: &[String],
    engines: &[String],
    peer: &dyn Fn(&'static Peer) -> Result<System<'static>>,
) -> Result<Vec<Subject<'static>>> {
    let known = || KNOWN.iter().map(|k| k.name).chain(PEERS.iter().map(|p| p.name));
    if let Some(wrong) = names.iter().find(|name| !known().any(|k| k.eq_ignore_ascii_case(name))) {
        bail!("no subject is called {wrong:?}; there are {}", listed(known()));
    }
    if let Some(wrong) = engines.iter().find(|name| arboretum::engine(name).is_none()) {
        bail!("no engine is called {wrong:?}; there are {}", listed(arboretum::engines().iter().map(|e| e.name())));
    }
    let has = |list: &[String], name: &str| list.is_empty() || list.iter().any(|one| one.eq_ignore_ascii_case(name));
    let ours = KNOWN.iter().filter(|k| has(names, k.name) && has(engines, k.engine)).map(subject);
    let peers = PEERS.iter().filter(|p| engines.is_empty() && !names.is_empty() && has(names, p.name));
    let peers = peers.map(|p| Ok(Subject { name: p.name.into(), system: peer(p)? }));
    let chosen: Vec<_> = ours.chain(peers).collect::<Result<_>>()?;
    if chosen.is_empty() {
        bail!("none of the subjects {} is one of {}", names.join(", "), engines.join(", "));
    }
    Ok(chosen)
}

fn subject(known: &Known) -> Result<Subject<'static>> {
    Ok(Subject { name: known.name.into(), system: System::Engine(setup(known)?) })
}

fn setup(known: &Known) -> Result<Setup<'static>> {
    let engine = arboretum::engine(known.engine).ok_or_else(|| anyhow!("no engine is called {:?}", known.engine))?;
    let (format, mount) = (known.format.into(), known.mount.into());
    let extra = known.extra.iter().map(|(role, bytes)| (role.to_string(), *bytes)).collect();
    Ok(Setup { engine, format, mount, extra })
}

/// What the disk of the operating system holds in the yFS paper: FFS with soft updates.
pub(super) fn source() -> Result<Option<Setup<'static>>> {
    KNOWN.iter().find(|k| k.name == "FFS-SU").map(setup).transpose()
}

/// Names with commas between.
pub(super) fn listed<'a>(names: impl Iterator<Item = &'a str>) -> String {
    names.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn none(peer: &Peer) -> Result<System<'static>> {
        bail!("{} is not wanted", peer.name)
    }

    #[test]
    fn the_subjects_of_the_papers_are_there_once() {
        assert_eq!(chosen(&[], &[], &none).unwrap().len(), KNOWN.len());
        for experiment in arbor_bench::list() {
            for name in experiment.columns.iter().chain([&experiment.reference]) {
                assert_eq!(KNOWN.iter().filter(|k| k.name == *name).count(), 1, "{name}");
            }
        }
    }

    #[test]
    fn names_and_engines_choose() {
        let names = |names: &[&str], engines: &[&str]| {
            let owned = |list: &[&str]| list.iter().map(ToString::to_string).collect::<Vec<_>>();
            chosen(&owned(names), &owned(engines), &none).map(|all| listed(all.iter().map(|s| &*s.name)))
        };
        assert_eq!(names(&[], &["yfs"]).unwrap(), "yFS-inline, yFS-external");
        assert_eq!(names(&["FFS-SU", "yFS-inline"], &[]).unwrap(), "yFS-inline, FFS-SU");
        assert_eq!(names(&["ffs-su", "YFS-inline"], &[]).unwrap(), "yFS-inline, FFS-SU");
        assert_eq!(names(&["xfs"], &[]).unwrap_err().to_string(), "XFS is not wanted");
        assert!(names(&["FFS-SU"], &["yfs"]).is_err());
        assert_eq!(names(&["FFS-SU", "ext4"], &[]).unwrap_err().to_string(), "ext4 is not wanted");
        assert!(names(&["ext4"], &["yfs"]).unwrap_err().to_string().starts_with("none of the subjects ext4"));
    }
}
