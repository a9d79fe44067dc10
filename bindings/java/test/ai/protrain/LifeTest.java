package ai.protrain;

import static org.junit.jupiter.api.Assertions.assertDoesNotThrow;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assertions.fail;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.function.Executable;

/** Objects that are closed or forgotten, and sessions on several threads. */
class LifeTest {
  @Test
  void nothingIsUsedAfterClose() {
    Options options = Models.root();
    Session session = new Session(options, Models.ROOT);
    options.close();
    options.close();
    session.close();
    session.close();
    session.cancel();
    List<Executable> calls =
        List.of(
            () -> options.set("seed", 1),
            () -> options.get("seed"),
            options::help,
            () -> options.check(Models.ROOT),
            () -> options.plan(Models.ROOT),
            () -> options.profile(Models.ROOT),
            () -> options.setLog(null),
            () -> new Session(options, Models.ROOT),
            session::step,
            session::eval,
            session::gradNorm,
            session::stepCount,
            session::rank,
            session::rankCount,
            session::inputs,
            session::parameters,
            session::plan,
            session::program,
            session::graph,
            session::report,
            () -> session.setLog(null),
            () -> session.setLearningRate(1),
            () -> session.setInput("x", new float[8], 2, 4),
            () -> session.readParameter("W"),
            () -> session.writeParameter("W", new float[16]),
            () -> session.readGrad("W"),
            () -> session.export(Path.of("x")),
            () -> session.save(Path.of("x")));
    for (Executable call : calls) assertThrows(IllegalStateException.class, call);
  }

  /** Trains until a step fails. Returns the error's code. */
  private static ErrorCode trainOn(Session session) {
    while (true) {
      try {
        session.step();
      } catch (ProtrainException stopped) {
        return stopped.code();
      }
    }
  }

  @Test
  void anotherThreadCancels() throws Exception {
    ExecutorService other = Executors.newSingleThreadExecutor();
    try (Options options = Models.gpt2();
        Session session = new Session(options, Models.GPT2)) {
      Models.feed(session, 0);
      CountDownLatch training = new CountDownLatch(2);
      session.setLog(line -> training.countDown()); // called for the line "created", then for the first step
      Future<ErrorCode> code = other.submit(() -> trainOn(session));
      training.await();
      session.cancel();
      assertEquals(ErrorCode.CANCELLED, code.get());
      assertDoesNotThrow(session::step);
    } finally {
      other.shutdown();
    }
  }

  @Test
  void aSecondThreadIsRefusedAndMayClose() throws Exception {
    ExecutorService other = Executors.newSingleThreadExecutor();
    CountDownLatch inside = new CountDownLatch(1);
    CountDownLatch go = new CountDownLatch(1);
    try (Options options = Models.gpt2();
        Session session = new Session(options, Models.GPT2)) {
      Models.feed(session, 0);
      session.setLog(
          line -> {
            if (!line.contains("\"step\"")) return;
            inside.countDown();
            assertDoesNotThrow(() -> go.await());
          });
      Future<Float> loss = other.submit(session::step);
      inside.await();
      assertEquals(ErrorCode.BUSY, assertThrows(ProtrainException.class, session::stepCount).code());
      session.close(); // the step goes on, and frees the session at its end
      assertThrows(IllegalStateException.class, session::stepCount);
      go.countDown();
      assertTrue(loss.get() > 0);
    } finally {
      other.shutdown();
    }
  }

  /** A call within another one stands for a call of a second thread. */
  @Test
  void aCancelIsInNobodysWay() {
    AtomicInteger freed = new AtomicInteger();
    Handle handle = new Handle("session", 1, pointer -> freed.incrementAndGet());
    handle.cancel(cancelled -> handle.callAlone(listening -> {}));
    handle.callAlone(
        listening -> {
          handle.cancel(cancelled -> {});
          ProtrainException refused = assertThrows(ProtrainException.class, () -> handle.call(stepping -> {}));
          assertEquals(ErrorCode.BUSY, refused.code());
        });
    handle.call(
        stepping -> {
          handle.cancel(
              cancelled -> {
                handle.close();
                handle.cancel(again -> fail("a cancel after close"));
              });
          assertEquals(0, freed.get()); // the step is still inside
        });
    assertEquals(1, freed.get());
  }

