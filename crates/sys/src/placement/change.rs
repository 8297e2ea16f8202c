//! A change of settings that can be taken back.

use crate::OsError;
use std::fs;
use std::path::PathBuf;

/// Settings that were changed, and what they were before. Dropping it changes nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "the owner restores the old values"]
pub struct Change {
    pub(super) operation: &'static str,
    /// File and old text, in the order of the changes.
    pub(super) old: Vec<(PathBuf, String)>,
}

impl Change {
    /// Writes `text` into `path`, and keeps what was there.
    pub(super) fn write(&mut self, path: PathBuf, text: &str) -> Result<(), OsError> {
        let old = fs::read_to_string(&path).map_err(OsError::of_io(self.operation))?;
        fs::write(&path, text).map_err(OsError::of_io(self.operation))?;
        self.old.push((path, old));
        Ok(())
    }

    /// The old text of each setting that was changed.
    pub fn old_values(&self) -> impl Iterator<Item = &str> {
        self.old.iter().map(|(_, text)| text.trim_end())
    }

    /// Restores the old values, the last change first. Tries all.
    ///
    /// # Errors
    /// The last error, such as `ENOENT` if the interface is gone.
    pub fn restore(&self) -> Result<(), OsError> {
        let mut result = Ok(());
        for (path, text) in self.old.iter().rev() {
            if let Err(error) = fs::write(path, text.trim_end()) {
                result = Err(OsError::of_io(self.operation)(error));
            }
        }
        result
    }
}
