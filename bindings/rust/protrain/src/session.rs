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
/// [`Options::open`](crate::Options::open) makes one; dropping it gives everything back.
///
/// A session may move between threads, but is used by one at a time: it is `Send` and not `Sync`.
///
/// ```compile_fail
/// fn is_sync<T: Sync>() {}
/// is_sync::<protrain::Session>();
/// ```
///
/// Texts that it returns are lent until the next call, and nothing can be asked of a session that is gone:
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

// SAFETY: the library ties a session to no thread, and the listener is Send.
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
    /// Copies the values of one input, in row-major order. They are used by every following step and evaluation, until
    /// set again. All inputs must be set before the first step.
    ///
    /// # Errors
    /// `Arg` for a name that is no input (the text lists the inputs); `Type` for another type of elements than the
    /// model's; `Shape` for a shape that the session does not serve (the text lists those that it does), or data of
    /// another length.
    #[doc(alias = "protrain_session_set_input")]
    pub fn set_input<T: Element>(&mut self, name: &str, shape: &[usize], data: &[T]) -> Result<()> {
        let (c_name, dtype) = (c_text("name", name)?, T::DTYPE as i32);
        let dims: Vec<i64> = shape.iter().map(|&dim| i64::try_from(dim).unwrap_or(i64::MAX)).collect();
        let (data, size) = (data.as_ptr().cast(), size_of_val(data));
        let (session, name, rank) = (self.raw.as_ptr(), c_name.as_ptr(), dims.len());
        // SAFETY: pointers and lengths are those of slices, and an Element is in memory what its dtype says.
        unsafe { check(sys::protrain_session_set_input(session, name, dtype, dims.as_ptr(), rank, data, size)) }
    }

    /// Trains on the present inputs: forward, backward, update of every trained parameter. Returns the loss before the
    /// update.
    ///
    /// With the option `accumulation` = K, K calls make one step: each adds its gradients, the K-th updates, and
    /// returns the mean of the step's losses.
    ///
    /// # Errors
    /// `State` if an input was never set; `Shape` if the inputs' shapes fit no one binding that is served; `Arg` if a
    /// value of an input is out of range; `NonFinite` for a loss or gradient that is NaN or infinite, as the option
    /// `on_nonfinite` says; `Cancelled`; `Device`; `Io`, `NoSpace` or `Corrupt` where the option `offload_dir` failed.
    ///
    /// A call that failed did not take place and may be repeated, but where the text says that the step begins anew, or
    /// was taken in part or as a whole. A disk that fails amid updates loses the session:
    /// [`Error::usable`](crate::Error::usable) is false then.
    #[doc(alias = "protrain_step")]
    pub fn step(&mut self) -> Result<f32> {
        self.ask(sys::protrain_step)
    }

    /// Computes the loss on the present inputs and changes nothing. Dropout drops nothing.
    ///
    /// # Errors
    /// As [`Session::step`].
    #[doc(alias = "protrain_eval")]
    pub fn eval(&mut self) -> Result<f32> {
        self.ask(sys::protrain_eval)
    }

    /// The L2 norm of all trained parameters' gradients in the last complete step, before any clipping.
    ///
    /// # Errors
    /// `State` before the first step.
    #[doc(alias = "protrain_session_grad_norm")]
    pub fn grad_norm(&mut self) -> Result<f64> {
        self.ask(sys::protrain_session_grad_norm)
    }

    /// How many steps were taken, those before the checkpoint that the session went on from included.
    #[doc(alias = "protrain_session_step_count")]
    pub fn step_count(&mut self) -> Result<u64> {
        self.ask(sys::protrain_session_step_count)
    }

    /// The number of this rank among those that train together: 0 for the first, and for a session alone.
    #[doc(alias = "protrain_session_rank")]
    pub fn rank(&mut self) -> Result<u64> {
        self.ask(sys::protrain_session_rank)
    }

    /// How many ranks train together: 1 for a session alone.
    #[doc(alias = "protrain_session_rank_count")]
    pub fn rank_count(&mut self) -> Result<u64> {
        self.ask(sys::protrain_session_rank_count)
    }

    /// Sets the learning rate of all following steps. Costs nothing: call it before each step for a schedule.
    ///
    /// # Errors
    /// `Arg` for a rate that is negative or not finite.
    #[doc(alias = "protrain_session_set_learning_rate")]
    pub fn set_learning_rate(&mut self, rate: f64) -> Result<()> {
        // SAFETY: the session is there.
        unsafe { check(sys::protrain_session_set_learning_rate(self.raw.as_ptr(), rate)) }
    }

    /// What another thread needs to stop a call that is inside the session. It may outlive the session.
    pub fn cancel_handle(&self) -> CancelHandle {
        self.cancel.clone()
    }

    /// Listens to the session's log: one JSON line when it was created (handed over by this call), one per step
    /// (`{"event":"step","step":1,"loss":6.2,...}`), one per checkpoint, with its path.
    ///
    /// The closure is called on the thread that is inside a call on the session, before that call returns. If it
    /// panics, it is not called again in that call, and the panic goes on there: out of [`Session::step`], which stands
    /// then, and of the loop around it.
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

    /// Listens no more.
    #[doc(alias = "protrain_session_set_log")]
    pub fn clear_log(&mut self) -> Result<()> {
        self.listen(None)
    }

    fn listen(&mut self, log: Option<Listener>) -> Result<()> {
        let (function, closure) = Listener::c_parts(log.as_ref());
        // SAFETY: the closure lives until another takes its place, or the session is destroyed.
        unsafe {
            let error = sys::protrain_session_set_log(self.raw.as_ptr(), function, closure);
            // The closure has been called in there, and may have panicked: the session has it all the same.
            if error.is_null() {
                self.log = log;
            }
            check(error)
        }
    }
}

