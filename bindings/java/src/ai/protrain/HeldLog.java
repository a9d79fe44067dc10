package ai.protrain;

import ai.protrain.internal.Log;

/**
 * Passes log lines from C to a listener. An exception of the listener must not unwind C's stack. So it is stored, and
 * thrown again on the same thread when the call into C has returned. That call is not cancelled, because a line reports
 * work that is already done.
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

  /** Throws the exception, if there is one, that a listener threw in the call that this thread is about to leave. */
  static void rethrow() {
    Throwable thrown = THROWN.get();
    if (thrown == null) return;
    THROWN.remove();
    HeldLog.<RuntimeException>raise(thrown);
  }

  /** Throws any exception, even a checked one: a listener in another JVM language need not declare what it throws. */
  @SuppressWarnings("unchecked")
  private static <T extends Throwable> void raise(Throwable thrown) throws T {
    throw (T) thrown;
  }
}
