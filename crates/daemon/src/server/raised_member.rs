//! A member as long as the daemon has raised its thread. `attach` makes it, and `session` holds it.

use std::ops::Deref;
use std::sync::Arc;

use crate::group::Member;
use crate::member_thread::RaiseError;

/// A member whose thread the daemon has raised. The server holds it as long as the member takes
/// part. Its drop puts the thread into the ordinary class, and nothing raises it again.
#[derive(Debug)]
pub(crate) struct RaisedMember(Arc<Member>);

impl RaisedMember {
    /// Pins the thread of a member to its CPU, and gives it the real-time class. `None` if the
    /// thread has ended.
    ///
    /// # Errors
    /// See [`RaiseError`]. The thread is not raised.
    pub(crate) fn raise(member: Member, cpu: u32) -> Result<Option<Self>, RaiseError> {
        let is_raised = member.thread.raise(cpu)?;
        Ok(is_raised.then(|| RaisedMember(Arc::new(member))))
    }
}

impl Deref for RaisedMember {
    type Target = Arc<Member>;

    fn deref(&self) -> &Arc<Member> {
        &self.0
    }
}

impl Drop for RaisedMember {
    fn drop(&mut self) {
        self.0.thread.release();
    }
}
