//! What a server does to the machine: mounting and unmounting, records of mounts, the switch of io_uring, what it gives up.
//! Nothing here reads an image or a request, so these rooms can become a process of their own, which keeps the rights that
//! they need, when serving gets a cage. (Images are opened and locked by `arbor_base::device`, which reads nothing of them
//! either.)

pub(crate) mod blockdev;
pub(crate) mod confine;
pub(crate) mod handover;
pub(crate) mod kernel;
pub(crate) mod offer;
pub(crate) mod place;
pub(crate) mod record;

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    /// Modules of this crate that these may use: none that knows of files in an image or of requests about them.
    const MAY_USE: &[&str] =
        &["atime::Access", "caller::Caller", "host::", "log::Log", "options::", "prompt::Promptly"];

    #[test]
    fn nothing_here_reads_an_image_or_a_request() {
        let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/host");
        for file in fs::read_dir(here).unwrap() {
            let path = file.unwrap().path();
            let text = fs::read_to_string(&path).unwrap();
            for line in
                text.lines().filter(|line| path.file_name().unwrap() != "mod.rs" && !line.trim().starts_with("//"))
            {
                for used in line.match_indices("crate::").map(|(at, word)| &line[at + word.len()..]) {
                    assert!(MAY_USE.iter().any(|may| used.starts_with(may)), "{}: {line}", path.display());
                }
                for word in ["FileSystem", "dyn Device", "Engine", "vfs::Ino"] {
                    assert!(!line.contains(word), "{}: {line}", path.display());
                }
            }
        }
    }
}
