package ai.protrain;

import ai.protrain.internal.Native;

/** Element types of inputs and outputs. */
public enum DType {
  /** Java's {@code float}. */
  FLOAT32(Native.PROTRAIN_FLOAT32),
  /** Java's {@code double}. */
  FLOAT64(Native.PROTRAIN_FLOAT64),
  /** IEEE half precision. */
  FLOAT16(Native.PROTRAIN_FLOAT16),
  /** The upper half of a {@code float}. */
  BFLOAT16(Native.PROTRAIN_BFLOAT16),
  /** Java's {@code byte}. */
  INT8(Native.PROTRAIN_INT8),
  /** Java's {@code short}. */
  INT16(Native.PROTRAIN_INT16),
  /** Java's {@code int}. */
  INT32(Native.PROTRAIN_INT32),
  /** Java's {@code long}. */
  INT64(Native.PROTRAIN_INT64),
  /** Unsigned, 8 bits. */
  UINT8(Native.PROTRAIN_UINT8),
  /** Unsigned, 16 bits. */
  UINT16(Native.PROTRAIN_UINT16),
  /** Unsigned, 32 bits. */
  UINT32(Native.PROTRAIN_UINT32),
  /** Unsigned, 64 bits. */
  UINT64(Native.PROTRAIN_UINT64),
  /** One byte, 0 or 1. */
  BOOL(Native.PROTRAIN_BOOL);

  final int number;

  DType(int number) {
    this.number = number;
  }

  static DType of(int number) {
    for (DType type : values()) if (type.number == number) return type;
    throw new IllegalArgumentException("dtype " + number + " of a library that is newer than these classes");
  }
}
