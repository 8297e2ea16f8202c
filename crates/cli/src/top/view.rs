//! The screen of `upcall top`: the CPUs and rates at the top, then the domains, then their
//! activities. Uses no clock, no daemon and no terminal except the frame in which it draws.

use std::cmp::Reverse;
use std::path::Path;

use ratatui::Frame;
use ratatui::layout::{Alignment, Constraint, Layout, Rect};
use ratatui::style::Style;
use ratatui::text::{Line, Text};
use ratatui::widgets::{Block, Clear, Paragraph, Row, Table};
use upcall::status::{
    ActivityStatus, DomainCounters, DomainStatus, PacketCounts, PacketQuotaStatus, Status,
    VirtualProcessorStatus,
};

use crate::exit::Failure;
use crate::{ps, show};

#[cfg(test)]
mod tests;

/// Lines of packet quotas at the top.
const QUOTAS_SHOWN: usize = 8;
/// Columns of a CPU's bar.
const BAR: usize = 20;

const HELP: &str = "\
q         quit
up, down  scroll; PgUp, PgDn by a page, Home to the top
s         next order: number, name, reserved, used, missed, offences, slack
h, ?      this help; Esc closes it

reserved  what admission granted, of one CPU
used      CPU time of the domain's threads over the last interval
passed    turns passed to another domain or to the daemon
missed    jobs that ended after their deadline
next      time to the next release
slack     least time from a job's end to its deadline; negative: a miss
ready     the best activity of its domain, waiting for the CPU
demoted   the watchdog put it into the ordinary class
fault     the domain wrote an invalid value into its pages
packets   a packet quota: what passed and was dropped, a second";

/// The order of the rows: largest values first, but smallest names and numbers first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sort {
    Number,
    Name,
    Reserved,
    Used,
    Misses,
    Offences,
    Slack,
}

impl Sort {
    const ALL: [(Sort, &str); 7] = [
        (Sort::Number, "number"),
        (Sort::Name, "name"),
        (Sort::Reserved, "reserved"),
        (Sort::Used, "used"),
        (Sort::Misses, "missed"),
        (Sort::Offences, "offences"),
        (Sort::Slack, "slack"),
    ];
}

/// See the module's head.
#[derive(Debug)]
pub(super) struct View {
    socket: String,
    now: Status,
    /// The previous status; rates are from there to `now`.
    before: Option<Status>,
    /// Why there is no newer status.
    problem: Option<String>,
    /// An index in [`Sort::ALL`].
    sort: usize,
    /// Rows that are scrolled out at the top.
    skipped: usize,
    /// Rows that were visible at the last draw.
    rows: usize,
    help: bool,
}

impl View {
    pub(super) fn new(socket: &Path, now: Status) -> Self {
        let socket = socket.display().to_string();
        let (before, problem, sort, skipped, rows) = (None, None, 0, 0, 1);
        View { socket, now, before, problem, sort, skipped, rows, help: false }
    }

    /// Takes a newer status, or the reason why there is none.
    pub(super) fn take(&mut self, found: Result<Status, Failure>) {
        match found {
            Ok(status) => {
                self.before = Some(std::mem::replace(&mut self.now, status));
                self.problem = None;
            }
            Err(failure) => self.problem = Some(failure.to_string()),
        }
    }

    /// Rows of a page at the last draw.
    pub(super) fn page(&self) -> isize {
        isize::try_from(self.rows).unwrap_or(isize::MAX)
    }

    /// Scrolls down by `rows`, or up if negative.
    pub(super) fn scroll(&mut self, rows: isize) {
        self.skipped = self.skipped.saturating_add_signed(rows).min(self.rows_in_all() - 1);
    }

    pub(super) fn sort_by_next(&mut self) {
        self.sort = (self.sort + 1) % Sort::ALL.len();
    }

    pub(super) fn toggle_help(&mut self) {
        self.help = !self.help;
    }

    pub(super) fn close_help(&mut self) {
        self.help = false;
    }

    pub(super) fn draw(&mut self, frame: &mut Frame<'_>) {
        let quotas = self.now.packet_quotas.len();
        let quota_lines = quotas.min(QUOTAS_SHOWN) + usize::from(quotas > QUOTAS_SHOWN);
        let head = u16::try_from(self.now.cpus.len() + quota_lines + 3).unwrap_or(u16::MAX);
        let parts = [Constraint::Length(head), Constraint::Min(0), Constraint::Length(1)];
        let [head, body, foot] = Layout::vertical(parts).areas(frame.area());
        frame.render_widget(Paragraph::new(self.head()), head);
        self.draw_body(frame, body);
        let (_, order) = Sort::ALL[self.sort];
        let foot_line = match &self.problem {
            Some(problem) => Line::styled(problem.clone(), Style::new().reversed()),
            None => Line::from(format!("q quit  h help  s order: {order}  arrows scroll")),
        };
        frame.render_widget(foot_line, foot);
        if self.help {
            draw_help(frame, body);
        }
    }

