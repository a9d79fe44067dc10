import ai.protrain.Options;
import ai.protrain.ProtrainException;
import ai.protrain.Session;
import java.io.FileInputStream;
import java.io.IOException;
import java.nio.FloatBuffer;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Locale;

/**
 * Trains a classifier of texts: which of several files does a window of bytes come from? Every fifth window is held out.
 * After each pass over the others, the program evaluates the model on the held-out ones and saves it if it is the best
 * so far. It stops after three passes without a better one, and exports the best.
 *
 * <pre>Classify MODEL.onnx DIRECTORY TEXT TEXT ...</pre>
 *
 * <p>The model has an input {@code tokens} (int64, batch x 64) of bytes and an output {@code logits} (batch x classes),
 * one class for each text. It has no loss; the options add one.
 */
public final class Classify {
  private static final int BATCH = 32;
  private static final int LENGTH = 64;
  private static final int PATIENCE = 3;
  private static final int MOST_PASSES = 40;

  /** Windows of bytes, and the number of the text that each comes from. */
  private static final class Samples {
    final List<byte[]> tokens = new ArrayList<>();
    final List<Integer> labels = new ArrayList<>();

    int batches() {
      return labels.size() / BATCH;
    }

    /**
     * Returns which sample comes at place {@code number} of a pass. Each pass has an order of its own. Every sample
     * comes once: multiples of 7919 modulo the count differ from each other, because 7919 is prime, unless it divides
     * the count.
     */
    int at(int number, int pass) {
      return (int) ((number * 7919L + pass * 104729L) % labels.size());
    }

    /** Sets the samples of a batch. */
    void set(Session session, int batch, int pass) {
      long[] bytes = new long[BATCH * LENGTH];
      long[] classes = new long[BATCH];
      for (int row = 0; row < BATCH; ++row) {
        int at = at(batch * BATCH + row, pass);
        for (int i = 0; i < LENGTH; ++i) bytes[row * LENGTH + i] = tokens.get(at)[i] & 0xff;
        classes[row] = labels.get(at);
      }
      session.setInput("tokens", bytes, BATCH, LENGTH);
      session.setInput("labels", classes, BATCH);
    }

    /** Counts the samples of the present batch that have their largest logit at their label. */
    int countRight(Session session, int batch, int classes) {
      float[] logits = new float[BATCH * classes];
      session.predict();
      session.readOutput("logits", FloatBuffer.wrap(logits));
      int right = 0;
      for (int row = 0; row < BATCH; ++row) {
        int largest = 0;
        for (int i = 1; i < classes; ++i)
          if (logits[row * classes + i] > logits[row * classes + largest]) largest = i;
        if (largest == labels.get(at(batch * BATCH + row, 0))) ++right;
      }
      return right;
    }
  }

  private final Samples train = new Samples();
  private final Samples heldOut = new Samples();
  private final int classes;

  private Classify(List<String> texts) throws IOException {
    classes = texts.size();
    for (int label = 0; label < classes; ++label) {
      byte[] text = read(texts.get(label));
      for (int window = 0; (window + 1) * LENGTH <= text.length; ++window) {
        Samples to = window % 5 == 4 ? heldOut : train;
        to.tokens.add(Arrays.copyOfRange(text, window * LENGTH, (window + 1) * LENGTH));
        to.labels.add(label);
      }
    }
    if (heldOut.batches() == 0) throw new IOException("the texts are too short");
  }

  private static byte[] read(String path) throws IOException {
    try (FileInputStream file = new FileInputStream(path)) { // its exception says what is wrong with the file
      return file.readAllBytes();
    }
  }

  public static void main(String[] arguments) {
    if (arguments.length < 4) {
      System.err.println("usage: classify MODEL.onnx DIRECTORY TEXT TEXT ...");
      System.exit(2);
    }
    List<String> texts = List.of(arguments).subList(2, arguments.length);
    try (Options options = new Options()) {
      options.dim("batch", BATCH).learningRate(3e-3);
      options.set("loss", "cross_entropy").set("loss_output", "logits").set("keep_outputs", "logits");
      new Classify(texts).run(options, Path.of(arguments[0]), Path.of(arguments[1]));
    } catch (ProtrainException | IOException error) {
      System.err.println("classify: " + error.getMessage());
      System.exit(1);
    }
  }

  private void run(Options options, Path model, Path directory) {
    Path best = null;
    try (Session session = new Session(options, model)) {
      float bestLoss = 0;
      for (int pass = 1, without = 0; pass <= MOST_PASSES && without < PATIENCE; ++pass) {
        for (int batch = 0; batch < train.batches(); ++batch) {
          train.set(session, batch, pass);
          session.step();
        }
        float loss = evaluate(session, pass);
        ++without;
        if (best != null && loss >= bestLoss) continue;
        session.save(directory);
        best = directory.resolve(String.format(Locale.ROOT, "step-%010d", session.stepCount()));
        bestLoss = loss;
        without = 0;
      }
    }
    try (Session session = new Session(options.resume(best), model)) {
      session.export(directory.resolve("classifier.onnx"));
    }
  }

  /** Returns the mean loss of the samples held out, and prints it with the share of right answers. */
  private float evaluate(Session session, int pass) {
    double sum = 0;
    int right = 0;
    for (int batch = 0; batch < heldOut.batches(); ++batch) {
      heldOut.set(session, batch, 0);
      sum += session.eval();
      right += heldOut.countRight(session, batch, classes);
    }
    float mean = (float) (sum / heldOut.batches());
    double accuracy = (double) right / (heldOut.batches() * BATCH);
    System.out.printf(Locale.ROOT, "pass %d  loss %.4f  accuracy %.3f%n", pass, mean, accuracy);
    return mean;
  }
}
