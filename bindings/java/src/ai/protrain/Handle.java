package ai.protrain;

import ai.protrain.internal.Log;
import ai.protrain.internal.Native;
import ai.protrain.internal.NativeJNI;
import java.lang.ref.Cleaner;
import java.lang.ref.Reference;
import java.util.function.Consumer;
import java.util.function.LongConsumer;

/**
 * A native object, the calls that are inside it, and its listener. It is freed when it is closed, or after it has
 * become unreachable; where calls are inside it then, by the last of them: no memory goes while a step uses it.
 */
final class Handle implements AutoCloseable {
  /** A call that answers with text, as UTF-8 in the first place of {@code answer}. */
  interface Question {
    void ask(long pointer, byte[][] answer);
  }

  private static final Cleaner CLEANER = Cleaner.create();

  private final HeldLog log = new HeldLog();
  private final Life life;
  private final Cleaner.Cleanable end;

  Handle(String name, long pointer, LongConsumer destroy) {
    life = new Life(name, pointer, destroy, Log.getCPtr(log));
    end = CLEANER.register(this, life);
  }

  /** Calls {@code body} with the native object, and throws then what its listener threw. */
  void call(LongConsumer body) {
    life.enter(false);
    inside(body);
  }

  /** As {@link #call}, but no other call may be inside; for objects that do not see to this themselves. */
  void callAlone(LongConsumer body) {
    life.enter(true);
    inside(body);
  }

  /** As {@link #call}, but does nothing once closed. */
  void callIfOpen(LongConsumer body) {
    if (life.enterIfOpen()) inside(body);
  }

  private void inside(LongConsumer body) {
    try {
      body.accept(life.pointer);
    } finally {
      life.leave();
      Reference.reachabilityFence(this); // it holds the listener, C does not
      HeldLog.rethrow();
    }
  }

  /** Changes the listener. {@code set} hands it, or null, to C, which may have a first line for it at once. */
  void listen(LogListener listener, Consumer<Log> set) {
    LogListener before = log.listener;
    log.listener = listener;
    try {
      set.accept(listener == null ? null : log);
    } catch (ProtrainException refused) {
      log.listener = before;
      throw refused;
    }
  }

  @Override
  public void close() {
    end.clean();
  }

  /** What outlives the handle, to which it must not refer. */
  private static final class Life implements Runnable {
    final long pointer;
    private final String name;
    private final LongConsumer destroy;
    private final long log;
    private int inside;
    private boolean alone;
    private boolean closed;

    Life(String name, long pointer, LongConsumer destroy, long log) {
      this.name = name;
      this.pointer = pointer;
      this.destroy = destroy;
      this.log = log;
    }

    synchronized void enter(boolean alone) {
      if (closed) throw new IllegalStateException("closed " + name);
      if (this.alone || alone && inside > 0) throw ProtrainException.busy(name);
      this.alone = alone;
      ++inside;
    }

    synchronized boolean enterIfOpen() {
      if (!closed) ++inside;
      return !closed;
    }

    void leave() {
      synchronized (this) {
        alone = false;
        if (--inside > 0 || !closed) return;
      }
      free();
    }

    /** Called once, by close or by the cleaner. */
    @Override
    public void run() {
      synchronized (this) {
        closed = true;
        if (inside > 0) return;
      }
      free();
    }

    private void free() {
      destroy.accept(pointer);
      NativeJNI.delete_Log(log);
    }
  }
}
