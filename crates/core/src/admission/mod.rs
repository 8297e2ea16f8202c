//! Admission: being written.
