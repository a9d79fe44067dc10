package ai.protrain;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.FloatBuffer;
import java.nio.ReadOnlyBufferException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.List;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Training from options to an exported model. */
class TrainingTest {
  private static final int BUDGET = 2_500_000;

  @TempDir Path directory;

  private Options tight() {
    return Models.gpt2().memory("" + BUDGET).offloadDir(directory).learningRate(3e-3);
  }

  private static long number(String json, String key) {
    Matcher found = Pattern.compile("\"" + key + "\": *(\\d+)").matcher(json);
    assertTrue(found.find(), key);
    return Long.parseLong(found.group(1));
  }

  @Test
  void trainsInLessMemoryThanTheModelNeedsResident() {
    try (Options options = tight()) {
      String plan = options.plan(Models.GPT2);
      assertTrue(number(plan.substring(plan.indexOf("\"resident\"")), "device_peak_bytes") > BUDGET);
      try (Session session = new Session(options, Models.GPT2)) {
        assertTrue(session.plan().contains("\"disk\""));
        float first = Models.step(session, 0);
        float loss = first;
        for (int step = 1; step < 5; ++step) loss = Models.step(session, 0);
        assertTrue(loss < 0.9f * first, first + " to " + loss);
        assertEquals(5, session.stepCount());
        assertEquals(0, session.rank());
        assertEquals(1, session.rankCount());
        String report = session.report();
        assertTrue(number(report, "device_peak_bytes") <= BUDGET);
        assertTrue(number(report, "disk_bytes") > 0);
      }
    }
  }

  @Test
  void checksGradients() {
    try (Options options = Models.root();
        Session session = new Session(options, Models.ROOT)) {
      for (String input : new String[] {"x", "u"}) session.setInput(input, new float[] {1, 2, 3, 4, 5, 6, 7, 8}, 2, 4);
      String gradients = session.checkGradients(1);
      assertTrue(gradients.contains("\"passed\": true") && !gradients.contains("\"passed\": false"), gradients);
    }
  }

  @Test
  void goesOnBitForBitFromACheckpoint() {
    Path run = directory.resolve("run-ü😀"); // JNI's own strings encode characters beyond 16 bits differently
    float[] whole = new float[4];
    try (Options options = tight();
        Session session = new Session(options, Models.GPT2)) {
      for (int step = 0; step < 4; ++step) {
        whole[step] = Models.step(session, step);
        if (step == 1) session.save(run);
      }
    }
    assertTrue(Files.exists(run.resolve("step-0000000002")));
    try (Options options = Models.gpt2().learningRate(3e-3).resume(run);
        Session session = new Session(options, Models.GPT2)) {
      assertEquals(2, session.stepCount());
      assertEquals(whole[2], Models.step(session, 2));
      assertEquals(whole[3], Models.step(session, 3));
    }
  }

  @Test
  void whatIsExportedIsTheTrainedModel() {
    Path trained = directory.resolve("trained.onnx");
    try (Options options = Models.gpt2();
        Session session = new Session(options, Models.GPT2)) {
      Models.feed(session, 0);
      float before = session.eval();
      assertEquals(before, session.eval());
      session.step();
      float after = session.eval();
      assertNotEquals(before, after);
      session.export(trained);
      try (Session again = new Session(options, trained)) {
        Models.feed(again, 0);
        assertEquals(after, again.eval());
      }
    }
  }

  @Test
  void adaptersAreExportedAndMerged() {
    Path adapter = directory.resolve("adapter");
    Path merged = directory.resolve("merged.onnx");
    try (Options options = Models.gpt2();
        Session session = new Session(Models.gpt2().set("lora", "*.c_attn.weight"), Models.GPT2)) {
      Models.feed(session, 0);
      session.step();
      session.exportAdapters(adapter);
      options.merge(Models.GPT2, adapter, merged);
      try (Session again = new Session(options, merged)) {
        Models.feed(again, 0);
        assertEquals(session.eval(), again.eval(), 1e-4f);
      }
      float adapted = session.eval();
      session.useAdapters(false);
      assertNotEquals(adapted, session.eval());
      assertThrows(ProtrainException.class, session::step);
      session.useAdapters(true);
      session.loadAdapters(adapter);
      assertEquals(adapted, session.eval());
    }
  }

  @Test
  void tellsWhatTheModelIs() {
    try (Options options = Models.gpt2();
        Session session = new Session(options, Models.GPT2)) {
      List<Long> shape = List.of(Models.BATCH, Models.SEQUENCE);
      assertEquals(
          List.of(
              new Session.Input("input_ids", DType.INT64, shape), new Session.Input("labels", DType.INT64, shape)),
          session.inputs());
      Session.Parameter first = session.parameters().get(0);
      assertEquals(new Session.Parameter("m.lm_head.weight", List.of(512L, 64L), 512 * 64), first);
      assertTrue(session.program().lines().count() > 10);
      assertTrue(session.graph().contains("MatMul"));
    }
    try (Options options = new Options()) {
      assertTrue(options.help().contains("learning_rate"));
      assertEquals("0.001", options.get("learning_rate"));
      assertTrue(options.check(Models.GPT2).contains("sequence"));
    }
    assertTrue(Protrain.version().matches("\\d+\\.\\d+\\.\\d+"));
  }

