//! `upcall top`: the live state of a running daemon.
//!
//! Asks the daemon once an interval. [`view`] decides what is drawn; this module handles the
//! terminal and the keys. If the daemon ends, the last picture stays and says so until a daemon
//! replies again.

mod view;

use std::io::IsTerminal;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use crate::exit::Failure;
use crate::ps;
use view::View;

/// The longest time in which a key or a signal may go unnoticed.
const INPUT_INTERVAL: Duration = Duration::from_millis(50);

/// Shows the state until `q`, Ctrl-C, a signal, or the end of the terminal.
///
/// # Errors
/// No daemon replies at the start, or there is no terminal: as one line. The terminal is restored.
pub fn top(socket: &Path, interval: Duration, interrupted: &AtomicBool) -> Result<(), Failure> {
    if !(std::io::stdin().is_terminal() && std::io::stdout().is_terminal()) {
        return Err(Failure::new(
            "upcall top: found no terminal; `upcall ps` prints the state once, `upcall ps --json` \
             for programs",
        ));
    }
    let view = View::new(socket, ps::fetch_status(socket)?);
    // Restores the terminal on a panic, too.
    let mut terminal = ratatui::try_init().map_err(of_terminal)?;
    let shown = show(&mut terminal, view, socket, interval, interrupted);
    ratatui::try_restore().map_err(of_terminal)?;
    shown.map_err(of_terminal)
}

fn show(
    terminal: &mut DefaultTerminal,
    mut view: View,
    socket: &Path,
    interval: Duration,
    interrupted: &AtomicBool,
) -> std::io::Result<()> {
    let mut next = Instant::now() + interval;
    // Relaxed: the flag publishes no other data.
    while !interrupted.load(Ordering::Relaxed) {
        terminal.draw(|frame| view.draw(frame))?;
        if Instant::now() >= next {
            view.take(ps::fetch_status(socket));
            next = Instant::now() + interval;
        }
        // `event::poll` never returns if the terminal ends while it waits, so the wait is here.
        let left = next.saturating_duration_since(Instant::now());
        std::thread::sleep(left.min(INPUT_INTERVAL));
        // A terminal that has hung up is none any more.
        if !std::io::stdin().is_terminal() {
            break;
        }
        if !event::poll(Duration::ZERO)? {
            continue;
        }
        // After a change of size the next iteration draws again.
        if let Event::Key(key) = event::read()?
            && key.kind != KeyEventKind::Release
            && !handle_key(&mut view, key)
        {
            break;
        }
    }
    Ok(())
}

/// Handles a key; `false` if it ends the view.
fn handle_key(view: &mut View, key: KeyEvent) -> bool {
    match key.code {
        KeyCode::Char('q') => return false,
        KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => return false,
        KeyCode::Up => view.scroll(-1),
        KeyCode::Down => view.scroll(1),
        KeyCode::PageUp => view.scroll(-view.page()),
        KeyCode::PageDown => view.scroll(view.page()),
        KeyCode::Home => view.scroll(isize::MIN),
        KeyCode::Char('s') => view.sort_by_next(),
        KeyCode::Char('h' | '?') => view.toggle_help(),
        KeyCode::Esc => view.close_help(),
        _ => {}
    }
    true
}

fn of_terminal(error: std::io::Error) -> Failure {
    Failure::new(format_args!("upcall top: the terminal: {error}")).because(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_q_and_control_c_end_the_view() {
        let mut view = View::new(Path::new("/run/upcall.sock"), upcall::status::Status::default());
        let mut pressed = |code, modifiers| handle_key(&mut view, KeyEvent::new(code, modifiers));
        assert!(!pressed(KeyCode::Char('q'), KeyModifiers::NONE));
        assert!(!pressed(KeyCode::Char('c'), KeyModifiers::CONTROL));
        for code in [
            KeyCode::Char('c'),
            KeyCode::Char('s'),
            KeyCode::Char('?'),
            KeyCode::Esc,
            KeyCode::Up,
            KeyCode::PageDown,
            KeyCode::Home,
        ] {
            assert!(pressed(code, KeyModifiers::NONE), "{code:?}");
        }
    }
}
