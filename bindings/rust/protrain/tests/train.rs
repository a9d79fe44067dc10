//! A session's life, from its options to the export of the trained model.

mod common;

use common::{batch, fixture, model, number, options, set_batch, tight_options, train, Folder, SHAPE};
use protrain::{Bf16, Code, DType, Element, Input, Options, F16};

#[test]
fn trains_in_less_memory_than_the_model_needs() {
    let folder = Folder::new();
    let mut session = tight_options().open(model()).unwrap();
    let plan = session.plan().unwrap();
    assert!(number(plan, "n_persist") < number(plan, "n_chunk"), "{plan}");
    let losses: Vec<f32> = train(&mut session, 0..20).unwrap().iter().map(|&(loss, _)| f32::from_bits(loss)).collect();
    assert!(losses[19] < 0.9 * losses[0], "{losses:?}");
    assert_eq!(session.step_count().unwrap(), 20);
    assert!(session.grad_norm().unwrap() > 0.0);
    assert_eq!((session.rank().unwrap(), session.rank_count().unwrap()), (0, 1));

    let report = session.report().unwrap();
    let (peak, disk) = (number(report, "device_peak_bytes"), number(report, "disk_bytes"));
    assert!(peak <= (4 << 20) as f64 && disk > 0.0, "{report}");
    let mut resident = options().open(model()).unwrap();
    set_batch(&mut resident, 0);
    resident.step().unwrap();
    assert!(number(resident.report().unwrap(), "device_peak_bytes") > (4 << 20) as f64);

    session.export(folder.join("trained.onnx")).unwrap();
    let mut exported = options().open(folder.join("trained.onnx")).unwrap();
    set_batch(&mut session, 3);
    set_batch(&mut exported, 3);
    assert_eq!(session.eval().unwrap().to_bits(), exported.eval().unwrap().to_bits());
    assert_eq!(session.step_count().unwrap(), 20);
}

#[test]
fn gradients_are_checked() {
    let mut session = Options::new().unwrap().dim("batch", 2).unwrap().open(fixture("root.onnx")).unwrap();
    session.set_input("x", &[2, 4], &[0.5f32; 8]).unwrap();
    session.set_input("u", &[2, 4], &[1f32; 8]).unwrap();
    let gradients = session.check_gradients(1).unwrap();
    assert!(gradients.contains("loss_float64") && gradients.contains("\"passed\": true"), "{gradients}");
    assert!(!gradients.contains("\"passed\": false"), "{gradients}");
}

#[test]
fn outputs_are_predicted() {
    let mut options = Options::new().unwrap();
    options.dim("batch", 3).unwrap().set("loss", "cross_entropy").unwrap().set("keep_outputs", "*").unwrap();
    let mut session = options.open(fixture("outputs/classes.onnx")).unwrap();
    session.set_input("tokens", &[3, 6], &[0i64; 18]).unwrap();
    session.predict().unwrap();
    let outputs = session.outputs().unwrap();
    let names: Vec<&str> = outputs.iter().map(|output| output.name.as_str()).collect();
    assert_eq!(names, ["logits", "choice", "features"]);
    assert_eq!((outputs[0].dtype, outputs[0].shape.as_slice()), (DType::Float32, &[3, 5][..]));
    let (mut logits, mut choice) = ([0f32; 15], [0i64; 3]);
    session.read_output("logits", &mut logits).unwrap();
    session.read_output("choice", &mut choice).unwrap();
    for (row, &chosen) in logits.chunks(5).zip(&choice) {
        assert!(row.iter().all(|&logit| logit <= row[chosen as usize]), "{row:?} {chosen}");
    }
    assert_eq!(session.read_output("choice", &mut [0i32; 6]).unwrap_err().code(), Code::Type);
}

