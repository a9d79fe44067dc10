package ai.protrain;

import ai.protrain.internal.Native;
import java.nio.ByteBuffer;
import java.nio.FloatBuffer;
import java.nio.IntBuffer;
import java.nio.LongBuffer;
import java.nio.ReadOnlyBufferException;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Objects;

/**
 * A model in training: its weights, its optimizer's state, and the memory and threads that a step needs.
 *
 * <p>A session may move between threads, but only one thread at a time may use it. A second thread gets {@link
 * ErrorCode#BUSY}, and the session is unharmed. Only {@link #cancel} and {@link #close} may be called at any time.
 *
 * <p>Buffers are used from their position to their limit, and keep both. Direct buffers in the machine's byte order are
 * read and written in place. Other buffers and arrays are copied.
 */
public final class Session implements AutoCloseable {
  /**
   * An input of the model.
   *
   * @param name its name
   * @param dtype the type of its elements
   * @param shape its shape, all dimensions bound
   */
  public record Input(String name, DType dtype, List<Long> shape) {}

  /**
   * An output of the model that the option keep_outputs names.
   *
   * @param name its name in the file
   * @param dtype the type of its elements
   * @param shape its shape in the last prediction; before the first one, under the session's first binding
   */
  public record Output(String name, DType dtype, List<Long> shape) {}

  /**
   * A parameter of the model, trained or frozen.
   *
   * @param name its initializer's name in the file
   * @param shape its shape
   * @param elements its number of elements: the product of its shape
   */
  public record Parameter(String name, List<Long> shape, long elements) {}

  private final Handle handle;

  /**
   * Reads a model and makes it ready to train: chooses a plan for the memory that the options give, and takes that
   * memory.
   *
   * @param options the session's settings; needed only during this call
   * @param model an ONNX file
   */
  public Session(Options options, Path model) {
    this(options, (pointer, session) -> Native.session_create(pointer, model.toString(), session));
  }

  /**
   * As {@link #Session(Options, Path)}, from a model in memory, which is copied.
   *
   * @param options the session's settings; needed only during this call
   * @param model the bytes of an ONNX file
   * @param directory the directory of its external data, and nothing outside of it is opened; null for none
   */
  public Session(Options options, ByteBuffer model, Path directory) {
    this(
        options,
        (pointer, session) -> {
          String base = directory == null ? "" : directory.toString();
          try (Memory bytes = Memory.of(model)) {
            Native.session_create_from_bytes(pointer, bytes.address, bytes.bytes, base, session);
          }
        });
  }

  private interface Making {
    void make(long options, long[] session);
  }

  private Session(Options options, Making making) {
    long[] session = {0};
    try {
      options.handle.call(pointer -> making.make(pointer, session));
    } catch (Throwable thrown) {
      Native.session_destroy(session[0]); // C made a session, but the listener of the options threw
      throw thrown;
    }
    handle = new Handle("session", session[0], Native::session_destroy);
  }

  /**
   * Sets the listener of the session's log: one line about its creation, at once, one per step, one per checkpoint, and
   * one per alarm, which is about something that makes a run fail without an error.
   *
   * @param listener the listener, called on the thread of the call that logs; or null
   */
  public void setLog(LogListener listener) {
    handle.callAlone(session -> handle.listen(listener, log -> Native.session_log(session, log)));
  }

  /**
   * Gets the inputs of the model. All must be set before the first step.
   *
   * @return the inputs, in the file's order
   */
  public List<Input> inputs() {
    List<Input> inputs = new ArrayList<>();
    handle.call(
        session -> {
          long[] count = {0};
          int[] dtype = {0};
          byte[][] name = {null};
          Native.session_input_count(session, count);
          for (long i = 0; i < count[0]; ++i) {
            Native.session_input_name(session, i, name);
            Native.session_input_dtype(session, i, dtype);
            List<Long> shape = shape(session, i, Native::session_input_shape);
            inputs.add(new Input(Native.text(name[0]), DType.of(dtype[0]), shape));
          }
        });
    return List.copyOf(inputs);
  }

