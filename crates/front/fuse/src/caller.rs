//! Who asks. Since a mount may be an idmapped one, the kernel says so only where an inode is made, for which its owner is
//! wanted; elsewhere the process that asks is looked at.

use crate::proto::InHeader;

/// What the kernel writes for an id that it does not tell.
const UNTOLD: u32 = u32::MAX;

/// The caller of a request.
pub(crate) struct Caller {
    uid: u32,
    pid: u32,
}

impl Caller {
    pub(crate) fn of(head: &InHeader) -> Caller {
        Caller { uid: head.uid, pid: head.pid }
    }

    /// Its user, on our side of any user namespace; nobody knows of a process that is not to be seen from here.
    fn uid(&self) -> Option<u32> {
        if self.uid != UNTOLD {
            return Some(self.uid);
        }
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid)).ok()?;
        fsuid(&status)
    }

    pub(crate) fn is_root(&self) -> bool {
        self.uid() == Some(0)
    }

    /// Whether it is the user who runs the server.
    pub(crate) fn is_ours(&self) -> bool {
        self.uid() == Some(rustix::process::geteuid().as_raw())
    }
}

/// The id that counts for file systems, the last of four.
fn fsuid(status: &str) -> Option<u32> {
    let ids = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    ids.split_whitespace().nth(3)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_caller_is_known_by_its_process() {
        assert_eq!(fsuid("Name:\tcat\nUid:\t1\t2\t3\t4\nGid:\t5\t6\t7\t8\n"), Some(4));
        let me = Caller { uid: UNTOLD, pid: std::process::id() };
        assert!(me.is_ours());
        let told = Caller { uid: 0, pid: 0 };
        assert!(told.is_root());
        let unseen = Caller { uid: UNTOLD, pid: 0 };
        assert!(!unseen.is_root() && !unseen.is_ours());
    }
}