#[test]
fn adapters_are_exported_and_merged() {
    let folder = Folder::new();
    let mut session = options().set("lora", "*.c_attn.weight").unwrap().open(model()).unwrap();
    set_batch(&mut session, 0);
    session.step().unwrap();
    session.export_adapters(folder.join("adapter")).unwrap();
    options().merge(model(), folder.join("adapter"), folder.join("merged.onnx")).unwrap();
    let mut merged = options().open(folder.join("merged.onnx")).unwrap();
    set_batch(&mut merged, 0);
    let adapted = session.eval().unwrap();
    assert!((adapted - merged.eval().unwrap()).abs() < 1e-4);
    session.use_adapters(false).unwrap();
    assert_ne!(session.eval().unwrap(), adapted);
    assert!(session.step().is_err());
    session.use_adapters(true).unwrap();
    session.load_adapters(folder.join("adapter")).unwrap();
    assert_eq!(session.eval().unwrap(), adapted);
}

#[test]
fn plans_do_not_change_a_bit() {
    let resident = train(&mut options().open(model()).unwrap(), 0..4).unwrap();
    let offloaded = train(&mut tight_options().open(model()).unwrap(), 0..4).unwrap();
    assert_eq!(resident, offloaded);
}

#[test]
fn a_saved_session_goes_on() {
    let folder = Folder::new();
    let mut first = tight_options().open(model()).unwrap();
    train(&mut first, 0..3).unwrap();
    first.save(&folder.0).unwrap();
    let expected = train(&mut first, 3..6).unwrap();
    drop(first);
    let mut second = tight_options().set_path("resume", &folder.0).unwrap().open(model()).unwrap();
    assert_eq!(second.step_count().unwrap(), 3);
    assert_eq!(train(&mut second, 3..6).unwrap(), expected);
}

#[test]
fn a_rate_of_zero_changes_nothing() {
    let mut session = options().open(model()).unwrap();
    session.set_learning_rate(0.0).unwrap();
    set_batch(&mut session, 0);
    let before = session.step().unwrap();
    assert_eq!(session.step().unwrap().to_bits(), before.to_bits());
    session.set_learning_rate(1e-3).unwrap();
    assert_eq!(session.learning_rate().unwrap(), 1e-3);
    session.step().unwrap();
    assert_ne!(session.step().unwrap().to_bits(), before.to_bits());
}

#[test]
fn inputs_and_parameters_are_those_of_the_file() {
    let mut session = options().open(model()).unwrap();
    let inputs = session.inputs().unwrap();
    assert_eq!(inputs.iter().map(|input| &input.name[..]).collect::<Vec<_>>(), ["input_ids", "labels"]);
    assert!(inputs.iter().all(|Input { dtype, shape, .. }| *dtype == DType::Int64 && shape[..] == SHAPE));
    let parameters = session.parameters().unwrap();
    assert!(parameters.len() > 10);
    assert!(parameters.iter().all(|each| each.elements == each.shape.iter().product::<usize>()));
}

#[test]
fn all_parameters_are_one_buffer() {
    let mut session = options().open(model()).unwrap();
    set_batch(&mut session, 0);
    session.step().unwrap();
    let mut flat = vec![0.0; session.flat_parameters_elements().unwrap()];
    session.read_flat_parameters(&mut flat).unwrap();
    let mut rest = &flat[..];
    for parameter in session.parameters().unwrap() {
        let mut values = vec![0.0; parameter.elements];
        session.read_parameter(&parameter.name, &mut values).unwrap();
        let (own, others) = rest.split_at(parameter.elements);
        assert_eq!(own, values, "{}", parameter.name);
        rest = others;
    }
    assert!(rest.is_empty());

    let mut other = options().open(model()).unwrap();
    other.write_flat_parameters(&flat).unwrap();
    let mut read = vec![0.0; flat.len()];
    other.read_flat_parameters(&mut read).unwrap();
    assert_eq!(read, flat);
    assert_eq!(other.write_flat_parameters(&flat[1..]).unwrap_err().code(), Code::Shape);
    assert_eq!(other.read_flat_parameters(&mut read[1..]).unwrap_err().code(), Code::Shape);
}

