//! Counters of device I/O that every volume keeps.

/// Requests and bytes since the mount.
#[derive(Clone, Copy, Debug, Default)]
pub struct Io {
    /// Flushes of the device.
    pub flushes: u64,
    /// Read requests.
    pub reads: u64,
    /// Bytes of them.
    pub read_bytes: u64,
    /// Write requests.
    pub writes: u64,
    /// Bytes of them.
    pub write_bytes: u64,
}

impl Io {
    /// Counts a read of `len` bytes.
    pub fn count_read(&mut self, len: usize) {
        self.reads += 1;
        self.read_bytes += len as u64;
    }

    /// The counters with their names.
    pub fn named(&self) -> [(&'static str, u64); 5] {
        [
            ("flushes", self.flushes),
            ("reads", self.reads),
            ("read_bytes", self.read_bytes),
            ("writes", self.writes),
            ("write_bytes", self.write_bytes),
        ]
    }
}