  /**
   * Copies the values of an input. Every following step and evaluation uses them, until they are set again.
   *
   * @param name the input's name
   * @param data the elements in row-major order
   * @param shape their shape, one of those that the session accepts
   */
  public void setInput(String name, LongBuffer data, long... shape) {
    setInput(name, DType.INT64, Memory.of(data), shape);
  }

  /**
   * As {@link #setInput(String, LongBuffer, long...)}, for {@link DType#INT32}.
   *
   * @param name the input's name
   * @param data the elements in row-major order
   * @param shape their shape
   */
  public void setInput(String name, IntBuffer data, long... shape) {
    setInput(name, DType.INT32, Memory.of(data), shape);
  }

  /**
   * As {@link #setInput(String, LongBuffer, long...)}, for {@link DType#FLOAT32}.
   *
   * @param name the input's name
   * @param data the elements in row-major order
   * @param shape their shape
   */
  public void setInput(String name, FloatBuffer data, long... shape) {
    setInput(name, DType.FLOAT32, Memory.of(data), shape);
  }

  /**
   * As {@link #setInput(String, LongBuffer, long...)}, for elements of any type.
   *
   * @param name the input's name
   * @param dtype the type of the elements, which must be the model's own, or float32 where that is another float
   * @param data their bytes, each element in the machine's order
   * @param shape their shape
   */
  public void setInput(String name, DType dtype, ByteBuffer data, long... shape) {
    setInput(name, dtype, Memory.of(data), shape);
  }

  /**
   * As {@link #setInput(String, LongBuffer, long...)}, for an array.
   *
   * @param name the input's name
   * @param data the elements in row-major order
   * @param shape their shape
   */
  public void setInput(String name, long[] data, long... shape) {
    setInput(name, LongBuffer.wrap(data), shape);
  }

  /**
   * As {@link #setInput(String, LongBuffer, long...)}, for an array of {@link DType#INT32}.
   *
   * @param name the input's name
   * @param data the elements in row-major order
   * @param shape their shape
   */
  public void setInput(String name, int[] data, long... shape) {
    setInput(name, IntBuffer.wrap(data), shape);
  }

  /**
   * As {@link #setInput(String, LongBuffer, long...)}, for an array of {@link DType#FLOAT32}.
   *
   * @param name the input's name
   * @param data the elements in row-major order
   * @param shape their shape
   */
  public void setInput(String name, float[] data, long... shape) {
    setInput(name, FloatBuffer.wrap(data), shape);
  }

  private void setInput(String name, DType dtype, Memory data, long[] shape) {
    try (data) {
      Objects.requireNonNull(shape, "shape"); // JNI would end the program
      handle.call(
          session -> Native.session_set_input(session, name, dtype.number, shape, data.address, data.bytes));
    }
  }

  /**
   * Trains on the present inputs: forward, backward, update of every trained parameter. With the option accumulation =
   * K, K calls make one step.
   *
   * @return the loss before the update; in the K-th call, the mean over the step's batches
   */
  public float step() {
    float[] loss = {0};
    handle.call(session -> Native.step(session, loss));
    return loss[0];
  }

  /**
   * Computes the loss on the present inputs and changes nothing.
   *
   * @return the loss of the present weights
   */
  public float eval() {
    float[] loss = {0};
    handle.call(session -> Native.eval(session, loss));
    return loss[0];
  }

  /**
   * Computes the outputs that the option keep_outputs names, on the present inputs, and changes nothing. Only inputs that
   * these outputs depend on must be set. {@link #readOutput} reads them, until the next step, evaluation or prediction.
   */
  public void predict() {
    handle.call(Native::predict);
  }

