use std::fmt;
use std::mem::size_of_val;
use std::os::raw::c_char;
use std::path::Path;
use std::ptr::{null, null_mut, NonNull};

use protrain_sys as sys;

use crate::cancel::CancelHandle;
use crate::element::{DType, Element};
use crate::error::{c_path, c_text, check, text};
use crate::log::Listener;
use crate::Result;

/// A model in training: its weights, its optimizer's state, and the memory and threads that a step needs.
/// [`Options::open`](crate::Options::open) creates a session; dropping it frees everything.
///
/// A session may move between threads, but only one thread at a time may use it: it is `Send` and not `Sync`.
///
/// ```compile_fail
/// fn is_sync<T: Sync>() {}
/// is_sync::<protrain::Session>();
/// ```
///
/// A text that a session returns borrows the session until the next call. A dropped session cannot be used:
///
/// ```compile_fail
/// fn ask(mut session: protrain::Session) -> protrain::Result<()> {
///     let plan = session.plan()?;
///     session.step()?; // the plan is still in use
///     println!("{plan}");
///     Ok(())
/// }
/// ```
///
/// ```compile_fail
/// fn ask(session: protrain::Session) -> protrain::Result<u64> {
///     drop(session);
///     session.step_count() // it has moved
/// }
/// ```
pub struct Session {
    raw: NonNull<sys::protrain_session>,
    cancel: CancelHandle,
    log: Option<Listener>,
}

// SAFETY: any thread may use a session; the library does not tie it to one. The listener is Send.
unsafe impl Send for Session {}

/// An input of a model.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Input {
    /// Its name in the file.
    pub name: String,
    /// The type of its elements.
    pub dtype: DType,
    /// Its shape, all dimensions bound.
    pub shape: Vec<usize>,
}

/// An output of a model that the option `keep_outputs` names.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Output {
    /// Its name in the file.
    pub name: String,
    /// The type of its elements.
    pub dtype: DType,
    /// Its shape in the last prediction; before the first one, under the session's first binding of dimensions.
    pub shape: Vec<usize>,
}

/// A parameter of a model, trained or frozen.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Parameter {
    /// The name of its initializer in the file.
    pub name: String,
    /// Its shape in the file.
    pub shape: Vec<usize>,
    /// The number of its elements: the product of its shape.
    pub elements: usize,
}

type Raw = *mut sys::protrain_session;
type RawError = *mut sys::protrain_error;

/// Training.
impl Session {
    /// Copies the values of one input, in row-major order. Every following step and evaluation uses them, until they
    /// are set again. All inputs must be set before the first step.
    ///
    /// # Errors
    /// `Arg` for a name that is no input (the text lists the inputs); `Type` for an element type other than the
    /// model's, except that [`f32`] serves every type of floats; `Shape` for a shape that the session does not accept
    /// (the text lists those that it accepts), or data of another length.
    #[doc(alias = "protrain_session_set_input")]
    pub fn set_input<T: Element>(&mut self, name: &str, shape: &[usize], data: &[T]) -> Result<()> {
        let (c_name, dtype) = (c_text("name", name)?, T::DTYPE as i32);
        let dims: Vec<i64> = shape.iter().map(|&dim| i64::try_from(dim).unwrap_or(i64::MAX)).collect();
        let (data, size) = (data.as_ptr().cast(), size_of_val(data));
        let (session, name, rank) = (self.raw.as_ptr(), c_name.as_ptr(), dims.len());
        // SAFETY: pointers and lengths come from slices, and an Element has the memory layout of its dtype.
        unsafe { check(sys::protrain_session_set_input(session, name, dtype, dims.as_ptr(), rank, data, size)) }
    }

