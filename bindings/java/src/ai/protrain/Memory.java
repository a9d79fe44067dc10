package ai.protrain;

import ai.protrain.internal.Native;
import java.lang.ref.Reference;
import java.nio.Buffer;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.FloatBuffer;
import java.nio.IntBuffer;
import java.nio.LongBuffer;

/**
 * The elements of a buffer from its position to its limit, as C sees them for the time of a call: in place where the buffer
 * is direct and in the machine's byte order, else as a copy. The buffer itself is left as it is.
 */
final class Memory implements AutoCloseable {
  final long address;
  final long bytes;
  private final Buffer buffer;
  private final ByteBuffer copy;

  private Memory(Buffer buffer, int elementBytes, ByteOrder order) {
    this.buffer = buffer;
    bytes = (long) buffer.remaining() * elementBytes;
    if (buffer.isDirect() && order == ByteOrder.nativeOrder()) {
      copy = null;
      address = Native.memory_address(buffer) + (long) buffer.position() * elementBytes;
    } else {
      if (bytes > Integer.MAX_VALUE) throw new IllegalArgumentException("copies 2 GiB at most, not " + bytes + " bytes");
      copy = Native.memory_allocate(bytes);
      if (copy == null) throw new OutOfMemoryError(bytes + " bytes beside the heap");
      copy.order(ByteOrder.nativeOrder());
      address = Native.memory_address(copy);
    }
  }

  /** Bytes have no order: they are taken as they lie. */
  static Memory of(ByteBuffer buffer) {
    Memory memory = new Memory(buffer, Byte.BYTES, ByteOrder.nativeOrder());
    if (memory.copy != null) memory.copy.duplicate().put(buffer.duplicate());
    return memory;
  }

  static Memory of(IntBuffer buffer) {
    Memory memory = new Memory(buffer, Integer.BYTES, buffer.order());
    if (memory.copy != null) memory.copy.asIntBuffer().put(buffer.duplicate());
    return memory;
  }

  static Memory of(LongBuffer buffer) {
    Memory memory = new Memory(buffer, Long.BYTES, buffer.order());
    if (memory.copy != null) memory.copy.asLongBuffer().put(buffer.duplicate());
    return memory;
  }

  static Memory of(FloatBuffer buffer) {
    Memory memory = new Memory(buffer, Float.BYTES, buffer.order());
    if (memory.copy != null) memory.copy.asFloatBuffer().put(buffer.duplicate());
    return memory;
  }

  /** Hands over what C has written, where that was a copy. */
  void writeTo(FloatBuffer to) {
    if (copy != null) to.duplicate().put(copy.asFloatBuffer());
  }

  long floats() {
    return bytes / Float.BYTES;
  }

  @Override
  public void close() {
    if (copy != null) Native.memory_free(address);
    Reference.reachabilityFence(buffer);
  }
}
