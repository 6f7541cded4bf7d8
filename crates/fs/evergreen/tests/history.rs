//! Older commits, mounted and compared with what the tree was then.

mod damage_kit;
mod history_kit;

use arbor_base::device::MemDevice;
use arbor_base::vfs::*;
use arbor_evergreen::Evergreen;
use arbor_evergreen::format::{IN_USE, byte};
use arbor_torture::damage::{self, bytes, codes};
use damage_kit::ImageCorruptor;
use history_kit::*;

#[test]
fn older_commits_are_as_they_were() {
    let (dev, trees) = lives(6 << 20, &[RETAIN, RETAIN]);
    let there = compare(&dev, &trees);
    assert!(there.len() >= RETAINED, "{there:?}");
    assert!(codes(&damage::check(&Evergreen, dev, Repair::No)).is_empty());
}

#[test]
fn a_tight_volume_keeps_them_too() {
    let (dev, trees) = lives(TIGHT, &[RETAIN]);
    assert!(compare(&dev, &trees).len() >= RETAINED);
}

/// An unmount commits twice, and the second commit takes no other's place.
#[test]
fn an_unmount_takes_no_place_of_a_commit() {
    let dev = damage::format(&Evergreen, 16 << 20, "stride=16");
    let fs = mount(&dev, "retain=2", false).expect("mount");
    for name in ["a", "b", "c"] {
        put(&*fs, name, name.as_bytes());
        fs.syncfs().expect("syncfs");
    }
    fs.unmount().expect("unmount");
    drop(fs);
    let names = |seq: u64| {
        let fs = mount(&dev, &format!("commit_at={seq}"), true).ok()?;
        Some(
            ["a", "b", "c"]
                .into_iter()
                .filter(|name| fs.lookup(fs.root(), name.as_bytes()).is_ok())
                .collect::<String>(),
        )
    };
    let last = newest(&dev);
    assert_eq!(
        [last - 3, last - 2, last - 1, last].map(names),
        [None, Some("ab".into()), Some("abc".into()), Some("abc".into())]
    );
}

/// Without `retain` only the newest one is there, also if there were others before.
#[test]
fn commits_that_are_not_retained_are_gone() {
    for mounts in [["", ""], [RETAIN, ""]] {
        let (dev, trees) = lives(6 << 20, &mounts);
        assert_eq!(compare(&dev, &trees).len(), 1, "{mounts:?}");
        assert!(codes(&damage::check(&Evergreen, dev, Repair::No)).is_empty());
    }
}

/// A mount that overwrites gives older commits up with its first commit, and not before that is durable.
#[test]
fn older_commits_are_spared_until_they_are_given_up() {
    for options in ["modify=overwrite", "modify=overwrite,redo=none", "modify=adaptive,run=32000"] {
        let (dev, trees) = lives(6 << 20, &[RETAIN]);
        let before = newest(&dev);
        let fs = mount(&dev, options, false).expect("mount");
        (0..13).for_each(|n| put(&*fs, &format!("f{n}"), &bytes(2000, 7777)));
        fs.syncfs().expect("syncfs");
        // As if the power had failed before the master block.
        let image = dev.snapshot();
        let k = ImageCorruptor::new(image.clone());
        k.write(byte(k.at), &[0; 4096]);
        if options.contains("none") {
            // What such a mount leaves is the checker's business; here only blocks count.
            k.superblock(0, |sb| sb.clean = IN_USE.into());
        }
        for seq in before + 1 - RETAINED as u64..before {
            let old =
                mount(&image, &format!("commit_at={seq}"), true).unwrap_or_else(|e| panic!("{options}: {seq}: {e}"));
            assert_eq!(Some(&damage::tree_in(&*old)), trees.get(&seq), "{options}: commit {seq}");
        }
    }
}

