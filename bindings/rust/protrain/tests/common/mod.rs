//! Shared by the tests: a model, its data, and options with and without a budget.
#![allow(dead_code)] // each test uses a part of it

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use protrain::{Options, Result, Session};

pub const SHAPE: [usize; 2] = [8, 64];

/// A GPT-2 of 1 MB with the inputs input_ids and labels.
pub fn model() -> PathBuf {
    fixture("gpt2-dynamic-opset18.onnx")
}

pub fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../tests/fixtures").join(name)
}

/// Options for the model, without a budget. Each session has one thread, because tests run in parallel.
pub fn options() -> Options {
    let mut options = Options::new().unwrap();
    options.dim("batch", SHAPE[0]).unwrap().dim("sequence", SHAPE[1]).unwrap().set("threads", 1).unwrap();
    options
}

/// Options with a budget below the resident plan's memory, so the library must choose a plan that uses the disk.
pub fn tight_options() -> Options {
    let mut options = options();
    options.set("memory", "4MiB").unwrap().set_path("offload_dir", std::env::temp_dir()).unwrap();
    options
}

/// The tokens of batch `number`.
pub fn batch(number: usize) -> Vec<i64> {
    (0..SHAPE[0] * SHAPE[1]).map(|at| ((at * 7 + at / 13 + number * 31) % 250) as i64).collect()
}

pub fn set_batch(session: &mut Session, number: usize) {
    let tokens = batch(number);
    session.set_input("input_ids", &SHAPE, &tokens).unwrap();
    session.set_input("labels", &SHAPE, &tokens).unwrap();
}

/// Trains on the batches `numbers`. Returns the bits of each step's loss and gradient norm.
pub fn train(session: &mut Session, numbers: std::ops::Range<usize>) -> Result<Vec<(u32, u64)>> {
    let mut bits = Vec::new();
    for number in numbers {
        set_batch(session, number);
        bits.push((session.step()?.to_bits(), session.grad_norm()?.to_bits()));
    }
    Ok(bits)
}

/// The number after the first `"key":` in JSON.
pub fn number(json: &str, key: &str) -> f64 {
    let key = format!("\"{key}\":");
    let at = json.find(&key).unwrap_or_else(|| panic!("no {key} in {json}")) + key.len();
    let end = json[at..].find(|c| ",}]".contains(c)).unwrap() + at;
    json[at..end].trim().parse().unwrap()
}

/// A new temporary folder. Dropping the value removes it.
pub struct Folder(pub PathBuf);

impl Folder {
    pub fn new() -> Self {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let name = format!("protrain-rust-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let folder = Folder(std::env::temp_dir().join(name));
        std::fs::create_dir(&folder.0).unwrap();
        folder
    }

    pub fn join(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
