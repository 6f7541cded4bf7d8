//! Subjects that the command line defines.

use super::subjects::{KNOWN, PEERS, in_words, listed, setup};
use anyhow::{Context, Result, anyhow, bail};
use arbor_bench::measure::try_out;
use arbor_bench::{Extra, Place, Settings, Setup, Subject, System};
use arboretum::device::SECTOR;
use arboretum::vfs::{Engine, Options};

/// What `--subject` and `--with` say.
#[derive(Debug, Default)]
pub(super) struct Asked {
    /// Subjects of the laboratory.
    pub names: Vec<String>,
    /// Others: their names, and what they are.
    pub defined: Vec<(String, Setup<'static>)>,
}

impl Asked {
    /// `subjects` are names, or `NAME=ENGINE:MKFS OPTIONS:MOUNT OPTIONS` each; `with` is `NAME=SUBJECT:OPTIONS` each.
    pub(super) fn new(subjects: &[String], with: &[String]) -> Result<Asked> {
        let mut asked = Asked::default();
        for text in subjects {
            match text.split_once('=') {
                None => asked.names.extend(text.split(',').map(String::from)),
                Some((name, rest)) => asked.define(name, || of_engine(rest))?,
            }
        }
        for text in with {
            let parts = text.split_once('=').and_then(|(name, rest)| Some((name, rest.split_once(':')?)));
            let (name, (of, options)) = parts.ok_or_else(|| anyhow!("{text:?} is not NAME=SUBJECT:OPTIONS"))?;
            asked.define(name, || variant(of, options))?;
        }
        Ok(asked)
    }

    fn define(&mut self, name: &str, made: impl FnOnce() -> Result<Setup<'static>>) -> Result<()> {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.+".contains(c);
        if name.is_empty() || !name.chars().all(is_plain) {
            bail!("subject {name:?}: the name of a new one has letters, digits, '-', '_', '.' and '+' only");
        }
        // Its rows must not pass for those of another.
        let known = KNOWN.iter().map(|k| k.name).chain(PEERS.iter().map(|p| p.name));
        if known.chain(self.defined.iter().map(|(name, _)| &**name)).any(|other| other.eq_ignore_ascii_case(name)) {
            bail!("subject {name}: there is one of this name already; call yours otherwise");
        }
        let setup = made().with_context(|| format!("subject {name}"))?;
        self.defined.push((name.into(), setup));
        Ok(())
    }

    /// The subjects that are defined.
    pub(super) fn subjects(&self) -> impl Iterator<Item = Subject<'static>> {
        let subject = |(name, setup): &(String, Setup<'static>)| Subject {
            name: name.clone(),
            system: System::Engine(setup.clone()),
            setup: Some(in_words(setup)),
        };
        self.defined.iter().map(subject)
    }

    /// Makes and mounts a volume of each, so that wrong values of options are known before the first run.
    pub(super) fn try_out(&self, settings: &Settings) -> Result<()> {
        let one = |(name, setup): &(String, Setup<'static>)| {
            try_out(setup, settings).map_err(|e| anyhow!("subject {name}: {e}"))
        };
        self.defined.iter().try_for_each(one)
    }
}

/// `ENGINE:MKFS OPTIONS:MOUNT OPTIONS`; options may be missing. A further device is given by its size.
fn of_engine(text: &str) -> Result<Setup<'static>> {
    let mut parts = text.splitn(3, ':');
    let [name, format, mount] = std::array::from_fn(|_| parts.next().unwrap_or_default());
    let known = || listed(arboretum::engines().iter().chain(arboretum::examples()).map(|e| e.name()));
    let engine =
        arboretum::engine(name).ok_or_else(|| anyhow!("no engine is called {name:?}; there are {}", known()))?;
    let format = Options::parse(format);
    let extra = further_devices(engine, &format).context("mkfs")?;
    let format =
        Options(format.0.into_iter().filter(|(key, _)| !extra.iter().any(|extra| extra.role == *key)).collect());
    format.check(engine.format_options()).context("mkfs")?;
    engine.check_mount_options(&Options::parse(mount)).context("mount")?;
    Ok(Setup { engine, format: format.to_string(), mount: mount.into(), extra })
}

fn further_devices(engine: &dyn Engine, format: &Options) -> Result<Vec<Extra>> {
    let mut all = Vec::new();
    for role in engine.extra_devices() {
        let Some(value) = format.get(role) else { continue };
        let (size, place) = match value.split_once('@') {
            None => (value, Place::Own),
            Some((size, "start")) => (size, Place::Before),
            Some((size, "end")) => (size, Place::After),
            Some((_, other)) => bail!("option {role}: {other:?} is no place on the disk: write @start or @end"),
        };
        let bytes = Options(vec![(role.to_string(), size.to_string())]).size_from(role, 1)?.unwrap_or_default();
        if place != Place::Own && !bytes.is_multiple_of(SECTOR as u64) {
            bail!("option {role}: {bytes} is not a multiple of {SECTOR} bytes");
        }
        all.push(Extra { role: role.to_string(), bytes, place });
    }
    Ok(all)
}

