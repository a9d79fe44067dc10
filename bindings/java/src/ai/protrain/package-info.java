/**
 * Trains ONNX models under a memory budget: libprotrain, for Java.
 *
 * <p>A complete program, which trains a model whose inputs are {@code input_ids} and {@code labels}:
 *
 * <pre>{@code
 * import ai.protrain.*;
 * import java.nio.file.Path;
 *
 * class Train {
 *   public static void main(String[] arguments) {
 *     long[] tokens = new long[8 * 64];  // your data
 *     try (Options options = new Options().dim("batch", 8).dim("sequence", 64).learningRate(3e-4);
 *         Session session = new Session(options, Path.of("model.onnx"))) {
 *       for (int step = 1; step <= 100; ++step) {
 *         session.setInput("input_ids", tokens, 8, 64);  // ... new tokens here ...
 *         session.setInput("labels", tokens, 8, 64);
 *         System.out.println(step + " " + session.step());
 *       }
 *       session.export(Path.of("trained.onnx"));
 *     }
 *   }
 * }
 * }</pre>
 *
 * <p>Every call that fails throws a {@link ai.protrain.ProtrainException} with a code, a sentence, and the name of the
 * thing that is wrong. Unless a method says otherwise, a call that fails has changed nothing. Answers that are JSON or
 * text come unchanged from the C library. {@code protrain.h} describes them, and is the manual for everything else too.
 *
 * <p>{@link ai.protrain.Options} and {@link ai.protrain.Session} hold memory outside Java's heap. Close them. Forgotten
 * ones are freed some time after they have become unreachable. Every call after {@code close} throws an
 * {@link java.lang.IllegalStateException}, except {@link ai.protrain.Session#cancel}, which then does nothing.
 *
 * <p>The classes load the native library {@code libprotrain_jni.so} from the file that the system property {@code
 * protrain.library} names. Without that property, they use the library in the jar, copied for a moment to {@code
 * java.io.tmpdir}. If the jar has none, they look on {@code java.library.path}. The native library needs {@code
 * libprotrain.so}, which the system's loader finds.
 */
package ai.protrain;
