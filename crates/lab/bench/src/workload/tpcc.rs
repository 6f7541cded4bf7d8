//! TPC-C (Transaction Processing Performance Council) as the DualFS paper ran it: TPCC-UVA on PostgreSQL with three warehouses,
//! half an hour of warming up and two hours that are measured. It is what that asks of a file system.
//!
//! 30 terminals, which wait between transactions as the standard says, make a transaction every 0.7 s; here one program makes
//! all of them, one after the other, so that the time of a transaction is added to its waiting. 45 of 100 are new orders, 43
//! payments, 4 each look at orders, deliver, and look at the stock. Customers and items are chosen unevenly (NURand).
//!
//! Of the data base are assumed: pages of 8 KiB, of which it keeps 1,000 in a cache of its own; a log in files of 16 MiB that
//! are written over in turn, made durable by each transaction that changes something; the first change of a page after a
//! checkpoint writes all of it to the log; a checkpoint every five minutes writes all changed pages, and makes the files durable.
//! Records are changed where they are. Rows of a page, of indexes too, are counted from the sizes of the standard.

use super::tpcb::Lru;
use crate::draw::unit;
use crate::op::{Dir, Op, Program};
use arbor_torture::rng::Rng;
use rustc_hash::FxHashSet;
use std::collections::BTreeSet;

const PAGE: u64 = 8 << 10;
const WAREHOUSES: u64 = 3;
/// Pages in the data base's own cache.
const CACHED: usize = 1000;
/// Time between two transactions on average, ns.
const GAP_NS: f64 = 0.7e9;
const CHECKPOINT_NS: u64 = 300_000_000_000;
const LOG_FILES: u32 = 8;
const LOG_FILE_BYTES: u64 = 16 << 20;
/// What a change adds to the log beside the page, bytes.
const LOG_RECORD_BYTES: u64 = 300;

/// A table or an index: its file, rows of a page, rows.
#[derive(Clone, Copy)]
struct Table {
    name: &'static str,
    per_page: u64,
    rows: u64,
}

const fn table(name: &'static str, per_page: u64, rows_of_warehouse: u64) -> Table {
    Table { name, per_page, rows: rows_of_warehouse * WAREHOUSES }
}

const TABLES: [Table; 13] = [
    table("warehouse", 80, 1),
    table("district", 75, 10),
    table("customer", 12, 30_000),
    table("history", 120, 30_000),
    table("orders", 180, 30_000),
    table("new_order", 250, 9_000),
    table("order_line", 110, 300_000),
    table("stock", 25, 100_000),
    Table { name: "item", per_page: 80, rows: 100_000 },
    table("customer_pkey", 300, 30_000),
    table("orders_pkey", 300, 30_000),
    table("order_line_pkey", 300, 300_000),
    table("stock_pkey", 300, 100_000),
];
const WAREHOUSE: usize = 0;
const DISTRICT: usize = 1;
const CUSTOMER: usize = 2;
const HISTORY: usize = 3;
const ORDERS: usize = 4;
const NEW_ORDER: usize = 5;
const ORDER_LINE: usize = 6;
const STOCK: usize = 7;
const ITEM: usize = 8;
const CUSTOMER_INDEX: usize = 9;
const ORDERS_INDEX: usize = 10;
const ORDER_LINE_INDEX: usize = 11;
const STOCK_INDEX: usize = 12;

/// The data base, and for how long it is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TpcC {
    /// Transactions before the measurement.
    pub warm_up: u64,
    /// Transactions that are measured.
    pub transactions: u64,
}

impl TpcC {
    /// The paper's times, divided.
    pub fn divided_by(divisor: u32) -> TpcC {
        let of = |seconds: u64| (seconds * 10 / 7).div_ceil(divisor.into());
        TpcC { warm_up: of(30 * 60), transactions: of(2 * 60 * 60) }
    }

