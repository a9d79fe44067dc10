package ai.protrain;

import java.nio.file.Path;

/** The tests' models: a GPT-2 of 1 MB on batches of 2 x 16 tokens, and a model of two 4 x 4 matrices. */
final class Models {
  static final Path FIXTURES = Path.of(System.getProperty("fixtures"));
  static final Path GPT2 = FIXTURES.resolve("gpt2-dynamic-opset18.onnx");
  static final Path ROOT = FIXTURES.resolve("root.onnx");
  static final long BATCH = 2;
  static final long SEQUENCE = 16;

  private Models() {}

  static Options gpt2() {
    return new Options().dim("batch", BATCH).dim("sequence", SEQUENCE).set("threads", 1);
  }

  static Options root() {
    return new Options().dim("batch", 2).set("threads", 1);
  }

  /** Tokens that differ from step to step. */
  static long[] tokens(int step) {
    long[] tokens = new long[(int) (BATCH * SEQUENCE)];
    for (int i = 0; i < tokens.length; ++i) tokens[i] = (7L * i * i + 3 + 31L * step) % 256;
    return tokens;
  }

  static void feed(Session session, int step) {
    session.setInput("input_ids", tokens(step), BATCH, SEQUENCE);
    session.setInput("labels", tokens(step), BATCH, SEQUENCE);
  }

  static float step(Session session, int step) {
    feed(session, step);
    return session.step();
  }
}
