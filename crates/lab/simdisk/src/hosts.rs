//! Parameters of a host, from a TOML file: what its driver does with requests, and what its processor takes.
//!
//! A file has `name` and `title`, the driver's queue (`max_transfer_kib`, `merge`, `prefer_reads`, `depth`),
//! `dirty_buffers`, whether the disk's write cache is on (`write_cache_kib`), and the processor's charge (`call_us`, `kib_us`, `compare_us`), and whether it sets `access_times`. What is missing is as in
//! [`HostQueue`], unlimited, or nothing.

use crate::host::{HostQueue, Merge};
use serde::Deserialize;

/// The hosts that are built in, each with the source of every parameter.
const SHIPPED: [(&str, &str); 6] = [
    ("linux", include_str!("../hosts/linux.toml")),
    ("freebsd4", include_str!("../hosts/freebsd4.toml")),
    ("decstation", include_str!("../hosts/decstation.toml")),
    ("pentiumpro", include_str!("../hosts/pentiumpro.toml")),
    ("pentium3", include_str!("../hosts/pentium3.toml")),
    ("pentium3-noatime", include_str!("../hosts/pentium3-noatime.toml")),
];

/// A host's parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    /// Its short name.
    pub name: String,
    /// What it is.
    pub title: String,
    /// The driver's queue.
    pub queue: HostQueue,
    /// Most buffers that are dirty before some are written, if they are counted.
    pub dirty_buffers: Option<u32>,
    /// The disk's write cache, bytes, 0 if it is off; `None`: as the disk's model has it.
    pub write_cache_bytes: Option<u64>,
    /// What the processor takes for a call, ns.
    pub call_ns: u64,
    /// For each KiB read or written, ns.
    pub kib_ns: u64,
    /// For each name compared in a linear search, ns.
    pub compare_ns: u64,
    /// Whether what is read gets a new access time, to the second.
    pub access_times: bool,
}

impl Host {
    /// Names of the built-in hosts.
    pub fn known() -> Vec<&'static str> {
        SHIPPED.iter().map(|(name, _)| *name).collect()
    }

    /// A built-in host; the error lists them.
    pub fn named(name: &str) -> Result<Host, String> {
        match SHIPPED.iter().find(|(n, _)| *n == name) {
            Some((_, text)) => Host::parse(text),
            None => Err(format!("no host is named {name:?}; there are {}", Host::known().join(", "))),
        }
    }

    /// Reads a file; the error names the field.
    pub fn parse(text: &str) -> Result<Host, String> {
        let file: File = toml::from_str(text).map_err(|e| e.to_string())?;
        let usual = HostQueue::default();
        let ns = |us: f64, field: &str| match (us * 1000.0).round() {
            ns if (0.0..=1e9).contains(&ns) => Ok(ns as u64),
            _ => Err(format!("{field}: {us} is not from 0 to a second")),
        };
        let queue = HostQueue {
            merge: file.merge.unwrap_or_default(),
            max_transfer_bytes: file.max_transfer_kib.map_or(usual.max_transfer_bytes, |kib| u64::from(kib) << 10),
            prefer_reads: file.prefer_reads.unwrap_or(usual.prefer_reads),
            depth: file.depth.map_or(usual.depth, |n| n.max(1) as usize),
            ..usual
        };
        Ok(Host {
            name: file.name,
            title: file.title,
            queue,
            dirty_buffers: file.dirty_buffers,
            write_cache_bytes: file.write_cache_kib.map(|kib| u64::from(kib) << 10),
            call_ns: ns(file.call_us, "call_us")?,
            kib_ns: ns(file.kib_us, "kib_us")?,
            compare_ns: ns(file.compare_us, "compare_us")?,
            access_times: file.access_times,
        })
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    name: String,
    title: String,
    merge: Option<Merge>,
    max_transfer_kib: Option<u32>,
    prefer_reads: Option<bool>,
    depth: Option<u32>,
    dirty_buffers: Option<u32>,
    write_cache_kib: Option<u32>,
    #[serde(default)]
    call_us: f64,
    #[serde(default)]
    kib_us: f64,
    #[serde(default)]
    compare_us: f64,
    #[serde(default)]
    access_times: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hosts_are_read_and_called_by_their_names() {
        for name in Host::known() {
            let host = Host::named(name).unwrap();
            assert_eq!(host.name, name);
        }
        let linux = Host::named("linux").unwrap();
        assert_eq!((linux.queue, linux.dirty_buffers, linux.call_ns), (HostQueue::default(), None, 0));
        let freebsd = Host::named("freebsd4").unwrap();
        assert_eq!((freebsd.queue.merge, freebsd.dirty_buffers), (Merge::Buffers, Some(390)));
    }

    #[test]
    fn what_is_wrong_in_a_file_is_named() {
        let head = "name = \"a\"\ntitle = \"b\"\n";
        let error = |more: &str| Host::parse(&format!("{head}{more}")).unwrap_err();
        assert!(error("merge = \"all\"").contains("all"), "{}", error("merge = \"all\""));
        assert!(error("tag = 2").contains("tag"));
        assert_eq!(error("call_us = -1.0"), "call_us: -1 is not from 0 to a second");
        assert!(Host::named("vax").unwrap_err().contains("freebsd4"));
    }
}