  @Test
  void parametersAndGradientsAreReadAndWritten() {
    String name = "m.transformer.wpe.weight";
    try (Options options = Models.gpt2().set("keep_gradients", name);
        Session session = new Session(options, Models.GPT2)) {
      float[] before = session.readParameter(name);
      Models.feed(session, 0);
      float loss = session.eval();
      session.step();
      float[] gradient = session.readGrad(name);
      assertEquals(before.length, gradient.length);
      double squares = 0;
      for (float value : gradient) squares += (double) value * value;
      assertTrue(squares > 0 && Math.sqrt(squares) <= session.gradNorm());

      FloatBuffer direct =
          ByteBuffer.allocateDirect(4 * before.length + 8).order(ByteOrder.nativeOrder()).asFloatBuffer();
      direct.position(1).limit(1 + before.length);
      session.readParameter(name, direct);
      float[] trained = session.readParameter(name);
      assertEquals(FloatBuffer.wrap(trained), direct);
      assertNotEquals(FloatBuffer.wrap(before), direct);
      assertEquals(0, direct.get(0));
      assertEquals(1, direct.position());

      session.writeParameter(name, before);
      assertArrayEquals(before, session.readParameter(name));
      assertNotEquals(loss, session.eval()); // the other parameters are trained already
      session.writeParameter(name, direct);
      assertArrayEquals(trained, session.readParameter(name));
    }
  }

  @Test
  void allParametersAreOneBuffer() {
    try (Options options = Models.gpt2();
        Session session = new Session(options, Models.GPT2);
        Session other = new Session(options, Models.GPT2)) {
      Models.step(session, 0);
      FloatBuffer flat = FloatBuffer.allocate(Math.toIntExact(session.flatParametersElements()));
      session.readFlatParameters(flat);
      int at = 0;
      for (Session.Parameter parameter : session.parameters()) {
        int elements = Math.toIntExact(parameter.elements());
        assertEquals(FloatBuffer.wrap(session.readParameter(parameter.name())), flat.slice(at, elements));
        at += elements;
      }
      assertEquals(flat.limit(), at);
      other.writeFlatParameters(flat);
      FloatBuffer read = FloatBuffer.allocate(at);
      other.readFlatParameters(read);
      assertEquals(flat, read);
      ProtrainException thrown =
          assertThrows(ProtrainException.class, () -> other.writeFlatParameters(flat.slice(1, flat.limit() - 1)));
      assertEquals(ErrorCode.SHAPE, thrown.code());
      assertThrows(ReadOnlyBufferException.class, () -> session.readFlatParameters(flat.asReadOnlyBuffer()));
    }
  }

  @Test
  void aModelInMemoryTrainsAsItsFile() throws IOException {
    ByteBuffer bytes = ByteBuffer.wrap(Files.readAllBytes(Models.GPT2));
    try (Options options = Models.gpt2();
        Session session = new Session(options, Models.GPT2);
        Session memory = new Session(options, bytes, null)) {
      Arrays.fill(bytes.array(), (byte) 0); // the session has its own copy
      assertEquals(Models.step(session, 0), Models.step(memory, 0));
      ProtrainException thrown =
          assertThrows(ProtrainException.class, () -> new Session(options, bytes, Models.FIXTURES));
      assertEquals(ErrorCode.FORMAT, thrown.code());
    }
  }

  @Test
  void outputsArePredicted() {
    try (Options options = new Options().dim("batch", 3).set("threads", 1)) {
      options.set("loss", "cross_entropy").set("keep_outputs", "*");
      try (Session session = new Session(options, Models.FIXTURES.resolve("outputs/classes.onnx"))) {
        session.setInput("tokens", new long[18], 3, 6);
        session.predict();
        assertEquals(
            new Session.Output("logits", DType.FLOAT32, List.of(3L, 5L)), session.outputs().get(0));
        FloatBuffer logits = FloatBuffer.allocate(15);
        session.readOutput("logits", logits);
        for (ByteBuffer choice : List.of(ByteBuffer.allocate(24), ByteBuffer.allocateDirect(24))) {
          choice.order(ByteOrder.nativeOrder());
          session.readOutput("choice", DType.INT64, choice);
          for (int row = 0; row < 3; ++row)
            for (int i = 0; i < 5; ++i)
              assertTrue(logits.get(5 * row + i) <= logits.get(5 * row + (int) choice.getLong(8 * row)));
        }
        ProtrainException wrong =
            assertThrows(
                ProtrainException.class,
                () -> session.readOutput("choice", DType.INT32, ByteBuffer.allocate(24)));
        assertEquals(ErrorCode.TYPE, wrong.code());
      }
    }
  }

  @Test
  void theLearningRateIsThatOfTheNextStep() {
    try (Options options = Models.gpt2();
        Session session = new Session(options, Models.GPT2)) {
      float[] before = session.readParameter("m.lm_head.weight");
      session.setLearningRate(0);
      assertEquals(0, session.learningRate());
      Models.step(session, 0);
      assertArrayEquals(before, session.readParameter("m.lm_head.weight"));
    }
  }
}
