//! The series. Each point goes through the stages of its series, each in a process of its own, so
//! that the peak of its memory is its own.

mod cache;
mod directory;
mod extents;
mod files;
mod image;

use super::point::Point;
use crate::figures::number;
use anyhow::Result;

/// One axis along which things may grow.
#[derive(Debug)]
pub(crate) struct Def {
    pub(crate) name: &'static str,
    /// What is on the axis, and what lies in the volume.
    pub(crate) about: &'static str,
    pub(crate) sizes: &'static [u64],
    pub(crate) quick: &'static [u64],
    pub(crate) stages: &'static [Stage],
}

#[derive(Debug)]
pub(crate) struct Stage {
    pub(crate) name: &'static str,
    pub(crate) run: fn(&mut Point) -> Result<()>,
    /// Its process ends by killing itself.
    pub(crate) dies: bool,
}

const fn stage(name: &'static str, run: fn(&mut Point) -> Result<()>) -> Stage {
    Stage { name, run, dies: false }
}

pub(crate) const ALL: &[Def] = &[
    Def {
        name: "files",
        about: "files of 200 bytes, 1,000 in a directory, in an image of 16 GiB",
        sizes: &[10_000, 100_000, 1_000_000, 3_000_000],
        quick: &[1000, 10_000, 100_000],
        stages: &[
            stage("create", files::create),
            stage("cold", files::cold),
            Stage { name: "crash", run: files::crash, dies: true },
            stage("recover", files::recover),
            stage("warm", files::warm),
            stage("check", check),
        ],
    },
    Def {
        name: "directory",
        about: "names of empty files in one directory, in an image of 4 GiB",
        sizes: &[10, 100, 1000, 10_000, 100_000, 1_000_000],
        quick: &[10, 1000, 100_000],
        stages: &[
            stage("create", directory::create),
            stage("cold", directory::cold),
            stage("warm", directory::warm),
            stage("check", check),
        ],
    },
    Def {
        name: "extents",
        about: "extents of 4 KiB in one file, as many holes between them, in an image of 8 GiB",
        sizes: &[1, 10, 100, 1000, 10_000, 100_000],
        quick: &[1, 100, 10_000],
        stages: &[
            stage("write", extents::write),
            stage("cold", extents::cold),
            stage("warm", extents::warm),
            stage("remove", extents::remove),
        ],
    },
    Def {
        name: "image",
        about: "GiB of the image; empty and with 10,000 files, then with one file that takes 90 % of it",
        sizes: &[1, 16, 128, 1024, 10_240],
        quick: &[1, 16, 128],
        stages: &[
            stage("mkfs", image::mkfs),
            stage("open", image::open),
            stage("create", image::create),
            stage("check", check),
            stage("fill", image::fill),
            stage("open full", image::open_full),
            stage("check full", image::check_full),
        ],
    },
    Def {
        name: "cache",
        about: "MiB of the cache, with 100,000 files of 4 KiB and one of 512 MiB (quick: a tenth) in an image of 4 GiB",
        sizes: &[16, 64, 256, 1024],
        quick: &[16, 64, 256],
        stages: &[stage("create", cache::create), stage("use", cache::all)],
    },
];

pub(crate) fn named(name: &str) -> Option<&'static Def> {
    ALL.iter().find(|def| def.name == name)
}

impl Def {
    /// A size as the head of a column.
    pub(crate) fn label(&self, size: u64) -> String {
        match self.name {
            "image" if size >= 1024 => format!("{} TiB", size / 1024),
            "image" => format!("{size} GiB"),
            "cache" => format!("{size} MiB"),
            _ => number(size),
        }
    }
}

fn check(point: &mut Point) -> Result<()> {
    point.check("check", "peak memory, check")
}

pub(crate) fn named_or_error(name: &str) -> Result<&'static Def, String> {
    named(name).ok_or_else(|| {
        let names: Vec<&str> = ALL.iter().map(|def| def.name).collect();
        format!("the series are {}", names.join(", "))
    })
}