    /// Trains on the present inputs: forward, backward, update of every trained parameter. Returns the loss before the
    /// update.
    ///
    /// With the option `accumulation` = K, K calls make one step. Each call adds its gradients. The K-th call updates
    /// the parameters and returns the mean of the step's losses.
    ///
    /// # Errors
    /// `State` if an input was never set; `Shape` if the inputs' shapes do not fit one binding of the dimensions; `Arg`
    /// if a value of an input is out of range; `NonFinite` for a loss or gradient that is NaN or infinite, as the
    /// option `on_nonfinite` says; `Cancelled`; `Device`; `Io`, `NoSpace` or `Corrupt` if the disk of `offload_dir`
    /// failed.
    ///
    /// A call that failed has changed nothing and may be repeated, unless the text says otherwise: the step may have to
    /// begin again with its first batch, or may have been taken in part or as a whole. If the disk fails amid updates,
    /// the session is lost, and [`Error::usable`](crate::Error::usable) is false.
    #[doc(alias = "protrain_step")]
    pub fn step(&mut self) -> Result<f32> {
        self.ask(sys::protrain_step)
    }

    /// Computes the loss on the present inputs, without dropout, and changes nothing.
    ///
    /// # Errors
    /// As [`Session::step`].
    #[doc(alias = "protrain_eval")]
    pub fn eval(&mut self) -> Result<f32> {
        self.ask(sys::protrain_eval)
    }

    /// Computes the outputs that the option `keep_outputs` names, on the present inputs, and changes nothing. Only inputs
    /// that these outputs depend on must be set. [`Session::read_output`] reads them, until the next step, evaluation or
    /// prediction.
    ///
    /// # Errors
    /// `State` without `keep_outputs`, and for an input that was never set; otherwise as [`Session::step`].
    #[doc(alias = "protrain_predict")]
    pub fn predict(&mut self) -> Result<()> {
        // SAFETY: the session has not been destroyed.
        unsafe { check(sys::protrain_predict(self.raw.as_ptr())) }
    }

    /// The L2 norm of all trained parameters' gradients in the last complete step, before any clipping.
    ///
    /// # Errors
    /// `State` before the first step.
    #[doc(alias = "protrain_session_grad_norm")]
    pub fn grad_norm(&mut self) -> Result<f64> {
        self.ask(sys::protrain_session_grad_norm)
    }

    /// The number of steps taken, including those before the checkpoint that the session resumed from.
    #[doc(alias = "protrain_session_step_count")]
    pub fn step_count(&mut self) -> Result<u64> {
        self.ask(sys::protrain_session_step_count)
    }

    /// The number of this rank among those that train together: 0 for the first, and for a session alone.
    #[doc(alias = "protrain_session_rank")]
    pub fn rank(&mut self) -> Result<u64> {
        self.ask(sys::protrain_session_rank)
    }

    /// The number of ranks that train together: 1 for a session alone.
    #[doc(alias = "protrain_session_rank_count")]
    pub fn rank_count(&mut self) -> Result<u64> {
        self.ask(sys::protrain_session_rank_count)
    }

    /// The learning rate of the next step, as the option `schedule` has it.
    #[doc(alias = "protrain_session_learning_rate")]
    pub fn learning_rate(&mut self) -> Result<f64> {
        self.ask(sys::protrain_session_learning_rate)
    }

    /// Sets the learning rate of all following steps. The option `schedule` still applies to it. It costs nothing: for
    /// a schedule of your own, call it before each step.
    ///
    /// # Errors
    /// `Arg` for a rate that is negative or not finite.
    #[doc(alias = "protrain_session_set_learning_rate")]
    pub fn set_learning_rate(&mut self, rate: f64) -> Result<()> {
        // SAFETY: the session has not been destroyed.
        unsafe { check(sys::protrain_session_set_learning_rate(self.raw.as_ptr(), rate)) }
    }

    /// Returns a handle with which another thread can stop a call on this session. The handle may outlive the session.
    pub fn cancel_handle(&self) -> CancelHandle {
        self.cancel.clone()
    }