/// Of a volume that was unmounted and whose newest master block is damaged, the commits before can still be looked at.
#[test]
fn without_the_newest_those_before_it_are_there() {
    let (dev, trees) = lives(6 << 20, &[RETAIN]);
    let (last, k) = (newest(&dev), ImageCorruptor::new(dev.clone()));
    k.flip(byte(k.at) + 900);
    let image = damage::read(&dev, 0, 6 << 20);
    let said = mount(&dev, "", true).err().expect("refused").to_string();
    assert!(said.contains("damaged master block"), "{said}");
    let info = Evergreen.probe(&dev).expect("probe").expect("a volume");
    assert!(info.facts.iter().any(|(key, value)| *key == "commits" && value.contains("damaged")), "{:?}", info.facts);
    for seq in last + 1 - RETAINED as u64..last {
        let fs = mount(&dev, &format!("commit_at={seq}"), true).unwrap_or_else(|e| panic!("commit {seq}: {e}"));
        assert_eq!(Some(&damage::tree_in(&*fs)), trees.get(&seq), "commit {seq}");
    }
    let said = mount(&dev, &format!("commit_at={last}"), true).err().expect("refused").to_string();
    assert!(said.contains(&format!("there is no commit {last}, ")), "{said}");
    assert_eq!(damage::read(&dev, 0, 6 << 20), image, "nothing was written");
}

/// The superblock leads to the commit before: what a repair takes can be mounted.
#[test]
fn a_newer_commit_than_the_superblock_knows_is_there() {
    let (dev, trees) = lives(6 << 20, &[RETAIN]);
    let k = ImageCorruptor::new(dev.clone());
    let masters = k.masters();
    k.superblock(0, |sb| sb.master = masters[masters.len() - 2].1.into());
    let report = damage::check(&Evergreen, dev.clone(), Repair::No);
    let last = newest(&dev);
    assert!(report.issues[0].text.contains(&format!("-o ro,commit_at={last} ")), "{:?}", report.issues);
    for seq in [last, last - 1, last - 5] {
        let fs = mount(&dev, &format!("commit_at={seq}"), true).unwrap_or_else(|e| panic!("commit {seq}: {e}"));
        assert_eq!(Some(&damage::tree_in(&*fs)), trees.get(&seq), "commit {seq}");
    }
    let said = mount(&dev, &format!("commit_at={}", last + 1), true).err().expect("refused").to_string();
    assert!(said.contains(&format!("there is no commit {}, ", last + 1)), "{said}");
}

#[test]
fn what_cannot_be_mounted_says_why() {
    let (dev, _) = lives(6 << 20, &[RETAIN, RETAIN]);
    let said = |options: &str, read_only| mount(&dev, options, read_only).err().expect("refused").to_string();
    assert!(said("commit_at=9999", true).contains("option commit_at: there is no commit 9999, "));
    assert!(said("commit_at=1", true).contains("there is no commit 1 any more"));
    assert!(said("commit_at=20", false).contains("read-only"));
    assert!(said("retain=2,modify=overwrite", false).contains("option retain: "));
    assert!(said("retain=1000", false).contains("option retain: this volume can keep at most "));
}

/// Space that older commits have is not counted as free, and comes back once they are given up.
#[test]
fn what_older_commits_have_is_not_free() {
    let dev = damage::format(&Evergreen, 16 << 20, "stride=16");
    let fs = mount(&dev, "retain=4", false).expect("mount");
    let empty = fs.statfs().expect("statfs").bfree;
    put(&*fs, "a", &[7; 4 << 20]);
    fs.syncfs().expect("syncfs");
    fs.unlink(fs.root(), b"a").expect("unlink");
    fs.syncfs().expect("syncfs");
    assert!(fs.statfs().expect("statfs").bfree + 1000 < empty, "the commit before has it");
    for n in 0..5 {
        put(&*fs, "b", &[n; 10]);
        fs.syncfs().expect("syncfs");
    }
    assert!(fs.statfs().expect("statfs").bfree + 100 > empty);
}

#[test]
fn a_lost_commit_is_told() {
    let (dev, _) = lives(6 << 20, &[RETAIN, RETAIN]);
    let k = ImageCorruptor::new(dev.clone());
    let masters = k.masters();
    k.write(byte(masters[masters.len() - 3].1), &[0; 4096]);
    assert_eq!(codes(&damage::check(&Evergreen, dev.clone(), Repair::No)), ["History"]);
    let image: MemDevice = dev.snapshot();
    mount(&image, "", false).expect("mount").unmount().expect("unmount");
    assert!(damage::check(&Evergreen, dev.clone(), Repair::Preen).issues.iter().all(|i| i.repaired));
    assert!(codes(&damage::check(&Evergreen, dev, Repair::No)).is_empty());
}
