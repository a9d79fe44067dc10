//! Trains a classifier of texts: which of several files does a window of bytes come from? Every fifth window is held
//! out. After each pass over the others, the program evaluates the model on the held-out ones and saves it if it is the
//! best so far. It stops after three passes without a better one, and exports the best.
//!
//! ```text
//! classify MODEL.onnx DIRECTORY TEXT TEXT ...
//! ```
//!
//! The model has an input `tokens` (int64, batch x 64) of bytes and an output `logits` (batch x classes), one class for
//! each text. It has no loss; the options add one.

use std::env;
use std::error::Error;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use protrain::{Options, Session};

const BATCH: usize = 32;
const LENGTH: usize = 64;
const PATIENCE: usize = 3;
const MOST_PASSES: usize = 40;

/// Windows of bytes, and the number of the text that each comes from.
#[derive(Default)]
struct Samples(Vec<(Vec<u8>, usize)>);

impl Samples {
    fn batches(&self) -> usize {
        self.0.len() / BATCH
    }

    /// Returns the samples of a batch. Each pass has an order of its own. Every sample comes once: multiples of 7919
    /// modulo the count differ from each other, because 7919 is prime, unless it divides the count.
    fn batch(&self, number: usize, pass: usize) -> impl Iterator<Item = &(Vec<u8>, usize)> {
        let at = move |row| ((number * BATCH + row) * 7919 + pass * 104729) % self.0.len();
        (0..BATCH).map(move |row| &self.0[at(row)])
    }

    fn set(&self, session: &mut Session, number: usize, pass: usize) -> protrain::Result<()> {
        let tokens: Vec<i64> = self.batch(number, pass).flat_map(|(bytes, _)| bytes).map(|&b| i64::from(b)).collect();
        let labels: Vec<i64> = self.batch(number, pass).map(|&(_, label)| label as i64).collect();
        session.set_input("tokens", &[BATCH, LENGTH], &tokens)?;
        session.set_input("labels", &[BATCH], &labels)
    }

    /// Counts the samples of the present batch that have their largest logit at their label.
    fn count_right(&self, session: &mut Session, number: usize, classes: usize) -> protrain::Result<usize> {
        let mut logits = vec![0f32; BATCH * classes];
        session.predict()?;
        session.read_output("logits", &mut logits)?;
        let largest = |row: &[f32]| (1..classes).fold(0, |most, i| if row[i] > row[most] { i } else { most });
        let answers = logits.chunks(classes).map(largest);
        Ok(answers.zip(self.batch(number, 0)).filter(|(answer, (_, label))| answer == label).count())
    }

    /// Returns the mean loss and the share of right answers.
    fn evaluate(&self, session: &mut Session, classes: usize) -> protrain::Result<(f32, f64)> {
        let (mut sum, mut right) = (0.0, 0);
        for number in 0..self.batches() {
            self.set(session, number, 0)?;
            sum += f64::from(session.eval()?);
            right += self.count_right(session, number, classes)?;
        }
        Ok(((sum / self.batches() as f64) as f32, right as f64 / (self.batches() * BATCH) as f64))
    }
}

fn main() -> ExitCode {
    let words: Vec<OsString> = env::args_os().collect();
    if words.len() < 5 {
        eprintln!("usage: classify MODEL.onnx DIRECTORY TEXT TEXT ...");
        return ExitCode::from(2);
    }
    match classify(Path::new(&words[1]), Path::new(&words[2]), &words[3..]) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("classify: {error}");
            ExitCode::FAILURE
        }
    }
}

fn classify(model: &Path, directory: &Path, texts: &[OsString]) -> Result<(), Box<dyn Error>> {
    let (mut train, mut held_out) = (Samples::default(), Samples::default());
    for (label, path) in texts.iter().enumerate() {
        let text = fs::read(path).map_err(|error| format!("{}: {error}", Path::new(path).display()))?;
        for (window, bytes) in text.chunks_exact(LENGTH).enumerate() {
            let to = if window % 5 == 4 { &mut held_out } else { &mut train };
            to.0.push((bytes.to_vec(), label));
        }
    }
    if held_out.batches() == 0 {
        return Err("the texts are too short".into());
    }
    let mut options = Options::new()?;
    options.dim("batch", BATCH)?.set("loss", "cross_entropy")?.set("loss_output", "logits")?;
    options.set("keep_outputs", "logits")?.set("learning_rate", 3e-3)?;

    let mut session = options.open(model)?;
    let mut best: Option<(f32, PathBuf)> = None;
    let (mut pass, mut without) = (1, 0);
    while pass <= MOST_PASSES && without < PATIENCE {
        for number in 0..train.batches() {
            train.set(&mut session, number, pass)?;
            session.step()?;
        }
        let (loss, accuracy) = held_out.evaluate(&mut session, texts.len())?;
        println!("pass {pass}  loss {loss:.4}  accuracy {accuracy:.3}");
        pass += 1;
        without += 1;
        if best.as_ref().map_or(true, |(least, _)| loss < *least) {
            session.save(directory)?;
            best = Some((loss, directory.join(format!("step-{:010}", session.step_count()?))));
            without = 0;
        }
    }
    drop(session); // the next session needs its memory

    let (_, checkpoint) = best.ok_or("there was no pass")?;
    options.set_path("resume", &checkpoint)?.open(model)?.export(directory.join("classifier.onnx"))?;
    Ok(())
}
