/** Trains ONNX models under a memory budget: libprotrain, for Java. */
module ai.protrain {
  exports ai.protrain;
}
