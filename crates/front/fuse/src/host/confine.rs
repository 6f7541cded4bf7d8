//! What a server gives up that does nothing else than serve.
//!
//! Privileges belong to threads. Those that read an image (workers, the background thread, and the device's, which need
//! none by themselves) keep none; the one that waits and the one that hears signals keep what unmounting takes:
//!
//! | | root's server | a user's |
//! |---|---|---|
//! | core files | none | none |
//! | memory | [`MemoryLimit`] | the same |
//! | new privileges by programs that are run | none | none by the threads that read an image; fusermount3, which unmounts, is set-uid |
//! | capabilities of threads that read an image | none, but for `CAP_DAC_OVERRIDE` where a block device is not root's | it has none |
//! | of the one that reads flags out of callers' memory ([`Looker`]) | `CAP_SYS_PTRACE` | there is none |
//! | of the others | to unmount: `CAP_SYS_ADMIN`, `CAP_DAC_OVERRIDE`, `CAP_DAC_READ_SEARCH` | it has none |

use crate::caller::Caller;
use crate::options::MountConfig;
use arbor_base::vfs;
use rustix::process::{Resource, Rlimit};
use rustix::thread::{CapabilitySet, CapabilitySets};
use std::os::unix::fs::MetadataExt;
use std::sync::mpsc;

/// What the threads of a server keep.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Confinement {
    is_on: bool,
    /// Of those that serve.
    keeps: CapabilitySet,
}

/// Unmounting, and reaching the mount point and a block device wherever they are.
const UNMOUNTING: CapabilitySet =
    CapabilitySet::SYS_ADMIN.union(CapabilitySet::DAC_OVERRIDE).union(CapabilitySet::DAC_READ_SEARCH);

impl Confinement {
    pub(crate) fn of(config: &MountConfig) -> Confinement {
        // It is opened again when the mount is off, by who serves the last request.
        let is_others = |path: &std::path::Path| std::fs::metadata(path).map_or(true, |meta| meta.uid() != 0);
        let devices = config.claims.iter().filter(|claim| claim.block_device().is_some());
        let opens_others = devices.into_iter().any(|claim| is_others(claim.path()));
        let keeps = if opens_others { CapabilitySet::DAC_OVERRIDE } else { CapabilitySet::empty() };
        Confinement { is_on: config.confine, keeps }
    }

    /// For a thread that serves, when it needs no more than that.
    pub(crate) fn serve(self) {
        if self.is_on {
            let _ = rustix::thread::set_no_new_privs(true);
            keep(self.keeps);
        }
    }

    /// For the threads that wait for the end.
    pub(crate) fn wait(self) {
        if self.is_on {
            keep(UNMOUNTING);
        }
    }
}

/// Gives up all capabilities of this thread but those that it has of `some`.
fn keep(some: CapabilitySet) {
    let Ok(has) = rustix::thread::capabilities(None) else { return };
    let sets = CapabilitySets {
        effective: has.effective & some,
        permitted: has.permitted & some,
        inheritable: CapabilitySet::empty(),
    };
    let _ = rustix::thread::set_capabilities(None, sets);
}

/// Looks into callers' memory, which threads that serve may not: root's is seen by who may do all it may. A thread that reads
/// no image, and keeps `CAP_SYS_PTRACE`.
#[derive(Debug)]
pub(crate) struct Looker(mpsc::Sender<Look>);

type Look = (Caller, u64, mpsc::Sender<Option<[u8; 4]>>);

impl Looker {
    /// None if the threads that serve see as much themselves.
    pub(crate) fn start(config: &MountConfig) -> Option<Looker> {
        if !(config.confine && rustix::process::geteuid().is_root()) {
            return None;
        }
        let (ask, asked) = mpsc::channel::<Look>();
        let look = move || {
            keep(CapabilitySet::SYS_PTRACE);
            for (caller, address, answer) in asked {
                let _ = answer.send(caller.memory(address));
            }
        };
        // It ends when nobody is left to ask.
        std::thread::Builder::new().name("arbor-looker".into()).spawn(look).ok()?;
        Some(Looker(ask))
    }

    /// What a caller has in memory.
    pub(crate) fn memory(&self, caller: Caller, address: u64) -> Option<[u8; 4]> {
        let (answer, answered) = mpsc::channel();
        self.0.send((caller, address, answer)).ok()?;
        answered.recv().ok()?
    }
}

/// How much memory (`RLIMIT_DATA`) a server may have: its heap and the stacks of its threads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MemoryLimit {
    /// Four times the cache, 512 MiB, and a quarter of what the machine has. What counts is address space, and the
    /// allocator takes more than thrice the buffers that lie in it; and what the kernel knows of (inodes, open files) the
    /// server has to know as well, so a limit that only a fault reaches grows with the machine.
    #[default]
    Auto,
    /// So many bytes, at least four times the cache and 128 MiB.
    Bytes(u64),
    /// What the process was given.
    Unlimited,
}

/// What a server takes beside its cache when nobody uses it, and room for a few users.
const LEAST_BESIDE_CACHE: u64 = 128 << 20;

impl MemoryLimit {
    /// The limit in bytes, beside a cache of so many. Fails if the cache does not go into it.
    pub fn bytes(self, cache: u64) -> vfs::Result<Option<u64>> {
        let with_cache = |rest: u64| cache.saturating_mul(4).saturating_add(rest);
        let least = with_cache(LEAST_BESIDE_CACHE);
        match self {
            MemoryLimit::Unlimited => Ok(None),
            MemoryLimit::Auto => Ok(Some(with_cache((512 << 20) + memory_of_machine() / 4))),
            MemoryLimit::Bytes(bytes) if bytes < least => {
                let [cache, least] = [cache, least].map(|n| n.div_ceil(1 << 20));
                let why = format!("option memory: with cache={cache}M at least {least}M; a smaller cache needs less");
                Err(vfs::Error::refused(why))
            }
            MemoryLimit::Bytes(bytes) => Ok(Some(bytes)),
        }
    }
}

fn memory_of_machine() -> u64 {
    let info = rustix::system::sysinfo();
    (info.totalram as u64).saturating_mul(u64::from(info.mem_unit))
}

/// For a process that is going to serve and does nothing else, before it opens an image: no core files, in which there
/// would be other people's data, and no more memory than `memory` bytes. And, if it is root's, no new privileges by programs
/// that it runs; other users mount and unmount by one that is set-uid.
pub fn confine_process(memory: Option<u64>) {
    limit(Resource::Core, 0);
    if let Some(memory) = memory {
        limit(Resource::Data, memory);
    }
    if rustix::process::geteuid().is_root() {
        let _ = rustix::thread::set_no_new_privs(true);
    }
}

/// Lowers a limit; one that is lower stays.
fn limit(resource: Resource, most: u64) {
    let most = Some(rustix::process::getrlimit(resource).maximum.map_or(most, |had| had.min(most)));
    let _ = rustix::process::setrlimit(resource, Rlimit { current: most, maximum: most });
}
