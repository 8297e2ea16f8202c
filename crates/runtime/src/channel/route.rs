//! What a service or a client has invoked for the events that come to it.

use upcall_core::events::{AddError, HandlerTerms, ROUTE_MAX, When};
use upcall_core::time::Span;

use super::dispatcher::{Code, Events, OnGone};
use super::peer::{Gone, PeerId};
use crate::events::{PostedEvent, Poster};

/// What a handler is held to that declares nothing: 64 events may wait for it, and it may be invoked a
/// thousand times in any 10 ms.
pub const HANDLER_TERMS: HandlerTerms =
    HandlerTerms { pending_max: 64, invocations_max: 1_000, span: Span::from_millis(10) };

/// One handler or filter.
pub(super) struct Step {
    pub(super) terms: HandlerTerms,
    pub(super) code: Code,
}

/// The handlers that get events one after the other (§2.3.2): filters first, then *the* handler. Each may
/// drop an event, merge it into the one before, or pass it on.
///
/// ```
/// # extern crate upcall_runtime as upcall;
/// use upcall::channel::{ChannelEvent, Route, When};
///
/// let route = Route::to(|events| {
///     while let Some(event) = events.take() {
///         println!("{} from {:?}", event.words[0], event.peer);
///     }
/// })
/// .through(|events| {
///     while let Some(event) = events.take() {
///         if event.words[0] == 0 {
///             events.discard(); // the handler does not see it
///         }
///     }
/// })
/// .when(When::BeforeScheduling);
/// ```
pub struct Route {
    filters: Vec<Step>,
    handler: Step,
    pub(super) on_gone: OnGone,
    pub(super) when: When,
}

impl std::fmt::Debug for Route {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Route { filters, when, .. } = self;
        f.debug_struct("Route").field("filters", &filters.len()).field("when", when).finish()
    }
}

impl Route {
    /// To this handler, at the next crossing. It is invoked once for all events that are there, in its
    /// executor, where it must not block, or in a thread of its own, where it may. One that
    /// panics is not invoked again, and its peers find that it died.
    pub fn to(handler: impl FnMut(&mut Events<'_>) + Send + 'static) -> Self {
        let handler = Step { terms: HANDLER_TERMS, code: Box::new(handler) };
        Route {
            filters: Vec::new(),
            handler,
            on_gone: Box::new(|_, _| {}),
            when: When::NextCrossing,
        }
    }

    /// To an *admitted* handler: each event is posted to it, its first word being its rank, with all its words. So a
    /// service in another process posts to a handler by raising (§3.3: frames queued by display time). What is
    /// posted to a handler that has as many as it may, or is closed, is lost; who raises
    /// is not told.
    ///
    /// ```no_run
    /// # extern crate upcall_runtime as upcall;
    /// use upcall::{Config, Runtime, activity::ActivityParams, time::Span};
    /// use upcall::channel::Route;
    /// let mut runtime = Runtime::start(Config::default())?;
    /// # let cpu = runtime.config().cpus[0];
    /// # let need = ActivityParams::new(Span::from_millis(33), Span::from_millis(5));
    ///
    /// let player = runtime.handler("player", need, |batch| {
    ///     while let Some(frame) = batch.take_event() {
    ///         println!("frame {} at {} ns", frame.words[1], frame.rank);
    ///     }
    /// })?;
    /// let route = Route::to_handler(runtime.poster(player).ok_or("closed")?);
    /// let client = runtime.client(cpu, "frames", route)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn to_handler(poster: Poster) -> Self {
        Route::to(move |events| {
            while let Some(event) = events.take() {
                let _ =
                    poster.post_event(&PostedEvent { rank: event.words[0], words: event.words });
            }
        })
    }

    /// Through this one before, and after those that were given already; at most 3.
    #[must_use]
    pub fn through(mut self, filter: impl FnMut(&mut Events<'_>) + Send + 'static) -> Self {
        self.filters.push(Step { terms: HANDLER_TERMS, code: Box::new(filter) });
        self
    }

    /// What each of them is held to.
    #[must_use]
    pub fn terms(mut self, terms: HandlerTerms) -> Self {
        self.filters.iter_mut().chain([&mut self.handler]).for_each(|step| step.terms = terms);
        self
    }

    /// When they are invoked for events that do not say it themselves (§2.3.1). At the next crossing: between two
    /// upcalls, and at a boundary of what runs. Before the next scheduling decision: between
    /// two upcalls. In a thread, both are when it looks, at once if it sleeps.
    #[must_use]
    pub fn when(mut self, when: When) -> Self {
        self.when = when;
        self
    }

    /// Reception of each peer that is gone, once, after what it raised was handled. Invoked where handlers are.
    #[must_use]
    pub fn on_gone(mut self, told: impl FnMut(PeerId, Gone) + Send + 'static) -> Self {
        self.on_gone = Box::new(told);
        self
    }

    pub(super) fn into_steps(self) -> (Vec<Step>, OnGone, When) {
        let Route { mut filters, handler, on_gone, when } = self;
        filters.push(handler);
        (filters, on_gone, when)
    }

    /// That it has no more steps than there can be.
    pub(super) fn check(&self) -> Result<(), AddError> {
        if self.filters.len() < ROUTE_MAX { Ok(()) } else { Err(AddError::Route) }
    }
}
