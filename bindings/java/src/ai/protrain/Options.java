package ai.protrain;

import ai.protrain.internal.Native;
import java.nio.file.Path;

/**
 * What a session is to be made of. Each option is checked as it is set; {@link #help} lists them all. One object may
 * serve any number of sessions.
 *
 * <p>One thread at a time uses it, another gets {@link ErrorCode#BUSY}; but several may make sessions from it at once.
 */
public final class Options implements AutoCloseable {
  final Handle handle;

  /** Makes options in which everything has its default. */
  public Options() {
    long[] options = {0};
    Native.options_create(options);
    handle = new Handle("options", options[0], Native::options_destroy);
  }

  /**
   * Sets an option. The lists (dim, shapes, trainable, frozen, tie, keep_gradients) gain one item with each call; any other
   * option is replaced.
   *
   * @param key its name, such as "memory"
   * @param value its value; what {@code toString} makes of it counts
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
   * Lets what does not fit into memory rest on disk.
   *
   * @param directory the directory of the file, which has no name and is gone with the session
   * @return these options
   */
  public Options offloadDir(Path directory) {
    return set("offload_dir", directory);
  }

  /**
   * Makes a session resume from a checkpoint.
   *
   * @param checkpoint the folder that {@link Session#save} left, or a directory of them, of which the newest is taken
   * @return these options
   */
  public Options resume(Path checkpoint) {
    return set("resume", checkpoint);
  }

  /**
   * Gets the value of an option.
   *
   * @param key its name
   * @return what was set, or the default; the items of a list are separated by newlines
   */
  public String get(String key) {
    return ask((options, value) -> Native.options_get(options, key, value));
  }

  /**
   * Lists all options.
   *
   * @return a JSON array of key, type, default, range, sentence, available
   */
  public String help() {
    return ask(Native::options_help);
  }

  /**
   * Says whether a model can be trained, without training it.
   *
   * @param model an ONNX file
   * @return a JSON object: everything that is missing, and what was found in the model
   */
  public String check(Path model) {
    return ask((options, json) -> Native.model_check(options, model.toString(), json));
  }

  /**
   * Says how a model would train, without training it.
   *
   * @param model an ONNX file
   * @return a JSON object: the plan that would be chosen, what a step would take and hold, and why
   */
  public String plan(Path model) {
    return ask((options, json) -> Native.model_plan(options, model.toString(), json));
  }

  /**
   * Measures this machine for a model. Earlier measurements are made again.
   *
   * @param model an ONNX file
   * @return a JSON object that describes the machine; a file of it is what the option {@code hardware} takes
   */
  public String profile(Path model) {
    return ask((options, json) -> Native.model_profile(options, model.toString(), json));
  }

  /**
   * Sets the listener for the progress of long calls: {@link #plan}, {@link #profile}, and creating a session.
   *
   * @param listener the listener, called on the thread that is inside the call; or null
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
