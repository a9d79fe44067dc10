package ai.protrain;

import ai.protrain.internal.Native;
import java.nio.file.Path;

/**
 * The settings of a session. Each option is checked when it is set; {@link #help} lists all options. One object may
 * serve any number of sessions.
 *
 * <p>Only one thread at a time may use it; a second one gets {@link ErrorCode#BUSY}. But several threads may create
 * sessions from it at once.
 */
public final class Options implements AutoCloseable {
  final Handle handle;

  /** Creates options that all have their defaults. */
  public Options() {
    long[] options = {0};
    Native.options_create(options);
    handle = new Handle("options", options[0], Native::options_destroy);
  }

  /**
   * Sets an option. For a list (dim, shapes, constant, also_loss, group, no_decay, trainable, frozen, tie, lora,
   * keep_gradients, keep_outputs), each call adds one item. For any other option, a call replaces the value.
   *
   * @param key its name, such as "memory"
   * @param value its value, converted by {@code toString}
   * @return these options
   */
  public Options set(String key, Object value) {
    String text = value.toString();
    handle.callAlone(options -> Native.options_set(options, key, text));
    return this;
  }

  /**
   * Binds a symbolic dimension of the model's inputs.
   *
   * @param name the dimension's name in the model
   * @param size its size
   * @return these options
   */
  public Options dim(String name, long size) {
    return set("dim", name + "=" + size);
  }

  /**
   * Sets the learning rate that a session begins with.
   *
   * @param rate the rate
   * @return these options
   */
  public Options learningRate(double rate) {
    return set("learning_rate", rate);
  }

  /**
   * Sets the memory that a session may take, if the device and the host share theirs.
   *
   * @param bytes a size such as "12GiB", "800MB", or plain bytes
   * @return these options
   */
  public Options memory(String bytes) {
    return set("memory", bytes);
  }

  /**
   * Lets a session store on disk what does not fit into memory.
   *
   * @param directory the directory for the file, which has no name and disappears with the session
   * @return these options
   */
  public Options offloadDir(Path directory) {
    return set("offload_dir", directory);
  }

  /**
   * Makes a session resume from a checkpoint.
   *
   * @param checkpoint a folder that {@link Session#save} wrote, or a directory of such folders: then the newest is used
   * @return these options
   */
  public Options resume(Path checkpoint) {
    return set("resume", checkpoint);
  }

  /**
   * Gets the value of an option.
   *
   * @param key its name
   * @return the value that was set, or the default; the items of a list are separated by newlines
   */
  public String get(String key) {
    return ask((options, value) -> Native.options_get(options, key, value));
  }

  /**
   * Lists all options.
   *
   * @return a JSON array of key, type, default, range, sentence
   */
  public String help() {
    return ask(Native::options_help);
  }

  /**
   * Checks whether a model can be trained, without training it.
   *
   * @param model an ONNX file
   * @return a JSON object: everything that is missing, and what was found in the model
   */
  public String check(Path model) {
    return ask((options, json) -> Native.model_check(options, model.toString(), json));
  }

  /**
   * Writes a model with an adapter merged into its weights, without training it.
   *
   * @param model an ONNX file
   * @param adapter a directory, as for the option adapter
   * @param path the ONNX file to write
   */
  public void merge(Path model, Path adapter, Path path) {
    handle.call(options -> Native.model_merge(options, model.toString(), adapter.toString(), path.toString()));
  }

  /**
   * Predicts how a model would train, without training it.
   *
   * @param model an ONNX file
   * @return a JSON object: the plan that would be chosen, the time and memory of a step, and the reasons
   */
  public String plan(Path model) {
    return ask((options, json) -> Native.model_plan(options, model.toString(), json));
  }

  /**
   * Measures this machine for a model. Earlier measurements are made again.
   *
   * @param model an ONNX file
   * @return a JSON object that describes the machine; the option {@code hardware} takes a file with it
   */
  public String profile(Path model) {
    return ask((options, json) -> Native.model_profile(options, model.toString(), json));
  }

  /**
   * Sets the listener for the progress of long calls: {@link #plan}, {@link #profile}, and creating a session.
   *
   * @param listener the listener, called on the thread of the long call; or null
   * @return these options
   */
  public Options setLog(LogListener listener) {
    handle.callAlone(options -> handle.listen(listener, log -> Native.options_log(options, log)));
    return this;
  }

  /** Frees the options. Sessions made from them live on. */
  @Override
  public void close() {
    handle.close();
  }

  private String ask(Handle.Question question) {
    byte[][] answer = {null};
    handle.callAlone(options -> question.ask(options, answer));
    return Native.text(answer[0]);
  }
}