  /**
   * Gets the outputs that {@link #predict} computes.
   *
   * @return the outputs, in the file's order
   */
  public List<Output> outputs() {
    List<Output> outputs = new ArrayList<>();
    handle.call(
        session -> {
          long[] count = {0};
          int[] dtype = {0};
          byte[][] name = {null};
          Native.session_output_count(session, count);
          for (long i = 0; i < count[0]; ++i) {
            Native.session_output_name(session, i, name);
            Native.session_output_dtype(session, i, dtype);
            List<Long> shape = shape(session, i, Native::session_output_shape);
            outputs.add(new Output(Native.text(name[0]), DType.of(dtype[0]), shape));
          }
        });
    return List.copyOf(outputs);
  }

  /**
   * Reads an output of the last prediction, in row-major order and the machine's byte order.
   *
   * @param name its name
   * @param dtype its type, or {@link DType#FLOAT32} where that is another type of floats
   * @param data where its elements go, from position to limit
   */
  public void readOutput(String name, DType dtype, ByteBuffer data) {
    if (data.isReadOnly()) throw new ReadOnlyBufferException();
    try (Memory memory = Memory.of(data)) {
      handle.call(
          session ->
              Native.session_output_read(session, name, dtype.number, memory.address, memory.bytes));
      memory.writeTo(data);
    }
  }

  /**
   * Reads an output of floats of the last prediction, in row-major order.
   *
   * @param name its name
   * @param values where its elements go, from position to limit
   */
  public void readOutput(String name, FloatBuffer values) {
    if (values.isReadOnly()) throw new ReadOnlyBufferException();
    try (Memory memory = Memory.of(values)) {
      handle.call(
          session ->
              Native.session_output_read(
                  session, name, DType.FLOAT32.number, memory.address, memory.bytes));
      memory.writeTo(values);
    }
  }

  /**
   * Gets the L2 norm of all trained parameters' gradients in the last complete step, before any clipping.
   *
   * @return the norm
   */
  public double gradNorm() {
    double[] norm = {0};
    handle.call(session -> Native.session_grad_norm(session, norm));
    return norm[0];
  }

  /**
   * Gets the number of steps taken, including those before the checkpoint that the session resumed from.
   *
   * @return the number of complete steps
   */
  public long stepCount() {
    long[] count = {0};
    handle.call(session -> Native.session_step_count(session, count));
    return count[0];
  }

  /**
   * Gets the number of this rank among those that train together.
   *
   * @return 0 for the first, and for a session alone
   */
  public long rank() {
    long[] rank = {0};
    handle.call(session -> Native.session_rank(session, rank));
    return rank[0];
  }

  /**
   * Gets the number of ranks that train together.
   *
   * @return 1 for a session alone
   */
  public long rankCount() {
    long[] count = {0};
    handle.call(session -> Native.session_rank_count(session, count));
    return count[0];
  }

  /**
   * Gets the learning rate of the next step, as the option schedule has it.
   *
   * @return the rate
   */
  public double learningRate() {
    double[] rate = {0};
    handle.call(session -> Native.session_learning_rate(session, rate));
    return rate[0];
  }

  /**
   * Sets the learning rate of all following steps. The option schedule still applies to it. It costs nothing: for a
   * schedule of your own, call it before each step.
   *
   * @param rate the rate
   */
  public void setLearningRate(double rate) {
    handle.call(session -> Native.session_set_learning_rate(session, rate));
  }

  /**
   * Asks the step, evaluation, prediction or check of gradients that is inside the session, or else the next one, to
   * stop. That call throws {@link ErrorCode#CANCELLED}, once, and the session stays usable. Any thread may call this
   * method. It does nothing after {@link #close}.
   */
  public void cancel() {
    handle.cancel(Native::session_cancel);
  }

  /**
   * Gets the parameters of the model, including frozen ones.
   *
   * @return the parameters, in the order of first use in the graph; running statistics that steps update come last
   */
  public List<Parameter> parameters() {
    List<Parameter> parameters = new ArrayList<>();
    handle.call(
        session -> {
          long[] count = {0};
          Native.session_parameter_count(session, count);
          for (long i = 0; i < count[0]; ++i) parameters.add(parameter(session, i));
        });
    return List.copyOf(parameters);
  }

