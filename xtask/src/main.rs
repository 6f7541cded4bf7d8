//! Work on the repository itself: `cargo xtask docs [--check]`.
#![forbid(unsafe_code)]

use anyhow::{Context, Result, bail};
use std::fs;
use std::path::Path;

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs");
    match args.as_slice() {
        ["docs"] => write_docs(&docs),
        ["docs", "--check"] => match arbor_cli::docs::stale(&docs)?.as_slice() {
            [] => Ok(()),
            stale => bail!("not up to date, run `cargo xtask docs`: {stale:?}"),
        },
        _ => bail!("usage: cargo xtask docs [--check]"),
    }
}

/// Writes the man pages and completions, and removes what is no longer made.
fn write_docs(docs: &Path) -> Result<()> {
    for (path, text) in arbor_cli::docs::generate()? {
        let path = docs.join(path);
        if let Some(dir) = path.parent() {
            fs::create_dir_all(dir).with_context(|| dir.display().to_string())?;
        }
        fs::write(&path, text).with_context(|| path.display().to_string())?;
    }
    for path in arbor_cli::docs::stale(docs)? {
        fs::remove_file(docs.join(&path)).with_context(|| path.display().to_string())?;
    }
    Ok(())
}
