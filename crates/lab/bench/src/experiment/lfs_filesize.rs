//! Sequential performance as a function of file size.

use super::curves::{Axis, Chart, Charts, Host, Measured, Statement, greatest, least, mean};
use super::lfs_small::MAGNITUDE;
use super::{Case, Experiment, Load, Part, Quantity, Shape};
use crate::workload::file_size::FileSize;

/// The experiment.
pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "lfs-filesize",
    about: "32 MB of files of one size, or ten files, are made, read, written over and removed.",
    source: "Seltzer and others, USENIX 1995, sequential performance as a function of file size",
    columns: &["LFS", "FFS-rotdelay", "FFS"],
    others: &[],
    reference: "FFS",
    log_bound: (&[], 0.0),
    host: Host::LFS,
    cases: CASES,
    // "LFS measurements: each on a newly created file system; FFS: files of previous tests are deleted."
    series: &["FFS-rotdelay", "FFS"],
    shape: Shape::Charts(&Charts {
        x: Axis { name: "file size", unit: "KB", log: true },
        charts: &[
            chart("create", Quantity::Throughput, false),
            chart("read", Quantity::Throughput, false),
            chart("overwrite", Quantity::Throughput, false),
            chart("delete", Quantity::FileRate, true),
        ],
        statements: STATEMENTS,
    }),
};

/// Sizes in KB: powers of two, and the last one without and the first one with an indirect block.
const CASES: &[Case] = &[
    case("1 KB", 1),
    case("2 KB", 2),
    case("4 KB", 4),
    case("8 KB", 8),
    case("16 KB", 16),
    case("32 KB", 32),
    case("64 KB", 64),
    case("96 KB", 96),
    case("104 KB", 104),
    case("128 KB", 128),
    case("256 KB", 256),
    case("512 KB", 512),
    case("1 MB", 1 << 10),
    case("2 MB", 2 << 10),
    case("4 MB", 4 << 10),
    case("8 MB", 8 << 10),
    case("16 MB", 16 << 10),
];

const PARTS: &[Part] = &[
    Part::new("create", &["create"]),
    Part::new("read", &["read"]),
    Part::new("overwrite", &["write"]),
    Part::new("delete", &["delete"]),
];

const fn case(name: &'static str, kib: u32) -> Case {
    Case { name, load: Load::FileSize(FileSize::new((kib as u64) << 10)), x: kib as f64, parts: PARTS }
}

const fn chart(part: &'static str, quantity: Quantity, log: bool) -> Chart {
    let parts: &'static [&'static str] = match part.as_bytes() {
        b"create" => &["create"],
        b"read" => &["read"],
        b"overwrite" => &["overwrite"],
        _ => &["delete"],
    };
    Chart { log, ..Chart::new(part, parts, quantity) }
}

/// Ranges of sizes, KB.
const LARGE: (f64, f64) = (1024.0, 16_384.0);