    /// Makes the program.
    pub fn program(&self, seed: u64) -> Box<dyn Program> {
        let rows = TABLES.map(|t| t.rows);
        let cache = Lru::new(CACHED);
        let (dirty, imaged) = (BTreeSet::new(), FxHashSet::default());
        let run = Run { spec: *self, rng: Rng::new(seed), cache, dirty, imaged, rows, log: 0, ns: 0, done: None };
        Box::new(run)
    }
}

struct Run {
    spec: TpcC,
    rng: Rng,
    cache: Lru,
    /// Changed pages in the cache: table and page.
    dirty: BTreeSet<u64>,
    /// Pages that the log has since the last checkpoint.
    imaged: FxHashSet<u64>,
    /// Rows of each table now.
    rows: [u64; TABLES.len()],
    /// Bytes of the log.
    log: u64,
    /// Time that was waited.
    ns: u64,
    /// Transactions done; `None` before the data base is loaded.
    done: Option<u64>,
}

/// A page of a table as one number.
fn page(table: usize, row: u64) -> u64 {
    ((table as u64) << 32) | (row / TABLES[table].per_page)
}

fn log_name(n: u32) -> String {
    format!("log{n}")
}

impl Run {
    fn load(out: &mut Vec<Op>) {
        let dir = Dir::ROOT;
        out.push(Op::Phase("load"));
        for t in TABLES {
            let len = t.rows.div_ceil(t.per_page) * PAGE;
            out.push(Op::Create { dir, name: t.name.into() });
            out.extend([Op::Write { offset: 0, len, io: PAGE as u32, tag: len }, Op::Fsync, Op::Close]);
        }
        for n in 0..LOG_FILES {
            out.push(Op::Create { dir, name: log_name(n) });
            out.extend([Op::Write { offset: 0, len: LOG_FILE_BYTES, io: PAGE as u32, tag: 0 }, Op::Fsync, Op::Close]);
        }
        out.extend([Op::Remount, Op::Phase("warm-up")]);
        let names = TABLES.iter().map(|t| t.name.to_string()).chain((0..LOG_FILES).map(log_name));
        for (file, name) in (0..).zip(names) {
            out.extend([Op::Use { file }, Op::Open { dir, name }]);
        }
    }

    /// Reads the page of a row; changes it if told to.
    fn touch(&mut self, out: &mut Vec<Op>, (table, row): (usize, u64), changes: bool) -> u64 {
        let page = page(table, row);
        let (is_read, leaves) = self.cache.touch(page);
        if let Some(left) = leaves.filter(|left| self.dirty.remove(left)) {
            write(out, left);
        }
        let is_new = row >= self.rows[table] && row.is_multiple_of(TABLES[table].per_page);
        if is_read && !is_new {
            let (file, offset) = place(page);
            out.extend([Op::Use { file }, Op::Read { offset, len: PAGE, io: PAGE as u32 }]);
        }
        if !changes {
            return 0;
        }
        self.dirty.insert(page);
        LOG_RECORD_BYTES + if self.imaged.insert(page) { PAGE } else { 0 }
    }

    /// A row more at the end of a table.
    fn append(&mut self, out: &mut Vec<Op>, table: usize) -> u64 {
        let row = self.rows[table];
        let logged = self.touch(out, (table, row), true);
        self.rows[table] += 1;
        logged
    }

    fn commit(&mut self, out: &mut Vec<Op>, logged: u64) {
        if logged == 0 {
            return;
        }
        let (first, end) = (self.log / PAGE, (self.log + logged).div_ceil(PAGE));
        self.log += logged;
        let per_file = LOG_FILE_BYTES / PAGE;
        let mut at = first;
        while at < end {
            let file = TABLES.len() as u32 + (at / per_file % u64::from(LOG_FILES)) as u32;
            let here = (end - at).min(per_file - at % per_file);
            let write = Op::Write { offset: at % per_file * PAGE, len: here * PAGE, io: PAGE as u32, tag: at };
            out.extend([Op::Use { file }, write, Op::Fsync]);
            at += here;
        }
    }

