import ai.protrain.Options;
import ai.protrain.ProtrainException;
import ai.protrain.Session;
import java.io.FileInputStream;
import java.io.FileWriter;
import java.io.IOException;
import java.io.Writer;
import java.nio.file.Path;
import java.util.Locale;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * Fine-tunes a language model on the bytes of a text file, within a memory budget. Saves a checkpoint half-way and
 * resumes from it.
 *
 * <pre>Finetune MODEL.onnx TEXT STEPS MEMORY DIRECTORY</pre>
 *
 * <p>The model is any ONNX file with inputs {@code input_ids} and {@code labels} (int64, batch x sequence), a
 * vocabulary of at least 256 tokens, and one scalar output: the next-token loss, for which the graph itself shifts the
 * labels.
 */
public final class Finetune {
  private static final int BATCH = 8;
  private static final int SEQUENCE = 64;

  /** A step's line in the session's log. */
  private static final Pattern STEP = Pattern.compile("\"event\":\"step\",\"step\":(\\d+),\"loss\":([^,]+)");

  private final byte[] text;
  private int at = 0;
  private final Writer run;
  private final int steps;

  private Finetune(byte[] text, Writer run, int steps) {
    this.text = text;
    this.run = run;
    this.steps = steps;
  }

  public static void main(String[] arguments) {
    int steps = arguments.length == 5 && arguments[2].matches("\\d{1,9}") ? Integer.parseInt(arguments[2]) : 0;
    if (steps < 1) {
      System.err.println("usage: finetune MODEL.onnx TEXT STEPS MEMORY DIRECTORY");
      System.exit(2);
    }
    try {
      finetune(Path.of(arguments[0]), arguments[1], steps, arguments[3], Path.of(arguments[4]));
    } catch (ProtrainException | IOException error) {
      System.err.println("finetune: " + error.getMessage());
      System.exit(1);
    }
  }

  private static void finetune(Path model, String textFile, int steps, String memory, Path directory)
      throws IOException {
    try (FileInputStream text = new FileInputStream(textFile);
        Writer run = new FileWriter(directory.resolve("run.jsonl").toFile());
        Options options = new Options()) {
      options.dim("batch", BATCH).dim("sequence", SEQUENCE).learningRate(1e-3).set("weight_decay", 0.1);
      options.memory(memory).offloadDir(directory);
      Finetune training = new Finetune(text.readAllBytes(), run, steps);
      if (training.text.length == 0) throw new IOException("there is nothing to read in the text");

      Path checkpoint;
      try (Session session = new Session(options, model)) {
        training.train(session, 1, steps / 2);
        session.save(directory);
        checkpoint = directory.resolve(String.format(Locale.ROOT, "step-%010d", session.stepCount()));
      }
      // This could be another process on another day. The checkpoint holds everything except inputs and options.
      try (Session session = new Session(options.resume(checkpoint), model)) {
        training.train(session, steps / 2 + 1, steps);
        session.export(directory.resolve("trained.onnx"));
      }
    }
  }

  /** Trains steps {@code first} to {@code last}, on the text from its present position. */
  private void train(Session session, int first, int last) throws IOException {
    long[] tokens = new long[BATCH * SEQUENCE];
    session.setLog(Finetune::progress);
    for (int step = first; step <= last; ++step) {
      nextBatch(tokens);
      session.setInput("input_ids", tokens, BATCH, SEQUENCE);
      session.setInput("labels", tokens, BATCH, SEQUENCE);
      session.setLearningRate(1e-3 * (1.0 - 0.9 * step / steps));
      float loss = session.step();
      float norm = (float) session.gradNorm();
      // The file holds the bits in hexadecimal, so two equal runs write equal files.
      run.write(
          String.format(
              Locale.ROOT,
              "{\"step\":%d,\"loss_bits\":\"%08x\",\"grad_norm_bits\":\"%08x\"}\n",
              step, Float.floatToRawIntBits(loss), Float.floatToRawIntBits(norm)));
    }
  }

  /** The next batch of bytes; the text begins again at its end. */
  private void nextBatch(long[] tokens) {
    for (int i = 0; i < tokens.length; ++i) {
      tokens[i] = text[at] & 0xff;
      at = (at + 1) % text.length;
    }
  }

  private static void progress(String line) {
    Matcher found = STEP.matcher(line);
    if (!found.find()) return;
    int step = Integer.parseInt(found.group(1));
    if (step == 1 || step % 10 == 0)
      System.out.printf(Locale.ROOT, "step %d  loss %.4f%n", step, Double.parseDouble(found.group(2)));
  }
}
