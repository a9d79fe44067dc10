package ai.protrain;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import ai.protrain.internal.Native;
import java.io.IOException;
import java.io.RandomAccessFile;
import java.lang.reflect.Field;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.function.Executable;
import org.junit.jupiter.api.io.TempDir;

/** A call that fails throws its C error, with code, text, subject and usability. */
class ErrorTest {
  @TempDir Path directory;

  private static ProtrainException expect(ErrorCode code, String subject, Executable call) {
    ProtrainException thrown = assertThrows(ProtrainException.class, call);
    assertEquals(code, thrown.code(), thrown.getMessage());
    if (subject != null) assertEquals(subject, thrown.subject());
    return thrown;
  }

  /** tests/bindings/every_code.c is preloaded before the library, and makes an option fail with any code. */
  @Test
  void everyCode() throws IllegalAccessException {
    int codes = 0;
    try (Options options = new Options()) {
      for (Field field : Native.class.getFields()) {
        if (!field.getName().startsWith("PROTRAIN_ERROR_")) continue;
        int number = field.getInt(null);
        ErrorCode code = ErrorCode.valueOf(field.getName().substring("PROTRAIN_ERROR_".length()));
        ProtrainException thrown =
            expect(code, "subject of " + number, () -> options.set("every_code", number));
        assertEquals("text of " + number, thrown.getMessage());
        assertEquals(number % 2 == 1, thrown.usable());
        ++codes;
      }
      expect(ErrorCode.UNKNOWN, "subject of 99", () -> options.set("every_code", 99));
      assertEquals("0", options.get("every_code")); // the number of errors that are not destroyed yet
    }
    assertEquals(ErrorCode.values().length - 1, codes);
    assertEquals(13, Arrays.stream(DType.values()).filter(type -> DType.of(type.number) == type).count());
  }

  @Test
  void ofOptions() {
    try (Options options = new Options()) {
      ProtrainException thrown = expect(ErrorCode.ARG, "learning_rte", () -> options.set("learning_rte", 1));
      assertTrue(thrown.getMessage().contains("learning_rate") && thrown.usable());
      expect(ErrorCode.ARG, "ü😀", () -> options.get("ü😀"));
      assertThrows(NullPointerException.class, () -> options.set(null, 1));
      assertThrows(NullPointerException.class, () -> options.set("seed", null));
      assertThrows(IllegalArgumentException.class, () -> options.set("se\0ed", 1));
      assertEquals("0", options.set("threads", 0).get("threads"));
    }
  }

  @Test
  void ofFiles() throws IOException {
    try (Options options = Models.root()) {
      expect(ErrorCode.IO, "no-such-file.onnx", () -> new Session(options, Path.of("no-such-file.onnx")));
      Path text = Files.writeString(directory.resolve("text"), "no model");
      expect(ErrorCode.FORMAT, null, () -> new Session(options, text));
      expect(ErrorCode.BUDGET, null, () -> new Session(options.memory("1KiB"), Models.ROOT));
    }
    try (Options unbound = new Options()) {
      expect(ErrorCode.SHAPE, null, () -> new Session(unbound, Models.ROOT));
    }
  }

  @Test
  void ofSessions() {
    try (Options options = Models.gpt2();
        Session session = new Session(options, Models.GPT2)) {
      expect(ErrorCode.STATE, null, session::step);
      expect(ErrorCode.STATE, null, session::gradNorm);
      expect(ErrorCode.ARG, "ids", () -> session.setInput("ids", Models.tokens(0), 2, 16));
      assertThrows(NullPointerException.class, () -> session.setInput("input_ids", Models.tokens(0), (long[]) null));
      expect(ErrorCode.ARG, "nobody", () -> session.readParameter("nobody"));
      expect(ErrorCode.ARG, "m.lm_head.weight", () -> session.readGrad("m.lm_head.weight"));
      expect(ErrorCode.SHAPE, "m.lm_head.weight", () -> session.writeParameter("m.lm_head.weight", new float[1]));
      expect(ErrorCode.ARG, "rate", () -> session.setLearningRate(Double.NaN));
      expect(ErrorCode.IO, null, () -> session.save(Path.of("no/such")));
      long[] beyond = Models.tokens(0);
      beyond[5] = 512;
      Models.feed(session, 0);
      session.setInput("input_ids", beyond, 2, 16);
      expect(ErrorCode.ARG, null, session::step);
      float[] weights = session.readParameter("m.lm_head.weight");
      Arrays.fill(weights, Float.NaN);
      session.writeParameter("m.lm_head.weight", weights);
      Models.feed(session, 0);
      expect(ErrorCode.NONFINITE, null, session::step);
      assertEquals(0, session.stepCount());
    }
  }

  @Test
  void ofParametersThatNoArrayHolds() {
    assertEquals(Integer.MAX_VALUE, Session.lengthOfArray("large", Integer.MAX_VALUE, ""));
    IllegalArgumentException thrown =
        assertThrows(IllegalArgumentException.class, () -> Session.lengthOfArray("large", 1L << 31, "; export it"));
    assertTrue(thrown.getMessage().startsWith("large has 2147483648 elements, more than a Java array holds"));
  }

  @Test
  void ofCheckpoints() throws IOException {
    try (Options options = Models.root();
        Session session = new Session(options, Models.ROOT)) {
      session.setInput("x", new float[] {1, 2, 3, 4, 5, 6, 7, 8}, 2, 4);
      session.setInput("u", new float[] {1, 2, 3, 4, 5, 6, 7, 8}, 2, 4);
      session.step();
      session.save(directory);
    }
    expect(ErrorCode.MISMATCH, "seed", () -> resume(Models.root().set("seed", 1)));
    try (RandomAccessFile weights =
        new RandomAccessFile(directory.resolve("step-0000000001/weights.safetensors").toFile(), "rw")) {
      weights.seek(weights.length() - 1);
      int last = weights.read();
      weights.seek(weights.length() - 1);
      weights.write(~last);
    }
    expect(ErrorCode.CORRUPT, null, () -> resume(Models.root()));
  }

  private void resume(Options options) {
    try (options) {
      new Session(options.resume(directory), Models.ROOT).close();
    }
  }
}
