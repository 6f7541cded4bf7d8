use arbor_plain::Plain;
use arbor_torture::damage::*;
use arbor_base::vfs::*;
use arbor_base::device::*;
#[test]
fn line() {
    let Ok(line) = std::env::var("LINE") else { return };
    if let Err(e) = arbor_torture::machine::repeat(&Plain, &line) { panic!("{e}"); }
}
#[test]
fn t() {
    let dev = format(&Plain, 64 << 20, "");
    let rec = RecordingDevice::new(dev);
    let fs = mount(&Plain, rec.clone());
    println!("mounted {}", rec.events());
    fs.mkdir(&Cx{uid:0,gid:0}, fs.root(), b"d0", 0o755).unwrap();
    println!("mkdir {}", rec.events());
    for at in 0..=rec.events() {
        for n in 0..3 {
        let img = rec.crash_state(at, &CrashChoice::DropOne(n));
        let a = check(&Plain, img.snapshot(), Repair::No);
        if !a.issues.is_empty() { println!("{at} {n} {:#?}", a.issues); }
        let fs = mount(&Plain, img.clone());
        let names = tree(&Plain, &{fs.unmount().unwrap(); img.clone()});
        let b = check(&Plain, img.snapshot(), Repair::No);
        if !b.issues.is_empty() { println!("{at} {n} after: {:#?}", b.issues); }
        println!("{at} {n} {:?}", names.keys());
        }
    }
}
