package ai.protrain.internal;

import java.io.IOException;
import java.io.InputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;

/**
 * Loads the native library libprotrain_jni.so: the file that the property protrain.library names, or else the jar's
 * copy, or else the one on java.library.path.
 */
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

  /** Copies the library out of the jar and loads it. Then deletes the copy, which a loaded library does not need. */
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
