//! Sessions that train in parallel, sessions that move to another thread, and calls that another thread cancels.

mod common;

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use common::{model, options, set_batch, tight_options, train};
use protrain::{CancelHandle, Code, Error, Options, Session};

#[test]
fn what_may_cross_threads() {
    fn is_send<T: Send>() {}
    fn is_sync<T: Sync>() {}
    is_send::<Session>(); // a doctest of Session shows that it is not Sync
    is_send::<Options>();
    is_sync::<Options>();
    is_send::<CancelHandle>();
    is_sync::<CancelHandle>();
    is_send::<Error>();
    is_sync::<Error>();
}

/// Eight threads each create a session from the same options, and train it in parallel.
#[test]
fn eight_sessions_train_beside_each_other() {
    let options = tight_options();
    let expected = train(&mut options.open(model()).unwrap(), 0..4).unwrap();
    let options = Arc::new(options);
    let runs: Vec<_> = (0..8)
        .map(|_| {
            let options = Arc::clone(&options);
            thread::spawn(move || train(&mut options.open(model()).unwrap(), 0..4).unwrap())
        })
        .collect();
    for run in runs {
        assert_eq!(run.join().unwrap(), expected);
    }
}

#[test]
fn a_session_moves_to_another_thread() {
    let mut session = options().open(model()).unwrap();
    set_batch(&mut session, 0);
    session.step().unwrap();
    let mut session = thread::spawn(move || {
        session.step().unwrap();
        session
    })
    .join()
    .unwrap();
    session.step().unwrap();
    assert_eq!(session.step_count().unwrap(), 3);
}

#[test]
fn another_thread_cancels() {
    let mut session = options().open(model()).unwrap();
    set_batch(&mut session, 0);
    let cancel = session.cancel_handle();
    let other = thread::spawn(move || {
        thread::sleep(Duration::from_millis(20));
        cancel.cancel();
    });
    let error = loop {
        if let Err(error) = session.step() {
            break error;
        }
    };
    other.join().unwrap();
    assert_eq!(error.code(), Code::Cancelled);
    assert!(error.usable());
    session.step().unwrap();
}

#[test]
fn a_cancelled_step_changes_nothing() {
    let mut session = options().open(model()).unwrap();
    set_batch(&mut session, 0);
    let before = session.eval().unwrap();
    session.cancel_handle().cancel();
    assert_eq!(session.step().unwrap_err().code(), Code::Cancelled);
    assert_eq!(session.step_count().unwrap(), 0);
    assert_eq!(session.eval().unwrap().to_bits(), before.to_bits());
}

/// One handle cancels while the session is dropped, another one afterwards.
#[test]
fn a_handle_outlives_its_session() {
    let session = options().open(model()).unwrap();
    let (cancel, racing) = (session.cancel_handle(), session.cancel_handle());
    let other = thread::spawn(move || (0..100_000).for_each(|_| racing.cancel()));
    drop(session);
    other.join().unwrap();
    cancel.cancel();
}
