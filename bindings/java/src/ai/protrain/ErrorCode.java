package ai.protrain;

import ai.protrain.internal.Native;

/** The kind of failure, for programs; the exception's message describes it for people. */
public enum ErrorCode {
  /** An argument or option is wrong. */
  ARG(Native.PROTRAIN_ERROR_ARG),
  /** The call does not fit the present state of the object. */
  STATE(Native.PROTRAIN_ERROR_STATE),
  /** Another thread is inside the object. */
  BUSY(Native.PROTRAIN_ERROR_BUSY),
  /** The object belongs to the parent process. */
  FORKED(Native.PROTRAIN_ERROR_FORKED),
  /** A file has an unknown version. */
  VERSION(Native.PROTRAIN_ERROR_VERSION),
  /** A path that may not be followed. */
  PATH(Native.PROTRAIN_ERROR_PATH),
  /** The system refused a file operation. */
  IO(Native.PROTRAIN_ERROR_IO),
  /** No space is left for a file. */
  NOSPC(Native.PROTRAIN_ERROR_NOSPC),
  /** The bytes of a file are malformed. */
  FORMAT(Native.PROTRAIN_ERROR_FORMAT),
  /** Something exceeds a stated limit. */
  LIMIT(Native.PROTRAIN_ERROR_LIMIT),
  /** Shapes or lengths do not fit together. */
  SHAPE(Native.PROTRAIN_ERROR_SHAPE),
  /** Element types do not fit together. */
  TYPE(Native.PROTRAIN_ERROR_TYPE),
  /** The graph is not legal, or has no loss. */
  GRAPH(Native.PROTRAIN_ERROR_GRAPH),
  /** Legal, but not supported by the library (yet). */
  UNSUPPORTED(Native.PROTRAIN_ERROR_UNSUPPORTED),
  /** A checksum does not match. */
  CORRUPT(Native.PROTRAIN_ERROR_CORRUPT),
  /** Two things do not belong together, such as a checkpoint and a model. */
  MISMATCH(Native.PROTRAIN_ERROR_MISMATCH),
  /** Nothing fits the stated memory; the text says what would. */
  BUDGET(Native.PROTRAIN_ERROR_BUDGET),
  /** The system refused memory. */
  NOMEM(Native.PROTRAIN_ERROR_NOMEM),
  /** NaN or infinity where numbers must be finite. */
  NONFINITE(Native.PROTRAIN_ERROR_NONFINITE),
  /** Another rank failed. */
  PEER(Native.PROTRAIN_ERROR_PEER),
  /** Another rank did not answer in time. */
  TIMEOUT(Native.PROTRAIN_ERROR_TIMEOUT),
  /** The device or its driver failed. */
  DEVICE(Native.PROTRAIN_ERROR_DEVICE),
  /** A bug of the library; please report it. */
  INTERNAL(Native.PROTRAIN_ERROR_INTERNAL),
  /** {@link Session#cancel} was called. */
  CANCELLED(Native.PROTRAIN_ERROR_CANCELLED),
  /** A code that only a later version of the library knows. */
  UNKNOWN(-1);

  private final int number;

  ErrorCode(int number) {
    this.number = number;
  }

  static ErrorCode of(int number) {
    for (ErrorCode code : values()) if (code.number == number) return code;
    return UNKNOWN;
  }
}
