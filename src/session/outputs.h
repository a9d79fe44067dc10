// Outputs: the outputs of a session that a prediction computes, and the prediction that can be read.
#pragma once

#include <optional>
#include <string>

#include "draft/draft.h"

namespace protrain::session {

class Outputs {
 public:
  // `draft` must outlive it.
  explicit Outputs(const draft::Draft &draft) : draft_(draft) {}

  std::size_t count() const { return draft_.output_names.size(); }  // in the file's order
  const std::string &name(std::size_t i) const { return draft_.output_names.at(i); }
  std::size_t find(const std::string &name) const;  // Code::arg for an output that is not kept
  // The type in which the output is read. A float has the type of the file, even where the session computes with
  // another type of floats.
  DType dtype(std::size_t i) const;
  // Returns the output's shape in the last prediction. Before any prediction, this is its shape in the first variant.
  const Shape &shape(std::size_t i) const { return computed(i).shape; }

  // note() records that a prediction was made for a shape variant, forget() that its memory now has another use.
  void note(std::size_t variant) {
    variant_ = variant;
    readable_ = true;
  }
  void forget() { readable_ = false; }

  // The type and the place of an output of the last prediction. Code::state if it cannot be read any more.
  struct Computed {
    const graph::Type &type;
    const program::Program &program;
    const program::Operand &at;
  };
  Computed last(std::size_t i) const;

 private:
  const graph::Type &computed(std::size_t i) const;

  const draft::Draft &draft_;
  std::size_t variant_ = 0;  // of the last prediction
  bool readable_ = false;
};

}  // namespace protrain::session