  private static Parameter parameter(long session, long index) {
    byte[][] name = {null};
    long[] elements = {0};
    Native.session_parameter_name(session, index, name);
    Native.session_parameter_elements(session, index, elements);
    return new Parameter(Native.text(name[0]), shape(session, index, Native::session_parameter_shape), elements[0]);
  }

  /**
   * Reads a parameter, in row-major order of its shape.
   *
   * @param name its name
   * @param values receives the elements; there must be room for exactly as many as the parameter has
   */
  public void readParameter(String name, FloatBuffer values) {
    read(name, values, Native::session_parameter_read);
  }

  /**
   * Reads a parameter, in row-major order of its shape.
   *
   * @param name its name
   * @return its elements
   * @throws IllegalArgumentException if the parameter has 2^31 elements or more, which no array or buffer of Java holds
   */
  public float[] readParameter(String name) {
    float[] values = new float[elementsOf(name, "; export writes parameters of any size")];
    readParameter(name, FloatBuffer.wrap(values));
    return values;
  }

  /**
   * Overwrites a parameter. The optimizer's state stays as it is.
   *
   * @param name its name
   * @param values its elements, in row-major order of its shape
   */
  public void writeParameter(String name, FloatBuffer values) {
    try (Memory memory = Memory.of(values)) {
      handle.call(session -> Native.session_parameter_write(session, name, memory.address, memory.floats()));
    }
  }

  /**
   * As {@link #writeParameter(String, FloatBuffer)}, for an array.
   *
   * @param name its name
   * @param values its elements
   */
  public void writeParameter(String name, float[] values) {
    writeParameter(name, FloatBuffer.wrap(values));
  }

  /**
   * Gets the number of elements of all parameters together: the length of the flat buffer that holds them one after the
   * other, in the order of {@link #parameters}.
   *
   * @return the number of elements
   */
  public long flatParametersElements() {
    long[] elements = {0};
    handle.call(session -> Native.session_flat_parameters_elements(session, elements));
    return elements[0];
  }

  /**
   * Reads all parameters into one flat buffer. A buffer of Java holds fewer than 2^31 elements: of a larger model, read
   * the parameters one by one.
   *
   * @param values receives the elements; there must be room for exactly {@link #flatParametersElements}
   */
  public void readFlatParameters(FloatBuffer values) {
    if (values.isReadOnly()) throw new ReadOnlyBufferException();
    try (Memory memory = Memory.of(values)) {
      handle.call(session -> Native.session_flat_parameters_read(session, memory.address, memory.floats()));
      memory.writeTo(values);
    }
  }

  /**
   * Overwrites all parameters from one flat buffer. The optimizer's state stays as it is. A buffer of Java holds fewer
   * than 2^31 elements: of a larger model, write the parameters one by one.
   *
   * @param values the elements, {@link #flatParametersElements} in number
   */
  public void writeFlatParameters(FloatBuffer values) {
    try (Memory memory = Memory.of(values)) {
      handle.call(session -> Native.session_flat_parameters_write(session, memory.address, memory.floats()));
    }
  }

  /**
   * Reads the gradient that a parameter had in the last step, if the option keep_gradients names it.
   *
   * @param name the parameter's name
   * @param values receives the gradient; there must be room for exactly as many elements as the parameter has
   */
  public void readGrad(String name, FloatBuffer values) {
    read(name, values, Native::session_grad_read);
  }

  /**
   * As {@link #readGrad(String, FloatBuffer)}, into a new array.
   *
   * @param name the parameter's name
   * @return the gradient's elements
   * @throws IllegalArgumentException if the parameter has 2^31 elements or more, which no array or buffer of Java holds
   */
  public float[] readGrad(String name) {
    float[] values = new float[elementsOf(name, "")];
    readGrad(name, FloatBuffer.wrap(values));
    return values;
  }

  private interface Reading {
    void read(long session, String name, long values, long count);
  }

  private void read(String name, FloatBuffer values, Reading reading) {
    if (values.isReadOnly()) throw new ReadOnlyBufferException();
    try (Memory memory = Memory.of(values)) {
      handle.call(session -> reading.read(session, name, memory.address, memory.floats()));
      memory.writeTo(values);
    }
  }

