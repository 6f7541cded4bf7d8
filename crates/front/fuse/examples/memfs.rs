//! A file system in memory, mounted like any of ours: what a mount costs without an engine.
//!
//!     cargo run --release -p arbor-fuse --example memfs -- DIR [OPTIONS]
//!
//! It ends when `DIR` is unmounted.

#[path = "../tests/memfs/mod.rs"]
#[allow(dead_code, reason = "the tests use all of it")]
mod memfs;

use arbor_base::vfs::Options;
use std::error::Error;
use std::path::Path;
use std::sync::Arc;

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let (dir, options) = match args.as_slice() {
        [dir] => (dir, ""),
        [dir, options] => (dir, options.as_str()),
        _ => return Err("usage: memfs DIR [OPTIONS]".into()),
    };
    // The rest is for engines.
    let (config, _) = arbor_fuse::parse_options(&Options::parse(options))?;
    Ok(arbor_fuse::mount(Arc::new(memfs::MemFs::new()), Path::new(dir), &config)?.wait()?)
}
