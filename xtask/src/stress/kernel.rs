//! A Linux kernel built on the mount, out of Debian's sources.

use super::process::{Control, lock};
use super::tools::{KERNEL_TARBALL, Queue, Site, Tally};
use super::{Life, Run, Variant, watch};
use crate::show::kit;
use anyhow::{Result, ensure};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant};

const VARIANT: Variant = Variant { name: "kernel", mkfs: "", mount: "", cache_mib: 256.0 };
/// Of each step.
const LIMIT: Duration = Duration::from_secs(3600);

/// A name and a shell script, whose arguments are the tarball and a file on the host.
type Step = (&'static str, &'static str);

const BUILD: [Step; 4] = [
    ("kernel unpacked", "tar -x -f \"$1\" --strip-components=1"),
    ("kernel configured", "make -s tinyconfig"),
    ("kernel built", "make -j2 && test -s vmlinux"),
    ("kernel summed", "find . -type f -print0 | sort -z | xargs -0 sha256sum >\"$2\""),
];

const AFTER_ANOTHER_MOUNT: [Step; 2] = [
    ("kernel as summed", "sha256sum --quiet -c \"$2\""),
    // Wrong times of files would make it build them again.
    ("kernel up to date", "make >\"$2.log\" && ! grep -E '^ +(CC|LD|AS|AR) ' \"$2.log\""),
];

impl Run<'_> {
    /// Builds it on a volume of its own. What was built must be there after another mount, and make
    /// must then find nothing to do.
    pub(super) fn kernel(&mut self) -> Result<()> {
        let life = self.begin(&VARIANT)?;
        self.round += 1;
        self.report.begin(self.round, VARIANT.name);
        println!("round {}: kernel", self.round);
        let sums = self.kit.path("kernel.sums");
        self.steps(&life, &BUILD, &sums)?;
        let volume = self.leave(life)?;
        let life = self.enter(volume)?;
        self.steps(&life, &AFTER_ANOTHER_MOUNT, &sums)?;
        self.settle(&life, None)?;
        self.leave(life).map(drop)
    }

    fn steps(&mut self, life: &Life<'_>, steps: &[Step], sums: &Path) -> Result<()> {
        let dir = life.mount.dir().join("linux");
        std::fs::create_dir_all(&dir)?;
        let (control, tally, queue) = (Control::new(life.mount.pid()), Mutex::new(Tally::default()), Queue::new(0));
        let site = Site {
            control: &control,
            dir: life.mount.dir(),
            host: &self.kit.path(""),
            tally: &tally,
            queue: &queue,
            until: Instant::now() + LIMIT * steps.len() as u32,
            seed: self.seed,
            quick: false,
        };
        let args = [PathBuf::from(KERNEL_TARBALL), sums.to_path_buf()];
        let watched = std::thread::scope(|scope| {
            let working = scope.spawn(|| {
                for (name, script) in steps {
                    let start = Instant::now();
                    let has_passed = site.script(name, &dir, script, &args, LIMIT)?;
                    ensure!(has_passed && control.is_on(), "{name}: failed");
                    println!("  {name}: {:.0} s", start.elapsed().as_secs_f64());
                }
                Ok(())
            });
            let watched = watch(self.round, life, &site, None, LIMIT * steps.len() as u32, || !working.is_finished());
            watched.map(drop).and(working.join().unwrap_or_else(|_| Err(anyhow::anyhow!("a panic"))))
        });
        let tally = std::mem::take(&mut *lock(&tally));
        self.report.row(self.round).count(&tally);
        self.report.total.add(tally);
        kit::go_on()?;
        watched
    }
}