  /** Returns 0 if there is no such parameter. The call that follows then fails with a clear error. */
  private int elementsOf(String name, String advice) {
    return parameters().stream()
        .filter(parameter -> parameter.name().equals(name))
        .mapToInt(parameter -> lengthOfArray(name, parameter.elements(), advice))
        .findFirst()
        .orElse(0);
  }

  static int lengthOfArray(String name, long elements, String advice) {
    if (elements <= Integer.MAX_VALUE) return (int) elements;
    throw new IllegalArgumentException(
        name + " has " + elements + " elements, more than a Java array holds" + advice);
  }

  /**
   * Writes the model with its present weights. The file is replaced only when the new one is complete.
   *
   * @param path the ONNX file to write
   */
  public void export(Path path) {
    handle.call(session -> Native.session_export(session, path.toString()));
  }

  /**
   * Writes the adapters of the options lora or adapter, in the form of Hugging Face's PEFT.
   *
   * @param directory gets adapter_model.safetensors and adapter_config.json; created if only its last component is
   *     missing
   */
  public void exportAdapters(Path directory) {
    handle.call(session -> Native.session_export_adapters(session, directory.toString()));
  }

  /**
   * Gives the session's adapters the values of other ones, of the same modules and ranks. The optimizer state stays.
   *
   * @param directory an adapter that {@link #exportAdapters} or PEFT wrote
   */
  public void loadAdapters(Path directory) {
    handle.call(session -> Native.session_load_adapters(session, directory.toString()));
  }

  /**
   * Switches the session's adapters off or on. While they are off, {@link #eval} and {@link #predict} compute with the
   * base alone, and nothing else is possible.
   *
   * @param use whether the adapters count
   */
  public void useAdapters(boolean use) {
    handle.call(session -> Native.session_use_adapters(session, use ? 1 : 0));
  }

  /**
   * Saves a checkpoint. A session that resumes from it ({@link Options#resume}) continues bit for bit. The checkpoint
   * survives a kill or a power failure at any instant, and so do all earlier ones.
   *
   * @param directory gets a new folder with the checkpoint; created if only its last component is missing
   */
  public void save(Path directory) {
    handle.call(session -> Native.session_save(session, directory.toString()));
  }

  /**
   * Gets the plan that was chosen.
   *
   * @return a JSON object; the option {@code plan} takes a file with it
   */
  public String plan() {
    return ask(Native::session_plan);
  }

  /**
   * Gets the program: every instruction of a step.
   *
   * @return text, one instruction per line
   */
  public String program() {
    return ask(Native::session_program);
  }

  /**
   * Gets the training graph: every node of forward and backward.
   *
   * @return text, one node per line
   */
  public String graph() {
    return ask(Native::session_graph);
  }

  /**
   * Gets a report on the time and memory of a step, measured and predicted.
   *
   * @return a JSON object
   */
  public String report() {
    return ask(Native::session_report);
  }

  /**
   * Compares the gradients of a step on the present inputs with slopes of the loss in float64. Changes no parameter.
   *
   * @param samples number of elements of each parameter to compare
   * @return a JSON object
   */
  public String checkGradients(int samples) {
    return ask((session, json) -> Native.session_check_gradients(session, samples, json));
  }

  /** Frees the session, its threads and all its memory. If a call is inside, this happens when that call returns. */
  @Override
  public void close() {
    handle.close();
  }

  private String ask(Handle.Question question) {
    byte[][] answer = {null};
    handle.call(session -> question.ask(session, answer));
    return Native.text(answer[0]);
  }

  private interface Shape {
    void get(long session, long index, long[] dims, long[] rank);
  }

  private static List<Long> shape(long session, long index, Shape shape) {
    long[] rank = {0};
    shape.get(session, index, new long[0], rank);
    long[] dims = new long[(int) rank[0]];
    shape.get(session, index, dims, rank);
    return Arrays.stream(dims).boxed().toList();
  }
}