  @Test
  void aCancelMayBeTheLastToLeave() {
    AtomicInteger freed = new AtomicInteger();
    Handle handle = new Handle("session", 1, pointer -> freed.incrementAndGet());
    handle.cancel(
        cancelled -> {
          handle.call(stepping -> handle.close());
          assertEquals(0, freed.get());
        });
    assertEquals(1, freed.get());
  }

  @Test
  void optionsAreUsedByOneThreadButMayMakeSessionsInSeveral() throws Exception {
    try (Options options = Models.root()) {
      options.setLog(line -> options.setLog(null)); // BUSY, because the options are in use
      assertEquals(
          ErrorCode.BUSY, assertThrows(ProtrainException.class, () -> options.profile(Models.ROOT)).code());
      options.setLog(line -> options.close()); // takes effect when profile returns
      assertTrue(options.profile(Models.ROOT).contains("kernels"));
      assertThrows(IllegalStateException.class, options::help);
    }
  }

  @Test
  void eightSessionsInParallel() throws Exception {
    ExecutorService threads = Executors.newFixedThreadPool(8);
    try (Options options = Models.gpt2()) {
      List<Callable<Float>> runs = new ArrayList<>();
      for (int i = 0; i < 8; ++i)
        runs.add(
            () -> {
              try (Session session = new Session(options, Models.GPT2)) {
                float loss = 0;
                for (int step = 0; step < 5; ++step) loss = Models.step(session, step);
                return loss;
              }
            });
      List<Float> losses = new ArrayList<>();
      for (Future<Float> run : threads.invokeAll(runs)) losses.add(run.get());
      for (float loss : losses) assertEquals(losses.get(0), loss);
    } catch (ExecutionException failed) {
      throw new AssertionError(failed.getCause());
    } finally {
      threads.shutdown();
    }
  }

  private static long count(String folder) throws IOException {
    try (var entries = Files.list(Path.of("/proc/self", folder))) {
      return entries.count();
    }
  }

  private static long residentBytes() throws IOException {
    return 4096 * Long.parseLong(Files.readString(Path.of("/proc/self/statm")).split(" ")[1]);
  }

  /** Makes sessions, closes every second one and drops the others. Each session's listener refers to the session. */
  private static void makeSessions(int count) throws Exception {
    ExecutorService threads = Executors.newFixedThreadPool(8);
    try (Options options = Models.root()) {
      List<Future<?>> made = new ArrayList<>();
      for (int i = 0; i < count; ++i) {
        boolean dropped = i % 2 == 1;
        made.add(
            threads.submit(
                () -> {
                  Session session = new Session(options, Models.ROOT);
                  session.setLog(line -> session.cancel());
                  session.setInput("x", new float[8], 2, 4);
                  if (!dropped) session.close();
                }));
      }
      for (int i = 0; i < count; ++i) {
        made.get(i).get();
        if (i % 50 == 49) System.gc(); // a session takes little of Java's heap, so nothing else triggers a collection
      }
    } finally {
      threads.shutdown();
    }
  }

  /** Waits until the cleaner has destroyed sessions. Returns the process's threads; each session has at least one. */
  private static long threadsLeft(long wanted) throws IOException, InterruptedException {
    for (int tries = 0; tries < 200 && count("task") > wanted; ++tries) {
      System.gc();
      Thread.sleep(50);
    }
    return count("task");
  }

  @Test
  void aThousandSessionsLeaveNothing() throws Exception {
    long atFirst = count("task");
    makeSessions(100);
    long threads = threadsLeft(atFirst);
    long files = count("fd");
    long bytes = residentBytes();
    makeSessions(1000);
    // Java starts some threads itself, and the last sessions may not have been collected yet.
    assertTrue(threadsLeft(threads + 20) <= threads + 20, "threads of sessions are left");
    assertTrue(count("fd") <= files + 20, "files of sessions are left");
    assertTrue(residentBytes() < bytes + (32 << 20), "memory of sessions is left");
  }
}
