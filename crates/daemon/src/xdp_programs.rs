//! The XDP programs of the daemon's interfaces, each for packet quotas and flows together.
//!
//! The server's thread uses it. It keeps no program attached: those who use one do.

use upcall_runtime::net::{Program, ProgramError, WeakProgram};
use upcall_sys::early_drop::Request;

/// See the module's head.
#[derive(Debug, Default)]
pub(crate) struct XdpPrograms(Vec<WeakProgram>);

impl XdpPrograms {
    /// The program of the interface with this index. Attaches one as `request` says if there is
    /// none, which blocks for about 0.1 s.
    ///
    /// # Errors
    /// See [`ProgramError`].
    pub(crate) fn of(&mut self, index: u32, request: Request) -> Result<Program, ProgramError> {
        self.0.retain(|program| program.upgrade().is_some());
        let mut kept = self.0.iter().filter_map(WeakProgram::upgrade);
        if let Some(program) = kept.find(|program| program.interface() == index) {
            return Ok(program);
        }
        let program = Program::attach(index, request)?;
        self.0.push(program.downgrade());
        Ok(program)
    }
}
