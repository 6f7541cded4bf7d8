//! Requests on the volume and the mount: space, syncs, ioctls, what the kernel forgets, and the end.

use super::{Handled, Reply, Request, Server, malformed, put};
use crate::proto::*;
use crate::upkeep;
use arbor_base::vfs::{self, Errno, Ino, TrimRange};
use std::panic::{AssertUnwindSafe, catch_unwind};
use zerocopy::IntoBytes;

impl Server {
    pub(super) fn statfs(&self, out: &mut [u8]) -> Handled {
        let st = self.fs.statfs()?;
        Ok(Reply::Bytes(put(
            out,
            &StatfsOut {
                blocks: st.blocks,
                bfree: st.bfree,
                bavail: st.bavail,
                files: st.files,
                ffree: st.ffree,
                bsize: st.bsize,
                namelen: st.namelen,
                frsize: st.frsize,
                padding: 0,
                spare: [0; 6],
            },
        )))
    }

    pub(crate) fn syncfs(&self) -> vfs::Result<()> {
        self.atimes.tell_all(&*self.fs);
        self.fs.syncfs()
    }

    /// FITRIM and our own are carried. They are for root, and ours for whoever runs the server too.
    pub(super) fn ioctl(&self, request: &mut Request<'_>, out: &mut [u8]) -> Handled {
        let what: IoctlIn = request.arg()?;
        let input = request.bytes(what.in_size)?;
        let caller = request.caller;
        if let Some(answer) = self.attribute_ioctl(caller, request.ino, &what, input)? {
            return ioctl_out(out, &answer);
        }
        let is_ours = matches!(what.cmd, CLEAN | SCRUB);
        if !is_ours && what.cmd != FITRIM {
            // ENOTTY, which the seam has no name for.
            return Err(Errno(25).into());
        }
        if !(caller.is_root() || is_ours && caller.is_ours()) {
            return Err(Errno::EPERM.into());
        }
        let answer = match what.cmd {
            CLEAN => upkeep::serve_clean(&*self.fs, &request.arg()?)?.as_bytes().to_vec(),
            SCRUB => upkeep::serve_scrub(&*self.fs, &request.arg()?)?.as_bytes().to_vec(),
            _ => {
                let FstrimRange { start, len, minlen } = request.arg()?;
                let len = self.fs.trim(&TrimRange { start, len, minlen })?;
                FstrimRange { start, len, minlen }.as_bytes().to_vec()
            }
        };
        ioctl_out(out, &answer)
    }

    pub(super) fn forget_one(&self, request: &mut Request<'_>) -> Handled {
        self.forget(request.ino, request.arg::<ForgetIn>()?.nlookup);
        Ok(Reply::None)
    }

    pub(super) fn batch_forget(&self, request: &mut Request<'_>) -> Handled {
        for _ in 0..request.arg::<BatchForgetIn>()?.count {
            let Ok(one) = request.arg::<ForgetOne>() else { break };
            self.forget(self.ino(one.nodeid), one.nlookup);
        }
        Ok(Reply::None)
    }

    pub(super) fn forget(&self, ino: Ino, count: u64) {
        // After it the number may be another file's.
        self.atimes.tell(&*self.fs, ino);
        self.fs.forget(ino, count);
    }

    pub(super) fn interrupt(&self, request: &mut Request<'_>) -> Handled {
        self.interrupts.interrupt(request.arg::<InterruptIn>()?.unique);
        Ok(Reply::None)
    }

    pub(super) fn destroy(&self) -> Handled {
        let result = self.unmount();
        if let Err(e) = &result {
            self.log.say(format_args!("unmount: {e}"));
        }
        *self.destroyed.lock() = Some(result);
        self.claims.iter().for_each(|claim| claim.release());
        Ok(Reply::Bytes(0))
    }

    /// Tells the file system the times of access, and unmounts it. What is shut down is left as a crash leaves it.
    pub(crate) fn unmount(&self) -> vfs::Result<()> {
        if self.gate.is_shut() {
            return Ok(());
        }
        let end = || {
            self.atimes.tell_all(&*self.fs);
            let ended = self.fs.unmount();
            self.look_for_damage();
            ended
        };
        catch_unwind(AssertUnwindSafe(end)).unwrap_or_else(|_| {
            self.log.say(format_args!("panic while it is unmounted"));
            self.panicked("unmount");
            Err(Errno::EIO.into())
        })
    }
}

fn ioctl_out(out: &mut [u8], answer: &[u8]) -> Handled {
    let head = put(out, &IoctlOut { result: 0, flags: 0, in_iovs: 0, out_iovs: 0 });
    let end = head + answer.len();
    out.get_mut(head..end).ok_or_else(malformed)?.copy_from_slice(answer);
    Ok(Reply::Bytes(end))
}
