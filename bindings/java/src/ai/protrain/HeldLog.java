package ai.protrain;

import ai.protrain.internal.Log;

/**
 * Passes log lines from C to a listener. An exception of the listener must not unwind C's stack. So it is stored until
 * the call into C has returned on the same thread. That call is not cancelled. If it succeeds, the exception is thrown
 * again. If it fails, as after the line of an alarm, its own error is thrown, because its code and usable() say how the
 * program can go on. The listener's exception is then among those that the error has suppressed.
 */
final class HeldLog extends Log {
  private static final ThreadLocal<Throwable> THROWN = new ThreadLocal<>();

  volatile LogListener listener;

  @Override
  public void event(String line) {
    LogListener now = listener;
    if (now == null || THROWN.get() != null) return;
    try {
      now.log(line);
    } catch (Throwable thrown) {
      THROWN.set(thrown);
    }
  }

  /** Throws the exception, if there is one, that a listener threw in the call that has succeeded on this thread. */
  static void rethrow() {
    Throwable thrown = take();
    if (thrown != null) HeldLog.<RuntimeException>raise(thrown);
  }

  /** Adds the exception, if there is one, that a listener threw in the call that has failed on this thread. */
  static void suppressIn(Throwable failed) {
    Throwable thrown = take();
    if (thrown != null) failed.addSuppressed(thrown);
  }

  private static Throwable take() {
    Throwable thrown = THROWN.get();
    if (thrown != null) THROWN.remove();
    return thrown;
  }

  /** Throws any exception, even a checked one: a listener in another JVM language need not declare what it throws. */
  @SuppressWarnings("unchecked")
  private static <T extends Throwable> void raise(Throwable thrown) throws T {
    throw (T) thrown;
  }
}
