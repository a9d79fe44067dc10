// Runs models in ONNX Runtime, so that tests can compare the library with it. The Python is $PROTRAIN_PYTHON, or else
// python3. Tests skip the comparison if this Python has no onnxruntime.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>

#include "train/command.h"

namespace protrain::test {

// Computes a model's first output. By default, ONNX Runtime computes with integers between quantised values, and rounds
// differently from a computation with floats. The entry session.disable_quant_qdq makes it compute with floats.
inline constexpr const char *kRuntimeScript = R"(
import json, numpy, onnxruntime, sys
model, inputs, out = sys.argv[1:]
options = onnxruntime.SessionOptions()
options.add_session_config_entry('session.disable_quant_qdq', '1')
session = onnxruntime.InferenceSession(model, options, ['CPUExecutionProvider'])
feed, types = {}, {'tensor(float16)': 'float16', 'tensor(float)': 'float32'}
inputs = json.load(open(inputs))
for wanted in session.get_inputs():
    values = inputs[wanted.name]
    array = numpy.array(values['values']).reshape(values['shape'])[0]
    if values['dtype'] == 'float32': array = (array / 256).astype(types[wanted.type])
    feed[wanted.name] = array
name = session.get_outputs()[0].name
open(out, 'w').write(repr(float(session.run([name], feed)[0])))
)";

// Returns the loss that ONNX Runtime computes, which is the model's first output. The inputs are those of the first
// step in a golden file. Returns an empty optional if onnxruntime or numpy is not installed.
inline std::optional<double> runtime_loss(const std::filesystem::path &model, const Json &inputs) {
  const char *chosen = std::getenv("PROTRAIN_PYTHON");
  const std::string python = chosen != nullptr ? chosen : "python3";
  if (std::system((python + " -c 'import onnxruntime, numpy' > /dev/null 2>&1").c_str()) != 0) return std::nullopt;
  const std::string script = model.string() + ".py", given = model.string() + ".json", out = model.string() + ".loss";
  std::ofstream(script) << kRuntimeScript;
  std::ofstream(given) << inputs;
  const std::string command = python + " " + script + " " + model.string() + " " + given + " " + out;
  EXPECT_EQ(std::system(command.c_str()), 0) << command;
  double loss = 0;
  std::ifstream(out) >> loss;
  return loss;
}

}  // namespace protrain::test
