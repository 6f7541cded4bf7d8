//! What is compared: engines with their options.

use anyhow::{Result, anyhow, bail};
use arbor_bench::{Source, Subject};

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

/// The subjects of these names and engines; an empty list means all.
pub(super) fn chosen(names: &[String], engines: &[String]) -> Result<Vec<Subject<'static>>> {
    if let Some(wrong) = names.iter().find(|name| !KNOWN.iter().any(|k| k.name == **name)) {
        bail!("no subject is called {wrong:?}; there are {}", listed(KNOWN.iter().map(|k| k.name)));
    }
    if let Some(wrong) = engines.iter().find(|name| arboretum::engine(name).is_none()) {
        bail!("no engine is called {wrong:?}; there are {}", listed(arboretum::engines().iter().map(|e| e.name())));
    }
    let has = |list: &[String], name: &str| list.is_empty() || list.iter().any(|one| one == name);
    let chosen: Vec<&Known> = KNOWN.iter().filter(|k| has(names, k.name) && has(engines, k.engine)).collect();
    if chosen.is_empty() {
        bail!("none of the subjects {} is one of {}", names.join(", "), engines.join(", "));
    }
    chosen.into_iter().map(subject).collect()
}

fn subject(known: &Known) -> Result<Subject<'static>> {
    let engine = arboretum::engine(known.engine).ok_or_else(|| anyhow!("no engine is called {:?}", known.engine))?;
    Ok(Subject {
        name: known.name.into(),
        engine,
        format: known.format.into(),
        mount: known.mount.into(),
        extra: known.extra.iter().map(|(role, bytes)| (role.to_string(), *bytes)).collect(),
    })
}

/// What the disk of the operating system holds in the yFS paper: FFS with soft updates.
pub(super) fn source() -> Result<Option<Source>> {
    let known = KNOWN.iter().find(|k| k.name == "FFS-SU").ok_or_else(|| anyhow!("no subject is called FFS-SU"))?;
    let engine = arboretum::engine(known.engine).ok_or_else(|| anyhow!("no engine is called {:?}", known.engine))?;
    Ok(Some(Source { engine, format: known.format.into(), mount: known.mount.into() }))
}

/// Names with commas between.
pub(super) fn listed<'a>(names: impl Iterator<Item = &'a str>) -> String {
    names.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_subjects_of_the_papers_are_there_once() {
        assert_eq!(chosen(&[], &[]).unwrap().len(), KNOWN.len());
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
            chosen(&owned(names), &owned(engines)).map(|all| listed(all.iter().map(|s| &*s.name)))
        };
        assert_eq!(names(&[], &["yfs"]).unwrap(), "yFS-inline, yFS-external");
        assert_eq!(names(&["FFS-SU", "yFS-inline"], &[]).unwrap(), "yFS-inline, FFS-SU");
        assert!(names(&["FFS-SU"], &["yfs"]).is_err());
    }
}
