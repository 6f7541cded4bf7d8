//! Parameters of a drive, from a TOML file.
//!
//! A file has `name`, `title` and `capacity_sectors` (of 512 bytes), and one of the tables `[disk]` and `[ssd]`. Times
//! have their unit last in their names; sizes and rates are decimal where makers give them so.

use crate::disk::{Layout, Mechanics, SeekCurve, Zone};
use crate::drive::SECTOR;
use crate::ssd::Used;
use arbor_base::device::Medium;
use serde::Deserialize;

/// The models that are built in, each with the source of every parameter.
const SHIPPED: [(&str, &str); 9] = [
    ("dsp3105", include_str!("../models/dsp3105.toml")),
    ("m2694", include_str!("../models/m2694.toml")),
    ("st39140", include_str!("../models/st39140.toml")),
    ("st34310a", include_str!("../models/st34310a.toml")),
    ("fireballex", include_str!("../models/fireballex.toml")),
    ("hc310", include_str!("../models/hc310.toml")),
    ("mcaqe32g5app", include_str!("../models/mcaqe32g5app.toml")),
    ("870evo", include_str!("../models/870evo.toml")),
    ("980pro", include_str!("../models/980pro.toml")),
];

/// SSDs that begin as used devices; [`Model::used`] makes them.
const USED: [&str; 3] = ["mcaqe32g5app-used", "870evo-used", "980pro-used"];
/// What of a used SSD is modelled, sectors: all units of a terabyte would have to be written twice before each run.
const USED_SECTORS: u64 = (32 << 30) / SECTOR;

/// A drive's parameters.
#[derive(Clone, Debug)]
pub struct Model {
    name: String,
    title: String,
    capacity_bytes: u64,
    pub(crate) kind: Kind,
    /// Of a device that begins used.
    pub(crate) used: Option<Used>,
}

#[derive(Clone, Debug)]
pub(crate) enum Kind {
    Disk(DiskModel),
    Ssd(SsdModel),
}

/// A hard disk, in the units of the simulation.
#[derive(Clone, Debug)]
pub(crate) struct DiskModel {
    pub mechanics: Mechanics,
    pub overhead_ns: u64,
    pub bus_bytes_per_s: u64,
    /// On the outermost track.
    pub media_bytes_per_s: u64,
    pub segments: usize,
    pub segment_bytes: u64,
    pub read_ahead_bytes: u64,
    /// 0: off.
    pub write_cache_bytes: u64,
    pub tags: usize,
    pub shortest_first: bool,
    pub max_age_ns: u64,
}

/// An SSD, in the units of the simulation.
#[derive(Clone, Debug)]
pub(crate) struct SsdModel {
    pub page_bytes: u64,
    pub pages_per_block: u64,
    pub channels: u64,
    pub dies_per_channel: u64,
    pub read_ns: u64,
    pub program_ns: u64,
    pub erase_ns: u64,
    pub channel_bytes_per_s: u64,
    pub link_bytes_per_s: u64,
    /// The controller's time for a command, in which it does nothing else.
    pub command_ns: u64,
    /// What a command takes besides, while others are under way.
    pub latency_ns: u64,
    pub tags: usize,
    pub write_buffer_bytes: u64,
    /// Physical capacity beyond the logical one, as a part of the logical one.
    pub over_provisioning: f64,
    pub mapping: Mapping,
    pub trim: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mapping {
    /// Every unit of so many bytes has its own address.
    Page { unit_bytes: u64 },
    /// Blocks are mapped, and so many of them take the overwrites of one block each.
    Hybrid { log_blocks: usize },
}

impl Model {
    /// Names of the built-in models.
    pub fn shipped() -> Vec<&'static str> {
        SHIPPED.iter().map(|(name, _)| *name).collect()
    }

