package ai.protrain.internal;

import java.io.IOException;
import java.io.InputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;

/** Finds the native half: the file that protrain.library names, else the jar's, else what java.library.path has. */
final class Loader {
  private Loader() {}

  static void load() {
    String file = System.getProperty("protrain.library");
    if (file != null) {
      System.load(Path.of(file).toAbsolutePath().toString());
      return;
    }
    String resource = "/native/linux-" + System.getProperty("os.arch") + "/libprotrain_jni.so";
    try (InputStream library = Loader.class.getResourceAsStream(resource)) {
      if (library == null) System.loadLibrary("protrain_jni");
      else loadCopy(library);
    } catch (IOException error) {
      throw (Error) new UnsatisfiedLinkError("cannot copy " + resource + " out of the jar: " + error).initCause(error);
    }
  }

  /** What is loaded stays so without its file: nothing is left behind. */
  private static void loadCopy(InputStream library) throws IOException {
    Path copy = Files.createTempFile("libprotrain_jni-", ".so");
    try {
      Files.copy(library, copy, StandardCopyOption.REPLACE_EXISTING);
      System.load(copy.toString());
    } finally {
      Files.delete(copy);
    }
  }
}
