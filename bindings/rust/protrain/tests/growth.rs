//! Dropped sessions leave no memory, files or threads behind. The test is alone in its program, because it counts
//! those of the whole process.

mod common;

use std::fs;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::thread::sleep;
use std::time::Duration;

use common::{fixture, Folder};
use protrain::Options;

/// Counts the entries of a folder of /proc.
fn entries(folder: &str) -> usize {
    fs::read_dir(folder).unwrap().count()
}

/// The threads of this process. On a busy machine a thread stays in /proc for a moment after it was joined, so this is
/// the least of several counts.
fn threads() -> usize {
    let count = |_| {
        sleep(Duration::from_millis(20));
        entries("/proc/self/task")
    };
    (0..20).map(count).min().unwrap()
}

/// Resident pages, open files and threads of this process.
fn holdings() -> (i64, usize, usize) {
    let pages = fs::read_to_string("/proc/self/statm").unwrap().split(' ').nth(1).unwrap().parse().unwrap();
    (pages, entries("/proc/self/fd"), threads())
}

/// Makes and drops `count` sessions, and returns the holdings afterwards. Each session has a listener, a call that
/// failed, and a cancel handle that outlives it. Every tenth session takes a step.
fn sessions(count: usize) -> (i64, usize, usize) {
    for at in 0..count {
        let mut options = Options::new().unwrap();
        options.dim("batch", 2).unwrap().set("threads", 1).unwrap();
        let mut session = options.open(fixture("root.onnx")).unwrap();
        let cancel = session.cancel_handle();
        session.set_log(move |line| drop(line.to_owned())).unwrap();
        session.step().unwrap_err();
        if at % 10 == 0 {
            session.set_input("x", &[2, 4], &[1f32; 8]).unwrap();
            session.set_input("u", &[2, 4], &[1f32; 8]).unwrap();
            session.step().unwrap();
        }
        drop(session);
        cancel.cancel();
    }
    holdings()
}

#[test]
fn hundreds_of_sessions_leave_nothing() {
    let (pages, files, threads) = sessions(50);
    let (pages_after, files_after, threads_after) = sessions(350);
    assert_eq!((files, threads), (files_after, threads_after));
    // A session whose options' listener panics leaves no thread either. The new profile folder has no measurements yet,
    // so the listener gets lines about them.
    let folder = Folder::new();
    let mut options = Options::new().unwrap();
    options.dim("batch", 2).unwrap().set_path("profile_dir", &folder.0).unwrap().set_log(|_| panic!()).unwrap();
    catch_unwind(AssertUnwindSafe(|| options.open(fixture("root.onnx")))).unwrap_err();
    assert_eq!(holdings().2, threads);
    assert!(pages_after - pages < 256, "{} pages in 350 sessions of a model of a page", pages_after - pages);
}
