// Shared by the tests of the families: the golden files, their inputs, and sessions with PyTorch's options.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "session/session.h"
#include "train/command.h"

namespace protrain::test {

// Returns the golden file of a model's family. For the model "t5.dynamo18" this is "t5".
inline Json golden_of(const std::string &name) {
  std::ifstream file(test::fixture("families/" + name.substr(0, name.find('.')) + ".json"));
  return Json::parse(file);
}

// The values of one input in all steps. The JSON holds only integers: a float32 is given as 256 times its value.
struct Values {
  explicit Values(const Json &json) : shape(json["shape"].get<Shape>()), dtype(DType::i64) {
    integers = json["values"].get<std::vector<std::int64_t>>();
    if (json["dtype"] != "float32") return;
    dtype = DType::f32;
    for (std::int64_t value : integers) reals.push_back(static_cast<float>(value) / 256);
  }
  Shape batch() const { return {shape.begin() + 1, shape.end()}; }
  const void *at(std::size_t step) const {
    const std::size_t first = step * (integers.size() / static_cast<std::size_t>(shape[0]));
    return dtype == DType::f32 ? static_cast<const void *>(reals.data() + first) : integers.data() + first;
  }

  Shape shape;  // (steps, ...)
  DType dtype;
  std::vector<std::int64_t> integers;
  std::vector<float> reals;
};

// Creates a session for a model file in fixtures/. `name` is the file's path there, without the ending.
inline std::unique_ptr<session::Session> open_family(const std::string &name, const Json &golden,
                                                     const std::map<std::string, std::string> &more = {}) {
  draft::Options options;
  for (const auto &[key, value] : more) options.set(key, value);
  options.set("keep_gradients", "*");
  options.set("threads", "1");
  options.set("learning_rate", "1e-3");
  options.set("beta1", "0.9");
  options.set("beta2", "0.95");
  options.set("epsilon", "1e-8");
  options.set("weight_decay", "0.1");
  for (const auto &[dim, size] : golden["dims"].items())
    options.set("dim", dim + "=" + std::to_string(size.get<int>()));
  const Json others = golden.value("options", Json::object());
  for (const auto &[key, given] : others.items())
    for (const Json &value : given.is_array() ? given : Json::array({given}))
      options.set(key, value.template get<std::string>());
  return session::Session::create(options, fixture(name + ".onnx"), nullptr);
}

}  // namespace protrain::test
