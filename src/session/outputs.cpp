#include "session/outputs.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"

namespace protrain::session {

std::size_t Outputs::find(const std::string &name) const {
  const auto &names = draft_.output_names;
  const auto found = std::ranges::find(names, name);
  require(found != names.end(), Code::arg, name,
          "output {} is not kept; create the session with keep_outputs={}; the kept outputs are {}", name, name,
          names.empty() ? "none" : fmt::format("{}", fmt::join(names, ", ")));
  return static_cast<std::size_t>(found - names.begin());
}

DType Outputs::dtype(std::size_t i) const {
  const DType computed = this->computed(i).dtype;
  const auto &in_file = draft_.file->outputs();
  const auto found = std::ranges::find(in_file, name(i), &onnx_import::Output::name);
  const bool both_floats = found != in_file.end() && is_float(found->dtype) && is_float(computed);
  return both_floats ? found->dtype : computed;
}

void Outputs::note(std::size_t variant) {
  variant_ = variant;
  readable_ = true;
  const program::Program &program = draft_.programs.variants[variant].prediction;
  std::uint64_t end = 0;
  for (const program::Operand &output : program.outputs) {
    const program::Buffer &buffer = program.buffers[program::index(output.buffer)];
    end = std::max(end, buffer.offset + buffer.bytes);
  }
  store_.keep_results(end);
}

void Outputs::forget() {
  readable_ = false;
  store_.keep_results(0);
}

Outputs::Computed Outputs::last(std::size_t i) const {
  require(readable_, Code::state, name(i),
          "there is nothing to read: call protrain_predict first, and read before the next step or evaluation");
  const program::Program &program = draft_.programs.variants[variant_].prediction;
  return {computed(i), program, program.outputs.at(i)};
}

const graph::Type &Outputs::computed(std::size_t i) const {
  const graph::Graph &graph = draft_.variants[variant_]->outputs;
  return graph.value(graph.outputs.at(i)).type;
}

}  // namespace protrain::session