    /// Sets the closure that receives the session's log: one JSON line about its creation (delivered by this call), one
    /// per step (`{"event":"step","step":1,"loss":6.2,...}`), one per checkpoint, with its path, and one per alarm, about
    /// something that makes a run fail without an error.
    ///
    /// The closure runs on the thread of the call that logs, before that call returns. If the closure panics, it gets
    /// no more lines in that call, which goes on to its end. The call then panics too. But if the call fails, as after
    /// the line of an alarm, it returns its error, whose text ends in the panic's message. A step is complete when its
    /// own line (`"event":"step"`) comes.
    ///
    /// ```
    /// # std::env::set_current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../tests/fixtures")).unwrap();
    /// # let mut options = protrain::Options::new()?;
    /// # let mut session = options.dim("batch", 1)?.dim("sequence", 8)?.open("gpt2-dynamic-opset18.onnx")?;
    /// use std::sync::mpsc;
    ///
    /// let (lines, received) = mpsc::channel();
    /// session.set_log(move |line| lines.send(line.to_owned()).unwrap())?;
    /// assert!(received.recv().unwrap().starts_with(r#"{"event":"created""#));
    /// # Ok::<(), protrain::Error>(())
    /// ```
    #[doc(alias = "protrain_session_set_log")]
    pub fn set_log(&mut self, log: impl FnMut(&str) + Send + 'static) -> Result<()> {
        self.listen(Some(Listener::exclusive(log)))
    }

    /// Removes the closure that [`Session::set_log`] set.
    #[doc(alias = "protrain_session_set_log")]
    pub fn clear_log(&mut self) -> Result<()> {
        self.listen(None)
    }

    fn listen(&mut self, log: Option<Listener>) -> Result<()> {
        let (function, closure) = Listener::c_parts(log.as_ref());
        // SAFETY: the closure lives until another one replaces it, or the session is destroyed.
        unsafe {
            let error = sys::protrain_session_set_log(self.raw.as_ptr(), function, closure);
            // The call has already passed a line to the closure, which may have panicked. The library keeps the closure
            // even then, so it is stored before check() resumes the panic.
            if error.is_null() {
                self.log = log;
            }
            check(error)
        }
    }
}

/// Inputs, parameters and gradients, exports and checkpoints.
impl Session {
    /// The model's inputs, in the file's order.
    #[doc(alias("protrain_session_input_count", "protrain_session_input_name"))]
    #[doc(alias("protrain_session_input_dtype", "protrain_session_input_shape"))]
    pub fn inputs(&mut self) -> Result<Vec<Input>> {
        let count: usize = self.ask(sys::protrain_session_input_count)?;
        let input = |at| {
            let name = self.name(at, sys::protrain_session_input_name)?;
            let dtype: i32 = self.ask_at(at, sys::protrain_session_input_dtype)?;
            let shape = self.shape(at, sys::protrain_session_input_shape)?;
            Ok(Input { name, dtype: DType::from_number(dtype as u32), shape })
        };
        (0..count).map(input).collect()
    }

    /// The outputs that [`Session::predict`] computes, in the file's order.
    #[doc(alias("protrain_session_output_count", "protrain_session_output_name"))]
    #[doc(alias("protrain_session_output_dtype", "protrain_session_output_shape"))]
    pub fn outputs(&mut self) -> Result<Vec<Output>> {
        let count: usize = self.ask(sys::protrain_session_output_count)?;
        let output = |at| {
            let name = self.name(at, sys::protrain_session_output_name)?;
            let dtype: i32 = self.ask_at(at, sys::protrain_session_output_dtype)?;
            let shape = self.shape(at, sys::protrain_session_output_shape)?;
            Ok(Output { name, dtype: DType::from_number(dtype as u32), shape })
        };
        (0..count).map(output).collect()
    }

    /// Reads an output of the last prediction, in row-major order. `T` must be the output's own type, or [`f32`] where
    /// that is another type of floats.
    ///
    /// # Errors
    /// `Arg` for an output that is not kept; `State` if there is no prediction, or a later step or evaluation has reused
    /// its memory; `Type` for another type; `Shape` for another length.
    #[doc(alias = "protrain_session_output_read")]
    pub fn read_output<T: Element>(&mut self, name: &str, values: &mut [T]) -> Result<()> {
        let name = c_text("name", name)?;
        let (size, data) = (size_of_val(values), values.as_mut_ptr().cast());
        let (session, name, dtype) = (self.raw.as_ptr(), name.as_ptr(), T::DTYPE as i32);
        // SAFETY: pointer and length are those of a slice, and the library writes only legal elements of the dtype.
        unsafe { check(sys::protrain_session_output_read(session, name, dtype, data, size)) }
    }

