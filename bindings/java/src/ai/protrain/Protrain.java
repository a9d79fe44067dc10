package ai.protrain;

import ai.protrain.internal.Native;

/** The library itself. */
public final class Protrain {
  private Protrain() {}

  /**
   * Gets the version of the running C library.
   *
   * @return such as "0.1.0"
   */
  public static String version() {
    return Native.version();
  }
}
