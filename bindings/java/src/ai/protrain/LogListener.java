package ai.protrain;

/** Receives log lines: the progress of long calls and the results of steps. */
@FunctionalInterface
public interface LogListener {
  /**
   * Receives one JSON object, such as {@code {"event":"step","step":1,"loss":6.31,...}}, on the thread of the call that
   * logs it. The listener must not use the object that logs, except for {@link Session#cancel}. If the listener throws,
   * it gets no more lines in that call, which goes on to its end. The call then throws the same exception. But if the
   * call fails, it throws its own {@link ProtrainException}, which has suppressed the listener's exception.
   *
   * @param line the object, without a newline
   */
  void log(String line);
}
