//! mount(8) as people use it, with `arbor` as its helper, in a mount namespace where `/usr/sbin` holds nothing but
//! links to it. Needs root, `/dev/fuse` and unshare(1); where they are missing the test says so and does nothing.

#![cfg(target_os = "linux")]

mod common;

use common::root_can_mount_with;
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

const ARBOR: &str = env!("CARGO_BIN_EXE_arbor");
const NOBODY: u32 = 65534;

/// A directory that all may enter, with an image, a mount point, and the links that mount(8) looks for.
struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Place {
        let place = Place(tempfile::tempdir().unwrap());
        fs::set_permissions(place.0.path(), fs::Permissions::from_mode(0o755)).unwrap();
        fs::create_dir(place.path("mnt")).unwrap();
        fs::create_dir(place.path("sbin")).unwrap();
        fs::write(place.path("fstab"), "").unwrap();
        // A copy: others may not be able to enter the directory it was built in.
        fs::copy(ARBOR, place.path("arbor")).unwrap();
        for name in ["mount.arbor", "mount.fuse.arbor", "mount.fuseblk.arbor"] {
            symlink(place.path("arbor"), place.path("sbin").join(name)).unwrap();
        }
        let made = Command::new(ARBOR).args(["mkfs", "-q", "-s", "64M"]).arg(place.path("x.img")).status().unwrap();
        assert!(made.success());
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Runs a script where the links are found, and gives what it says. Its mounts go with its namespace; it has a
    /// minute. In it `options` shows the options of the mount.
    fn run(&self, script: &str) -> String {
        const HEAD: &str = r#"
            set -e
            mount --bind "$PWD/sbin" /usr/sbin
            mount --bind "$PWD/fstab" /etc/fstab
            options() { grep " $PWD/mnt " /proc/self/mountinfo | cut -d' ' -f6; }
            trap '"$PWD/arbor" umount "$PWD/mnt" 2>/dev/null || true' EXIT
        "#;
        let text = format!("{HEAD}\n{script}");
        let out = Command::new("timeout")
            .args(["-k", "5", "60", "unshare", "-m", "sh", "-c", &text])
            .current_dir(self.0.path())
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&out.stdout).into_owned();
        assert!(out.status.success(), "{script}: {said}{}", String::from_utf8_lossy(&out.stderr));
        said
    }
}

fn words(line: &str) -> Vec<&str> {
    line.trim().split(',').collect()
}

#[test]
fn root_gets_what_mount_8_promises() {
    if !root_can_mount_with(&["unshare", "timeout", "mount"]) {
        return;
    }
    let place = Place::new();
    for (given, nosuid, nodev, noexec) in [
        ("defaults", false, false, false),
        ("suid,dev", false, false, false),
        ("nosuid", true, false, false),
        ("nodev,noexec", false, true, true),
        ("user", true, true, true),
        ("user,suid,dev,exec", false, false, false),
        ("owner", true, true, false),
    ] {
        let said = place.run(&format!("mount -t arbor -o {given} $PWD/x.img $PWD/mnt; options; ./arbor umount mnt"));
        let words = words(&said);
        let has = |word| words.contains(&word);
        assert_eq!((has("nosuid"), has("nodev"), has("noexec")), (nosuid, nodev, noexec), "{given}: {said}");
    }
    let direct = place.run("./arbor mount -q x.img mnt; options");
    assert!(words(&direct).contains(&"nosuid") && words(&direct).contains(&"nodev"), "{direct}");
}

#[test]
fn mount_8_changes_a_mount_that_works() {
    if !root_can_mount_with(&["unshare", "timeout", "mount"]) {
        return;
    }
    let place = Place::new();
    let said = place.run(
        r"
        mount -t arbor -o nosuid $PWD/x.img $PWD/mnt; options
        mount -o remount,ro $PWD/mnt; options
        touch mnt/f 2>/dev/null && echo written || echo refused
        mount -o remount,rw,suid $PWD/mnt; options
        touch mnt/f && echo written
        mount -o remount,noatime $PWD/mnt 2>&1 || echo $?
        ./arbor umount mnt
        mount -t fuse.arbor -o ro $PWD/x.img $PWD/mnt; options
        mount -o remount,rw $PWD/mnt 2>&1 || echo $?
        ",
    );
    let lines: Vec<&str> = said.lines().collect();
    let [first, second, refused, third, written, time, time_code, fourth, why, code] = lines.as_slice() else {
        panic!("{said}")
    };
    assert!(words(first).contains(&"rw") && words(first).contains(&"nosuid"), "{said}");
    assert!(words(second).contains(&"ro") && words(second).contains(&"nosuid"), "{said}");
    assert!(words(third).contains(&"rw") && !words(third).contains(&"nosuid"), "{said}");
    assert_eq!((*refused, *written), ("refused", "written"), "{said}");
    assert!(words(fourth).contains(&"ro"), "{said}");
    assert!(why.contains("the volume was opened read-only: unmount it and mount it for writing"), "{said}");
    assert!(time.contains("noatime cannot be changed; unmount, and mount again"), "{said}");
    assert_eq!((*code, *time_code), ("32", "32"), "{said}");
}

/// An open file stands for what the server has still to write.
#[test]
fn mount_8_waits_for_the_server_of_the_last_mount() {
    if !root_can_mount_with(&["timeout", "unshare", "mount", "umount", "grep"]) {
        return;
    }
    let script = r#"
        mount -t arbor "$PWD/x.img" "$PWD/mnt"
        exec 7>"$PWD/mnt/open"
        umount -l "$PWD/mnt"
        mount -v -t arbor "$PWD/x.img" "$PWD/mnt" 7>&- 2>said &
        until grep -q 'waiting for the server' said || ! kill -0 $!; do sleep 0.05; done
        exec 7>&-
        wait $!
        ls "$PWD/mnt"
        ./arbor umount mnt
    "#;
    let said = Place::new().run(script);
    assert!(said.ends_with("open\n"), "{said}");
}

#[test]
fn a_user_whom_fstab_lets_mount_has_no_set_id_bits() {
    if !root_can_mount_with(&["unshare", "timeout", "mount", "setpriv", "fusermount3"]) {
        return;
    }
    let place = Place::new();
    for path in ["x.img", "mnt"] {
        chown(place.path(path), Some(NOBODY), Some(NOBODY)).unwrap();
    }
    let line = |path: &Path| path.display().to_string();
    let (image, dir) = (line(&place.path("x.img")), line(&place.path("mnt")));
    for given in ["user", "user,suid,dev,exec"] {
        fs::write(place.path("fstab"), format!("{image} {dir} arbor {given},noauto 0 0\n")).unwrap();
        // Not everywhere may users open the device.
        let said = place.run(&format!(
            "mknod -m 666 fuse c 10 229 && mount --bind \"$PWD/fuse\" /dev/fuse && rm -f fuse
             as() {{ setpriv --reuid {NOBODY} --regid {NOBODY} --clear-groups env -u XDG_RUNTIME_DIR \"$@\"; }}
             as mount {dir}; options; as fusermount3 -u {dir}"
        ));
        let words = words(&said);
        assert!(words.contains(&"nosuid") && words.contains(&"nodev"), "{given}: {said}");
    }
}
