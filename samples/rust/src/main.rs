//! Fine-tunes a language model on the bytes of a text file, within a memory budget. Saves a checkpoint half-way and
//! resumes from it.
//!
//! ```text
//! finetune MODEL.onnx TEXT STEPS MEMORY DIRECTORY
//! ```
//!
//! The model is any ONNX file with inputs `input_ids` and `labels` (int64, batch x sequence), a vocabulary of at least
//! 256 tokens, and one scalar output: the next-token loss, for which the graph itself shifts the labels.

use std::env;
use std::error::Error;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Write};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use protrain::{Options, Session};

const BATCH: usize = 8;
const SEQUENCE: usize = 64;

struct Arguments {
    model: PathBuf,
    text: PathBuf,
    steps: u32,
    memory: String,
    directory: PathBuf,
}

impl Arguments {
    /// Returns None if `words` do not match the usage.
    fn read(words: &[OsString]) -> Option<Self> {
        match words {
            [_, model, text, steps, memory, directory] => Some(Arguments {
                model: model.into(),
                text: text.into(),
                steps: steps.to_str()?.parse().ok().filter(|&steps| steps > 0)?,
                memory: memory.to_str()?.to_owned(),
                directory: directory.into(),
            }),
            _ => None,
        }
    }
}

fn main() -> ExitCode {
    let words: Vec<OsString> = env::args_os().collect();
    match Arguments::read(&words).as_ref().map(finetune) {
        Some(Ok(())) => ExitCode::SUCCESS,
        Some(Err(error)) => {
            eprintln!("finetune: {error}");
            ExitCode::FAILURE
        }
        None => {
            eprintln!("usage: finetune MODEL.onnx TEXT STEPS MEMORY DIRECTORY");
            ExitCode::from(2)
        }
    }
}

fn finetune(arguments: &Arguments) -> Result<(), Box<dyn Error>> {
    let text = fs::read(&arguments.text).map_err(at(&arguments.text))?;
    if text.is_empty() {
        return Err("there is nothing to read in the text".into());
    }
    let mut tokens = text.iter().cycle().map(|&byte| i64::from(byte)); // the text begins again at its end
    let path = arguments.directory.join("run.jsonl");
    let mut run = File::create(&path).map_err(at(&path))?;
    let half = arguments.steps / 2;

    let mut session = open(arguments, None)?;
    train(&mut session, &mut tokens, &mut run, 1..=half, arguments.steps)?;
    session.save(&arguments.directory)?;
    let checkpoint = arguments.directory.join(format!("step-{:010}", session.step_count()?));
    drop(session);

    // This could be another process on another day. The checkpoint holds everything except inputs and options.
    let mut session = open(arguments, Some(&checkpoint))?;
    train(&mut session, &mut tokens, &mut run, half + 1..=arguments.steps, arguments.steps)?;
    session.export(arguments.directory.join("trained.onnx"))?;
    Ok(())
}

fn open(arguments: &Arguments, resume: Option<&Path>) -> protrain::Result<Session> {
    let mut options = Options::new()?;
    options
        .dim("batch", BATCH)?
        .dim("sequence", SEQUENCE)?
        .set("learning_rate", 1e-3)?
        .set("weight_decay", 0.1)?
        .set("memory", &arguments.memory)?
        .set_path("offload_dir", &arguments.directory)?;
    if let Some(checkpoint) = resume {
        options.set_path("resume", checkpoint)?;
    }
    let mut session = options.open(&arguments.model)?;
    session.set_log(show_progress)?;
    Ok(session)
}

/// Trains the steps `numbers` of `steps`, with the next tokens.
fn train(
    session: &mut Session,
    tokens: &mut impl Iterator<Item = i64>,
    run: &mut impl Write,
    numbers: RangeInclusive<u32>,
    steps: u32,
) -> Result<(), Box<dyn Error>> {
    for number in numbers {
        let batch: Vec<i64> = tokens.by_ref().take(BATCH * SEQUENCE).collect();
        session.set_input("input_ids", &[BATCH, SEQUENCE], &batch)?;
        session.set_input("labels", &[BATCH, SEQUENCE], &batch)?;
        session.set_learning_rate(1e-3 * (1.0 - 0.9 * f64::from(number) / f64::from(steps)))?;
        let loss = session.step()?.to_bits();
        let grad_norm = (session.grad_norm()? as f32).to_bits();
        writeln!(run, r#"{{"step":{number},"loss_bits":"{loss:08x}","grad_norm_bits":"{grad_norm:08x}"}}"#)?;
    }
    Ok(())
}

/// Receives each line of the session's log, and prints every tenth step.
fn show_progress(line: &str) {
    if let (Some(step), Some(loss)) = (number(line, "step"), number(line, "loss")) {
        if step == 1.0 || step % 10.0 == 0.0 {
            println!("step {step}  loss {loss:.4}");
        }
    }
}

/// Returns the number under `key` in a JSON line. A larger program would use a JSON crate.
fn number(line: &str, key: &str) -> Option<f64> {
    let (_, rest) = line.split_once(&format!("\"{key}\":"))?;
    rest.split([',', '}']).next()?.parse().ok()
}

/// Adds the file's name to an error of the system.
fn at(path: &Path) -> impl FnOnce(io::Error) -> String + '_ {
    move |error| format!("{}: {error}", path.display())
}