/// A subject of the laboratory with further options of mount.
fn variant(of: &str, options: &str) -> Result<Setup<'static>> {
    let known = KNOWN.iter().find(|k| k.name.eq_ignore_ascii_case(of));
    let mut setup = setup(known.ok_or_else(|| anyhow!("no subject of an engine is called {of:?}"))?)?;
    setup.mount = format!("{},{options}", setup.mount);
    setup.engine.check_mount_options(&Options::parse(&setup.mount)).context("mount")?;
    Ok(setup)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(subjects: &[&str], with: &[&str]) -> Result<Asked> {
        let owned = |list: &[&str]| list.iter().map(ToString::to_string).collect::<Vec<_>>();
        Asked::new(&owned(subjects), &owned(with))
    }

    fn wrong(subjects: &[&str], with: &[&str]) -> String {
        format!("{:#}", asked(subjects, with).unwrap_err())
    }

    #[test]
    fn a_subject_is_an_engine_with_options() {
        let text = "mine=yfs:block=16K,log=32M,frag=2K:cache=8M,dirty=2M";
        let all = asked(&["yFS-inline,FFS-SU", text, "bare=ffs", "ext4"], &[]).unwrap();
        assert_eq!(all.names, ["yFS-inline", "FFS-SU", "ext4"]);
        let (name, mine) = &all.defined[0];
        assert_eq!((name.as_str(), mine.engine.name()), ("mine", "yfs"));
        assert_eq!((mine.format.as_str(), mine.mount.as_str()), ("block=16K,frag=2K", "cache=8M,dirty=2M"));
        assert_eq!(mine.extra, [Extra { role: "log".into(), bytes: 32 << 20, place: Place::Own }]);
        let words = "yfs, mkfs -o block=16K,frag=2K, mount -o cache=8M,dirty=2M, a log of 32 MiB";
        let setups: Vec<_> = all.subjects().map(|s| s.setup.unwrap()).collect();
        assert_eq!(setups, [words, "ffs"]);
    }

    #[test]
    fn a_further_device_may_lie_beside_the_volume() {
        let all = asked(&["a=yfs:log=8M@start", "b=yfs:log=8M@end"], &[]).unwrap();
        let places: Vec<_> = all.defined.iter().map(|(_, setup)| setup.extra[0].place).collect();
        assert_eq!(places, [Place::Before, Place::After]);
        let setups: Vec<_> = all.subjects().map(|s| s.setup.unwrap()).collect();
        assert_eq!(setups, ["yfs, a log of 8 MiB before the volume", "yfs, a log of 8 MiB after the volume"]);
        assert!(wrong(&["a=yfs:log=8M@here"], &[]).contains("\"here\" is no place on the disk"));
        assert!(wrong(&["a=yfs:log=x@end"], &[]).contains("log"));
        assert!(wrong(&["a=yfs:log=8000001@end"], &[]).contains("not a multiple of 512 bytes"));
    }

    #[test]
    fn the_wrong_part_is_named() {
        for (text, want) in [
            ("a b=yfs", "subject \"a b\": the name of a new one has letters, "),
            ("FFS-SU,mine=yfs", "subject \"FFS-SU,mine\": the name of a new one has letters, "),
            ("ffs-su=yfs", "subject ffs-su: there is one of this name already; call yours otherwise"),
            ("XFS=yfs", "subject XFS: there is one of this name already"),
            ("mine=zfs:a:b", "subject mine: no engine is called \"zfs\"; there are yfs, "),
            ("mine=yfs:blok=16K:", "subject mine: mkfs: unknown option \"blok\""),
            ("mine=yfs:log=much:", "subject mine: mkfs: option log: \"much\" is not a size"),
            ("mine=yfs::cash=8M", "subject mine: mount: unknown option \"cash\""),
        ] {
            let e = wrong(&[text], &[]);
            assert!(e.starts_with(want), "{e}");
        }
        assert!(wrong(&["mine=yfs", "MINE=ffs"], &[]).starts_with("subject MINE: there is one of this name already"));
    }

    #[test]
    fn further_options_make_a_subject() {
        let made = |text: &str| asked(&[], &[text]).map(|all| all.defined[0].1.mount.clone());
        let found = made("Evergreen-mine=evergreen-RELOCATE:modify=overwrite,data=relocate").unwrap();
        assert!(
            found.contains("modify=relocate,") && found.contains("buffers=64,modify=overwrite,data=relocate"),
            "{found}"
        );
        assert_eq!(wrong(&[], &["a=b:c"]), "subject a: no subject of an engine is called \"b\"");
        assert_eq!(wrong(&[], &["FFS-SU"]), "\"FFS-SU\" is not NAME=SUBJECT:OPTIONS");
        assert_eq!(wrong(&[], &["a=FFS-SU:keep=always"]).split(": ").nth(1), Some("mount"));
    }
}
