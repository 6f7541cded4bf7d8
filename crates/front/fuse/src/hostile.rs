//! Requests as no kernel sends them, for tests and `fuzz/`: lengths that do not fit together, operations
//! that do not exist, arguments cut off, and a file system whose answers are longer than any buffer.

use crate::counters::Counters;
use crate::options::MountConfig;
use crate::proto::{InHeader, InitFlags, Op, OutHeader, RingHead};
use crate::ring;
use crate::serve::{Agreed, OUT_HEAD, Server};
use crate::sys::Channel;
use arbor_base::vfs::*;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use zerocopy::{FromBytes, FromZeros, IntoBytes};

/// Longer than what is copied out of the way, and than any scratch.
const PAYLOAD: usize = 20 << 10;
const SCRATCH: usize = 16 << 10;
/// No file system has such names and attributes.
const LONG: usize = 64 << 10;

/// Takes part in place of a mount.
pub struct Hostile {
    server: Server,
    buffer: Vec<u8>,
    scratch: Vec<u8>,
    out: Vec<u8>,
}

impl Default for Hostile {
    fn default() -> Hostile {
        let agreed =
            Agreed { flags: InitFlags::all() - InitFlags::NO_OPEN_SUPPORT, xattrs: true, minor: crate::proto::MINOR };
        let server = Server::new(Arc::new(Yes), &MountConfig::default(), agreed, Arc::new(Counters::new()));
        Hostile {
            server,
            buffer: vec![0; Channel::ROOM + PAYLOAD],
            scratch: vec![0; SCRATCH],
            out: vec![0; OUT_HEAD + PAYLOAD],
        }
    }
}

impl Hostile {
    /// Serves what `input` describes as if it had come by a ring, and from `/dev/fuse`. Panics if a handler
    /// does, or if the reply is none.
    pub fn serve(&mut self, input: &[u8]) {
        let mut input = Input(input);
        let (head, ring) = self.request(&mut input);
        self.by_ring(&head, ring);
        self.by_device(&head, input.0);
        assert_eq!(self.server.counters.panics.load(Relaxed), 0, "a handler has panicked: {head:?}");
    }

    /// A request in the memory of a ring. Lengths are right, or limits, or anything.
    fn request(&mut self, input: &mut Input<'_>) -> (InHeader, RingHead) {
        let how = input.byte();
        let mut ring = RingHead::new_zeroed();
        ring.commit_id = input.u64();
        let opcode = match how & 1 {
            0 => Op::ALL[usize::from(input.byte()) % Op::ALL.len()] as u32,
            _ => input.u32(),
        };
        let (first, payload) = (usize::from(input.byte()) % 160, usize::from(input.u32() as u16) % (PAYLOAD + 200));
        ring.payload_size = input.length(how >> 1, payload as u32);
        let len = input.length(how >> 4, (size_of::<InHeader>() + first + payload) as u32);
        let nodeid = u64::from(how >> 6);
        let (unique, uid) = (input.u64(), u32::from(how >> 7));
        let head = InHeader { len, opcode, unique, nodeid, uid, ..InHeader::new_zeroed() };
        ring.in_out[..size_of::<InHeader>()].copy_from_slice(head.as_bytes());
        input.fill(&mut ring.op_in);
        let rest = input.0.len().min(PAYLOAD);
        self.buffer[Channel::ROOM..][..rest].copy_from_slice(&input.0[..rest]);
        (head, ring)
    }

    fn by_ring(&mut self, head: &InHeader, mut ring: RingHead) {
        let (asked, server) = (ring, &self.server);
        let served = ring::serve(&mut ring, &mut self.buffer, &mut self.scratch, |head, args, out| {
            assert!(args.len() <= asked.op_in.len() + PAYLOAD);
            server.answer(head, args, out)
        });
        let (out, _) = OutHeader::read_from_prefix(&ring.in_out).expect("a ring has room for it");
        let payload = ring.payload_size as usize;
        assert_eq!((out.unique, out.len as usize), (head.unique, OUT_HEAD + payload));
        assert!(payload <= PAYLOAD, "a reply of {payload} bytes");
        assert!((-511..=0).contains(&out.error) && (out.error == 0 || payload == 0), "{out:?} {payload}");
        assert!(served.is_some() || out.error != 0);
        assert_eq!((ring.commit_id, ring.op_in), (asked.commit_id, asked.op_in), "the kernel's own was changed");
    }

    fn by_device(&mut self, head: &InHeader, args: &[u8]) {
        let (len, reply) = self.server.serve(head, args, &mut self.out);
        assert!(len <= self.out.len());
        self.server.undelivered(&reply, &self.out[OUT_HEAD..]);
    }
}