    /// Those, and the used ones.
    pub fn known() -> Vec<&'static str> {
        Model::shipped().into_iter().chain(USED).collect()
    }

    /// A built-in model, or a used one; the error lists them.
    pub fn named(name: &str) -> Result<Model, String> {
        let found = |name: &str| SHIPPED.iter().find(|(n, _)| *n == name);
        match name.strip_suffix("-used").filter(|_| USED.contains(&name)).and_then(found) {
            Some((_, text)) => Model::parse(text).map(Model::used),
            None => match found(name) {
                Some((_, text)) => Model::parse(text),
                None => Err(format!("no model is named {name:?}; there are {}", Model::known().join(", "))),
            },
        }
    }

    /// Reads a model file; the error names the field.
    pub fn parse(text: &str) -> Result<Model, String> {
        let file: File = toml::from_str(text).map_err(|e| e.to_string())?;
        check(file.capacity_sectors, 1, 1 << 40, "capacity_sectors")?;
        let kind = match (file.disk, file.ssd) {
            (Some(disk), None) => Kind::Disk(disk.checked(file.capacity_sectors).map_err(|e| format!("disk.{e}"))?),
            (None, Some(ssd)) => Kind::Ssd(ssd.checked(file.capacity_sectors).map_err(|e| format!("ssd.{e}"))?),
            _ => return Err("one of the tables [disk] and [ssd] is needed".into()),
        };
        let capacity_bytes = file.capacity_sectors * SECTOR;
        Ok(Model { name: file.name, title: file.title, capacity_bytes, kind, used: None })
    }

    /// The same SSD as it is after some time: all of it was written, and then as much again in pieces of 4 KiB at random
    /// places. Of a large one only 32 GiB are modelled, with as much spare for them. A hard disk is left as it is.
    pub fn used(mut self) -> Model {
        if let Kind::Ssd(_) = &self.kind {
            let whole = self.capacity_bytes;
            self.capacity_bytes = whole.min(USED_SECTORS * SECTOR);
            let part = if self.capacity_bytes < whole { "used, 32 GiB of it" } else { "used" };
            (self.name, self.title) = (format!("{}-used", self.name), format!("{}, {part}", self.title));
            self.used = Some(Used::default());
        }
        self
    }

    /// The same SSD with another count of log blocks, if it has some; at least 1.
    pub fn with_log_blocks(mut self, log_blocks: usize) -> Model {
        if let Kind::Ssd(SsdModel { mapping: Mapping::Hybrid { log_blocks: blocks }, .. }) = &mut self.kind {
            *blocks = log_blocks.max(1);
            self.used = self.used.map(|_| Used::default());
        }
        self
    }

    /// Its short name, such as "st39140".
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What the maker calls it.
    pub fn title(&self) -> &str {
        &self.title
    }

    /// How many bytes it stores.
    pub fn capacity_bytes(&self) -> u64 {
        self.capacity_bytes
    }

    /// Whether it is a hard disk (else an SSD).
    pub fn is_disk(&self) -> bool {
        matches!(self.kind, Kind::Disk(_))
    }

    /// What it is good at, as it tells those that write to it.
    pub fn medium(&self) -> Medium {
        match &self.kind {
            Kind::Disk(_) => Medium::Disk,
            Kind::Ssd(SsdModel { mapping: Mapping::Page { .. }, .. }) => Medium::Pages,
            Kind::Ssd(ssd @ SsdModel { mapping: Mapping::Hybrid { log_blocks }, .. }) => {
                let bytes = ssd.page_bytes * ssd.pages_per_block * ssd.channels * ssd.dies_per_channel;
                let [bytes, open] = [bytes, *log_blocks as u64].map(|n| u32::try_from(n).unwrap_or(u32::MAX));
                Medium::Blocks { bytes, open }
            }
        }
    }

    /// Size of a hard disk's write cache, 0 if it is off; an SSD has none of this kind.
    pub fn write_cache_bytes(&self) -> Option<u64> {
        match &self.kind {
            Kind::Disk(disk) => Some(disk.write_cache_bytes),
            Kind::Ssd(_) => None,
        }
    }

    /// How many requests a hard disk takes at once; of an SSD it cannot be chosen.
    pub fn tags(&self) -> Option<usize> {
        match &self.kind {
            Kind::Disk(disk) => Some(disk.tags),
            Kind::Ssd(_) => None,
        }
    }

    /// The same disk with its write cache on or off; `bytes` is 0 for off. An SSD is left as it is.
    pub fn with_write_cache(mut self, bytes: u64) -> Model {
        if let Kind::Disk(disk) = &mut self.kind {
            disk.write_cache_bytes = bytes;
        }
        self
    }

    /// The same disk with another depth of its tagged queue; at least 1. An SSD is left as it is.
    pub fn with_tags(mut self, tags: usize) -> Model {
        if let Kind::Disk(disk) = &mut self.kind {
            disk.tags = tags.max(1);
        }
        self
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    name: String,
    title: String,
    capacity_sectors: u64,
    disk: Option<DiskFile>,
    ssd: Option<SsdFile>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DiskFile {
    rpm: u32,
    heads: u32,
    /// Cylinders and sectors per track of each zone, from the outer edge.
    zones: Vec<(u32, u32)>,
    /// Seeks of a read: over one cylinder, on average over all pairs, and over all cylinders.
    seek_single_ms: f64,
    seek_average_ms: f64,
    seek_full_ms: f64,
    /// What the seek of a write takes longer.
    write_settle_ms: f64,
    head_switch_ms: f64,
    /// How much later the first sector comes on the next track, of the same cylinder and of the next one.
    track_skew_ms: f64,
    cylinder_skew_ms: f64,
    /// Of each command, in the controller.
    overhead_ms: f64,
    bus_mb_per_s: f64,
    /// The track buffer, and how far one segment is read ahead of the reader.
    segments: usize,
    segment_kib: u64,
    read_ahead_kib: u64,
    /// A track is read from whichever sector comes first.
    zero_latency_reads: bool,
    /// 0: off.
    write_cache_kib: u64,
    /// Commands that the drive takes at once, the order in which it serves them, and when one goes first for its age.
    tags: usize,
    tag_order: TagOrder,
    tag_max_age_ms: f64,
}

#[derive(Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
enum TagOrder {
    Fifo,
    ShortestPositioning,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SsdFile {
    /// What is programmed at once, over all planes of a die.
    page_kib: u64,
    pages_per_block: u64,
    channels: u64,
    dies_per_channel: u64,
    read_us: f64,
    program_us: f64,
    erase_us: f64,
    channel_mb_per_s: f64,
    /// To the host.
    link_mb_per_s: f64,
    /// The controller's time for a command, one after the other, and what a command takes besides.
    command_us: f64,
    latency_us: f64,
    tags: usize,
    /// Completed writes that are not yet in flash; 0: a write is complete when it is in flash.
    write_buffer_kib: u64,
    /// (physical - logical) / logical capacity.
    over_provisioning: f64,
    mapping: MappingFile,
    /// Of page mapping: what has an address of its own.
    unit_kib: Option<u64>,
    /// Of hybrid mapping: blocks that take overwrites.
    log_blocks: Option<usize>,
    trim: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
enum MappingFile {
    Page,
    Hybrid,
}

impl DiskFile {
    fn checked(&self, capacity_sectors: u64) -> Result<DiskModel, String> {
        let rpm = check(self.rpm.into(), 100, 100_000, "rpm")?;
        let heads = check(self.heads.into(), 1, 1000, "heads")? as u32;
        let revolution_ns = 60_000_000_000 / rpm;
        let mechanics = self.mechanics(heads, revolution_ns)?;
        let held = mechanics.layout.sectors();
        if held < capacity_sectors {
            return Err(format!("zones: hold {held} sectors, but capacity_sectors is {capacity_sectors}"));
        }
        let segment_kib = check(self.segment_kib, 0, 1 << 30, "segment_kib")?;
        Ok(DiskModel {
            media_bytes_per_s: u64::from(self.zones[0].1) * SECTOR * rpm / 60,
            mechanics,
            overhead_ns: ms(self.overhead_ms, "overhead_ms")?,
            bus_bytes_per_s: rate(self.bus_mb_per_s, "bus_mb_per_s")?,
            segments: check(self.segments as u64, 0, 1024, "segments")? as usize,
            segment_bytes: segment_kib << 10,
            read_ahead_bytes: check(self.read_ahead_kib, 0, segment_kib, "read_ahead_kib")? << 10,
            write_cache_bytes: check(self.write_cache_kib, 0, 1 << 30, "write_cache_kib")? << 10,
            tags: check(self.tags as u64, 1, 65_536, "tags")? as usize,
            shortest_first: self.tag_order == TagOrder::ShortestPositioning,
            max_age_ns: ms(self.tag_max_age_ms, "tag_max_age_ms")?,
        })
    }

    fn mechanics(&self, heads: u32, revolution_ns: u64) -> Result<Mechanics, String> {
        let mut zones = Vec::with_capacity(self.zones.len());
        for (cylinders, sectors_per_track) in &self.zones {
            let cylinders = check((*cylinders).into(), 1, 1 << 24, "zones: cylinders")? as u32;
            let sectors_per_track = check((*sectors_per_track).into(), 1, 1 << 16, "zones: sectors per track")? as u32;
            zones.push(Zone { cylinders, sectors_per_track });
        }
        if zones.is_empty() || zones.len() > 1000 {
            return Err(format!("zones: must be 1 to 1000, not {}", zones.len()));
        }
        let (track_skew_ns, cylinder_skew_ns) =
            (ms(self.track_skew_ms, "track_skew_ms")?, ms(self.cylinder_skew_ms, "cylinder_skew_ms")?);
        let layout = Layout::new(&zones, heads, revolution_ns, track_skew_ns, cylinder_skew_ns);
        let (single, average, full) = (self.seek_single_ms, self.seek_average_ms, self.seek_full_ms);
        for (value, name) in [(single, "seek_single_ms"), (average, "seek_average_ms"), (full, "seek_full_ms")] {
            ms(value, name)?;
        }
        let seek = SeekCurve::fit(layout.cylinders(), single, average, full)?;
        Ok(Mechanics {
            layout,
            seek,
            head_switch_ns: ms(self.head_switch_ms, "head_switch_ms")?,
            write_settle_ns: ms(self.write_settle_ms, "write_settle_ms")?,
            zero_latency: self.zero_latency_reads,
        })
    }
}

impl SsdFile {
    fn checked(&self, capacity_sectors: u64) -> Result<SsdModel, String> {
        let page_bytes = check(self.page_kib, 1, 1024, "page_kib")? << 10;
        let mapping = self.mapping(page_bytes)?;
        if !(0.0..=10.0).contains(&self.over_provisioning) {
            return Err(format!("over_provisioning: must be 0 to 10, not {}", self.over_provisioning));
        }
        let model = SsdModel {
            page_bytes,
            pages_per_block: check(self.pages_per_block, 2, 1 << 16, "pages_per_block")?,
            channels: check(self.channels, 1, 256, "channels")?,
            dies_per_channel: check(self.dies_per_channel, 1, 256, "dies_per_channel")?,
            read_ns: us(self.read_us, "read_us")?,
            program_ns: us(self.program_us, "program_us")?,
            erase_ns: us(self.erase_us, "erase_us")?,
            channel_bytes_per_s: rate(self.channel_mb_per_s, "channel_mb_per_s")?,
            link_bytes_per_s: rate(self.link_mb_per_s, "link_mb_per_s")?,
            command_ns: us(self.command_us, "command_us")?,
            latency_ns: us(self.latency_us, "latency_us")?,
            tags: check(self.tags as u64, 1, 65_536, "tags")? as usize,
            write_buffer_bytes: check(self.write_buffer_kib, 0, 1 << 24, "write_buffer_kib")? << 10,
            over_provisioning: self.over_provisioning,
            mapping,
            trim: self.trim,
        };
        crate::ssd::check_size(&model, capacity_sectors * SECTOR)?;
        Ok(model)
    }

    fn mapping(&self, page_bytes: u64) -> Result<Mapping, String> {
        match (&self.mapping, self.unit_kib, self.log_blocks) {
            (MappingFile::Page, Some(unit), None) => {
                let unit_bytes = check(unit, 1, self.page_kib, "unit_kib")? << 10;
                if !page_bytes.is_multiple_of(unit_bytes) {
                    return Err("unit_kib: must divide page_kib".into());
                }
                Ok(Mapping::Page { unit_bytes })
            }
            (MappingFile::Hybrid, None, Some(log_blocks)) => {
                Ok(Mapping::Hybrid { log_blocks: check(log_blocks as u64, 1, 1 << 20, "log_blocks")? as usize })
            }
            (MappingFile::Page, ..) => Err("unit_kib: needed, and log_blocks not, if mapping is \"page\"".into()),
            (MappingFile::Hybrid, ..) => Err("log_blocks: needed, and unit_kib not, if mapping is \"hybrid\"".into()),
        }
    }
}

fn check(value: u64, least: u64, most: u64, field: &str) -> Result<u64, String> {
    if (least..=most).contains(&value) {
        Ok(value)
    } else {
        Err(format!("{field}: must be {least} to {most}, not {value}"))
    }
}

fn ms(value: f64, field: &str) -> Result<u64, String> {
    bounded(value, 1e6, field).map(|ms| (ms * 1e6) as u64)
}

fn us(value: f64, field: &str) -> Result<u64, String> {
    bounded(value, 1e9, field).map(|us| (us * 1e3) as u64)
}

/// Megabytes a second in bytes a second.
fn rate(value: f64, field: &str) -> Result<u64, String> {
    let bytes = bounded(value, 1e7, field)? * 1e6;
    if bytes < 1.0 { Err(format!("{field}: must be above 0")) } else { Ok(bytes as u64) }
}

fn bounded(value: f64, most: f64, field: &str) -> Result<f64, String> {
    if (0.0..=most).contains(&value) { Ok(value) } else { Err(format!("{field}: must be 0 to {most}, not {value}")) }
}
