package ai.protrain;

import ai.protrain.internal.Log;
import ai.protrain.internal.NativeJNI;
import java.lang.ref.Cleaner;
import java.lang.ref.Reference;
import java.util.function.Consumer;
import java.util.function.LongConsumer;

/**
 * Owns a native object and its listener, and counts the calls inside the object. Closing the handle frees the object,
 * and so does the cleaner when the handle has become unreachable. If calls are still inside, the last of them frees it,
 * so no step loses the memory that it uses.
 */
final class Handle implements AutoCloseable {
  /** A call that stores a text in {@code answer[0]}, as UTF-8. */
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

  /**
   * Calls {@code body} with the native object. If the listener threw during the call, throws that afterwards, or adds
   * it to the exceptions that the error of the call has suppressed.
   */
  void call(LongConsumer body) {
    life.enter(false);
    inside(false, body);
  }

  /**
   * As {@link #call}, but throws BUSY if another call is inside. Options need this. A session checks it in C, which is
   * too late for {@link #listen}.
   */
  void callAlone(LongConsumer body) {
    life.enter(true);
    inside(true, body);
  }

  /** Calls {@code cancel} with the native object, beside any call, unless the handle is closed. Is in no call's way. */
  void cancel(LongConsumer cancel) {
    if (!life.enterToCancel()) return;
    try {
      cancel.accept(life.pointer);
    } finally {
      life.leaveAfterCancel();
    }
  }

  private void inside(boolean alone, LongConsumer body) {
    try {
      body.accept(life.pointer);
    } catch (Throwable failed) {
      HeldLog.suppressIn(failed);
      throw failed;
    } finally {
      life.leave(alone);
      Reference.reachabilityFence(this); // the listener must live during the call, and C refers to it only weakly
    }
    HeldLog.rethrow();
  }

  /** Changes the listener. {@code set} passes it, or null, to C, which may log a first line during that call. */
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

  /** The part that the cleaner keeps. It must not refer to the handle, which would then stay reachable. */
  private static final class Life implements Runnable {
    final long pointer;
    private final String name;
    private final LongConsumer destroy;
    private final long log;
    private int inside; // calls, without cancels
    private int cancels;
    private boolean alone; // true while a call that must be alone is inside
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

    /** Leaves a call. {@code alone} is what {@link #enter} got. */
    void leave(boolean alone) {
      synchronized (this) {
        if (alone) this.alone = false;
        --inside;
        if (!isOver()) return;
      }
      free();
    }

    synchronized boolean enterToCancel() {
      if (!closed) ++cancels;
      return !closed;
    }

    void leaveAfterCancel() {
      synchronized (this) {
        --cancels;
        if (!isOver()) return;
      }
      free();
    }

    /** Frees the object or leaves that to the last call inside. Runs once, from close or from the cleaner. */
    @Override
    public void run() {
      synchronized (this) {
        closed = true;
        if (!isOver()) return;
      }
      free();
    }

    /** Becomes true once, because after closing, calls and cancels only leave. Who makes it true frees the object. */
    private boolean isOver() {
      return closed && inside == 0 && cancels == 0;
    }

    private void free() {
      destroy.accept(pointer);
      NativeJNI.delete_Log(log);
    }
  }
}