/// Read piece by piece; past its end it is zeros.
struct Input<'a>(&'a [u8]);

impl Input<'_> {
    fn fill(&mut self, out: &mut [u8]) {
        let n = out.len().min(self.0.len());
        out[..n].copy_from_slice(&self.0[..n]);
        self.0 = &self.0[n..];
    }

    fn byte(&mut self) -> u8 {
        let mut out = [0];
        self.fill(&mut out);
        out[0]
    }

    fn u32(&mut self) -> u32 {
        let mut out = [0; 4];
        self.fill(&mut out);
        u32::from_ne_bytes(out)
    }

    fn u64(&mut self) -> u64 {
        u64::from(self.u32()) << 32 | u64::from(self.u32())
    }

    fn length(&mut self, how: u8, right: u32) -> u32 {
        const LIMITS: [u32; 12] =
            [0, 1, 39, 40, 41, 128, 168, 169, PAYLOAD as u32, PAYLOAD as u32 + 1, u32::MAX - 40, u32::MAX];
        match how % 8 {
            0 => LIMITS[usize::from(self.byte()) % LIMITS.len()],
            1 => self.u32(),
            2 => right.wrapping_add(u32::from(self.byte())).wrapping_sub(128),
            _ => right,
        }
    }
}

/// A file system that says yes to everything, and at length.
struct Yes;

impl Yes {
    const NAME: [u8; 255] = [b'n'; 255];

    fn attr(ino: Ino) -> Attr {
        let time = Time { secs: -1, nanos: 999_999_999 };
        let (size, blocks, blksize) = (u64::MAX, u64::MAX, u32::MAX);
        let (mode, nlink, uid, gid, rdev) = (mode::IFREG | 0o6777, u32::MAX, 0, 0, u32::MAX);
        let (atime, mtime, ctime, btime) = (time, time, time, time);
        let (generation, unsettled) = (u64::MAX, true);
        Attr {
            ino,
            generation,
            mode,
            nlink,
            uid,
            gid,
            rdev,
            size,
            blocks,
            blksize,
            atime,
            mtime,
            ctime,
            btime,
            unsettled,
        }
    }

