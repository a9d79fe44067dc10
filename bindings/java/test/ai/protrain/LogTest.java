package ai.protrain;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertDoesNotThrow;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Listeners receive every line. An exception of a listener comes out of the call that logged the line. */
class LogTest {
  @TempDir Path directory;

  private final Options options = Models.root();
  private Session session;

  @BeforeEach
  void open() {
    session = new Session(options, Models.ROOT);
    session.setInput("x", new float[] {1, 2, 3, 4, 5, 6, 7, 8}, 2, 4);
    session.setInput("u", new float[] {1, 2, 3, 4, 5, 6, 7, 8}, 2, 4);
  }

  @AfterEach
  void close() {
    session.close();
    options.close();
  }

  @Test
  void everyLineIsHeard() {
    List<String> lines = new ArrayList<>();
    session.setLog(lines::add);
    session.step();
    session.save(directory.resolve("ü😀"));
    session.setLog(null);
    session.step();
    assertEquals(3, lines.size());
    assertTrue(lines.get(0).startsWith("{\"event\":\"created\""));
    assertTrue(lines.get(1).startsWith("{\"event\":\"step\",\"step\":1,\"loss\":"));
    assertTrue(lines.get(2).contains("ü😀"));
  }

  @Test
  void whatAListenerThrowsStopsTheRun() {
    RuntimeException mine = new RuntimeException("mine");
    assertSame(
        mine,
        assertThrows(
            RuntimeException.class,
            () ->
                session.setLog(
                    line -> {
                      throw mine;
                    })));
    assertSame(mine, assertThrows(RuntimeException.class, session::step)); // setLog threw, but has set the listener
    assertSame(mine, assertThrows(RuntimeException.class, () -> session.save(directory)));
    session.setLog(null);
    assertDoesNotThrow(session::step);
    assertEquals(2, session.stepCount()); // a step is complete when its line is logged
  }

  @Test
  void whatAListenerThrowsDoesNotHideTheErrorOfTheCall() {
    RuntimeException mine = new RuntimeException("mine");
    session.setLog(
        line -> {
          if (line.contains("\"event\":\"alarm\"")) throw mine;
        });
    session.setInput("x", new float[] {-1, -1, -1, -1, -1, -1, -1, -1}, 2, 4); // the model takes square roots
    ProtrainException failed = assertThrows(ProtrainException.class, session::step);
    assertEquals(ErrorCode.NONFINITE, failed.code());
    assertArrayEquals(new Throwable[] {mine}, failed.getSuppressed());
    assertEquals(0, session.stepCount());
  }

  @Test
  void whateverItIs() {
    session.setLog(line -> {}); // receives the line "created", so the next listener does not
    session.setLog(line -> LogTest.<RuntimeException>raise(new IOException("checked")));
    assertThrows(IOException.class, session::step);
    session.setLog(
        line -> {
          throw new StackOverflowError();
        });
    assertThrows(StackOverflowError.class, session::step);
  }

  @SuppressWarnings("unchecked")
  private static <T extends Throwable> void raise(Throwable thrown) throws T {
    throw (T) thrown;
  }

  @Test
  void aListenerMayCancelButNotComeBack() {
    session.setLog(line -> session.cancel());
    assertEquals(ErrorCode.CANCELLED, assertThrows(ProtrainException.class, session::step).code());
    session.setLog(line -> session.stepCount());
    assertEquals(ErrorCode.BUSY, assertThrows(ProtrainException.class, session::step).code());
  }

  @Test
  void aListenerOfOptionsIsHeardToo() {
    List<String> lines = new ArrayList<>();
    options.setLog(lines::add).profile(Models.ROOT);
    assertTrue(lines.get(0).startsWith("{\"event\":\"profiling\",\"done\":"));
    RuntimeException mine = new RuntimeException("mine");
    List<String> heard = new ArrayList<>();
    options.setLog(
        line -> {
          heard.add(line);
          throw mine;
        });
    assertSame(mine, assertThrows(RuntimeException.class, () -> options.profile(Models.ROOT)));
    assertEquals(1, heard.size());
    assertDoesNotThrow(() -> options.setLog(null).plan(Models.ROOT));
  }
}
