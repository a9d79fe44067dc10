import ai.protrain.Options;
import ai.protrain.ProtrainException;
import ai.protrain.Session;
import java.io.FileInputStream;
import java.io.IOException;
import java.nio.file.Path;
import java.util.Locale;

/**
 * Trains low-rank adapters of a language model on the bytes of a text, compares the model with its base, saves the
 * adapters in the form of Hugging Face's PEFT, and writes the merged model.
 *
 * <pre>Adapt MODEL.onnx TEXT STEPS PATTERN DIRECTORY</pre>
 *
 * <p>PATTERN names the weights to adapt, such as {@code *.c_attn.weight}. The model is one for {@code Finetune}.
 */
public final class Adapt {
  private static final int BATCH = 4;
  private static final int SEQUENCE = 32;

  public static void main(String[] arguments) {
    if (arguments.length != 5 || !arguments[2].matches("[0-9]{1,9}")) {
      System.err.println("usage: adapt MODEL.onnx TEXT STEPS PATTERN DIRECTORY");
      System.exit(2);
    }
    try (Options options = new Options()) {
      byte[] text = read(arguments[1]);
      if (text.length == 0) throw new IOException("there is nothing to read in the text");
      options.dim("batch", BATCH).dim("sequence", SEQUENCE).learningRate(3e-3);
      options.set("lora", arguments[3]).set("lora_rank", "8").set("lora_alpha", "16");
      run(options, Path.of(arguments[0]), text, Integer.parseInt(arguments[2]), Path.of(arguments[4]));
    } catch (ProtrainException | IOException error) {
      System.err.println("adapt: " + error.getMessage());
      System.exit(1);
    }
  }

  private static byte[] read(String path) throws IOException {
    try (FileInputStream file = new FileInputStream(path)) { // its exception says what is wrong with the file
      return file.readAllBytes();
    }
  }

  private static void run(Options options, Path model, byte[] text, int steps, Path directory) {
    try (Session session = new Session(options, model)) {
      for (int step = 1; step <= steps; ++step) {
        long[] tokens = window(text, step);
        session.setInput("input_ids", tokens, BATCH, SEQUENCE);
        session.setInput("labels", tokens, BATCH, SEQUENCE);
        System.out.printf(Locale.ROOT, "step %d loss %f%n", step, session.step());
      }
      compare(session);
      session.exportAdapters(directory.resolve("adapter"));
      session.export(directory.resolve("merged.onnx"));
    }
  }

  /** Returns the windows of a step. A byte is a token; the text begins again at its end. */
  private static long[] window(byte[] text, int step) {
    long[] tokens = new long[BATCH * SEQUENCE];
    long first = (step - 1L) * tokens.length;
    for (int i = 0; i < tokens.length; ++i) tokens[i] = text[(int) ((first + i) % text.length)] & 0xff;
    return tokens;
  }

  /** Prints the last batch's losses with the adapters and without. One session has both models. */
  private static void compare(Session session) {
    float adapted = session.eval();
    session.useAdapters(false);
    float base = session.eval();
    session.useAdapters(true);
    System.out.printf(Locale.ROOT, "adapted %f base %f%n", adapted, base);
  }
}
