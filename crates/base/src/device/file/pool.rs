//! A few threads that carry out batches beside the caller.
//!
//! A batch is a list of jobs; threads take jobs from the batch at the head of the queue until it has none left. A
//! thread that waits for a batch takes jobs from it too.

use crate::device::{Completion, Pending, Request, Ticket};
use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Weak};
use std::thread::{self, JoinHandle};

const THREADS: usize = 4;

/// Requests that are carried out together, each with its place in the batch.
pub(super) type Job = Vec<(usize, Request)>;

/// Carries out a job; returns as many completions as requests.
pub(super) trait Run: Send + Sync + 'static {
    fn run(&self, job: &[(usize, Request)]) -> Vec<Completion>;
}

/// The processors and the priority of a thread.
#[derive(Debug, PartialEq)]
struct Place {
    #[cfg(target_os = "linux")]
    processors: Option<rustix::thread::CpuSet>,
    #[cfg(target_os = "linux")]
    nice: Option<i32>,
}

impl Place {
    #[cfg(target_os = "linux")]
    fn here() -> Place {
        let processors = rustix::thread::sched_getaffinity(None).ok();
        Place { processors, nice: rustix::process::getpriority_process(None).ok() }
    }

    #[cfg(target_os = "linux")]
    fn take(&self) {
        if let Some(processors) = &self.processors {
            let _ = rustix::thread::sched_setaffinity(None, processors);
        }
        if let Some(nice) = self.nice {
            let _ = rustix::process::setpriority_process(None, nice);
        }
    }

    /// Gives up what an open file is read and written without.
    #[cfg(target_os = "linux")]
    fn need_nothing() {
        use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities, set_no_new_privs};
        let none = CapabilitySet::empty();
        let _ = set_no_new_privs(true);
        let _ = set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none });
    }

    #[cfg(not(target_os = "linux"))]
    fn need_nothing() {}

    #[cfg(not(target_os = "linux"))]
    fn here() -> Place {
        Place {}
    }

    #[cfg(not(target_os = "linux"))]
    fn take(&self) {}
}

/// The threads start with the first batch. Dropping the pool carries out what is queued and ends
/// them.
pub(super) struct Pool<R: Run> {
    shared: Arc<Shared<R>>,
}

struct Shared<R> {
    runner: Arc<R>,
    /// Where the threads run: the one with the first batch may be bound to a processor for a purpose of its own.
    place: Place,
    queue: Mutex<Queue>,
    work: Condvar,
}

#[derive(Default)]
struct Queue {
    batches: VecDeque<Arc<Batch>>,
    threads: Vec<JoinHandle<()>>,
    is_closing: bool,
}

impl<R: Run> Pool<R> {
    pub(super) fn new(runner: Arc<R>) -> Pool<R> {
        let place = Place::here();
        Pool { shared: Arc::new(Shared { runner, place, queue: Mutex::default(), work: Condvar::new() }) }
    }

    /// Starts `jobs`, which hold `requests` requests.
    pub(super) fn submit(&self, requests: usize, jobs: Vec<Job>) -> Ticket {
        let batch = Arc::new(Batch::new(requests, jobs));
        let mut queue = self.shared.queue.lock();
        if queue.threads.is_empty() {
            self.start_threads(&mut queue);
        }
        if queue.threads.is_empty() {
            drop(queue);
            batch.work(&*self.shared.runner);
        } else {
            queue.batches.push_back(Arc::clone(&batch));
            drop(queue);
            self.shared.work.notify_all();
        }
        Ticket::pending(Box::new(Waiter { batch, runner: Arc::downgrade(&self.shared.runner) }))
    }

    fn start_threads(&self, queue: &mut Queue) {
        for i in 0..THREADS {
            let shared = Arc::clone(&self.shared);
            let name = format!("device-{i}");
            // A host that refuses a thread leaves fewer of them, or none.
            queue.threads.extend(thread::Builder::new().name(name).spawn(move || shared.serve()));
        }
    }

    #[cfg(test)]
    pub(super) fn threads(&self) -> usize {
        self.shared.queue.lock().threads.len()
    }
}

impl<R: Run> Drop for Pool<R> {
    fn drop(&mut self) {
        let threads = {
            let mut queue = self.shared.queue.lock();
            queue.is_closing = true;
            std::mem::take(&mut queue.threads)
        };
        self.shared.work.notify_all();
        for thread in threads {
            let _ = thread.join();
        }
    }
}

impl<R: Run> fmt::Debug for Pool<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").field("threads", &self.shared.queue.lock().threads.len()).finish()
    }
}

impl<R: Run> Shared<R> {
    fn serve(&self) {
        self.place.take();
        Place::need_nothing();
        while let Some(batch) = self.next_batch() {
            batch.work(&*self.runner);
            self.queue.lock().batches.retain(|b| !Arc::ptr_eq(b, &batch));
        }
    }

    /// `None` when the pool closes and the queue is empty.
    fn next_batch(&self) -> Option<Arc<Batch>> {
        let mut queue = self.queue.lock();
        loop {
            if let Some(batch) = queue.batches.front() {
                return Some(Arc::clone(batch));
            }
            if queue.is_closing {
                return None;
            }
            self.work.wait(&mut queue);
        }
    }
}

