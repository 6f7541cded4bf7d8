//! Cleaning and scrubbing, asked of the server of a mount by ioctls on its root, a piece in each; and trimming.

use crate::host::place::Mount;
use crate::proto::{CLEAN, CleanIo, FITRIM, FstrimRange, SCRUB, ScrubIo};
use crate::sys;
use arbor_base::vfs::{self, Cleaned, FileSystem, Scrubbed};
use rustix::fd::AsFd;
use std::io;
use std::path::Path;
use zerocopy::FromZeros;

/// Lets the mount at `root` clean: [`FileSystem::clean`]. For root, and for whoever runs the server.
pub fn clean(root: &Path, budget: u64) -> io::Result<Cleaned> {
    let mut io = CleanIo { budget, ..CleanIo::new_zeroed() };
    sys::ask::<CLEAN, _>(Mount::server_at(root)?.as_fd(), &mut io)?;
    let CleanIo { segments, read_bytes, moved_bytes, more, .. } = io;
    Ok(Cleaned { segments, read_bytes, moved_bytes, more: more != 0 })
}

/// Lets the mount at `root` verify what lies after `at`: [`FileSystem::scrub`]. For root, and for whoever runs the
/// server.
pub fn scrub(root: &Path, at: u64) -> io::Result<Scrubbed> {
    let mut io = ScrubIo { at, ..ScrubIo::new_zeroed() };
    sys::ask::<SCRUB, _>(Mount::server_at(root)?.as_fd(), &mut io)?;
    Ok(scrubbed(&io))
}

/// Lets the mount at `root` give all its free space back to the host, and says how much that was. For root.
pub fn trim(root: &Path) -> io::Result<u64> {
    let mut range = FstrimRange { start: 0, len: u64::MAX, minlen: 0 };
    sys::ask::<FITRIM, _>(Mount::server_at(root)?.as_fd(), &mut range)?;
    Ok(range.len)
}

/// Serves [`clean`].
pub(crate) fn serve_clean(fs: &dyn FileSystem, io: &CleanIo) -> vfs::Result<CleanIo> {
    let Cleaned { segments, read_bytes, moved_bytes, more } = fs.clean(io.budget)?;
    Ok(CleanIo { budget: io.budget, segments, read_bytes, moved_bytes, more: more.into() })
}

/// Serves [`scrub`].
pub(crate) fn serve_scrub(fs: &dyn FileSystem, io: &ScrubIo) -> vfs::Result<ScrubIo> {
    Ok(answer(io.at, &fs.scrub(io.at)?))
}

fn answer(at: u64, found: &Scrubbed) -> ScrubIo {
    let mut io = ScrubIo { at, next: found.next.unwrap_or(u64::MAX), ..ScrubIo::new_zeroed() };
    (io.verified_bytes, io.damage) = (found.verified_bytes, found.damage.len() as u64);
    let mut end = 0;
    for sentence in &found.damage {
        let line = format!("{}\n", sentence.replace('\n', " "));
        let Some(room) = io.text.get_mut(end..end + line.len()) else { break };
        room.copy_from_slice(line.as_bytes());
        end += line.len();
    }
    io.len = end as u64;
    io
}

fn scrubbed(io: &ScrubIo) -> Scrubbed {
    let text = io.text.get(..io.len as usize).unwrap_or(&io.text);
    let mut damage: Vec<String> = String::from_utf8_lossy(text).lines().map(String::from).collect();
    let untold = io.damage.saturating_sub(damage.len() as u64);
    damage.extend((0..untold).map(|_| "more damage, of which there was no room to tell".to_string()));
    Scrubbed { next: Some(io.next).filter(|next| *next != u64::MAX), verified_bytes: io.verified_bytes, damage }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_found_arrives() {
        let damage = |n: usize| (0..n).map(|i| format!("/file {i}: block 7 is damaged")).collect();
        let small = Scrubbed { next: Some(77), verified_bytes: 5, damage: damage(2) };
        assert_eq!(scrubbed(&answer(3, &small)), small);
        let end = Scrubbed { next: None, verified_bytes: 0, damage: damage(0) };
        assert_eq!(scrubbed(&answer(3, &end)), end);
        let much = scrubbed(&answer(0, &Scrubbed { next: None, verified_bytes: 0, damage: damage(1000) }));
        assert_eq!(much.damage.len(), 1000);
        assert_eq!(much.damage[0], "/file 0: block 7 is damaged");
        assert!(much.damage[999].starts_with("more damage"));
    }
}