/// Weights in and out.
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

    /// The model's parameters, frozen ones included.
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
    /// `Arg` for a name that is no parameter; `Shape` where `values` is not as long as the parameter has elements.
    #[doc(alias = "protrain_session_parameter_read")]
    pub fn read_parameter(&mut self, name: &str, values: &mut [f32]) -> Result<()> {
        let name = c_text("name", name)?;
        let (values, len) = (values.as_mut_ptr(), values.len());
        // SAFETY: pointer and length are those of a slice.
        unsafe { check(sys::protrain_session_parameter_read(self.raw.as_ptr(), name.as_ptr(), values, len)) }
    }

    /// Overwrites a parameter. The optimizer's state stays as it is; any value is taken, NaN too.
    ///
    /// # Errors
    /// As [`Session::read_parameter`]; `Io` or `NoSpace` where the option `offload_dir` failed, and the session is
    /// lost.
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
    /// `Shape` where `values` is not [`Session::flat_parameters_elements`] long.
    #[doc(alias = "protrain_session_flat_parameters_read")]
    pub fn read_flat_parameters(&mut self, values: &mut [f32]) -> Result<()> {
        // SAFETY: pointer and length are those of a slice.
        unsafe { check(sys::protrain_session_flat_parameters_read(self.raw.as_ptr(), values.as_mut_ptr(), values.len())) }
    }

    /// Overwrites all parameters from one flat buffer. The optimizer's state stays as it is; any value is taken, NaN
    /// too.
    ///
    /// # Errors
    /// As [`Session::read_flat_parameters`]; `Io` or `NoSpace` where the option `offload_dir` failed, and the session is
    /// lost.
    #[doc(alias = "protrain_session_flat_parameters_write")]
    pub fn write_flat_parameters(&mut self, values: &[f32]) -> Result<()> {
        // SAFETY: pointer and length are those of a slice.
        unsafe { check(sys::protrain_session_flat_parameters_write(self.raw.as_ptr(), values.as_ptr(), values.len())) }
    }

    /// Reads the gradient that a parameter had in the last step. Only those that the option `keep_gradients` names are
    /// kept.
    ///
    /// # Errors
    /// As [`Session::read_parameter`]; `Arg` too for a gradient that is not kept; `State` before the first step,
    /// between the batches of a step, and after a call that failed since.
    #[doc(alias = "protrain_session_grad_read")]
    pub fn read_grad(&mut self, name: &str, values: &mut [f32]) -> Result<()> {
        let name = c_text("name", name)?;
        let (values, len) = (values.as_mut_ptr(), values.len());
        // SAFETY: pointer and length are those of a slice.
        unsafe { check(sys::protrain_session_grad_read(self.raw.as_ptr(), name.as_ptr(), values, len)) }
    }

    /// Writes the model with its present weights: the original file's graph, untouched, with new values in its
    /// initializers. A file at `path` is replaced only once the new one is complete.
    ///
    /// # Errors
    /// `Io`, `NoSpace` or `Path`; `Limit` for what the format cannot hold in one file.
    #[doc(alias = "protrain_session_export")]
    pub fn export(&mut self, path: impl AsRef<Path>) -> Result<()> {
        let path = c_path("path", path.as_ref())?;
        // SAFETY: the path ends in NUL.
        unsafe { check(sys::protrain_session_export(self.raw.as_ptr(), path.as_ptr())) }
    }

    /// Saves a checkpoint into a folder of its own in `directory`, `step-0000000010` after ten steps: weights, the
    /// optimizer's state, the step, the seed. A session that is opened with the option `resume` goes on from it bit for
    /// bit, under any plan; inputs, learning rate and all other options are for the caller to give again.
    ///
    /// What is there when this call returns survives a kill or a power failure at any instant, and so do all earlier
    /// checkpoints. None is ever removed.
    ///
    /// # Errors
    /// `State` between the batches of one step; `Io`, `NoSpace` or `Path`; `Busy` while another session saves into the
    /// directory; `Unsupported` or `Limit` for names that the format cannot hold. All checkpoints are as they were
    /// then, and the session goes on.
    #[doc(alias = "protrain_session_save")]
    pub fn save(&mut self, directory: impl AsRef<Path>) -> Result<()> {
        let directory = c_path("directory", directory.as_ref())?;
        // SAFETY: the path ends in NUL.
        unsafe { check(sys::protrain_session_save(self.raw.as_ptr(), directory.as_ptr())) }
    }
}

