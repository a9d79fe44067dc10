package ai.protrain;

import ai.protrain.internal.Log;

/**
 * Stands between C and a listener. What the listener throws must not unwind C's stack: it is held, and thrown again
 * when the call into C has returned, which is on the same thread. A line tells of what is done, so there is nothing to
 * cancel.
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

  /** Throws what a listener threw in the call that this thread is about to leave. */
  static void rethrow() {
    Throwable thrown = THROWN.get();
    if (thrown == null) return;
    THROWN.remove();
    HeldLog.<RuntimeException>raise(thrown);
  }

  /** A listener in another language may throw what Java would have it declare. */
  @SuppressWarnings("unchecked")
  private static <T extends Throwable> void raise(Throwable thrown) throws T {
    throw (T) thrown;
  }
}
