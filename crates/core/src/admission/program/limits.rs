//! The ranges of what a program may ask for.

use crate::time::Span;

/// The default quantum of programs.
pub const PROGRAM_QUANTUM: Span = Span::from_millis(1);
/// The shortest quantum: the shortest slice that the kernel takes.
pub const PROGRAM_QUANTUM_MIN: Span = Span::from_micros(100);
/// The longest quantum: the longest slice that the kernel takes.
pub const PROGRAM_QUANTUM_MAX: Span = Span::from_millis(100);
/// The greatest weight of a program without a share. The other processes together have weight 1.
pub const PROGRAM_WEIGHT_MAX: u32 = 100;
