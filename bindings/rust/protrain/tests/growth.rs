//! Sessions come and go, and leave nothing behind. Alone in its program, for what it counts is the process's.

mod common;

use std::fs;

use common::fixture;
use protrain::Options;

/// Resident pages, open files and threads of this process.
fn holdings() -> (i64, usize, usize) {
    let pages = fs::read_to_string("/proc/self/statm").unwrap().split(' ').nth(1).unwrap().parse().unwrap();
    (pages, fs::read_dir("/proc/self/fd").unwrap().count(), fs::read_dir("/proc/self/task").unwrap().count())
}

fn sessions(count: usize) -> (i64, usize, usize) {
    for _ in 0..count {
        let mut options = Options::new().unwrap();
        options.dim("batch", 2).unwrap();
        let mut session = options.open(fixture("root.onnx")).unwrap();
        let cancel = session.cancel_handle();
        session.set_log(move |line| drop(line.to_owned())).unwrap();
        for name in ["x", "u"] {
            session.set_input(name, &[2, 4], &[1f32; 8]).unwrap();
        }
        session.step().unwrap();
        session.save("no/such/folder").unwrap_err();
        drop(session);
        cancel.cancel();
    }
    holdings()
}

#[test]
fn a_thousand_sessions_leave_nothing() {
    let (pages, files, threads) = sessions(100);
    let (pages_after, files_after, threads_after) = sessions(1000);
    assert_eq!((files, threads), (files_after, threads_after));
    assert!(pages_after - pages < 256, "{} pages in 1000 sessions", pages_after - pages); // a quarter of a page each
}
