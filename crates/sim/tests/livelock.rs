//! tmp
use upcall_sim::livelock::*;
#[test]
fn print() {
    for limits in [Limits::Queues, Limits::Quotas] {
        for c in Configuration::ALL {
            for s in Senders::OF_PAPER {
                let t = std::time::Instant::now();
                let a = averages(&Setup { limits, ..Setup::of_paper(c, s) }, 0..8);
                println!("{c:?} {s:?} {limits:?} {:?}", t.elapsed());
                for r in &a.rows {
                    let f = |v: Average| format!("{:.1} ({:.1})", v.mean, v.deviation);
                    println!(
                        "   {:6} {:>18} adapter {:>14} input {:>18} socket {:>18}",
                        r.name,
                        f(r.packets),
                        f(r.at_adapter),
                        f(r.at_input_queue),
                        f(r.at_socket)
                    );
                }
                println!(
                    "   background {:.2} ({:.2}) s",
                    a.background_s.mean, a.background_s.deviation
                );
            }
        }
    }
}