    /// The model's parameters, including frozen ones, in the order of first use in the graph. Running statistics that
    /// steps update come last.
    #[doc(alias("protrain_session_parameter_count", "protrain_session_parameter_name"))]
    #[doc(alias("protrain_session_parameter_shape", "protrain_session_parameter_elements"))]
    pub fn parameters(&mut self) -> Result<Vec<Parameter>> {
        let count: usize = self.ask(sys::protrain_session_parameter_count)?;
        let parameter = |at| {
            let name = self.name(at, sys::protrain_session_parameter_name)?;
            let shape = self.shape(at, sys::protrain_session_parameter_shape)?;
            let elements = self.ask_at(at, sys::protrain_session_parameter_elements)?;
            Ok(Parameter { name, shape, elements })
        };
        (0..count).map(parameter).collect()
    }

    /// Reads a parameter, in row-major order of its shape.
    ///
    /// # Errors
    /// `Arg` for a name that is no parameter; `Shape` if the length of `values` is not the parameter's number of
    /// elements.
    #[doc(alias = "protrain_session_parameter_read")]
    pub fn read_parameter(&mut self, name: &str, values: &mut [f32]) -> Result<()> {
        let name = c_text("name", name)?;
        let (values, len) = (values.as_mut_ptr(), values.len());
        // SAFETY: pointer and length are those of a slice.
        unsafe { check(sys::protrain_session_parameter_read(self.raw.as_ptr(), name.as_ptr(), values, len)) }
    }

    /// Overwrites a parameter. The optimizer's state stays as it is. Any value is accepted, even NaN.
    ///
    /// # Errors
    /// As [`Session::read_parameter`]; `Io` or `NoSpace` if the disk of `offload_dir` failed, which loses the session.
    #[doc(alias = "protrain_session_parameter_write")]
    pub fn write_parameter(&mut self, name: &str, values: &[f32]) -> Result<()> {
        let name = c_text("name", name)?;
        let (values, len) = (values.as_ptr(), values.len());
        // SAFETY: pointer and length are those of a slice.
        unsafe { check(sys::protrain_session_parameter_write(self.raw.as_ptr(), name.as_ptr(), values, len)) }
    }

    /// The number of elements of all parameters together: the length of the one flat buffer that holds them one after
    /// the other, in the order of [`Session::parameters`].
    #[doc(alias = "protrain_session_flat_parameters_elements")]
    pub fn flat_parameters_elements(&mut self) -> Result<usize> {
        self.ask(sys::protrain_session_flat_parameters_elements)
    }

    /// Reads all parameters into one flat buffer.
    ///
    /// # Errors
    /// `Shape` if the length of `values` is not [`Session::flat_parameters_elements`].
    #[doc(alias = "protrain_session_flat_parameters_read")]
    pub fn read_flat_parameters(&mut self, values: &mut [f32]) -> Result<()> {
        // SAFETY: pointer and length are those of a slice.
        unsafe { check(sys::protrain_session_flat_parameters_read(self.raw.as_ptr(), values.as_mut_ptr(), values.len())) }
    }

    /// Overwrites all parameters from one flat buffer. The optimizer's state stays as it is. Any value is accepted,
    /// even NaN.
    ///
    /// # Errors
    /// As [`Session::read_flat_parameters`]; `Io` or `NoSpace` if the disk of `offload_dir` failed, which loses the
    /// session.
    #[doc(alias = "protrain_session_flat_parameters_write")]
    pub fn write_flat_parameters(&mut self, values: &[f32]) -> Result<()> {
        // SAFETY: pointer and length are those of a slice.
        unsafe { check(sys::protrain_session_flat_parameters_write(self.raw.as_ptr(), values.as_ptr(), values.len())) }
    }

    /// Reads the gradient that a parameter had in the last step. Only gradients that the option `keep_gradients` names
    /// are kept.
    ///
    /// # Errors
    /// As [`Session::read_parameter`]; also `Arg` for a gradient that is not kept; `State` before the first step,
    /// between the batches of a step, and after a later call that failed.
    #[doc(alias = "protrain_session_grad_read")]
    pub fn read_grad(&mut self, name: &str, values: &mut [f32]) -> Result<()> {
        let name = c_text("name", name)?;
        let (values, len) = (values.as_mut_ptr(), values.len());
        // SAFETY: pointer and length are those of a slice.
        unsafe { check(sys::protrain_session_grad_read(self.raw.as_ptr(), name.as_ptr(), values, len)) }
    }

