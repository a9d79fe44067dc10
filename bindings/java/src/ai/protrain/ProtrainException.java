package ai.protrain;

import java.nio.charset.StandardCharsets;

/** A call into libprotrain failed. The message is one sentence: what was found, what was expected, what to do. */
public final class ProtrainException extends RuntimeException {
  private static final long serialVersionUID = 1;

  private final ErrorCode code;
  private final String subject;
  private final boolean usable;

  private ProtrainException(ErrorCode code, String text, String subject, boolean usable) {
    super(text);
    this.code = code;
    this.subject = subject;
    this.usable = usable;
  }

  /** Called from C, with UTF-8 texts. */
  ProtrainException(int code, byte[] text, byte[] subject, boolean usable) {
    this(
        ErrorCode.of(code),
        new String(text, StandardCharsets.UTF_8),
        new String(subject, StandardCharsets.UTF_8),
        usable);
  }

  static ProtrainException busy(String name) {
    return new ProtrainException(ErrorCode.BUSY, "another call is inside the " + name, name, true);
  }

  /**
   * Gets the kind of failure, for programs.
   *
   * @return the code
   */
  public ErrorCode code() {
    return code;
  }

  /**
   * Gets the node, tensor, file, argument or option that the error is about.
   *
   * @return its name, or "" if there is none
   */
  public String subject() {
    return subject;
  }

  /**
   * Tells whether the object of the failed call can still be used.
   *
   * @return false if only its {@code close} makes sense
   */
  public boolean usable() {
    return usable;
  }
}