    /// The title, a line per CPU, the rates, and an empty line.
    fn head(&self) -> Text<'static> {
        let Status { policy, real_time, domains, .. } = &self.now;
        let class = if *real_time { "real-time class" } else { "ordinary class" };
        let activities = ps::activities_of(&self.now).count();
        let hidden = match self.now.hidden_domains {
            0 => String::new(),
            count => format!(" (not shown: {count} of other users)"),
        };
        let title = format!(
            "upcall top  {}  {policy}, {class}  domains {}{hidden}  activities {activities}",
            self.socket,
            domains.len()
        );
        let cpus = self.now.cpus.iter().map(|cpu| {
            let of_cpu =
                |virtual_processor: &VirtualProcessorStatus| virtual_processor.cpu == cpu.cpu;
            let used = self.before.as_ref().map(|_| {
                let used = domains.iter().filter_map(|domain| self.used_ppm(domain, of_cpu));
                used.fold(0, u64::saturating_add)
            });
            Line::from(format!(
                "CPU {:<3} [{}] reserved {} of {}, used {}",
                cpu.cpu,
                bar(cpu.reserved_ppm, used.unwrap_or_default()),
                ps::percent(cpu.reserved_ppm),
                ps::percent(cpu.limit_ppm),
                used.map_or_else(|| "-".to_owned(), ps::percent)
            ))
        });
        let mut lines = vec![Line::styled(title, Style::new().bold())];
        lines.extend(cpus);
        lines.push(Line::from(format!(
            "per second: jobs ended {}  upcalls {}  switches {}  turns passed {}",
            self.rate(|counters| counters.jobs),
            self.rate(|counters| counters.upcalls),
            self.rate(|counters| counters.switches),
            self.rate(|counters| counters.handoffs)
        )));
        lines.extend(self.quota_lines());
        lines.push(Line::default());
        Text::from(lines)
    }

    /// A line for each of the first packet quotas, and one for the others.
    fn quota_lines(&self) -> Vec<Line<'static>> {
        let quotas = &self.now.packet_quotas;
        let line = |of: &PacketQuotaStatus| {
            let before = self.before.as_ref().and_then(|before| {
                let is_same = |other: &&PacketQuotaStatus| {
                    (&other.interface, other.quota.destination, other.pid)
                        == (&of.interface, of.quota.destination, of.pid)
                };
                before.packet_quotas.iter().find(is_same)
            });
            let rate = |count: fn(&PacketCounts) -> u64| {
                before.map_or_else(
                    || "-".to_owned(),
                    |before| {
                        let more = count(&of.counts).saturating_sub(count(&before.counts));
                        let span_ns = of.at_ns.saturating_sub(before.at_ns).max(1);
                        format!("{:.0}/s", more as f64 * 1e9 / span_ns as f64)
                    },
                )
            };
            Line::from(format!(
                "packets {} on {} for {}: quota {}/s  passed {}  dropped {}, in all {}",
                of.quota.destination,
                of.interface,
                of.name,
                ps::packet_quotas::rate(of.quota.interval_ns),
                rate(|counts| counts.passed),
                rate(|counts| counts.dropped),
                of.counts.dropped,
            ))
        };
        let mut lines: Vec<_> = quotas.iter().take(QUOTAS_SHOWN).map(line).collect();
        if quotas.len() > QUOTAS_SHOWN {
            let others = quotas.len() - QUOTAS_SHOWN;
            lines.push(Line::from(format!("and {others} more packet quotas (upcall net)")));
        }
        lines
    }

    /// Draws the rows from the scroll position on, domains first, as far as they fit. Each table
    /// keeps its header.
    fn draw_body(&mut self, frame: &mut Frame<'_>, area: Rect) {
        self.rows = usize::from(area.height.saturating_sub(3)).max(1);
        self.skipped = self.skipped.min(self.rows_in_all() - 1);
        let height = usize::from(area.height);
        let domains = self.domains();
        let left = domains.len().saturating_sub(self.skipped);
        let rows = domains.iter().skip(self.skipped).take(height).map(|d| self.domain_row(d));
        let domain_height = if left > 0 { u16::try_from(left + 2).unwrap_or(u16::MAX) } else { 0 };
        let parts = [Constraint::Length(domain_height.min(area.height)), Constraint::Min(0)];
        let [above, below] = Layout::vertical(parts).areas(area);
        frame.render_widget(table(self.shown_columns(&DOMAIN_COLUMNS), rows), above);
        let activities = self.activities(&domains);
        let skipped = self.skipped.saturating_sub(domains.len());
        let rows = activities.iter().skip(skipped).take(height);
        let rows = rows.map(|(domain, activity)| activity_row(domain, activity));
        frame.render_widget(table(self.shown_columns(&ACTIVITY_COLUMNS), rows), below);
    }

    fn shown_columns<'c>(&self, columns: &'c [Column]) -> &'c [Column] {
        let hidden = usize::from(!ps::has_lags(&self.now));
        &columns[..columns.len() - hidden]
    }

    fn rows_in_all(&self) -> usize {
        (self.now.domains.len() + ps::activities_of(&self.now).count()).max(1)
    }

    /// The domains in the chosen order. Stable: equal domains stay ordered by number.
    fn domains(&self) -> Vec<&DomainStatus> {
        let mut domains: Vec<_> = self.now.domains.iter().collect();
        match Sort::ALL[self.sort].0 {
            Sort::Number => domains.sort_by_key(|domain| domain.domain),
            Sort::Name => domains.sort_by(|one, other| one.name.cmp(&other.name)),
            Sort::Reserved => domains.sort_by_key(|domain| Reverse(domain.reserved_ppm())),
            Sort::Used => domains.sort_by_key(|domain| Reverse(self.used_ppm(domain, |_| true))),
            Sort::Misses => domains.sort_by_key(|domain| Reverse(domain.counters().misses)),
            Sort::Offences => domains.sort_by_key(|domain| Reverse(domain.offences())),
            Sort::Slack => domains.sort_by_key(|domain| domain.counters().slack_ns_min),
        }
        domains
    }

    /// The activities. If the user sorts by name or reservation, they are sorted by their own. Else
    /// they stand in the order of their `domains`.
    fn activities<'s>(
        &self,
        domains: &[&'s DomainStatus],
    ) -> Vec<(&'s DomainStatus, &'s ActivityStatus)> {
        let of = |domain: &&'s DomainStatus| {
            let domain = *domain;
            domain.activities.iter().map(move |activity| (domain, activity))
        };
        let mut activities: Vec<_> = domains.iter().flat_map(of).collect();
        match Sort::ALL[self.sort].0 {
            Sort::Name => activities.sort_by(|(_, one), (_, other)| one.name.cmp(&other.name)),
            Sort::Reserved => {
                activities.sort_by_key(|(_, activity)| Reverse(activity.reserved_ppm))
            }
            _ => {}
        }
        activities
    }

    fn domain_row(&self, domain: &DomainStatus) -> Row<'static> {
        let counters = domain.counters();
        let used = self.used_ppm(domain, |_| true);
        row(
            &DOMAIN_COLUMNS,
            [
                domain.domain.to_string(),
                domain.name.clone(),
                ps::domain_state(domain).to_owned(),
                domain.pid.to_string(),
                domain.uid.to_string(),
                ps::percent(domain.reserved_ppm()),
                used.map_or_else(|| "-".to_owned(), ps::percent),
                domain.offences().to_string(),
                counters.handoffs.to_string(),
                counters.upcalls.to_string(),
                counters.misses.to_string(),
                ps::slack(counters.slack_ns_min),
                ps::lag(domain.lag_ns()),
            ],
        )
    }

    /// CPU time of a domain's threads over the last interval, in millionths of a CPU. Includes only
    /// the virtual processors that `counts` accepts. `None`: the domain was not in the previous
    /// status.
    fn used_ppm(
        &self,
        domain: &DomainStatus,
        counts: impl Fn(&VirtualProcessorStatus) -> bool,
    ) -> Option<u64> {
        let earlier = self.earlier(domain)?;
        let mut used_ns = 0u64;
        for virtual_processor in
            domain.virtual_processors.iter().filter(|virtual_processor| counts(virtual_processor))
        {
            let mut same = earlier
                .virtual_processors
                .iter()
                .filter(|e| (e.cpu, e.tid) == (virtual_processor.cpu, virtual_processor.tid));
            let before_ns = same.next().map_or(0, |earlier| earlier.used_ns);
            used_ns = used_ns.saturating_add(virtual_processor.used_ns.saturating_sub(before_ns));
        }
        let length_ns = u128::from(domain.at_ns.saturating_sub(earlier.at_ns).max(1));
        u64::try_from(u128::from(used_ns) * 1_000_000 / length_ns).ok()
    }

    /// The growth of a counter of all domains, per second.
    fn rate(&self, count: impl Fn(&DomainCounters) -> u64) -> String {
        if self.before.is_none() {
            return "-".to_owned();
        }
        let grown = self.now.domains.iter().filter_map(|domain| {
            let earlier = self.earlier(domain)?;
            let more = count(&domain.counters()).saturating_sub(count(&earlier.counters()));
            Some(more as f64 * 1e9 / domain.at_ns.saturating_sub(earlier.at_ns).max(1) as f64)
        });
        // No `sum`: without domains it would be -0.
        format!("{:.0}", grown.fold(0.0, |sum, rate| sum + rate))
    }

    /// The same domain in the previous status.
    fn earlier(&self, domain: &DomainStatus) -> Option<&DomainStatus> {
        let before = self.before.as_ref()?;
        before.domains.iter().find(|other| other.generation == domain.generation)
    }
}

