use crate::device::*;

#[test]
fn nothing_leaves_the_window() {
    let whole = MemDevice::from_bytes(&[5; 8192]);
    let window = OffsetDevice::new(whole.clone(), 2048, 4096).unwrap();
    assert_eq!(window.geometry().size, 4096);
    window.write_at(Kind::Data, 0, &[6; 4096]).unwrap();

    let batch = vec![
        Request::read(Kind::Data, 3584, 1024),
        Request::read(Kind::Data, 3584, 512),
        Request::write(Kind::Data, 4096, vec![vec![7; 512].into()]),
        Request::discard(Kind::Data, 0, 8192),
        Request::write(Kind::Data, 512, vec![vec![8; 512].into()]),
        Request::write(Kind::Data, u64::MAX - 511, vec![vec![9; 512].into()]),
    ];
    let done = window.submit(batch).wait();
    let ok: Vec<bool> = done.iter().map(Result::is_ok).collect();
    assert_eq!(ok, [false, true, false, false, true, false]);
    assert_eq!(done[1].as_ref().unwrap(), &[6; 512]);
    assert!(window.read_at(Kind::Data, 4096, &mut [0; 512]).is_err());
    assert!(window.write_at(Kind::Data, 4096, &[0; 512]).is_err());

    let mut expected = vec![5; 8192];
    expected[2048..6144].fill(6);
    expected[2560..3072].fill(8);
    assert!(whole.to_bytes() == expected);
}

#[test]
fn bad_windows_are_refused() {
    let open = |start, len| OffsetDevice::new(MemDevice::new(8192), start, len);
    assert!(open(0, 8192).is_ok());
    assert!(open(8192, 0).is_ok());
    assert!(open(512, 8192).is_err());
    assert!(open(u64::MAX - 511, 512).is_err());
    assert!(open(100, 512).is_err());
    assert!(open(512, 100).is_err());
    let error = open(512, 1024).unwrap().set_size(512).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::Unsupported);
    assert_eq!(error.to_string(), "a window of a larger device (offset 512, 1024 bytes) cannot become 512 bytes");
}
