//! Listeners: the lines that they receive, and the calls that their panics come out of.

mod common;

use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use common::{fixture, model, number, options, set_batch, Folder};
use protrain::{Code, Options, Session};

fn session() -> Session {
    let mut session = options().open(model()).unwrap();
    set_batch(&mut session, 0);
    session
}

#[test]
fn a_session_tells_what_happens() {
    let folder = Folder::new();
    let lines = Arc::new(Mutex::new(Vec::new()));
    let heard = Arc::clone(&lines);
    let mut session = session();
    session.set_log(move |line| heard.lock().unwrap().push(line.to_owned())).unwrap();
    let loss = session.step().unwrap();
    session.save(&folder.0).unwrap();
    session.clear_log().unwrap();
    session.step().unwrap();
    let lines = lines.lock().unwrap();
    let events: Vec<_> = lines.iter().map(|line| line.split('"').nth(3).unwrap()).collect();
    assert_eq!(events, ["created", "step", "saved"]);
    assert_eq!(number(&lines[1], "loss") as f32, loss);
    assert!(lines[2].contains("step-0000000001"));
}

/// The profile folder is new, so every kernel is measured, and each measurement is logged.
#[test]
fn options_tell_how_far_they_are() {
    let folder = Folder::new();
    let heard = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&heard);
    let mut options = options();
    options.set_path("profile_dir", &folder.0).unwrap();
    options
        .set_log(move |line| {
            assert!(line.starts_with("{\"event\":\"profiling\""));
            count.fetch_add(1, Ordering::Relaxed);
        })
        .unwrap();
    options.plan(model()).unwrap();
    let once = heard.load(Ordering::Relaxed);
    assert!(once > 1);
    options.clear_log().unwrap().profile(model()).unwrap();
    assert_eq!(heard.load(Ordering::Relaxed), once);
}

fn payload(panic: Box<dyn std::any::Any + Send>) -> &'static str {
    panic.downcast_ref::<&'static str>().unwrap()
}

/// The panic ends the loop. The step that logged the line is complete, and the session still works.
#[test]
fn a_panic_goes_through_the_step() {
    let mut session = session();
    session.set_log(|line| assert!(!line.contains("\"step\":3,"), "enough")).unwrap();
    let run = catch_unwind(AssertUnwindSafe(|| loop {
        session.step().unwrap();
    }));
    assert_eq!(payload(run.unwrap_err()), "enough");
    assert_eq!(session.step_count().unwrap(), 3);
    session.step().unwrap();
    assert_eq!(session.step_count().unwrap(), 4);
}

/// The step that fails logs an alarm before it returns.
#[test]
fn a_panic_does_not_hide_the_error_of_the_call() {
    let mut options = Options::new().unwrap();
    let mut session = options.dim("batch", 2).unwrap().open(fixture("root.onnx")).unwrap();
    session.set_input("x", &[2, 4], &[-1f32; 8]).unwrap(); // the model takes square roots
    session.set_input("u", &[2, 4], &[1f32; 8]).unwrap();
    session.set_log(|line| assert!(!line.contains("\"event\":\"alarm\""), "mine")).unwrap();
    let error = session.step().unwrap_err();
    assert_eq!(error.code(), Code::NonFinite);
    assert!(error.text().ends_with("; the log's closure panicked too: mine"), "{error}");
    assert_eq!(session.step_count().unwrap(), 0);
}

#[test]
fn a_panic_goes_through_set_log() {
    let mut session = session();
    let set = catch_unwind(AssertUnwindSafe(|| session.set_log(|_| panic!("no log"))));
    assert_eq!(payload(set.unwrap_err()), "no log");
    session.clear_log().unwrap();
    session.step().unwrap();
}

/// After a panic the listener gets no more lines of the same call.
#[test]
fn a_panic_goes_through_options() {
    let folder = Folder::new();
    let heard = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&heard);
    let mut options = options();
    options.set_path("profile_dir", &folder.0).unwrap();
    options
        .set_log(move |_| {
            count.fetch_add(1, Ordering::Relaxed);
            panic!("too long")
        })
        .unwrap();
    let opened = catch_unwind(AssertUnwindSafe(|| options.open(model())));
    assert_eq!(payload(opened.unwrap_err()), "too long");
    assert_eq!(heard.load(Ordering::Relaxed), 1);
}

/// A listener may use another session. A panic of that session's listener comes out of the inner call only.
#[test]
fn listeners_are_nested() {
    let mut inner = session();
    inner.set_log(|line| assert!(!line.contains("\"step\":1,"), "inner")).unwrap();
    let mut outer = session();
    outer
        .set_log(move |line| {
            if line.contains("\"event\":\"step\"") {
                let step = catch_unwind(AssertUnwindSafe(|| inner.step()));
                assert_eq!(payload(step.unwrap_err()), "inner");
            }
        })
        .unwrap();
    outer.step().unwrap();
}

#[test]
fn a_listener_stops_the_step_it_hears_of() {
    let mut session = session();
    let cancel = session.cancel_handle();
    session
        .set_log(move |line| {
            if line.contains("\"step\":2,") {
                cancel.cancel()
            }
        })
        .unwrap();
    session.step().unwrap();
    assert_eq!(session.step().unwrap_err().code(), Code::Cancelled);
    assert_eq!(session.step_count().unwrap(), 2); // the cancel came too late to undo the step
    session.step().unwrap();
}

#[test]
fn a_listener_goes_with_its_session() {
    let alive = Arc::new(());
    let (first, second) = (Arc::clone(&alive), Arc::clone(&alive));
    let mut session = session();
    session.set_log(move |_| drop(Arc::clone(&first))).unwrap();
    assert_eq!(Arc::strong_count(&alive), 3);
    session.set_log(move |_| drop(Arc::clone(&second))).unwrap();
    assert_eq!(Arc::strong_count(&alive), 2);
    drop(session);
    assert_eq!(Arc::strong_count(&alive), 1);
}
