package ai.protrain;

import ai.protrain.internal.Native;

/** Element types of inputs. */
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
  /** 8 bits without a sign. */
  UINT8(Native.PROTRAIN_UINT8),
  /** 16 bits without a sign. */
  UINT16(Native.PROTRAIN_UINT16),
  /** 32 bits without a sign. */
  UINT32(Native.PROTRAIN_UINT32),
  /** 64 bits without a sign. */
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