struct Batch {
    state: Mutex<State>,
    done: Condvar,
}

struct State {
    todo: VecDeque<Job>,
    completions: Vec<Option<Completion>>,
    unfinished: usize,
}

impl Batch {
    fn new(requests: usize, jobs: Vec<Job>) -> Batch {
        let completions = (0..requests).map(|_| None).collect();
        let state = State { todo: jobs.into(), completions, unfinished: requests };
        Batch { state: Mutex::new(state), done: Condvar::new() }
    }

    /// Carries out jobs until none is left to take; others may still be at theirs.
    fn work(&self, runner: &impl Run) {
        loop {
            let Some(job) = self.state.lock().todo.pop_front() else { return };
            let completions = runner.run(&job);
            let places: Vec<usize> = job.iter().map(|(place, _)| *place).collect();
            // The buffers go before the completion is seen: their owner may want to change them
            // without a copy.
            drop(job);
            let mut state = self.state.lock();
            for (place, completion) in places.into_iter().zip(completions) {
                state.completions[place] = Some(completion);
                state.unfinished -= 1;
            }
            if state.unfinished == 0 {
                self.done.notify_all();
            }
        }
    }
}

struct Waiter<R> {
    batch: Arc<Batch>,
    /// Weak, so that a ticket that nobody waits for does not keep the image locked. Where it is
    /// gone, the pool has carried everything out.
    runner: Weak<R>,
}

impl<R: Run> Pending for Waiter<R> {
    fn wait(self: Box<Self>) -> Vec<Completion> {
        if let Some(runner) = self.runner.upgrade() {
            self.batch.work(&*runner);
        }
        let mut state = self.batch.state.lock();
        while state.unfinished > 0 {
            self.batch.done.wait(&mut state);
        }
        state.completions.drain(..).flatten().collect()
    }

    fn is_done(&self) -> bool {
        self.batch.state.lock().unfinished == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::Kind;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[derive(Default)]
    struct Counting(AtomicUsize);

    impl Run for Counting {
        fn run(&self, job: &[(usize, Request)]) -> Vec<Completion> {
            self.0.fetch_add(job.len(), Ordering::SeqCst);
            job.iter().map(|(_, r)| Ok(r.offset.to_le_bytes().to_vec())).collect()
        }
    }

    fn jobs(n: usize) -> Vec<Job> {
        (0..n).map(|i| vec![(i, Request::read(Kind::Data, i as u64 * 512, 512))]).collect()
    }

    #[test]
    fn completions_stand_in_order() {
        let pool = Pool::new(Arc::new(Counting::default()));
        assert_eq!(pool.threads(), 0, "no thread before the first batch");
        let tickets: Vec<Ticket> = (0..20).map(|_| pool.submit(50, jobs(50))).collect();
        assert!((1..=THREADS).contains(&pool.threads()));
        for ticket in tickets {
            for (i, done) in ticket.wait().into_iter().enumerate() {
                assert_eq!(done.unwrap(), (i as u64 * 512).to_le_bytes());
            }
        }
    }

    /// Tells where its threads run.
    #[cfg(target_os = "linux")]
    struct Asking(Mutex<Vec<Place>>);

    #[cfg(target_os = "linux")]
    impl Run for Asking {
        fn run(&self, job: &[(usize, Request)]) -> Vec<Completion> {
            self.0.lock().push(Place::here());
            job.iter().map(|_| Ok(Vec::new())).collect()
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn threads_run_where_the_pool_was_made_and_not_where_the_first_batch_came_from() {
        let runner = Arc::new(Asking(Mutex::default()));
        let pool = Arc::new(Pool::new(Arc::clone(&runner)));
        let made = Place::here();
        let theirs = Arc::clone(&pool);
        let bound = thread::spawn(move || {
            let may = Place::here().processors.unwrap();
            let first = (0..rustix::thread::CpuSet::MAX_CPU).find(|&cpu| may.is_set(cpu)).unwrap();
            let mut one = rustix::thread::CpuSet::new();
            one.set(first);
            rustix::thread::sched_setaffinity(None, &one).unwrap();
            let ticket = theirs.submit(50, jobs(50));
            while !ticket.is_done() {
                thread::yield_now();
            }
        });
        bound.join().unwrap();
        drop(pool);
        let seen = runner.0.lock();
        assert_eq!(seen.len(), 50);
        assert!(seen.iter().all(|place| *place == made), "{seen:?} {made:?}");
    }

    #[test]
    fn drop_carries_out_what_is_queued() {
        let runner = Arc::new(Counting::default());
        let pool = Pool::new(Arc::clone(&runner));
        let mut kept = Vec::new();
        for i in 0..100 {
            let ticket = pool.submit(10, jobs(10));
            if i % 2 == 0 {
                kept.push(ticket);
            }
        }
        drop(pool);
        assert_eq!(runner.0.load(Ordering::SeqCst), 1000);
        assert_eq!(Arc::strong_count(&runner), 1, "the threads have ended");
        for ticket in kept {
            assert!(ticket.is_done());
            assert_eq!(ticket.wait().len(), 10);
        }
    }
}