    /// Writes the model with its present weights: the graph of the original file, unchanged, with new values in its
    /// initializers. A file at `path` is replaced only when the new one is complete.
    ///
    /// # Errors
    /// `Io`, `NoSpace` or `Path`; `Limit` for a model that is too large for one ONNX file.
    #[doc(alias = "protrain_session_export")]
    pub fn export(&mut self, path: impl AsRef<Path>) -> Result<()> {
        let path = c_path("path", path.as_ref())?;
        // SAFETY: the path ends in NUL.
        unsafe { check(sys::protrain_session_export(self.raw.as_ptr(), path.as_ptr())) }
    }

    /// Writes the adapters of the options `lora` or `adapter` into `directory`, in the form of Hugging Face's PEFT:
    /// `adapter_model.safetensors` and `adapter_config.json`.
    ///
    /// # Errors
    /// `State` if the session has no adapters; `Unsupported` if another parameter is trained too; `Io`, `NoSpace` or
    /// `Path`.
    #[doc(alias = "protrain_session_export_adapters")]
    pub fn export_adapters(&mut self, directory: impl AsRef<Path>) -> Result<()> {
        let directory = c_path("directory", directory.as_ref())?;
        // SAFETY: the path ends in NUL.
        unsafe { check(sys::protrain_session_export_adapters(self.raw.as_ptr(), directory.as_ptr())) }
    }

    /// Gives the session's adapters the values of other ones, which `export_adapters` or PEFT wrote into `directory`. The
    /// optimizer state stays as it is.
    ///
    /// # Errors
    /// `State` if the session has no adapters or they are switched off; `Mismatch` for other modules, `Shape` for other
    /// ranks; those of the option `adapter`.
    #[doc(alias = "protrain_session_load_adapters")]
    pub fn load_adapters(&mut self, directory: impl AsRef<Path>) -> Result<()> {
        let directory = c_path("directory", directory.as_ref())?;
        // SAFETY: the path ends in NUL.
        unsafe { check(sys::protrain_session_load_adapters(self.raw.as_ptr(), directory.as_ptr())) }
    }

    /// Switches the session's adapters off or on. While they are off, `eval` and `predict` compute with the base alone,
    /// and nothing else is possible.
    ///
    /// # Errors
    /// `State` if the session has no adapters.
    #[doc(alias = "protrain_session_use_adapters")]
    pub fn use_adapters(&mut self, using: bool) -> Result<()> {
        // SAFETY: the session lives.
        unsafe { check(sys::protrain_session_use_adapters(self.raw.as_ptr(), i32::from(using))) }
    }

    /// Saves a checkpoint: weights, optimizer state, step and seed. It becomes a folder in `directory`, which is named
    /// `step-0000000010` after ten steps. A session that is opened with the option `resume` continues from it bit for
    /// bit, under any plan. The caller gives inputs, learning rate and all other options again.
    ///
    /// When this call has returned, the checkpoint survives a kill or a power failure at any instant. So do all earlier
    /// checkpoints, which are never removed.
    ///
    /// # Errors
    /// `State` between the batches of one step; `Io`, `NoSpace` or `Path`; `Busy` while another session saves into the
    /// directory; `Unsupported` or `Limit` for names that the format cannot hold. After an error, all checkpoints are
    /// unchanged and the session stays usable.
    #[doc(alias = "protrain_session_save")]
    pub fn save(&mut self, directory: impl AsRef<Path>) -> Result<()> {
        let directory = c_path("directory", directory.as_ref())?;
        // SAFETY: the path ends in NUL.
        unsafe { check(sys::protrain_session_save(self.raw.as_ptr(), directory.as_ptr())) }
    }
}

/// The plan, the program, the graph and the report.
impl Session {
    /// The plan, as JSON: where each chunk of parameters is stored, and what each block does with its activations. The
    /// option `plan` takes a file with this text.
    #[doc(alias = "protrain_session_plan")]
    pub fn plan(&mut self) -> Result<&str> {
        self.lend(sys::protrain_session_plan)
    }

