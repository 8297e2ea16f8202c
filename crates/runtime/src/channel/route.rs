//! The handlers of a service or a client, and the order in which they get events.

use upcall_core::events::{AddError, HandlerTerms, ROUTE_MAX, When};
use upcall_core::time::Span;

use super::dispatcher::{Code, Events, OnGone};
use super::peer::{Gone, PeerId};
use crate::events::{PostedEvent, Poster};

/// The limits of a handler that declares none: 64 events may wait for it, and it may be invoked a
/// thousand times in any 10 ms.
pub const HANDLER_TERMS: HandlerTerms =
    HandlerTerms { pending_max: 64, invocations_max: 1_000, span: Span::from_millis(10) };

/// One handler or filter.
pub(super) struct Step {
    pub(super) terms: HandlerTerms,
    pub(super) code: Code,
}

/// The handlers that get events one after the other (§2.3.2): filters first, then *the* handler.
/// Each may drop an event, merge it into the one before, or pass it on.
///
/// ```
/// # extern crate upcall_runtime as upcall;
/// use std::sync::{Arc, atomic::{AtomicU64, Ordering}};
/// use upcall::channel::{Route, When};
///
/// let sum = Arc::new(AtomicU64::new(0));
/// let added = sum.clone();
/// let route = Route::to(move |events| {
///     while let Some(event) = events.take() {
///         added.fetch_add(event.words[0], Ordering::Relaxed);
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
    /// A route to this handler, at the next crossing. One invocation handles all events that wait.
    /// The handler runs in its executor, where it must not block, or in a thread of its own, where
    /// it may. A handler that panics is not invoked again, and its peers find that it died.
    pub fn to(handler: impl FnMut(&mut Events<'_>) + Send + 'static) -> Self {
        let handler = Step { terms: HANDLER_TERMS, code: Box::new(handler) };
        Route {
            filters: Vec::new(),
            handler,
            on_gone: Box::new(|_, _| {}),
            when: When::NextCrossing,
        }
    }

    /// A route to an *admitted* handler. Each event is posted to the handler with all its words.
    /// The first word of an event is its rank. So a service in another process can post to a
    /// handler by raising (§3.3: frames queued by display time). An event is lost if the handler is
    /// closed or has as many events as may wait. The raiser is not told.
    ///
    /// ```no_run
    /// # extern crate upcall_runtime as upcall;
    /// use upcall::{Config, Runtime, activity::ActivityParams, time::Span};
    /// use upcall::channel::Route;
    /// let mut runtime = Runtime::start(Config::default())?;
    /// # let cpu = runtime.config().cpus[0];
    /// # let need = ActivityParams::new(Span::from_millis(33), Span::from_millis(5));
    /// # fn show(frame: upcall::PostedEvent) {}
    ///
    /// let mut held = None; // an event that was taken, but not processed
    /// let player = runtime.handler("player", need, move |batch| {
    ///     while let Some(frame) = held.take().or_else(|| batch.take_event()) {
    ///         if !batch.proceed() {
    ///             held = Some(frame); // for the next upcall
    ///             break;
    ///         }
    ///         show(frame); // its rank is `frame.rank`, its other words are `frame.words[1..]`
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

    /// Adds a filter after those that were added before. At most 3.
    #[must_use]
    pub fn through(mut self, filter: impl FnMut(&mut Events<'_>) + Send + 'static) -> Self {
        self.filters.push(Step { terms: HANDLER_TERMS, code: Box::new(filter) });
        self
    }

    /// Sets the limits of each handler of the route.
    #[must_use]
    pub fn terms(mut self, terms: HandlerTerms) -> Self {
        self.filters.iter_mut().chain([&mut self.handler]).for_each(|step| step.terms = terms);
        self
    }

    /// Sets when the handlers are invoked for events that do not say so themselves (§2.3.1). The
    /// next crossing is between two upcalls, or at a boundary of the running upcall. The next
    /// scheduling decision is between two upcalls. In a handler thread, both are the next poll. If
    /// the thread sleeps, the event wakes it and it polls at once.
    #[must_use]
    pub fn when(mut self, when: When) -> Self {
        self.when = when;
        self
    }

    /// Sets what is called once for each peer that is gone, after its events are handled. It runs
    /// where the handlers run.
    #[must_use]
    pub fn on_gone(mut self, code: impl FnMut(PeerId, Gone) + Send + 'static) -> Self {
        self.on_gone = Box::new(code);
        self
    }

    pub(super) fn into_steps(self) -> (Vec<Step>, OnGone, When) {
        let Route { mut filters, handler, on_gone, when } = self;
        filters.push(handler);
        (filters, on_gone, when)
    }

    /// Checks that the route is not too long.
    pub(super) fn check(&self) -> Result<(), AddError> {
        if self.filters.len() < ROUTE_MAX { Ok(()) } else { Err(AddError::Route) }
    }
}
