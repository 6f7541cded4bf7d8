use super::*;

fn page(index: u64) -> Name {
    Name::data(Ino(7), index)
}

fn change(c: &mut Cache, name: Name, byte: u8) {
    let dirty = c.dirtied(name).unwrap();
    c.modify(dirty, |d| d[0] = byte);
}

fn buf(n: usize) -> Arc<Vec<u8>> {
    Arc::new(vec![0; n])
}

#[test]
fn a_place_is_that_of_one_buffer() {
    let mut c = Cache::new(1 << 20);
    c.insert(page(1), buf(100));
    c.insert(page(2), buf(100));
    let place = c.find(page(1)).unwrap();
    assert!(c.is_at(place, page(1)) && !c.is_at(place, page(2)));
    c.remove(page(1));
    assert!(!c.is_at(place, page(1)), "it was removed");
    c.insert(page(3), buf(100));
    assert!(c.is_at(place, page(3)) && !c.is_at(place, page(1)), "another one took its place");
    assert_eq!((c.stats().hits, c.stats().misses), (3, 0));
}

/// As after as many uses by name.
#[test]
fn a_use_at_a_place_counts() {
    let mut c = Cache::new(10 * weight(1000));
    for i in 0..10 {
        c.insert(page(i), buf(1000));
    }
    let place = c.place(page(0)).unwrap();
    assert!(c.is_at(place, page(0)));
    for i in 10..19 {
        c.insert(page(i), buf(1000));
    }
    assert!(c.contains(page(0)) && !c.contains(page(1)));
}

#[test]
fn stays_within_its_limit_and_resists_scans() {
    let mut c = Cache::new(100 * weight(1000));
    for i in 0..50 {
        c.insert(Name::Block(i), buf(1000));
        c.get(Name::Block(i));
    }
    for i in 0..10_000 {
        c.insert(page(i), buf(1000));
        assert!(c.stats().bytes as usize <= c.limit() + weight(1000));
    }
    assert!((0..50).all(|i| c.contains(Name::Block(i))), "one scan does not evict what was used twice");
}

#[test]
fn what_was_just_inserted_is_there() {
    let mut c = Cache::new(3 * weight(1000));
    for i in 0..100 {
        c.insert(page(i), buf(1000));
        change(&mut c, page(i), 1);
    }
}

#[test]
fn dirty_and_pinned_buffers_stay() {
    let mut c = Cache::new(10 * weight(1000));
    c.insert(Name::Block(1), buf(1000));
    change(&mut c, Name::Block(1), 1);
    c.insert(Name::Block(2), buf(1000));
    c.pin(Name::Block(2));
    for i in 0..100 {
        c.insert(page(i), buf(1000));
    }
    assert!(c.is_dirty(Name::Block(1)) && c.contains(Name::Block(2)));
    c.unpin(Name::Block(2));
    for i in 100..200 {
        c.insert(page(i), buf(1000));
    }
    assert!(!c.contains(Name::Block(2)));
}

#[test]
fn a_write_in_flight_keeps_its_bytes() {
    let mut c = Cache::new(1 << 20);
    c.insert(page(0), buf(4));
    change(&mut c, page(0), 1);
    let flying = c.begin_write(page(0)).unwrap();
    assert!(c.begin_write(page(0)).is_none());
    change(&mut c, page(0), 2);
    assert_eq!(flying.bytes()[0], 1);
    assert!(!c.end_write(flying, true), "it was changed meanwhile");
    let second = c.begin_write(page(0)).unwrap();
    assert_eq!(second.bytes()[0], 2);
    assert!(c.end_write(second, true));
    assert_eq!(c.dirty_bytes(), 0);
    change(&mut c, page(0), 3);
    let third = c.begin_write(page(0)).unwrap();
    assert!(!c.end_write(third, false) && c.is_dirty(page(0)), "a failed write leaves it dirty");
}

#[test]
fn what_was_made_clean_during_a_write_can_be_evicted() {
    let mut c = Cache::new(4 * weight(1000));
    c.insert(page(0), buf(1000));
    change(&mut c, page(0), 1);
    let flying = c.begin_write(page(0)).unwrap();
    change(&mut c, page(0), 2);
    c.set_clean(page(0));
    assert!(c.end_write(flying, false) && !c.is_dirty(page(0)));
    for i in 1..20 {
        c.insert(page(i), buf(1000));
    }
    assert!(!c.contains(page(0)));
}

#[test]
fn a_write_does_not_clean_a_later_buffer_of_the_name() {
    let mut c = Cache::new(1 << 20);
    c.insert(page(0), buf(4));
    change(&mut c, page(0), 1);
    let flying = c.begin_write(page(0)).unwrap();
    c.remove(page(0));
    c.insert(page(0), buf(4));
    change(&mut c, page(0), 2);
    let later = c.begin_write(page(0)).unwrap();
    assert!(c.end_write(flying, true), "that buffer has gone");
    assert!(c.is_dirty(page(0)));
    assert!(c.end_write(later, true) && !c.is_dirty(page(0)));
}