/// What was chosen, what is done, what happened.
impl Session {
    /// The plan, as JSON: where each chunk of parameters rests, what each block does with its activations. A file of it
    /// is what the option `plan` takes.
    #[doc(alias = "protrain_session_plan")]
    pub fn plan(&mut self) -> Result<&str> {
        self.lend(sys::protrain_session_plan)
    }

    /// The program: every instruction of a step, one a line, with its queue, what it waits for, its bytes and offsets.
    #[doc(alias = "protrain_session_program")]
    pub fn program(&mut self) -> Result<&str> {
        self.lend(sys::protrain_session_program)
    }

    /// The training graph: every node of forward and backward, one a line, after all fusion.
    #[doc(alias = "protrain_session_graph")]
    pub fn graph(&mut self) -> Result<&str> {
        self.lend(sys::protrain_session_graph)
    }

    /// What a step did with its time and its memory, as a JSON object; `protrain.h` lists its members.
    #[doc(alias = "protrain_session_report")]
    pub fn report(&mut self) -> Result<&str> {
        self.lend(sys::protrain_session_report)
    }
}

/// Functions of the library by their form. Each is called with this session and pointers that are good for the time of
/// the call, which is all that these functions ask for.
impl Session {
    pub(crate) fn from_raw(raw: NonNull<sys::protrain_session>) -> Self {
        Session { raw, cancel: CancelHandle::new(raw), log: None }
    }

    fn ask<T: Default>(&mut self, call: unsafe extern "C" fn(Raw, *mut T) -> RawError) -> Result<T> {
        let mut answer = T::default();
        // SAFETY: as above.
        unsafe { check(call(self.raw.as_ptr(), &mut answer))? };
        Ok(answer)
    }

    fn ask_at<T: Default>(
        &mut self,
        at: usize,
        call: unsafe extern "C" fn(Raw, usize, *mut T) -> RawError,
    ) -> Result<T> {
        let mut answer = T::default();
        // SAFETY: as above.
        unsafe { check(call(self.raw.as_ptr(), at, &mut answer))? };
        Ok(answer)
    }

    /// The text is lent until the next call on the session, which the borrow of `self` keeps away.
    fn lend(&mut self, call: unsafe extern "C" fn(Raw, *mut *const c_char) -> RawError) -> Result<&str> {
        let mut lent = null();
        // SAFETY: as above.
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
        // SAFETY: as above; the text is copied before the next call.
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
        // SAFETY: as above; dims may be NULL where their length is 0.
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
        // SAFETY: it was made once, is destroyed once, and no handle knows it any more.
        unsafe { sys::protrain_session_destroy(self.raw.as_ptr()) }
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Session").finish_non_exhaustive()
    }
}
