//! Who asks. Since a mount may be an idmapped one, the kernel says so only where an inode is made, for which its owner is
//! wanted; elsewhere the process that asks is looked at.

use crate::proto::InHeader;
use std::os::unix::fs::FileExt;

/// What the kernel writes for an id that it does not tell.
const UNTOLD: u32 = u32::MAX;

/// The caller of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Caller {
    uid: u32,
    gid: u32,
    pid: u32,
}

impl Caller {
    pub(crate) fn of(head: &InHeader) -> Caller {
        Caller { uid: head.uid, gid: head.gid, pid: head.pid }
    }

    /// Its user, on our side of any user namespace; nobody knows of a process that is not to be seen from here.
    fn uid(self) -> Option<u32> {
        if self.uid != UNTOLD {
            return Some(self.uid);
        }
        word(&self.status()?, "Uid:", 3)
    }

    fn status(self) -> Option<String> {
        std::fs::read_to_string(format!("/proc/{}/status", self.pid)).ok()
    }

    /// Whether the process belongs to a group; one that is not to be seen from here does not.
    pub(crate) fn is_in_group(self, gid: u32) -> bool {
        let seen = || self.status().filter(|_| self.pid != 0);
        self.gid != UNTOLD && self.gid == gid || seen().is_some_and(|status| has_group(&status, gid))
    }

    /// What the process has in memory at `address`, if it may be seen from here.
    pub(crate) fn memory<const N: usize>(self, address: u64) -> Option<[u8; N]> {
        let mut bytes = [0; N];
        let memory = std::fs::File::open(format!("/proc/{}/mem", self.pid)).ok()?;
        memory.read_exact_at(&mut bytes, address).is_ok().then_some(bytes)
    }

    pub(crate) fn is_root(self) -> bool {
        self.uid() == Some(0)
    }

    /// Whether it is the user who runs the server.
    pub(crate) fn is_ours(self) -> bool {
        self.uid() == Some(rustix::process::geteuid().as_raw())
    }
}

/// Of a line of numbers in `/proc/PID/status` one, by its place. The id that counts for file systems is the last of four.
fn word(status: &str, name: &str, place: usize) -> Option<u32> {
    status.lines().find_map(|line| line.strip_prefix(name))?.split_whitespace().nth(place)?.parse().ok()
}

fn has_group(status: &str, gid: u32) -> bool {
    let groups = status.lines().find_map(|line| line.strip_prefix("Groups:")).unwrap_or_default();
    word(status, "Gid:", 3) == Some(gid) || groups.split_whitespace().any(|group| group.parse() == Ok(gid))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_caller_is_known_by_its_process() {
        let status = "Name:\tcat\nUid:\t1\t2\t3\t4\nGid:\t5\t6\t7\t8\nGroups:\t9 10 \n";
        assert_eq!(word(status, "Uid:", 3), Some(4));
        assert_eq!([7, 8, 9, 10, 11].map(|gid| has_group(status, gid)), [false, true, true, true, false]);
        let me = Caller { uid: UNTOLD, gid: UNTOLD, pid: std::process::id() };
        assert!(me.is_ours() && me.is_in_group(rustix::process::getegid().as_raw()));
        let told = Caller { uid: 0, gid: 77, pid: 0 };
        assert!(told.is_root() && told.is_in_group(77) && !told.is_in_group(0));
        let unseen = Caller { uid: UNTOLD, gid: UNTOLD, pid: 0 };
        assert!(!unseen.is_root() && !unseen.is_ours() && !unseen.is_in_group(UNTOLD));
    }

    #[test]
    fn memory_of_a_caller_is_read() {
        let number = 0x1234_5678_u32;
        let me = Caller { uid: 0, gid: 0, pid: std::process::id() };
        assert_eq!(me.memory(&raw const number as u64), Some(number.to_ne_bytes()));
        assert_eq!(me.memory::<4>(8), None);
    }
}
