//! Where the readiness of a descriptor goes.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::channel::{Client, FastError, Posted, Raise, RaiseError, Raiser, Words};
use crate::events::{PostError, PostedEvent, Poster};

/// Where the readiness of a descriptor goes. Each of them gets the same five words: the rank, the
/// key of the descriptor, the counter of the frame (0 without a frame), and two zeros.
///
/// | the taker wants | target |
/// |---|---|
/// | an admitted handler that the scheduler prefers (ecalls-2001 §2.4) | [`IoTarget::Post`]; from another process [`Route::to_handler`] behind [`IoTarget::Raise`] |
/// | a handler in an executor | `Raise` towards a [`Runtime::client`] or [`Runtime::service`] |
/// | a handler in a thread, which may block | `Raise` towards a [`Client::in_thread`] or [`Service::in_thread`] |
/// | a real-time signal | `Raise` towards a [`Client::signalled`] |
/// | to poll, or to sleep until there is an event | `Raise` towards a [`Client::polled`] |
/// | code that acts on the client's behalf | `Raise`, with [`ServiceTerms::on_behalf`] |
/// | a fast call | [`IoTarget::Fast`] |
///
/// A route may defer the events ([`Route::when`]). A handler of a channel takes the event with the
/// smallest rank first, like an admitted one. Who polls takes events in the order of the form.
///
/// A target without room gets the event a moment later. But a watch whose event is lost on the way
/// sends no other before it is armed. A counter has no words and merges events, and a type has the
/// latest event only, so each watch needs a type of its own. [`Route::to_handler`] loses events
/// while [`EVENTS_MAX`](crate::EVENTS_MAX) wait for the handler, so it may have at most so many
/// watches. A handler on the client's behalf that drops an event must arm the watch.
///
/// [`Route::to_handler`]: crate::channel::Route::to_handler
/// [`Route::when`]: crate::channel::Route::when
/// [`Runtime::client`]: crate::Runtime::client
/// [`Runtime::service`]: crate::Runtime::service
/// [`Service::in_thread`]: crate::channel::Service::in_thread
/// [`ServiceTerms::on_behalf`]: crate::channel::ServiceTerms::on_behalf
#[derive(Debug)]
#[non_exhaustive]
pub enum IoTarget {
    /// An event is posted to an admitted handler.
    Post(Poster),
    /// An event is raised on a channel, towards a client or towards a service.
    Raise {
        /// The raiser, from [`Service::raiser`](crate::channel::Service::raiser) or
        /// [`Client::raiser`].
        raiser: Raiser,
        /// The type or level of the event, which the form of the channel has.
        row: u32,
    },
    /// A fast call of the service of this client. It runs in the thread of the I/O event service,
    /// so it must be short, and the service must be in this process. If another thread runs the
    /// handler, the event is sent again later. The service's blocking call runs only if the handler
    /// asks for it, and then all other events wait.
    Fast(Box<Client>),
}

/// What became of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sent {
    /// The target has it, or a handler on the target's behalf dropped it.
    Done,
    /// The target has no room now, or is in use.
    Full,
    /// The target takes no event any more.
    Gone,
}

impl IoTarget {
    /// Sends an event. Does not wait for the target.
    pub(super) fn send(&self, words: Words) -> Sent {
        // A handler on the client's behalf may panic. The thread serves other descriptors, too.
        let sent = catch_unwind(AssertUnwindSafe(|| match self {
            IoTarget::Post(poster) => {
                match poster.post_event(&PostedEvent { rank: words[0], words }) {
                    Ok(()) => Sent::Done,
                    Err(PostError::Closed) => Sent::Gone,
                    Err(_) => Sent::Full,
                }
            }
            IoTarget::Raise { raiser, row } => {
                match raiser.raise(&Raise::row(*row).words(words).ranked_by_word()) {
                    // If a signal was not sent, another event sends it.
                    Ok(Posted::Lost) | Err(RaiseError::Busy | RaiseError::Signal(_)) => Sent::Full,
                    Ok(_) | Err(RaiseError::Dropped) => Sent::Done,
                    Err(_) => Sent::Gone,
                }
            }
            IoTarget::Fast(client) => match client.fast_if_free(&words) {
                Ok(Some(_)) => Sent::Done,
                Ok(None) | Err(FastError::Refused(_)) => Sent::Full,
                Err(_) => Sent::Gone,
            },
        }));
        sent.unwrap_or(Sent::Gone)
    }
}
