//! A few calls that no thread of a lower priority may delay.
//!
//! The daemon makes changes of other threads this way: see [`crate::process::ThreadHandle`].

use super::class::{set_fifo, set_ordinary};
use super::other_thread::{Class, class_of};

/// Runs `work` with the calling thread in `SCHED_FIFO` at `priority`, so that no thread of a lower
/// priority delays it. Afterwards the thread has its class again: `SCHED_FIFO` at its former
/// priority, or else the ordinary class. Without the right it runs `work` as it is. Three system
/// calls.
pub fn at_priority<T>(priority: u8, work: impl FnOnce() -> T) -> T {
    let before = class_of(rustix::thread::gettid().as_raw_pid().unsigned_abs());
    let raised = set_fifo(priority);
    let result = work();
    if raised.is_ok() {
        // Stock Linux lets a thread return to a lower class.
        let _ = match before {
            Ok(Class::Fifo { priority }) => set_fifo(priority),
            _ => set_ordinary(),
        };
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::thread_id;
    use crate::schedule::fifo_permission;

    #[test]
    fn the_thread_has_its_class_again_afterwards() {
        let class = || class_of(thread_id()).unwrap();
        let before = class();
        let during = at_priority(3, class);
        let is_granted = fifo_permission(3).is_ok();
        assert_eq!(during, if is_granted { Class::Fifo { priority: 3 } } else { before });
        assert_eq!(class(), before);
        if is_granted {
            set_fifo(2).unwrap();
            assert_eq!(at_priority(3, class), Class::Fifo { priority: 3 });
            assert_eq!(class(), Class::Fifo { priority: 2 });
            set_ordinary().unwrap();
        }
    }
}