const STATEMENTS: &[Statement] = &[
    Statement {
        text: "LFS creates files of 1 KB an order of magnitude faster.",
        what: "LFS / FFS, create, 1 KB",
        figure: |m| m.ratio("LFS", "FFS", 1.0, "create", Quantity::Throughput),
        range: MAGNITUDE,
        why: "It is more: FFS waits for a directory and an inode for each file, and LFS would be slower with the paper's processor.",
    },
    Statement {
        text: "From 1 KB to 1 MB its superiority in creating degrades.",
        what: "greatest of LFS / FFS over that of the next smaller size, create",
        figure: |m| {
            let ratios = throughput(m, "LFS", "FFS", (1.0, 1024.0), "create")?;
            Some(greatest(ratios.windows(2).map(|w| w[1] / w[0]).collect()))
        },
        range: (0.0, 1.1),
        why: "It does up to 96 KB; at 104 KB, with the first indirect block, FFS loses more than LFS, and at 128 KB too.",
    },
    Statement {
        text: "Creating files of 1 MB and more is comparable.",
        what: "mean of LFS / FFS, create, from 1 MB",
        figure: |m| throughput(m, "LFS", "FFS", LARGE, "create").map(mean),
        range: (0.8, 1.25),
        why: "",
    },
    Statement {
        text: "FFS tuned for writing writes large files about 15% faster than LFS.",
        what: "mean of FFS-rotdelay / LFS, create, from 1 MB",
        figure: |m| throughput(m, "FFS-rotdelay", "LFS", LARGE, "create").map(mean),
        range: (1.05, 1.3),
        why: "Only files of 2 MB and more gain by the gap, those of 4 MB and more 8 to 10%, one of 100 MB as much \
              (lfs-large). Smaller ones lose it again by what FFS waits for, and since new files fill the gaps of \
              those before them and are scattered.",
    },
    Statement {
        text: "It reads them about 25% more slowly.",
        what: "mean of FFS-rotdelay / LFS, read, from 1 MB",
        figure: |m| throughput(m, "FFS-rotdelay", "LFS", LARGE, "read").map(mean),
        range: (0.6, 0.9),
        why: "",
    },
    Statement {
        text: "FFS tuned for reading reads large files as fast as LFS.",
        what: "mean of FFS / LFS, read, from 1 MB",
        figure: |m| throughput(m, "FFS", "LFS", LARGE, "read").map(mean),
        range: (0.8, 1.25),
        why: "",
    },
    Statement {
        text: "Reading files of less than 64 KB is comparable.",
        what: "mean of LFS / FFS, read, to 32 KB",
        figure: |m| throughput(m, "LFS", "FFS", (1.0, 32.0), "read").map(mean),
        range: (0.67, 1.5),
        why: "",
    },
    Statement {
        text: "From 64 KB to 4 MB LFS reads faster, since FFS goes to another cylinder group for an indirect block.",
        what: "mean of LFS / FFS, read, 104 KB to 4 MB",
        figure: |m| throughput(m, "LFS", "FFS", (104.0, 4096.0), "read").map(mean),
        range: (1.05, f64::INFINITY),
        why: "",
    },
    Statement {
        text: "LFS is faster in writing over files of less than 64 KB.",
        what: "least of LFS / FFS, overwrite, to 32 KB",
        figure: |m| throughput(m, "LFS", "FFS", (1.0, 32.0), "overwrite").map(least),
        range: (1.0, f64::INFINITY),
        why: "At 32 KB both are level, below LFS is faster, by a fifth at 1 KB. The paper's FFS wrote each file by \
              itself; ours joins neighbours in one request.",
    },
    Statement {
        text: "FFS is faster in writing over larger ones, by the rotation that it does not lose.",
        what: "mean of FFS-rotdelay / LFS, overwrite, from 128 KB",
        figure: |m| throughput(m, "FFS-rotdelay", "LFS", (128.0, 16_384.0), "overwrite").map(mean),
        range: (1.0, f64::INFINITY),
        why: "By less than in the paper, for the same reason as in creating.",
    },
    Statement {
        text: "LFS deletes files of 64 KB and less an order of magnitude faster.",
        what: "least of LFS / FFS, delete, to 64 KB",
        figure: |m| deletes(m, (1.0, 64.0)).map(least),
        range: MAGNITUDE,
        why: "It is more, as above.",
    },
    Statement {
        text: "It deletes large files several times faster.",
        what: "mean of LFS / FFS, delete, from 1 MB",
        figure: |m| deletes(m, LARGE).map(mean),
        range: (2.0, f64::INFINITY),
        why: "",
    },
    Statement {
        text: "Deletion becomes slower at once where an indirect block has to be read.",
        what: "greater of 104 KB / 96 KB, delete, LFS and FFS",
        figure: |m| {
            let drop = |s: &str| Some(deleted(m, s, 104.0)? / deleted(m, s, 96.0)?);
            Some(drop("LFS")?.max(drop("FFS")?))
        },
        range: (0.0, 0.8),
        why: "",
    },
];

fn throughput(m: &Measured<'_>, over: &str, under: &str, sizes: (f64, f64), part: &str) -> Option<Vec<f64>> {
    m.ratios(over, under, sizes, part, Quantity::Throughput)
}

fn deletes(m: &Measured<'_>, sizes: (f64, f64)) -> Option<Vec<f64>> {
    m.ratios("LFS", "FFS", sizes, "delete", Quantity::FileRate)
}

fn deleted(m: &Measured<'_>, subject: &str, size: f64) -> Option<f64> {
    m.figure(subject, size, "delete", Quantity::FileRate)
}
