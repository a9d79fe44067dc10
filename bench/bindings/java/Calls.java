import ai.protrain.Options;
import ai.protrain.Session;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.LongBuffer;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.Locale;

/** What a call costs through the Java binding: the same calls as calls.c makes. usage: Calls MODEL.onnx */
public final class Calls {
  private static final int CALLS = 20_000;
  private static final int ROUNDS = 41;

  private Calls() {}

  /** The quietest round, in nanoseconds a call; the first half of them is the compiler's. */
  private static void measure(String name, Runnable call) {
    double[] rounds = new double[ROUNDS];
    for (int round = 0; round < 2 * ROUNDS; ++round) {
      long start = System.nanoTime();
      for (int i = 0; i < CALLS; ++i) call.run();
      rounds[round % ROUNDS] = (double) (System.nanoTime() - start) / CALLS;
    }
    Arrays.sort(rounds);
    System.out.printf(Locale.ROOT, "%s %.0f%n", name, rounds[0]);
  }

  public static void main(String[] arguments) {
    try (Options options = new Options().dim("batch", 8).dim("sequence", 64).set("threads", 1);
        Session session = new Session(options, Path.of(arguments[0]))) {
      long[] array = new long[8 * 64];
      LongBuffer direct =
          ByteBuffer.allocateDirect(8 * array.length).order(ByteOrder.nativeOrder()).asLongBuffer();
      measure("step_count", session::stepCount);
      measure("set_learning_rate", () -> session.setLearningRate(1e-3));
      measure("set_input", () -> session.setInput("labels", direct, 8, 64));
      measure("set_input_array", () -> session.setInput("labels", array, 8, 64));
    }
  }
}
