//! Requests by hand to a file system in memory.

use super::*;
use arbor_base::device::{Device, FileDevice, OpenMode};
use arbor_base::vfs::mode;
use memfs::MemFs;
use zerocopy::FromZeros;

fn server() -> (Arc<MemFs>, Server) {
    server_of(MINOR)
}

fn server_of(minor: u32) -> (Arc<MemFs>, Server) {
    let fs = Arc::new(MemFs::new());
    let agreed = Agreed { flags: InitFlags::all(), xattrs: true, minor };
    let server = Server::new(fs.clone(), &MountConfig::default(), agreed, Arc::new(Counters::new()));
    (fs, server)
}

fn ask(server: &Server, op: u32, args: &[u8], out: &mut [u8]) -> (i32, Reply) {
    let head = InHeader {
        len: (size_of::<InHeader>() + args.len()) as u32,
        opcode: op,
        unique: 2,
        nodeid: ROOT_NODE,
        uid: 0,
        gid: 0,
        pid: 1,
        total_extlen: 0,
        padding: 0,
    };
    let (len, reply) = server.serve(&head, args, out);
    let error = OutHeader::read_from_prefix(out).map_or(0, |(h, _)| h.error);
    (if len == 0 { 0 } else { error }, reply)
}

#[test]
fn truncated_requests_are_errors() {
    let (_, server) = server();
    let mut out = vec![0; 1 << 16];
    for op in 0..64 {
        for len in 0..100 {
            let (error, _) = ask(&server, op, &vec![0; len], &mut out);
            assert!((-511..=0).contains(&error), "{op} {len}: {error}");
        }
    }
    assert_eq!(server.counters.panics.load(Relaxed), 0);
}

#[test]
fn what_does_not_arrive_is_not_counted() {
    let (fs, server) = server();
    let mut out = vec![0; 1 << 16];
    let mut mknod = vec![0; size_of::<MknodIn>()];
    mknod[..4].copy_from_slice(&(mode::IFREG | 0o644).to_ne_bytes());
    for name in [&b"a\0"[..], b"bb\0", b"a-longer-name\0"] {
        let (error, reply) = ask(&server, Op::Mknod as u32, &[&mknod, name].concat(), &mut out);
        assert_eq!(error, 0);
        server.undelivered(&reply, &out[OUT_HEAD..]);
    }
    assert_eq!(fs.lookups(), 1);
    let mut readdir = ReadIn::new_zeroed();
    readdir.size = 4096;
    let (_, reply) = ask(&server, Op::Readdirplus as u32, readdir.as_bytes(), &mut out);
    assert_eq!(fs.lookups(), 4);
    server.undelivered(&reply, &out[OUT_HEAD..]);
    assert_eq!(fs.lookups(), 1);
    let (_, reply) = ask(&server, Op::Lookup as u32, b"bb\0", &mut out);
    assert_eq!(fs.lookups(), 2);
    server.undelivered(&reply, &out[OUT_HEAD..]);
    assert_eq!(fs.lookups(), 1);
}

#[test]
fn flags_are_carried_where_the_kernel_checks_who_asks() {
    let mut out = vec![0; 1 << 16];
    for (minor, is_carried) in [(31, false), (33, false), (34, true), (MINOR, true)] {
        let (_, server) = server_of(minor);
        for cmd in [GETFLAGS, FSGETXATTR, SETFLAGS, FSSETXATTR] {
            let input = [0u8; 64];
            let what = IoctlIn { cmd, in_size: input.len() as u32, ..IoctlIn::new_zeroed() };
            let (error, _) = ask(&server, Op::Ioctl as u32, &[what.as_bytes(), &input].concat(), &mut out);
            assert_eq!(error != -25, is_carried, "{minor} {cmd:#x}: {error}");
        }
    }
}

#[test]
fn what_is_shut_down_is_not_unmounted() {
    let (fs, server) = server();
    server.gate.shut();
    server.unmount().unwrap();
    assert!(!fs.unmounted.load(Relaxed));
    let (fs, server) = self::server();
    server.unmount().unwrap();
    assert!(fs.unmounted.load(Relaxed));
}

#[test]
fn an_image_is_free_when_the_kernel_hears_of_the_end() {
    let file = tempfile::NamedTempFile::new().unwrap();
    file.as_file().set_len(1 << 20).unwrap();
    let open = || FileDevice::open(file.path(), OpenMode::ReadWrite);
    let device = open().unwrap();
    let config = MountConfig { claims: device.claim().into_iter().collect(), ..MountConfig::default() };
    let agreed = Agreed { flags: InitFlags::all(), xattrs: true, minor: MINOR };
    let server = Server::new(Arc::new(MemFs::new()), &config, agreed, Arc::new(Counters::new()));
    assert!(open().is_err());
    assert_eq!(ask(&server, Op::Destroy as u32, &[], &mut [0; 4096]).0, 0);
    open().expect("it is free");
}

#[test]
fn a_panic_at_the_end_is_an_error() {
    let (fs, server) = server();
    fs.panics.store(true, Relaxed);
    server.atimes.read(server.root, true);
    assert_eq!(server.unmount().unwrap_err().errno(), Errno::EIO);
    assert_eq!(server.counters.panics.load(Relaxed), 1);
}

#[test]
fn the_root_and_inode_one_change_places() {
    let (_, server) = server();
    assert_eq!(server.ino(ROOT_NODE), server.root);
    assert_eq!(server.ino(server.root.0), Ino(1));
    for n in [1, 2, 77, 78] {
        assert_eq!(server.ino(server.node(Ino(n))), Ino(n));
    }
}