#[test]
fn a_model_in_memory_trains_as_its_file() {
    let mut bytes = std::fs::read(model()).unwrap();
    let mut memory = options().open_bytes(&bytes, None).unwrap();
    bytes.fill(0); // the session has its own copy
    let mut file = options().open(model()).unwrap();
    for session in [&mut memory, &mut file] {
        set_batch(session, 0);
    }
    assert_eq!(memory.step().unwrap(), file.step().unwrap());
    let folder = Folder::new();
    assert_eq!(options().open_bytes(&bytes, Some(&folder.join(""))).unwrap_err().code(), Code::Format);
    assert_eq!(options().open_bytes(&[], None).unwrap_err().code(), Code::Format);
}

#[test]
fn parameters_and_gradients_cross_in_slices() {
    let mut session = options().set("keep_gradients", "*").unwrap().open(model()).unwrap();
    set_batch(&mut session, 0);
    session.step().unwrap();
    let parameters = session.parameters().unwrap();
    let parameter = &parameters[0];
    let mut values = vec![0.0; parameter.elements];
    session.read_parameter(&parameter.name, &mut values).unwrap();
    assert!(values.iter().any(|&value| value != 0.0));
    values.iter_mut().for_each(|value| *value += 0.5);
    session.write_parameter(&parameter.name, &values).unwrap();
    let mut again = vec![0.0; parameter.elements];
    session.read_parameter(&parameter.name, &mut again).unwrap();
    assert_eq!(values, again);

    let squares = parameters.iter().map(|parameter| {
        let mut gradient = vec![0.0; parameter.elements];
        session.read_grad(&parameter.name, &mut gradient).unwrap();
        gradient.iter().map(|&value| f64::from(value) * f64::from(value)).sum::<f64>()
    });
    let norm = squares.sum::<f64>().sqrt();
    assert!((norm - session.grad_norm().unwrap()).abs() < 1e-4 * norm);
}

#[test]
fn options_tell_what_they_hold() {
    let mut options = options();
    options.set("learning_rate", 0.25).unwrap().set("threads", 2).unwrap();
    assert_eq!(options.get("learning_rate").unwrap(), "0.25");
    assert_eq!(options.get("threads").unwrap(), "2");
    assert_eq!(options.get("dim").unwrap(), "batch=8\nsequence=64");
    assert!(options.help().unwrap().contains("\"weight_decay\""));
    assert!(options.check(model()).unwrap().contains("\"trainable\": true"));
    let plan = options.set("memory", "64KiB").unwrap().plan(model()).unwrap();
    assert!(plan.contains("\"feasible\": false"));
    assert!(plan.contains("\"would_fit\""));
}

#[test]
fn texts_of_a_session_are_there() {
    let mut session = options().open(model()).unwrap();
    assert!(session.program().unwrap().lines().count() > 10);
    assert!(session.graph().unwrap().contains("MatMul"));
    assert!(protrain::version().starts_with("0.1"));
}

/// Each Rust type reaches the library as its own dtype: the model accepts its input's type, and an error names any
/// other.
#[test]
fn every_element_type_has_its_dtype() {
    fn refused<T: Element>(value: T, bytes: usize) {
        let mut session = Options::new().unwrap().dim("batch", 2).unwrap().open(fixture("root.onnx")).unwrap();
        let error = session.set_input("x", &[2, 4], &[value; 8]).unwrap_err();
        assert_eq!((error.code(), error.subject()), (Code::Type, "x"), "{error}");
        let error = session.set_input("x", &[2, 4], &[value; 7]).unwrap_err();
        assert!(error.text().ends_with(&format!("take {} bytes, and {} were given", 8 * bytes, 7 * bytes)), "{error}");
    }
    refused(0f64, 8);
    refused(F16(0), 2);
    refused(Bf16(0), 2);
    refused(0i8, 1);
    refused(0i16, 2);
    refused(0i32, 4);
    refused(0i64, 8);
    refused(0u8, 1);
    refused(0u16, 2);
    refused(0u32, 4);
    refused(0u64, 8);
    refused(false, 1);
    let mut session = Options::new().unwrap().dim("batch", 2).unwrap().open(fixture("root.onnx")).unwrap();
    session.set_input("x", &[2, 4], &[1f32; 8]).unwrap();
    let mut session = options().open(model()).unwrap();
    session.set_input("labels", &SHAPE, &batch(0)).unwrap();
}