    fn checkpoint(&mut self, out: &mut Vec<Op>) {
        std::mem::take(&mut self.dirty).into_iter().for_each(|page| write(out, page));
        out.extend((0..TABLES.len() as u32).flat_map(|file| [Op::Use { file }, Op::Fsync]));
        self.imaged.clear();
    }

    /// NURand of the standard: a row of so many, chosen unevenly.
    fn uneven(&mut self, a: u64, rows: u64) -> u64 {
        ((self.rng.below(a + 1) | self.rng.below(rows)) + a / 3) % rows
    }

    fn customer(&mut self) -> u64 {
        self.rng.below(WAREHOUSES * 10) * 3000 + self.uneven(1023, 3000)
    }

    fn new_order(&mut self, out: &mut Vec<Op>) -> u64 {
        let (warehouse, customer) = (self.rng.below(WAREHOUSES), self.customer());
        self.touch(out, (WAREHOUSE, warehouse), false);
        self.touch(out, (CUSTOMER_INDEX, customer), false);
        self.touch(out, (CUSTOMER, customer), false);
        let mut logged = self.touch(out, (DISTRICT, customer / 3000), true);
        for table in [ORDERS, ORDERS_INDEX, NEW_ORDER] {
            logged += self.append(out, table);
        }
        for _ in 0..5 + self.rng.below(11) {
            let item = self.uneven(8191, 100_000);
            self.touch(out, (ITEM, item), false);
            self.touch(out, (STOCK_INDEX, warehouse * 100_000 + item), false);
            logged += self.touch(out, (STOCK, warehouse * 100_000 + item), true);
            logged += self.append(out, ORDER_LINE) + self.append(out, ORDER_LINE_INDEX);
        }
        logged
    }

    fn payment(&mut self, out: &mut Vec<Op>) -> u64 {
        let customer = self.customer();
        self.touch(out, (CUSTOMER_INDEX, customer), false);
        let rows = [(WAREHOUSE, customer / 30_000), (DISTRICT, customer / 3000), (CUSTOMER, customer)];
        let changed: u64 = rows.map(|row| self.touch(out, row, true)).iter().sum();
        changed + self.append(out, HISTORY)
    }

    /// The lines of an order that was made among the last so many.
    fn lines(&mut self, out: &mut Vec<Op>, last: u64, changes: bool) -> u64 {
        let order = self.rows[ORDERS] - 1 - self.rng.below(last.min(self.rows[ORDERS]));
        let line = order * self.rows[ORDER_LINE] / self.rows[ORDERS];
        self.touch(out, (ORDERS_INDEX, order), false);
        self.touch(out, (ORDER_LINE_INDEX, line), false);
        self.touch(out, (ORDERS, order), changes) + self.touch(out, (ORDER_LINE, line), changes)
    }

    fn order_status(&mut self, out: &mut Vec<Op>) -> u64 {
        let customer = self.customer();
        self.touch(out, (CUSTOMER_INDEX, customer), false);
        self.touch(out, (CUSTOMER, customer), false);
        self.lines(out, 90_000, false)
    }

    /// An order of each district of a warehouse.
    fn delivery(&mut self, out: &mut Vec<Op>) -> u64 {
        let mut logged = 0;
        for _ in 0..10 {
            let (customer, order) = (self.customer(), self.rows[NEW_ORDER] - 1 - self.rng.below(27_000));
            logged += self.touch(out, (NEW_ORDER, order), true) + self.lines(out, 27_000, true);
            logged += self.touch(out, (CUSTOMER, customer), true);
        }
        logged
    }

    /// The stock of the items in the last twenty orders of a district.
    fn stock_level(&mut self, out: &mut Vec<Op>) -> u64 {
        let district = self.rng.below(WAREHOUSES * 10);
        self.touch(out, (DISTRICT, district), false);
        for _ in 0..20 {
            self.lines(out, 600, false);
        }
        for _ in 0..200 {
            let item = district / 10 * 100_000 + self.uneven(8191, 100_000);
            self.touch(out, (STOCK_INDEX, item), false);
            self.touch(out, (STOCK, item), false);
        }
        0
    }

