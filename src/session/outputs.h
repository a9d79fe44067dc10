// Outputs: which outputs of the model a prediction computes, and where the results of the last prediction are until
// another call of the session overwrites them.
#pragma once

#include <optional>
#include <string>

#include "draft/draft.h"
#include "run/store.h"

namespace protrain::session {

class Outputs {
 public:
  // Draft and store must outlive this object.
  Outputs(const draft::Draft &draft, run::Store &store) : draft_(draft), store_(store) {}

  std::size_t count() const { return draft_.output_names.size(); }  // in the file's order
  const std::string &name(std::size_t i) const { return draft_.output_names.at(i); }
  std::size_t find(const std::string &name) const;  // Code::arg for an output that is not kept
  // Returns the type in which the output is read. An output of floats has the type that the file declares, even if the
  // session computes with another type of floats.
  DType dtype(std::size_t i) const;
  // Returns the output's shape in the last prediction. Before any prediction, this is its shape in the first variant.
  const Shape &shape(std::size_t i) const { return computed(i).shape; }

  // note() records that a prediction was made for a shape variant, and makes the store keep the prediction's results.
  // forget() records that these results can no longer be read, because their memory has another use.
  void note(std::size_t variant);
  void forget();

  // The type and the place of an output of the last prediction. last() throws Code::state if there is no prediction
  // that can be read.
  struct Computed {
    const graph::Type &type;
    const program::Program &program;
    const program::Operand &at;
  };
  Computed last(std::size_t i) const;

 private:
  const graph::Type &computed(std::size_t i) const;

  const draft::Draft &draft_;
  run::Store &store_;
  std::size_t variant_ = 0;  // of the last prediction
  bool readable_ = false;
};

}  // namespace protrain::session
