//! Read-ahead never shows what has been written over.

mod small_cache;

#[test]
fn files_larger_than_the_cache_are_read_as_they_were_written() {
    for seed in 1..=4 {
        assert_eq!(small_cache::run(seed, 6000), None);
    }
}
