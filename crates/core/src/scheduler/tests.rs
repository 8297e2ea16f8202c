//! The state machine of the module's head, transition by transition.
