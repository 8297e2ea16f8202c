//! Tests of virtual-time handlers on real threads (rtu-1995 §9): the order of their upcalls, and
//! that no other handler runs between the PDUs of a quantum. The tests assert no times.
#![expect(clippy::unwrap_used, reason = "what fails here is the test")]

#[allow(dead_code, reason = "each test program uses its own part")]
mod support;

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use upcall_runtime::activity::ActivityParams;
use upcall_runtime::time::Span;
use upcall_runtime::{Batch, Config, CreateError, HandlerId, Runtime, clock};

fn start() -> (Runtime, MutexGuard<'static, ()>) {
    support::start(Config::default())
}

/// What the handlers did, in order.
type Diary = Arc<Mutex<Vec<u32>>>;

/// A handler that writes `number` once for each PDU, for at most `pdus` PDUs.
fn writer(diary: &Diary, number: u32, pdus: u32) -> impl FnMut(&mut Batch<'_>) + Send + 'static {
    let (diary, mut left) = (diary.clone(), pdus);
    move |batch| {
        while left > 0 && batch.proceed() {
            diary.lock().unwrap().push(number);
            left -= 1;
        }
        if left == 0 {
            batch.finish();
        }
    }
}

/// Creates a handler that holds the thread inside a PDU, so that other handlers can be run
/// together.
fn holder(runtime: &mut Runtime) -> (HandlerId, Arc<AtomicBool>) {
    let open = Arc::new(AtomicBool::new(false));
    let (seen, entered) = (open.clone(), Arc::new(AtomicBool::new(false)));
    let inside = entered.clone();
    let id = runtime
        .virtual_handler("holder", 1, move |batch| {
            assert!(batch.proceed());
            inside.store(true, Ordering::SeqCst);
            while !seen.load(Ordering::SeqCst) {
                std::thread::yield_now();
            }
            batch.finish();
        })
        .unwrap();
    runtime.run(id).unwrap();
    while !entered.load(Ordering::SeqCst) {
        std::thread::yield_now();
    }
    (id, open)
}

fn wait_for_all(runtime: &mut Runtime, ids: &[HandlerId]) {
    for &id in ids {
        assert_eq!(runtime.wait(&[id], None), [id]);
    }
}

#[test]
fn handlers_take_turns_in_the_order_of_creation_a_quantum_each() {
    let (mut runtime, _alone) = start();
    let diary = Diary::default();
    let (_, open) = holder(&mut runtime);
    let ids = [(1, 2, 6), (2, 3, 6), (3, 1, 2)].map(|(number, quantum, pdus)| {
        let handler = writer(&diary, number, pdus);
        runtime.virtual_handler(&format!("h{number}"), quantum, handler).unwrap()
    });
    // Run in another order than that of creation. The turns still go in the order of creation.
    for id in [ids[2], ids[0], ids[1]] {
        runtime.run(id).unwrap();
    }
    open.store(true, Ordering::SeqCst);
    wait_for_all(&mut runtime, &ids);
    // Turns of 2, 3 and 1 PDUs. A handler with PDUs left gets another turn.
    assert_eq!(*diary.lock().unwrap(), [1, 1, 2, 2, 2, 3, 1, 1, 2, 2, 2, 3, 1, 1]);
    let statistics = runtime.virtual_statistics(ids[0]).unwrap();
    assert_eq!((statistics.upcalls, statistics.pdus), (3, 6));
    let report = runtime.stop(|_, _| {});
    let names: Vec<&str> = report.virtual_handlers.iter().map(|one| one.name.as_str()).collect();
    assert_eq!(names, ["holder", "h1", "h2", "h3"]);
    assert!(report.virtual_handlers.iter().all(|one| !one.faulted && !one.stuck));
    assert!(report.activities.is_empty(), "nothing was reserved");
}

#[test]
fn no_handler_runs_between_the_pdus_of_a_quantum() {
    const QUANTUM: u32 = 7;
    let (mut runtime, _alone) = start();
    let (inside, intruders) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let ids = [1, 2, 3].map(|number| {
        let (inside, intruders) = (inside.clone(), intruders.clone());
        let mut quanta = 0;
        runtime
            .virtual_handler(&format!("h{number}"), QUANTUM, move |batch| {
                let mut of_quantum = 0;
                while batch.proceed() {
                    // The first PDU claims the quantum; the others must find the claim.
                    let expected = if of_quantum == 0 { 0 } else { number };
                    intruders.fetch_add(
                        u32::from(inside.swap(number, Ordering::SeqCst) != expected),
                        Ordering::SeqCst,
                    );
                    if of_quantum % 3 == 0 {
                        // Gives other handlers the chance to run.
                        std::thread::yield_now();
                    }
                    of_quantum += 1;
                    if of_quantum == QUANTUM {
                        inside.store(0, Ordering::SeqCst);
                        of_quantum = 0;
                        quanta += 1;
                        if quanta >= 200 {
                            break;
                        }
                    }
                }
                intruders.fetch_add(u32::from(of_quantum != 0), Ordering::SeqCst);
                if quanta >= 200 {
                    batch.finish();
                }
            })
            .unwrap()
    });
    runtime.run_at(&ids, clock::now()).unwrap();
    // Controls never cut a quantum, whenever they come.
    for _ in 0..50 {
        runtime.suspend(ids[1]);
        runtime.run(ids[1]).unwrap();
        std::thread::sleep(Duration::from_micros(50));
    }
    wait_for_all(&mut runtime, &ids);
    assert_eq!(intruders.load(Ordering::SeqCst), 0);
    for id in ids {
        let pdus = runtime.virtual_statistics(id).unwrap().pdus;
        assert!(pdus >= u64::from(200 * QUANTUM) && pdus % u64::from(QUANTUM) == 0, "{pdus}");
    }
}

/// Creates a handler that counts its PDUs while it is delivered.
fn counter(runtime: &mut Runtime, name: &str) -> (HandlerId, Arc<AtomicU32>) {
    let pdus = Arc::new(AtomicU32::new(0));
    let counted = pdus.clone();
    let id = runtime
        .virtual_handler(name, 4, move |batch| {
            while batch.proceed() {
                counted.fetch_add(1, Ordering::SeqCst);
            }
        })
        .unwrap();
    (id, pdus)
}

fn wait_for_more(pdus: &AtomicU32) {
    let seen = pdus.load(Ordering::SeqCst);
    while pdus.load(Ordering::SeqCst) < seen + 3 {
        std::thread::yield_now();
    }
}

#[test]
fn a_suspended_handler_rests_until_it_is_run_again() {
    let (mut runtime, _alone) = start();
    let (id, pdus) = counter(&mut runtime, "h");
    assert!(!runtime.is_active(id));
    runtime.run(id).unwrap();
    wait_for_more(&pdus);
    assert!(runtime.is_active(id));
    assert!(runtime.wait(&[id], Some(clock::after(Span::from_millis(5)))).is_empty());
    runtime.suspend(id);
    assert_eq!(runtime.wait(&[id], None), [id]);
    let at_suspend = pdus.load(Ordering::SeqCst);
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!(pdus.load(Ordering::SeqCst), at_suspend);
    assert_eq!(at_suspend % 4, 0, "a quantum is not cut");
    runtime.run(id).unwrap();
    wait_for_more(&pdus);
    let report = runtime.close_virtual(id).unwrap();
    let at_close = pdus.load(Ordering::SeqCst);
    assert_eq!((report.name.as_str(), report.statistics.pdus), ("h", u64::from(at_close)));
    assert!(report.statistics.cpu > Span::ZERO);
    assert_eq!(Arc::strong_count(&pdus), 1, "the handler was dropped");
    assert!(!runtime.is_active(id) && runtime.virtual_statistics(id).is_none());
    assert!(runtime.close_virtual(id).is_none() && runtime.close(id).is_none());
    // Controls of a closed handler have no effect.
    runtime.run(id).unwrap();
    runtime.suspend(id);
    assert_eq!(runtime.wait(&[id], None), [id]);
}

#[test]
fn a_finish_does_not_undo_a_run_during_its_upcall() {
    let (mut runtime, _alone) = start();
    let (id, open) = holder(&mut runtime);
    runtime.run(id).unwrap();
    open.store(true, Ordering::SeqCst);
    assert_eq!(runtime.wait(&[id], None), [id]);
    assert_eq!(runtime.virtual_statistics(id).unwrap().upcalls, 2);
}

#[test]
fn a_panic_ends_the_handler_and_nothing_else() {
    let (mut runtime, _alone) = start();
    let diary = Diary::default();
    let bad =
        runtime.virtual_handler("bad", 1, |batch| assert!(!batch.proceed(), "told to")).unwrap();
    let good = runtime.virtual_handler("good", 1, writer(&diary, 1, 5)).unwrap();
    runtime.run(bad).unwrap();
    assert_eq!(runtime.wait(&[bad], None), [bad]);
    runtime.run(good).unwrap();
    assert_eq!(runtime.wait(&[good], None), [good]);
    assert_eq!(diary.lock().unwrap().len(), 5);
    let report = runtime.stop(|_, _| {});
    assert_eq!(
        report.virtual_handlers.iter().map(|one| one.faulted).collect::<Vec<_>>(),
        [true, false]
    );
}

#[test]
fn real_time_handlers_keep_their_counts_beside_virtual_ones() {
    let (mut runtime, _alone) = start();
    let (virtual_id, pdus) = counter(&mut runtime, "background");
    let params = ActivityParams::new(Span::from_millis(4), Span::from_micros(50)).batch(3);
    let mut jobs = 0;
    let mut left = 3;
    let id = runtime
        .handler("real", params, move |batch| {
            while batch.proceed() {
                left -= 1;
            }
            if left == 0 {
                (jobs, left) = (jobs + 1, 3);
            }
            if jobs == 10 {
                batch.finish();
            }
        })
        .unwrap();
    runtime.run_at(&[virtual_id, id], clock::now()).unwrap();
    assert_eq!(runtime.wait(&[id], None), [id]);
    wait_for_more(&pdus);
    // Both ran. The real-time handler counts all of its own PDUs and no others.
    let report = runtime.stop(|_, _| {});
    let counters = report.activities[0].counters.unwrap();
    assert_eq!((counters.completed, counters.pdus), (10, 30));
    assert_eq!(report.activities.len(), 1);
    assert_eq!(report.virtual_handlers[0].statistics.pdus, u64::from(pdus.load(Ordering::SeqCst)));
}

#[test]
fn a_virtual_handler_is_refused_only_for_its_name_or_quantum() {
    let (mut runtime, _alone) = start();
    // No room is left for a real-time handler.
    for number in 0..runtime.config().cpus.len() {
        let params = ActivityParams::new(Span::from_millis(10), Span::from_micros(8_500));
        runtime.handler(&format!("full{number}"), params, |_| {}).unwrap();
    }
    let before = runtime.reservations().load().iter().map(|cpu| cpu.utilization).sum::<f64>();
    runtime.virtual_handler("h", 1, |_| {}).unwrap();
    let after = runtime.reservations().load().iter().map(|cpu| cpu.utilization).sum::<f64>();
    assert!((before - after).abs() < 1e-12);
    let taken = |made| matches!(made, Err(CreateError::NameTaken(_)));
    assert!(taken(runtime.virtual_handler("h", 1, |_| {})));
    assert!(taken(runtime.virtual_handler("full0", 1, |_| {})));
    let params = ActivityParams::new(Span::from_millis(10), Span::from_micros(1));
    assert!(taken(runtime.handler("h", params, |_| {})));
    let none = runtime.virtual_handler("none", 0, |_| {});
    assert!(matches!(none, Err(CreateError::Params(_))), "{none:?}");
}

#[test]
fn the_thread_of_virtual_handlers_is_of_the_ordinary_class() {
    let (mut runtime, _alone) = start();
    let class = Arc::new(Mutex::new(String::new()));
    let seen = class.clone();
    let id = runtime
        .virtual_handler("h", 1, move |batch| {
            // Field 41 of stat is the policy: index 38 after the name in parentheses.
            let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
            let behind = stat.rsplit(") ").next().unwrap();
            *seen.lock().unwrap() = behind.split(' ').nth(38).unwrap().to_owned();
            batch.finish();
        })
        .unwrap();
    runtime.run(id).unwrap();
    assert_eq!(runtime.wait(&[id], None), [id]);
    assert_eq!(*class.lock().unwrap(), "0", "SCHED_OTHER");
}

#[test]
fn a_virtual_handler_with_an_abort_phase_is_upcalled_until_it_finishes() {
    let (mut runtime, _alone) = start();
    let closed = Arc::new(AtomicU32::new(0));
    let (said, mut left) = (closed.clone(), 3);
    let tcp = runtime
        .virtual_handler("tcp", 2, move |batch| {
            while batch.proceed() {
                if batch.aborting() {
                    said.fetch_add(1, Ordering::SeqCst);
                    left -= 1;
                    if left == 0 {
                        return batch.finish();
                    }
                }
            }
        })
        .unwrap();
    let (other, pdus) = counter(&mut runtime, "other");
    let (never, _) = counter(&mut runtime, "never");
    runtime.give_abort_phase(tcp);
    runtime.give_abort_phase(never);
    runtime.run_at(&[tcp, other, never], clock::now()).unwrap();
    wait_for_more(&pdus);
    let report = runtime.abort(Some(clock::after(Span::from_millis(200))), |_, _| {});
    assert_eq!(closed.load(Ordering::SeqCst), 3);
    assert_eq!(report.unfinished, ["never"]);
    assert!(report.virtual_handlers.iter().all(|one| !one.stuck));
}
