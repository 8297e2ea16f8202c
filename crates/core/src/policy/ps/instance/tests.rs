use core::cell::Cell;
thread_local! { pub(super) static COMPARISONS: Cell<u64> = const { Cell::new(0) }; }