    fn transaction(&mut self, out: &mut Vec<Op>) {
        let ns = (-GAP_NS * libm::log(unit(&mut self.rng))) as u64;
        out.push(Op::Think { ns });
        let before = self.ns / CHECKPOINT_NS;
        self.ns += ns;
        if self.ns / CHECKPOINT_NS > before {
            self.checkpoint(out);
        }
        let logged = match self.rng.below(100) {
            0..45 => self.new_order(out),
            45..88 => self.payment(out),
            88..92 => self.order_status(out),
            92..96 => self.delivery(out),
            _ => self.stock_level(out),
        };
        self.commit(out, logged);
        out.push(Op::Done);
    }

    fn end(&self, out: &mut Vec<Op>) {
        out.extend((0..TABLES.len() as u32 + LOG_FILES).flat_map(|file| [Op::Use { file }, Op::Close]));
        out.extend([Op::Phase("transactions, rest"), Op::Sync]);
    }
}

/// The file of a page, and the byte in it.
fn place(page: u64) -> (u32, u64) {
    ((page >> 32) as u32, (page & u64::from(u32::MAX)) * PAGE)
}

fn write(out: &mut Vec<Op>, page: u64) {
    let (file, offset) = place(page);
    out.extend([Op::Use { file }, Op::Write { offset, len: PAGE, io: PAGE as u32, tag: page }]);
}

impl Program for Run {
    fn step(&mut self, out: &mut Vec<Op>) -> bool {
        let (warm_up, all) = (self.spec.warm_up, self.spec.warm_up + self.spec.transactions);
        match self.done {
            None => Run::load(out),
            Some(n) if n < all => {
                out.extend((n == warm_up).then_some(Op::Phase("transactions")));
                self.transaction(out);
            }
            Some(n) if n == all => self.end(out),
            Some(_) => return false,
        }
        self.done = Some(self.done.map_or(0, |n| n + 1));
        true
    }

    fn progress(&self) -> (u64, u64) {
        let total = self.spec.warm_up + self.spec.transactions;
        (self.done.unwrap_or(0).min(total), total)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the comments say: its size, the rate, the log's share, and that nothing is read that was not written.
    #[test]
    fn it_is_what_it_says() {
        let (mut ops, mut program) = (Vec::new(), TpcC::divided_by(10).program(1));
        while program.step(&mut ops) {}
        assert_eq!(program.progress().0, program.progress().1);
        let end = ops.iter().position(|op| *op == Op::Remount).expect("it is mounted anew");
        let sum = |ops: &[Op]| ops.iter().map(|op| if let Op::Write { len, .. } = op { *len } else { 0 }).sum::<u64>();
        let tables = sum(&ops[..end]) - u64::from(LOG_FILES) * LOG_FILE_BYTES;
        assert!((230..300).contains(&(tables >> 20)), "{} MiB of tables", tables >> 20);
        let done = ops.iter().filter(|op| **op == Op::Done).count() as u64;
        let waited: u64 = ops.iter().map(|op| if let Op::Think { ns } = op { *ns } else { 0 }).sum();
        let gap = waited / done / 1_000_000;
        assert!((650..750).contains(&gap), "{gap} ms");
        let logged = (sum(&ops[end..]) / done) >> 10;
        assert!((80..400).contains(&logged), "{logged} KiB are written for a transaction");
        let mut sizes = TABLES.map(|t| t.rows.div_ceil(t.per_page) * PAGE).to_vec();
        sizes.extend([LOG_FILE_BYTES; LOG_FILES as usize]);
        let mut using = 0;
        for op in &ops[end..] {
            match op {
                Op::Use { file } => using = *file as usize,
                Op::Write { offset, len, .. } => sizes[using] = sizes[using].max(offset + len),
                Op::Read { offset, .. } => assert!(*offset < sizes[using], "{op}"),
                _ => {}
            }
        }
    }
}
