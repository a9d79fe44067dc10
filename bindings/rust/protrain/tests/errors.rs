//! Calls that fail. Each must return its error itself, with the right code, subject and text.

mod common;

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;

use common::{fixture, model, options, set_batch, tight_options, train, Folder, SHAPE};
use protrain::{Code, Error, Options, Session};

#[track_caller]
fn fails<T: std::fmt::Debug>(result: Result<T, Error>, code: Code, subject: &str) -> String {
    let error = result.unwrap_err();
    assert_eq!(error.code(), code, "{error}");
    assert!(error.subject().contains(subject), "{} does not contain {subject}", error.subject());
    assert!(error.usable(), "{error}");
    assert!(error.to_string().contains(error.subject()) && error.to_string().ends_with(error.text()));
    assert_eq!(format!("{error:?}"), error.text()); // `main` prints a returned error in this form
    error.text().to_owned()
}

#[test]
fn options_that_are_wrong() -> Result<(), Error> {
    let mut options = Options::new()?;
    let text = fails(options.set("learning_rte", 1), Code::Arg, "learning_rte");
    assert!(text.contains("learning_rate"));
    fails(options.set("learning_rate", "fast"), Code::Arg, "learning_rate");
    fails(options.set("learning_rate", f64::NAN), Code::Arg, "learning_rate");
    fails(options.set("precision", "fp64"), Code::Arg, "precision");
    fails(options.get("nothing"), Code::Arg, "nothing");
    fails(options.set("memory", "4\0MiB"), Code::Arg, "memory");
    fails(options.set("mem\0ory", 4), Code::Arg, "key");
    fails(options.open("mo\0del"), Code::Arg, "model");
    fails(options.set_path("resume", OsStr::from_bytes(b"\xff")), Code::Arg, "resume");
    options.set("learning_rate", 0.5)?; // the failed calls changed nothing
    assert_eq!(options.get("learning_rate")?, "0.5");
    Ok(())
}

#[test]
fn models_that_cannot_be_opened() -> Result<(), Error> {
    fails(options().open("no-such-file.onnx"), Code::Io, "no-such-file.onnx");
    fails(options().check("no-such-file.onnx"), Code::Io, "no-such-file.onnx");
    fails(options().open(fixture("gpt2.json")), Code::Format, "");
    fails(Options::new()?.open(model()), Code::Shape, "");
    fails(options().set("memory", "64KiB")?.open(model()), Code::Budget, "");
    fails(options().set_path("plan", fixture("gpt2.json"))?.open(model()), Code::Format, "");
    fails(options().set("tf32", "on")?.open(model()), Code::Unsupported, "tf32");
    Ok(())
}

#[test]
fn sessions_that_are_asked_the_wrong_thing() -> Result<(), Error> {
    let folder = Folder::new();
    let mut session = tight_options().open(model())?;
    fails(session.step(), Code::State, "");
    fails(session.eval(), Code::State, "");
    fails(session.grad_norm(), Code::State, "");
    fails(session.set_input("ids", &SHAPE, &[0i64; 512]), Code::Arg, "ids");
    fails(session.set_input("labels", &SHAPE, &[0i32; 512]), Code::Type, "labels");
    fails(session.set_input("labels", &SHAPE, &[0i64; 511]), Code::Shape, "labels");
    fails(session.set_input("labels", &[64, 8], &[0i64; 512]), Code::Shape, "labels");
    fails(session.set_input("labels", &[usize::MAX, 8], &[0i64; 512]), Code::Shape, "");
    fails(session.set_input::<i64>("labels", &[], &[]), Code::Shape, "labels");
    fails(session.set_learning_rate(-1e-9), Code::Arg, "rate");
    fails(session.read_parameter("nobody", &mut [0.0]), Code::Arg, "nobody");
    let parameter = session.parameters()?.swap_remove(0);
    fails(session.read_parameter(&parameter.name, &mut [0.0]), Code::Shape, &parameter.name);
    fails(session.write_parameter(&parameter.name, &[0.0]), Code::Shape, &parameter.name);
    let mut values = vec![0.0; parameter.elements];
    fails(session.read_grad(&parameter.name, &mut values), Code::Arg, &parameter.name);
    fails(session.save(folder.join("no/such")), Code::Io, "no/such");
    fails(session.export(folder.join("no/such")), Code::Io, "no/such");
    set_batch(&mut session, 0);
    session.set_input("input_ids", &SHAPE, &[512i64; 512])?;
    fails(session.step(), Code::Arg, "");
    session.write_parameter(&parameter.name, &vec![f32::NAN; parameter.elements])?;
    set_batch(&mut session, 0);
    fails(session.step(), Code::NonFinite, "");
    session.write_parameter(&parameter.name, &values)?;
    session.step()?; // the session still works after all these errors
    Ok(())
}

#[test]
fn checkpoints_that_cannot_be_gone_on_from() -> Result<(), Error> {
    let folder = Folder::new();
    let resume = || -> Result<Session, Error> { options().set_path("resume", &folder.0)?.open(model()) };
    fails(resume(), Code::Format, "");
    let mut session = options().open(model())?;
    train(&mut session, 0..1)?;
    session.save(&folder.0)?;
    fails(options().set("optimizer", "sgd")?.set_path("resume", &folder.0)?.open(model()), Code::Mismatch, "");

    let manifest = folder.join("step-0000000001/manifest.json");
    let weights = folder.join("step-0000000001/weights.safetensors");
    let mut bytes = fs::read(&weights).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&weights, bytes).unwrap();
    fails(resume(), Code::Corrupt, "");
    fs::remove_file(&manifest).unwrap();
    std::os::unix::fs::symlink("/dev/null", &manifest).unwrap();
    fails(resume(), Code::Path, "");
    Ok(())
}

/// The child's call returns `Forked`. The parent's session still works, although the child drops its copy.
#[test]
fn a_forked_process_is_refused() {
    extern "C" {
        fn fork() -> i32;
        fn waitpid(child: i32, status: *mut i32, options: i32) -> i32;
        fn _exit(status: i32) -> !;
    }
    let mut session = options().open(model()).unwrap();
    set_batch(&mut session, 0);
    // SAFETY: the child only calls the session and exits.
    let child = unsafe { fork() };
    if child == 0 {
        let code = session.step().map_err(|error| error.code());
        drop(session);
        unsafe { _exit(if code == Err(Code::Forked) { 0 } else { 1 }) }
    }
    let mut status = -1;
    assert_eq!(unsafe { waitpid(child, &mut status, 0) }, child);
    assert_eq!(status, 0);
    session.step().unwrap();
}