#[test]
fn a_new_address_keeps_a_buffer_dirty_and_counted() {
    let mut c = Cache::new(1 << 20);
    c.insert(Name::Block(1), buf(1000));
    c.insert(Name::Block(2), buf(1000));
    change(&mut c, Name::Block(1), 1);
    let flying = c.begin_write(Name::Block(1)).unwrap();
    assert_eq!(c.readdress(Name::Block(1), Name::Block(2)), Err(Occupied));
    assert_eq!((c.readdress(Name::Block(1), page(5)), c.stats().dirty_page_bytes), (Ok(()), weight(1000) as u64));
    assert!(!c.contains(Name::Block(1)) && c.dirty_pages(Ino(7), 0).eq([5]));
    assert!(!c.end_write(flying, true), "it was written to the old address");
    let again = c.begin_write(page(5)).unwrap();
    assert!(c.end_write(again, true) && !c.is_dirty(page(5)));
    assert_eq!((c.dirty_bytes(), c.stats().dirty_page_bytes), (0, 0));
    c.drop_pages(Ino(7), 0);
    assert!(!c.contains(page(5)));
}

#[test]
fn a_limit_of_dirty_buffers_counts_short_ones_as_parts_of_it() {
    let mut c = Cache::new(4 << 20);
    c.set_dirty_limit(400_000);
    for n in 0..10 {
        c.insert(if n < 4 { Name::Block(n) } else { page(n) }, buf(1000));
        change(&mut c, if n < 4 { Name::Block(n) } else { page(n) }, 1);
    }
    assert_eq!(c.dirty_load(), c.dirty_bytes());
    c.set_dirty_buffers(100);
    assert_eq!((c.dirty_load(), c.dirty_loads(), c.load_of(page(5))), (40_000, (24_000, 16_000), 4_000));
    c.drop_pages(Ino(7), 0);
    assert_eq!((c.dirty_load(), c.load_of(page(5))), (16_000, 0));
    c.set_dirty_buffers(100_000);
    assert_eq!(c.dirty_load(), c.dirty_bytes());
}

#[test]
fn a_held_buffer_is_written_and_stays() {
    let mut c = Cache::new(4 * weight(1000));
    c.insert(Name::Block(1), buf(1000));
    change(&mut c, Name::Block(1), 1);
    c.hold(Name::Block(1));
    let write = c.begin_write(Name::Block(1)).unwrap();
    assert!(c.end_write(write, true));
    for i in 0..20 {
        c.insert(page(i), buf(1000));
    }
    assert!(c.contains(Name::Block(1)) && !c.is_dirty(Name::Block(1)));
    c.release(Name::Block(1));
    for i in 20..40 {
        c.insert(page(i), buf(1000));
    }
    assert!(!c.contains(Name::Block(1)));
}

#[test]
fn a_limit_of_buffers_is_kept_whatever_their_length() {
    let mut c = Cache::new(Limit { bytes: 1 << 30, buffers: 64 });
    for i in 0..1000 {
        c.insert(page(i), buf(1 + i as usize % 5));
        assert!(c.map.len() <= 64);
    }
    assert!((936..1000).all(|i| c.contains(page(i))));
}

#[test]
fn parts_of_files_do_not_mix() {
    let mut c = Cache::new(1 << 20);
    let map = |level, n| Name::File(Ino(7), FileBlock::Map { level, n });
    let parts = [Name::Inode(Ino(7)), Name::File(Ino(7), FileBlock::Xattr(0)), map(2, 0), map(1, 3), page(9)];
    for name in parts {
        c.insert(name, buf(4));
        change(&mut c, name, 1);
    }
    assert!(c.dirty_pages(Ino(7), 0).eq([9]) && c.dirty_map(Ino(7)).eq([(1, 3), (2, 0)]));
    c.drop_pages(Ino(7), 0);
    assert_eq!(parts.iter().filter(|p| c.contains(**p)).count(), 4);
}

#[test]
fn clusters_neighbours() {
    let piece = |at: u64| (at, Kind::Data, Buf::from(vec![0; 512]));
    let out = cluster(vec![piece(1024), piece(0), piece(512), piece(4096)], 1 << 20);
    assert_eq!(out.iter().map(|r| (r.offset, r.len())).collect::<Vec<_>>(), [(0, 1536), (4096, 512)]);
}

#[test]
fn what_a_call_has_read_stays_until_it_ends() {
    let mut c = Cache::new(10_000);
    let name = |i| Name::Block(i);
    c.keep_all(true);
    for i in 0..100 {
        c.insert(name(i), Arc::new(vec![0; 1000]));
    }
    assert!((0..100).all(|i| c.contains(name(i))));
    c.keep_all(false);
    assert!(c.stats().bytes <= 10_000 && c.contains(name(99)) && !c.contains(name(0)));
}

#[test]
fn the_limit_may_be_one_of_clean_buffers() {
    let mut c = Cache::new(10_000);
    c.limit_clean();
    for i in 0..100 {
        c.insert(Name::Block(i), Arc::new(vec![0; 1000]));
        c.dirtied(Name::Block(i)).unwrap();
        c.insert(Name::Block(1000 + i), Arc::new(vec![0; 1000]));
    }
    assert!((0..100).all(|i| c.contains(Name::Block(i))) && c.contains(Name::Block(1099)));
    assert!((0..100).filter(|i| c.contains(Name::Block(1000 + i))).count() <= 10);
}
