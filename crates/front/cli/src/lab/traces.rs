//! The files that the requests of runs are written to.

use anyhow::{Context, Result, bail};
use arbor_bench::{Traced, Traces};
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// One file, or one for each run of several: then the name of the file has what it is of before its extension.
#[derive(Debug)]
pub(super) struct TraceFiles {
    path: PathBuf,
    /// Whether there are several experiments, several subjects, several workloads.
    several: [bool; 3],
    written: Mutex<Vec<PathBuf>>,
}

impl TraceFiles {
    /// Whether a file can be made there is better known before the run than after it.
    pub(super) fn new(path: &Path, several: [bool; 3]) -> Result<TraceFiles> {
        let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let is_dir = fs::metadata(dir).with_context(|| dir.display().to_string())?.is_dir();
        if !is_dir || path.file_name().is_none() || path.is_dir() {
            bail!("{}: no file can be made of this name", path.display());
        }
        Ok(TraceFiles { path: path.into(), several, written: Mutex::default() })
    }

    pub(super) fn written(&self) -> Vec<PathBuf> {
        self.written.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn path_of(&self, of: &Traced<'_>) -> PathBuf {
        let cases = match of.cases[..] {
            [] => String::new(),
            [case] => plain(case),
            [first, .., last] => format!("{}-to-{}", plain(first), plain(last)),
        };
        let words = [plain(of.experiment), plain(of.subject), cases];
        let mut name = self.path.file_stem().unwrap_or_default().to_os_string();
        for (word, _) in words.iter().zip(self.several).filter(|(word, is_one_of)| *is_one_of && !word.is_empty()) {
            name.push("-");
            name.push(word);
        }
        if let Some(extension) = self.path.extension() {
            name.push(".");
            name.push(extension);
        }
        self.path.with_file_name(name)
    }
}

/// Words that are a piece of a file's name.
fn plain(words: &str) -> String {
    let is_kept = |c: char| c.is_ascii_alphanumeric() || "_.+".contains(c);
    let pieces = words.split(|c| !is_kept(c)).filter(|piece| !piece.is_empty());
    pieces.collect::<Vec<_>>().join("-")
}

impl Traces for TraceFiles {
    fn open(&self, of: &Traced<'_>) -> io::Result<Box<dyn Write>> {
        let path = self.path_of(of);
        let file = File::create(&path).map_err(|e| io::Error::new(e.kind(), format!("{}: {e}", path.display())))?;
        self.written.lock().unwrap_or_else(PoisonError::into_inner).push(path);
        Ok(Box::new(BufWriter::with_capacity(1 << 18, file)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_say_what_there_is_several_of() {
        let name = |several: [bool; 3], path: &str, cases: &[&str]| {
            let of = Traced { experiment: "yfs-table2", subject: "FFS-SU", cases: cases.to_vec() };
            let path = TraceFiles::new(Path::new(path), several).unwrap().path_of(&of);
            path.to_str().unwrap().to_string()
        };
        assert_eq!(name([false; 3], "a.b.trace", &["50,000 files"]), "a.b.trace");
        assert_eq!(name([false, true, true], "/tmp/a.trace", &["50,000 files"]), "/tmp/a-FFS-SU-50-000-files.trace");
        assert_eq!(name([true; 3], "a", &[]), "a-yfs-table2-FFS-SU");
        let all = ["20% full, asynchronous", "b", "90% full"];
        assert_eq!(name([false, false, true], "a.t", &all), "a-20-full-asynchronous-to-90-full.t");
        for path in ["/", "/tmp", "/tmp/..", "/dev/null/a", "/no/such/dir/a"] {
            assert!(TraceFiles::new(Path::new(path), [false; 3]).is_err(), "{path}");
        }
    }
}