    /// The program: every instruction of a step, one per line, with its queue, its waits, its bytes and offsets.
    #[doc(alias = "protrain_session_program")]
    pub fn program(&mut self) -> Result<&str> {
        self.lend(sys::protrain_session_program)
    }

    /// The training graph: every node of forward and backward, one per line, after all fusion.
    #[doc(alias = "protrain_session_graph")]
    pub fn graph(&mut self) -> Result<&str> {
        self.lend(sys::protrain_session_graph)
    }

    /// A report on the time and memory of a step, as a JSON object; `protrain.h` lists its members.
    #[doc(alias = "protrain_session_report")]
    pub fn report(&mut self) -> Result<&str> {
        self.lend(sys::protrain_session_report)
    }

    /// Compares the gradients of a step on the present inputs with slopes of the loss in float64, for `samples` elements
    /// of each parameter, and returns a JSON object. Changes no parameter.
    #[doc(alias = "protrain_session_check_gradients")]
    pub fn check_gradients(&mut self, samples: usize) -> Result<String> {
        self.name(samples, sys::protrain_session_check_gradients)
    }
}

/// One method for each signature that the library's query functions have. These functions require only a live session
/// and pointers that are valid during the call; each method passes both.
impl Session {
    pub(crate) fn from_raw(raw: NonNull<sys::protrain_session>) -> Self {
        Session { raw, cancel: CancelHandle::new(raw), log: None }
    }

    fn ask<T: Default>(&mut self, call: unsafe extern "C" fn(Raw, *mut T) -> RawError) -> Result<T> {
        let mut answer = T::default();
        // SAFETY: the session is alive, and `answer` is valid during the call.
        unsafe { check(call(self.raw.as_ptr(), &mut answer))? };
        Ok(answer)
    }

    fn ask_at<T: Default>(
        &mut self,
        at: usize,
        call: unsafe extern "C" fn(Raw, usize, *mut T) -> RawError,
    ) -> Result<T> {
        let mut answer = T::default();
        // SAFETY: the session is alive, and `answer` is valid during the call.
        unsafe { check(call(self.raw.as_ptr(), at, &mut answer))? };
        Ok(answer)
    }

    /// Calls a function that lends a text until the next call on the session. The text borrows `self`, so there can be
    /// no next call while the text is in use.
    fn lend(&mut self, call: unsafe extern "C" fn(Raw, *mut *const c_char) -> RawError) -> Result<&str> {
        let mut lent = null();
        // SAFETY: the session is alive, and the text lives as long as it borrows `self`.
        unsafe {
            check(call(self.raw.as_ptr(), &mut lent))?;
            Ok(text(lent))
        }
    }

    fn name(
        &mut self,
        at: usize,
        call: unsafe extern "C" fn(Raw, usize, *mut *const c_char) -> RawError,
    ) -> Result<String> {
        let mut lent = null();
        // SAFETY: the session is alive, and the text is copied before the next call.
        unsafe {
            check(call(self.raw.as_ptr(), at, &mut lent))?;
            Ok(text(lent).to_owned())
        }
    }

    fn shape(
        &mut self,
        at: usize,
        call: unsafe extern "C" fn(Raw, usize, *mut i64, usize, *mut usize) -> RawError,
    ) -> Result<Vec<usize>> {
        let mut rank = 0;
        // SAFETY: the session is alive, and dims may be NULL if its length is 0.
        unsafe { check(call(self.raw.as_ptr(), at, null_mut(), 0, &mut rank))? };
        let mut dims = vec![0; rank];
        // SAFETY: pointer and length are those of a slice.
        unsafe { check(call(self.raw.as_ptr(), at, dims.as_mut_ptr(), dims.len(), &mut rank))? };
        Ok(dims.into_iter().map(|dim| dim as usize).collect())
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.cancel.forget();
        // SAFETY: the session was created once, drop() runs once, and no cancel handle refers to it any more.
        unsafe { sys::protrain_session_destroy(self.raw.as_ptr()) }
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Session").finish_non_exhaustive()
    }
}
