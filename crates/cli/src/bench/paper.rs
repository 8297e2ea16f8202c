//! Tables 1 to 5 of proportional-share-1998 (§5), as printed there: 60 s a cell, on FreeBSD 2.2.2
//! and a Pentium Pro with 200 MHz, from senders on 10 Mbit/s Ethernet.

use super::load::{Config, Load};

/// How long a cell of the paper took.
pub const SECONDS: f64 = 60.0;

/// A row of a table: mean, and standard deviation in brackets in the paper.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Row {
    pub packets: f64,
    pub at_socket: f64,
    pub at_ip: f64,
}

/// What the paper has for one way of sending: audio, video, file, and iterations of Dhrystone.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Figures {
    pub receivers: [Row; 3],
    pub iterations: f64,
}

const fn row(packets: f64, at_socket: f64, at_ip: f64) -> Row {
    Row { packets, at_socket, at_ip }
}

const fn figures(audio: Row, video: Row, file: Row, iterations: f64) -> Figures {
    Figures { receivers: [audio, video, file], iterations }
}

/// Tables 1 to 5, each for constant, bursty and misbehaving senders.
const TABLES: [[Figures; 3]; 5] = [
    [
        figures(row(3000., 0., 0.), row(3313., 2110., 0.), row(11996., 0., 0.), 7_333_439.),
        figures(row(2938., 0., 0.), row(3466., 1703., 0.), row(10897., 0., 0.), 7_660_042.),
        figures(row(2999., 0., 0.), row(2456., 2967., 0.), row(11862., 48043., 0.), 5_479_480.),
    ],
    [
        figures(row(2999., 0., 0.), row(5454., 0., 0.), row(11996., 0., 0.), 4_593_536.),
        figures(row(2927., 0., 0.), row(5126., 0., 0.), row(10483., 0., 0.), 6_115_263.),
        figures(row(2999., 0., 0.), row(5454., 0., 0.), row(12000., 47952., 0.), 915_343.),
    ],
    [
        figures(row(3001., 0., 0.), row(5457., 0., 0.), row(12005., 0., 0.), 4_970_544.),
        figures(row(2992., 0., 0.), row(5225., 0., 0.), row(10532., 0., 0.), 6_034_405.),
        figures(
            row(757., 0., 2244.),
            row(2004., 0., 3448.),
            row(11999., 15211., 32745.),
            8_794_017.,
        ),
    ],
    [
        figures(row(2999., 0., 0.), row(5454., 0., 0.), row(12005., 0., 0.), 4_805_747.),
        figures(row(2958., 0., 0.), row(5215., 0., 1.3), row(10887., 0., 7.7), 5_817_508.),
        figures(row(2999., 0., 0.), row(5454., 0., 0.), row(12003., 31044., 16906.), 1_079_076.),
    ],
    [
        figures(row(3000., 0., 0.), row(5454., 0., 0.), row(11999., 0., 0.), 4_652_845.),
        figures(row(2966., 0., 4.), row(5221., 0., 6.3), row(10893., 0., 0.7), 5_788_270.),
        figures(row(3000., 0., 0.), row(5454., 0., 0.), row(12000., 0., 47983.), 1_261_473.),
    ],
];

/// The paper's figures for a cell. `None` for a flood.
pub fn figures_of(config: Config, load: Load) -> Option<&'static Figures> {
    let of_senders = match load {
        Load::Constant => 0,
        Load::Bursty => 1,
        Load::Misbehaving => 2,
        Load::Flood(_) => return None,
    };
    TABLES[usize::from(config.number()) - 1].get(of_senders)
}
