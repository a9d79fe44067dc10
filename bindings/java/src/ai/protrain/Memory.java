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
 * Gives C access to the elements of a buffer, from its position to its limit, during a call. A direct buffer in the
 * machine's byte order is used in place; any other buffer is copied. Position and limit do not change.
 */
final class Memory implements AutoCloseable {
  final long address;
  final long bytes;
  private final Buffer buffer;
  private final boolean copied;

  /** Uses a direct buffer in place. Copies a buffer that has an array. */
  private Memory(Buffer buffer, int elementBytes) {
    this.buffer = buffer;
    bytes = (long) buffer.remaining() * elementBytes;
    copied = !buffer.isDirect();
    if (copied) {
      address = Native.memory_allocate(bytes);
      if (address == 0) throw new OutOfMemoryError(bytes + " bytes beside the heap");
      Native.memory_write(address, buffer.array(), offset(elementBytes), bytes);
    } else {
      address = Native.memory_address(buffer) + (long) buffer.position() * elementBytes;
    }
  }

  private long offset(int elementBytes) {
    return ((long) buffer.arrayOffset() + buffer.position()) * elementBytes;
  }

  /** True if the constructor can take the buffer. Other buffers must first be copied into one that has an array. */
  private static boolean plain(Buffer buffer, ByteOrder order) {
    return buffer.hasArray() || buffer.isDirect() && order == ByteOrder.nativeOrder();
  }

  /** Takes bytes as they are, whatever the buffer's byte order. */
  static Memory of(ByteBuffer buffer) {
    boolean plain = plain(buffer, ByteOrder.nativeOrder());
    return new Memory(plain ? buffer : ByteBuffer.allocate(buffer.remaining()).put(buffer.duplicate()).flip(), 1);
  }

  static Memory of(IntBuffer buffer) {
    boolean plain = plain(buffer, buffer.order());
    return new Memory(plain ? buffer : IntBuffer.allocate(buffer.remaining()).put(buffer.duplicate()).flip(), 4);
  }

  static Memory of(LongBuffer buffer) {
    boolean plain = plain(buffer, buffer.order());
    return new Memory(plain ? buffer : LongBuffer.allocate(buffer.remaining()).put(buffer.duplicate()).flip(), 8);
  }

  static Memory of(FloatBuffer buffer) {
    boolean plain = plain(buffer, buffer.order());
    return new Memory(plain ? buffer : FloatBuffer.allocate(buffer.remaining()).put(buffer.duplicate()).flip(), 4);
  }

  /** Copies what C has written into this memory, which {@code of(to)} made, back to {@code to}. */
  void writeTo(FloatBuffer to) {
    if (!copied) return;
    Native.memory_read(address, buffer.array(), offset(Float.BYTES), bytes);
    if (buffer != to) to.duplicate().put((FloatBuffer) buffer);
  }

  /** As {@link #writeTo(FloatBuffer)}, for bytes. */
  void writeTo(ByteBuffer to) {
    if (!copied) return;
    Native.memory_read(address, buffer.array(), offset(1), bytes);
    if (buffer != to) to.duplicate().put((ByteBuffer) buffer);
  }

  long floats() {
    return bytes / Float.BYTES;
  }

  @Override
  public void close() {
    if (copied) Native.memory_free(address);
    Reference.reachabilityFence(buffer);
  }
}
