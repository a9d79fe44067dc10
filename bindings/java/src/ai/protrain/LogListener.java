package ai.protrain;

/** Hears how long calls get on, and what steps came to. */
@FunctionalInterface
public interface LogListener {
  /**
   * Receives one JSON object, such as {@code {"event":"step","step":1,"loss":6.31,...}}, on the thread that is inside
   * the call. Of the object that writes it only {@link Session#cancel} may be called. What this throws is thrown by
   * that call in turn, once what the line tells of is done; it gets no further line then.
   *
   * @param line the object, without a newline
   */
  void log(String line);
}
