//! Reading the structure of a cylinder group: its header, its bitmaps, and what they count.

use crate::format::*;
use arbor_base::layout::U32;
use zerocopy::FromBytes;

/// Calls `f` with the start and the length of each free run in a block of `n` fragments, of which `used` are in use.
pub(crate) fn free_runs(used: u8, n: u32, mut f: impl FnMut(u32, u32)) {
    let mut at = 0;
    while at < n {
        if used >> at & 1 == 1 {
            at += 1;
            continue;
        }
        let len = (at..n).take_while(|i| used >> i & 1 == 0).count() as u32;
        f(at, len);
        at += len;
    }
}

/// Used fragments of block `b` of a group.
pub(crate) fn block_bits(geom: &Geom, cg: &[u8], b: u32) -> u8 {
    let n = geom.block_frags();
    let (at, mask) = bit_place(1 + geom.inode_sectors(), b * n);
    let all = ((1u16 << n) - 1) as u8;
    cg.get(at).map_or(all, |byte| byte >> mask.trailing_zeros() & all)
}

/// Counts what is free in a group, without directories, and the free runs of fragments by length.
pub(crate) fn count(geom: &Geom, cgx: u32, cg: &[u8]) -> (Summary, [U32; 8]) {
    let (n, mut sum, mut frsum) = (geom.block_frags(), (0, 0, 0), [0u32; 8]);
    let (per, blocks, all) = (8 / n, geom.cg_len(cgx) / n, ((1u16 << n) - 1) as u8);
    let first = (1 + geom.inode_sectors()) as usize * SECTOR;
    let bits = cg.get(first..).unwrap_or(&[]).chunks_exact(SECTOR).flat_map(|s| s.iter().take(SECTOR - 4));
    for (b, byte) in (0..blocks).step_by(per as usize).zip(bits) {
        let here = per.min(blocks - b);
        // Most groups of a large volume are empty.
        if *byte == 0 {
            sum.0 += here;
            continue;
        }
        for k in 0..here {
            free_runs(byte >> (k * n) & all, n, |_, len| {
                if len == n {
                    sum.0 += 1;
                } else {
                    sum.1 += len;
                    if let Some(count) = frsum.get_mut(len as usize) {
                        *count += 1;
                    }
                }
            });
        }
    }
    let bytes = (geom.inode_sectors() as usize + 1) * SECTOR;
    let used: u32 = cg
        .get(SECTOR..bytes)
        .unwrap_or(&[])
        .chunks_exact(SECTOR)
        .map(|s| s.iter().take(SECTOR - 4).map(|b| b.count_ones()).sum::<u32>())
        .sum();
    sum.2 = geom.cg_inodes.saturating_sub(used);
    let sum = Summary { nbfree: sum.0.into(), nffree: sum.1.into(), nifree: sum.2.into(), ndir: 0.into() };
    (sum, frsum.map(Into::into))
}

/// The header of a group's structure.
pub(crate) fn header(cg: &[u8]) -> CgHeader {
    CgHeader::read_from_prefix(cg).map(|h| h.0).unwrap_or_default()
}

#[cfg(test)]
#[test]
fn what_is_free_is_counted() {
    for n in [1u32, 2, 4, 8] {
        let blocks = BITMAP_BITS / n + 13;
        let len = blocks * n;
        let geom = Geom {
            block_shift: 12,
            frag_shift: 12 - n.trailing_zeros(),
            cg_count: 1,
            cg_frags: len,
            cg_inodes: 32,
            frags: len,
            fsid: 0,
        };
        let mut cg = vec![0; 4096];
        // Bytes without any, with some and with all, on both sides of the end of a sector.
        for i in (0..len).filter(|i| [0xa5u32, 0, 0xff, 0x18, 0][*i as usize / 8 % 5] >> (i % 8) & 1 == 1) {
            let (at, mask) = bit_place(1 + geom.inode_sectors(), i);
            cg[at] |= mask;
        }
        let (mut whole, mut single, mut runs) = (0, 0, [0u32; 8]);
        for b in 0..blocks {
            free_runs(block_bits(&geom, &cg, b), n, |_, len| match len == n {
                true => whole += 1,
                false => (single, runs[len as usize]) = (single + len, runs[len as usize] + 1),
            });
        }
        let (sum, frsum) = count(&geom, 0, &cg);
        assert!(whole > 0 && (n == 1 || single > 0));
        assert_eq!((sum.nbfree.get(), sum.nffree.get(), frsum.map(|c| c.get())), (whole, single, runs), "{n}");
    }
}