/// A column: its title, its width, and whether its text is left-aligned.
type Column = (&'static str, u16, bool);

/// The last column of these tables is shown if the policy has lags.
const DOMAIN_COLUMNS: [Column; 13] = [
    ("DOMAIN", 6, false),
    ("NAME", 16, true),
    ("STATE", 9, true),
    ("PID", 7, false),
    ("UID", 6, false),
    ("RESERVED", 8, false),
    ("USED", 8, false),
    ("OFFENCES", 8, false),
    ("PASSED", 9, false),
    ("UPCALLS", 9, false),
    ("MISSED", 7, false),
    ("SLACK", 10, false),
    ("LAG", 10, false),
];

const ACTIVITY_COLUMNS: [Column; 12] = [
    ("ORDER", 6, false),
    ("ACTIVITY", 16, true),
    ("STATE", 9, true),
    ("DOMAIN", 7, false),
    ("CPU", 6, false),
    ("RESERVED", 8, false),
    ("PERIOD", 8, false),
    ("DEADLINE", 8, false),
    ("BATCH", 9, false),
    ("COST", 9, false),
    ("NEXT", 7, false),
    ("LAG", 10, false),
];

fn table<'r>(columns: &[Column], rows: impl Iterator<Item = Row<'r>>) -> Table<'r> {
    let titles = row(columns, columns.iter().map(|(title, ..)| (*title).to_owned()));
    let widths = columns.iter().map(|(_, width, _)| Constraint::Length(*width));
    Table::new(rows, widths).header(titles.style(Style::new().reversed()))
}