    fn walk(from: u64, mut f: impl FnMut(&DirEntry<'_>) -> bool) {
        let entry = |cookie| DirEntry { ino: Ino(2), file_type: FileType::File, cookie, name: &Yes::NAME };
        let _ = (1..=LONG as u64).all(|n| f(&entry(from.wrapping_add(n))));
    }
}

impl FileSystem for Yes {
    fn root(&self) -> Ino {
        Ino(77)
    }
    fn lookup(&self, _: Ino, _: &[u8]) -> Result<Entry> {
        Ok(Yes::attr(Ino(2)))
    }
    fn forget(&self, _: Ino, _: u64) {}
    fn getattr(&self, ino: Ino) -> Result<Attr> {
        Ok(Yes::attr(ino))
    }
    fn setattr(&self, ino: Ino, _: &SetAttr) -> Result<Attr> {
        Ok(Yes::attr(ino))
    }
    fn readlink(&self, ino: Ino) -> Result<Vec<u8>> {
        Ok(vec![b'/'; if ino.0 == 2 { LONG } else { 4095 }])
    }
    fn mknod(&self, _: &Cx, _: Ino, _: &[u8], _: u32, _: u32) -> Result<Entry> {
        Ok(Yes::attr(Ino(2)))
    }
    fn mkdir(&self, _: &Cx, _: Ino, _: &[u8], _: u32) -> Result<Entry> {
        Ok(Yes::attr(Ino(2)))
    }
    fn symlink(&self, _: &Cx, _: Ino, _: &[u8], _: &[u8]) -> Result<Entry> {
        Ok(Yes::attr(Ino(2)))
    }
    fn tmpfile(&self, _: &Cx, _: Ino, _: u32) -> Result<Entry> {
        Ok(Yes::attr(Ino(2)))
    }
    fn link(&self, ino: Ino, _: Ino, _: &[u8]) -> Result<Entry> {
        Ok(Yes::attr(ino))
    }
    fn unlink(&self, _: Ino, _: &[u8]) -> Result<()> {
        Ok(())
    }
    fn rmdir(&self, _: Ino, _: &[u8]) -> Result<()> {
        Ok(())
    }
    fn rename(&self, _: &Cx, _: Ino, _: &[u8], _: Ino, _: &[u8], _: RenameFlags) -> Result<()> {
        Ok(())
    }
    fn read(&self, _: Ino, _: u64, buf: &mut [u8]) -> Result<usize> {
        buf.fill(b'r');
        Ok(buf.len())
    }
    fn write(&self, _: Ino, _: u64, data: &[u8]) -> Result<usize> {
        Ok(data.len())
    }
    fn readdir(&self, _: Ino, cookie: u64, f: &mut dyn FnMut(&DirEntry<'_>) -> bool) -> Result<()> {
        Yes::walk(cookie, f);
        Ok(())
    }
    fn readdir_plus(
        &self,
        _: Ino,
        cookie: u64,
        f: &mut dyn FnMut(&DirEntry<'_>, Option<&Entry>) -> bool,
    ) -> Result<()> {
        Yes::walk(cookie, |entry| f(entry, (entry.cookie % 3 > 0).then_some(&Yes::attr(entry.ino))));
        Ok(())
    }
    fn fsync(&self, _: Ino, _: bool) -> Result<()> {
        Ok(())
    }
    fn syncfs(&self) -> Result<()> {
        Ok(())
    }
    fn fallocate(&self, _: Ino, _: FallocMode, _: u64, _: u64) -> Result<()> {
        Ok(())
    }
    fn seek(&self, _: Ino, offset: u64, _: Seek) -> Result<u64> {
        Ok(offset)
    }
    fn copy_range(&self, _: Ino, _: u64, _: Ino, _: u64, len: u64) -> Result<u64> {
        Ok(len.min(1 << 20))
    }
    fn create(&self, _: &Cx, _: Ino, _: &[u8], _: &New<'_>) -> Result<Entry> {
        Ok(Yes::attr(Ino(2)))
    }
    fn change(&self, ino: Ino, _: &SetAttr, _: &[XattrChange<'_>]) -> Result<Attr> {
        Ok(Yes::attr(ino))
    }
    fn getxattr(&self, _: Ino, name: &[u8]) -> Result<Vec<u8>> {
        if acl::is_acl(name) {
            let entries = [(1u16, 7u16), (2, 6), (4, 5), (16, 7), (32, 1)];
            let bytes =
                entries.map(|(tag, perm)| [&tag.to_le_bytes()[..], &perm.to_le_bytes(), &[9, 0, 0, 0]].concat());
            return Ok([&2u32.to_le_bytes()[..], &bytes.concat()].concat());
        }
        Ok(vec![b'x'; if name.len() > 8 { LONG } else { PAYLOAD - 1 }])
    }
    fn setxattr(&self, _: Ino, _: &[u8], _: &[u8], _: XattrMode) -> Result<()> {
        Ok(())
    }
    fn listxattr(&self, _: Ino) -> Result<Vec<Vec<u8>>> {
        Ok(vec![Yes::NAME.to_vec(); LONG / Yes::NAME.len()])
    }
    fn removexattr(&self, _: Ino, _: &[u8]) -> Result<()> {
        Ok(())
    }
    fn statfs(&self) -> Result<StatFs> {
        let (frsize, bsize, namelen) = (u32::MAX, u32::MAX, u32::MAX);
        let (blocks, bfree, bavail, files, ffree, fsid) = (u64::MAX, u64::MAX, u64::MAX, u64::MAX, u64::MAX, u64::MAX);
        Ok(StatFs { frsize, bsize, blocks, bfree, bavail, files, ffree, namelen, fsid })
    }
    fn trim(&self, _range: &TrimRange) -> Result<u64> {
        Ok(u64::MAX)
    }
    fn background(&self, now: Time) -> Time {
        now
    }
    fn failure(&self) -> Option<String> {
        None
    }

    fn fail(&self, _why: &str) {}
    fn counters(&self) -> Vec<(&'static str, u64)> {
        vec![("yes", u64::MAX)]
    }
    fn unmount(&self) -> Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// xorshift64*.
    fn random(state: &mut u64) -> u64 {
        *state ^= *state >> 12;
        *state ^= *state << 25;
        *state ^= *state >> 27;
        state.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    #[test]
    fn requests_that_make_no_sense_are_answered() {
        let mut hostile = Hostile::default();
        let mut state = 0x5eed;
        for _ in 0..300_000 {
            let len = random(&mut state) % if random(&mut state).is_multiple_of(16) { 2000 } else { 300 };
            // Small numbers and zeros are what names, sizes and flags are made of.
            let input: Vec<u8> = (0..len)
                .map(|_| random(&mut state))
                .map(|r| if r & 0x300 == 0 { r as u8 } else { (r & 7) as u8 })
                .collect();
            hostile.serve(&input);
        }
        let counters = &hostile.server.counters;
        for op in Op::ALL {
            assert!(counters.requests(op.name()) > 100, "{op:?} was hardly tried");
        }
        assert!(counters.total() > 4 * counters.errors.load(Relaxed) / 3, "most were refused: {:?}", counters.get());
    }
}
