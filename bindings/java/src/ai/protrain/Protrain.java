package ai.protrain;

import ai.protrain.internal.Native;

/** The library itself. */
public final class Protrain {
  private Protrain() {}

  /**
   * The version of the C library that is running.
   *
   * @return such as "0.1.0"
   */
  public static String version() {
    return Native.version();
  }
}
