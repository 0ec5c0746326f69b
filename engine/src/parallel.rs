//! Work on more than one thread, and on fewer when there are no more to be had.

use std::sync::{Mutex, PoisonError};
use std::thread::{Builder, available_parallelism, scope};

/// Two results at the same time. When no second thread can be started, the calling one makes both.
///
/// # Panics
/// When one of the two does.
pub fn both<A, B: Send>(one: impl FnOnce() -> A, other: impl FnOnce() -> B + Send) -> (A, B) {
    // Whoever comes first takes it: a thread that could not be started never does.
    let other = Mutex::new(Some(other));
    let take = || other.lock().unwrap_or_else(PoisonError::into_inner).take();
    scope(|scope| {
        let thread = match available_parallelism() {
            Ok(threads) if threads.get() > 1 => Builder::new().spawn_scoped(scope, || take().map(|other| other())).ok(),
            _ => None,
        };
        let one = one();
        let made = match thread {
            Some(thread) => thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
            None => take().map(|other| other()),
        };
        (one, made.expect("only the thread or the caller takes it"))
    })
}

/// What `work` makes on up to so many threads, the calling one among them.
///
/// # Panics
/// When one of them does.
pub(crate) fn on_each<T: Send>(threads: usize, work: impl Fn() -> T + Sync) -> Vec<T> {
    scope(|scope| {
        let others: Vec<_> = (1..threads).map_while(|_| Builder::new().spawn_scoped(scope, &work).ok()).collect();
        let mut made = vec![work()];
        made.extend(others.into_iter().map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))));
        made
    })
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn both_come_back_in_their_places() {
        let text = "one".to_owned();
        assert_eq!(both(|| text.len(), || text.to_uppercase()), (3, "ONE".to_owned()));
    }

    #[test]
    fn each_works_once() {
        let calls = AtomicUsize::new(0);
        let made = on_each(3, || calls.fetch_add(1, Ordering::Relaxed));
        assert_eq!(made.len(), calls.load(Ordering::Relaxed));
        assert_eq!(on_each(1, || 7), [7]);
    }

    #[test]
    #[should_panic(expected = "what is wrong")]
    fn panics_are_passed_on() {
        both(|| (), || panic!("what is wrong"));
    }
}
