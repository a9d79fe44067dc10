import ai.protrain.Options;
import ai.protrain.Session;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.LongBuffer;
import java.nio.file.Path;

/** Measures in Java, through the binding, the calls that calls.c measures in C. usage: Calls MODEL.onnx */
public final class Calls {
  private static final int CALLS = 1000;
  private static final int ROUNDS = 1000;

  private Calls() {}

  /** Prints the time of the fastest round, in nanoseconds per call. Rounds are short, as others may use the machine. */
  private static void measure(String name, Runnable call) {
    long best = Long.MAX_VALUE;
    for (int round = 0; round < ROUNDS; ++round) {
      long start = System.nanoTime();
      for (int i = 0; i < CALLS; ++i) call.run();
      best = Math.min(best, System.nanoTime() - start);
    }
    System.out.println(name + " " + best / CALLS);
  }

  public static void main(String[] arguments) {
    try (Options options = new Options().dim("batch", 8).dim("sequence", 16).set("threads", 1);
        Session session = new Session(options, Path.of(arguments[0]))) {
      long[] array = new long[8 * 16];
      LongBuffer direct =
          ByteBuffer.allocateDirect(8 * array.length).order(ByteOrder.nativeOrder()).asLongBuffer();
      measure("step_count", session::stepCount);
      measure("set_learning_rate", () -> session.setLearningRate(1e-3));
      measure("set_input", () -> session.setInput("labels", direct, 8, 16));
      measure("set_input_array", () -> session.setInput("labels", array, 8, 16));
    }
  }
}