fn row(columns: &[Column], cells: impl IntoIterator<Item = String>) -> Row<'static> {
    let cell = |(text, (_, _, left)): (String, &Column)| {
        Text::from(text).alignment(if *left { Alignment::Left } else { Alignment::Right })
    };
    Row::new(cells.into_iter().zip(columns).map(cell))
}

fn activity_row(domain: &DomainStatus, activity: &ActivityStatus) -> Row<'static> {
    row(
        &ACTIVITY_COLUMNS,
        [
            activity.order.to_string(),
            activity.name.clone(),
            ps::activity_state(activity.state).to_owned(),
            domain.domain.to_string(),
            activity.cpu.to_string(),
            ps::percent(activity.reserved_ppm),
            show::span(activity.period_ns),
            show::span(activity.deadline_ns),
            activity.batch.to_string(),
            show::span(activity.pdu_cost_ns),
            ps::release_in(domain, activity),
            ps::lag(activity.lag_ns),
        ],
    )
}

/// A bar: the used part of a CPU (`#`), the rest of the reserved part (`=`), and the rest.
fn bar(reserved_ppm: u64, used_ppm: u64) -> String {
    let columns = |ppm: u64| {
        let columns = ppm.min(1_000_000) * BAR as u64 / 1_000_000;
        usize::try_from(columns).unwrap_or(BAR)
    };
    let (reserved, used) = (columns(reserved_ppm), columns(used_ppm));
    let beyond = reserved.saturating_sub(used);
    format!("{}{}{}", "#".repeat(used), "=".repeat(beyond), " ".repeat(BAR - used - beyond))
}

fn draw_help(frame: &mut Frame<'_>, area: Rect) {
    let (lines, columns) = (HELP.lines().count(), HELP.lines().map(str::len).max().unwrap_or(0));
    let size = |n: usize| u16::try_from(n + 2).unwrap_or(u16::MAX);
    let (height, width) = (size(lines).min(area.height), size(columns).min(area.width));
    let window = Rect { height, width, ..area };
    frame.render_widget(Clear, window);
    frame.render_widget(Paragraph::new(HELP).block(Block::bordered().title("help")), window);
}
