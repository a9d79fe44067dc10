package ai.protrain;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.FloatBuffer;
import java.nio.IntBuffer;
import java.nio.LongBuffer;
import java.nio.ReadOnlyBufferException;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.function.Executable;

/** Buffers of every kind are read and written from position to limit, and C sees the values that Java sees. */
class BufferTest {
  private Session session;
  private float expected;
  private final long[] tokens = Models.tokens(1);

  @BeforeEach
  void open() {
    try (Options options = Models.gpt2()) {
      session = new Session(options, Models.GPT2);
    }
    Models.feed(session, 1);
    expected = session.eval();
    Models.feed(session, 2);
  }

  @AfterEach
  void close() {
    session.close();
  }

  /** Puts the tokens into the buffer with other numbers around them, and sets position and limit to the tokens. */
  private LongBuffer surround(LongBuffer buffer) {
    buffer.put(99).put(98).put(tokens).put(97);
    return buffer.position(2).limit(2 + tokens.length);
  }

  private ByteBuffer direct(int elementBytes) {
    return ByteBuffer.allocateDirect(elementBytes * (tokens.length + 3));
  }

  private void expectSame(LongBuffer buffer) {
    session.setInput("input_ids", buffer, Models.BATCH, Models.SEQUENCE);
    session.setInput("labels", tokens, Models.BATCH, Models.SEQUENCE);
    assertEquals(expected, session.eval());
    assertEquals(2, buffer.position());
    assertEquals(2 + tokens.length, buffer.limit());
  }

  @Test
  void direct() {
    expectSame(surround(direct(8).order(ByteOrder.nativeOrder()).asLongBuffer()));
  }

  @Test
  void readOnly() {
    expectSame(surround(direct(8).order(ByteOrder.nativeOrder()).asLongBuffer()).asReadOnlyBuffer());
  }

  @Test
  void ofTheOtherByteOrder() {
    ByteOrder other =
        ByteOrder.nativeOrder() == ByteOrder.LITTLE_ENDIAN ? ByteOrder.BIG_ENDIAN : ByteOrder.LITTLE_ENDIAN;
    expectSame(surround(direct(8).order(other).asLongBuffer()));
  }

  @Test
  void onTheHeap() {
    expectSame(surround(LongBuffer.allocate(tokens.length + 3)));
  }

  @Test
  void ofBytes() {
    for (ByteBuffer bytes : new ByteBuffer[] {direct(8), ByteBuffer.allocate(8 * (tokens.length + 3))}) {
      surround(bytes.order(ByteOrder.nativeOrder()).asLongBuffer());
      bytes.position(16).limit(16 + 8 * tokens.length);
      session.setInput("input_ids", DType.INT64, bytes, Models.BATCH, Models.SEQUENCE);
      session.setInput("labels", tokens, Models.BATCH, Models.SEQUENCE);
      assertEquals(expected, session.eval());
      Models.feed(session, 2);
    }
  }

  @Test
  void otherLengthsAndTypesAreRefused() {
    LongBuffer one = surround(direct(8).order(ByteOrder.nativeOrder()).asLongBuffer()).limit(3);
    assertCode(ErrorCode.SHAPE, () -> session.setInput("labels", one, Models.BATCH, Models.SEQUENCE));
    assertCode(ErrorCode.TYPE, () -> session.setInput("labels", new float[32], Models.BATCH, Models.SEQUENCE));
    assertCode(ErrorCode.TYPE, () -> session.setInput("labels", new int[32], Models.BATCH, Models.SEQUENCE));
    assertCode(ErrorCode.SHAPE, () -> session.setInput("labels", tokens));
  }

  @Test
  void readInto() {
    String name = "m.transformer.wpe.weight";
    float[] expected = session.readParameter(name);
    ByteBuffer bytes = ByteBuffer.allocateDirect(4 * expected.length + 8);
    FloatBuffer[] buffers = {
      bytes.order(ByteOrder.LITTLE_ENDIAN).asFloatBuffer(),
      bytes.order(ByteOrder.BIG_ENDIAN).asFloatBuffer(),
      FloatBuffer.allocate(expected.length + 2)
    };
    for (FloatBuffer buffer : buffers) {
      buffer.put(0, -7).position(1).limit(1 + expected.length);
      session.readParameter(name, buffer);
      assertEquals(FloatBuffer.wrap(expected), buffer);
      assertEquals(-7, buffer.get(0));
      assertEquals(0, buffer.limit(buffer.capacity()).get(1 + expected.length));
      buffer.clear().put(new float[expected.length + 2]);
    }
    FloatBuffer shut = FloatBuffer.wrap(expected).asReadOnlyBuffer();
    assertThrows(ReadOnlyBufferException.class, () -> session.readParameter(name, shut));
  }

  @Test
  void ofFloats() {
    float[] x = {1, 2, 3, 4, 5, 6, 7, 8};
    try (Options options = Models.root();
        Session root = new Session(options, Models.ROOT)) {
      root.setInput("x", x, 2, 4);
      root.setInput("u", x, 2, 4);
      float loss = root.eval();
      ByteBuffer bytes = ByteBuffer.allocateDirect(40).order(ByteOrder.nativeOrder());
      root.setInput("x", bytes.asFloatBuffer().put(9).put(x).flip().position(1), 2, 4);
      assertEquals(loss, root.eval());
      assertCode(ErrorCode.TYPE, () -> root.setInput("x", IntBuffer.allocate(8), 2, 4));
    }
  }

  private static void assertCode(ErrorCode code, Executable call) {
    assertEquals(code, assertThrows(ProtrainException.class, call).code());
  }
}
