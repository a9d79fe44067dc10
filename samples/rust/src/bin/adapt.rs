//! Trains low-rank adapters of a language model on the bytes of a text, compares the model with its base, saves the
//! adapters in the form of Hugging Face's PEFT, and writes the merged model.
//!
//! ```text
//! adapt MODEL.onnx TEXT STEPS PATTERN DIRECTORY
//! ```
//!
//! PATTERN names the weights to adapt, such as `*.c_attn.weight`. The model is one for `finetune`.

use std::env;
use std::error::Error;
use std::fs;
use std::path::Path;
use std::process::ExitCode;

use protrain::{Options, Session};

const BATCH: usize = 4;
const SEQUENCE: usize = 32;

fn main() -> ExitCode {
    let words: Vec<String> = env::args().collect();
    let done = match (words.as_slice(), words.get(3).and_then(|steps| steps.parse().ok())) {
        ([_, model, text, _, pattern, directory], Some(steps)) => adapt(model, text, steps, pattern, Path::new(directory)),
        _ => {
            eprintln!("usage: adapt MODEL.onnx TEXT STEPS PATTERN DIRECTORY");
            return ExitCode::from(2);
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("adapt: {error}");
            ExitCode::FAILURE
        }
    }
}

fn adapt(model: &str, text: &str, steps: u32, pattern: &str, directory: &Path) -> Result<(), Box<dyn Error>> {
    let text = fs::read(text).map_err(|error| format!("{text}: {error}"))?;
    if text.is_empty() {
        return Err("there is nothing to read in the text".into());
    }
    let mut tokens = text.iter().cycle().map(|&byte| i64::from(byte)); // the text begins again at its end
    let mut options = Options::new()?;
    options.dim("batch", BATCH)?.dim("sequence", SEQUENCE)?.set("learning_rate", 3e-3)?;
    options.set("lora", pattern)?.set("lora_rank", 8)?.set("lora_alpha", 16)?;

    let mut session = options.open(model)?;
    for step in 1..=steps {
        let batch: Vec<i64> = tokens.by_ref().take(BATCH * SEQUENCE).collect();
        session.set_input("input_ids", &[BATCH, SEQUENCE], &batch)?;
        session.set_input("labels", &[BATCH, SEQUENCE], &batch)?;
        println!("step {step} loss {:.6}", session.step()?);
    }
    compare(&mut session)?;
    session.export_adapters(directory.join("adapter"))?;
    session.export(directory.join("merged.onnx"))?;
    Ok(())
}

/// Prints the last batch's losses with the adapters and without. One session has both models.
fn compare(session: &mut Session) -> protrain::Result<()> {
    let adapted = session.eval()?;
    session.use_adapters(false)?;
    let base = session.eval()?;
    session.use_adapters(true)?;
    println!("adapted {adapted:.6} base {base:.6}");
    Ok(())
}
