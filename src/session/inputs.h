// Inputs: the inputs of a session, and the shape variant that they select.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "draft/draft.h"
#include "session/index_checks.h"

namespace protrain::session {

class Inputs {
 public:
  // `draft` must outlive this object.
  explicit Inputs(const draft::Draft &draft);

  std::size_t count() const { return forward().inputs.size(); }  // in the file's order
  const graph::Value &value(std::size_t i) const { return forward().value(forward().inputs.at(i)); }
  const std::string &name(std::size_t i) const { return value(i).name; }
  // The type that the file gives the input. It may be float16 where the session computes with float32.
  DType dtype(std::size_t i) const;
  std::size_t find(const std::string &name) const;  // Code::arg for an unknown name
  // True for an input of the file that has no elements. The session does not have such an input.
  bool is_empty(const std::string &name, const Shape &shape) const;

  // Throws Code::type or Code::shape if no variant accepts the type and shape for input `i`. If the file and the
  // session use different float types for the input, either type is accepted.
  void require_taken(std::size_t i, DType dtype, const Shape &shape) const;
  // Records that the input was set and whether a step can use the values.
  void note(std::size_t i, const Shape &shape, const void *data);

  // Returns the variant that matches the shapes of all inputs. Code::state if an input was never set, Code::arg if an
  // input holds an index or a label that is out of range.
  std::size_t variant() const { return variant_for(every_input_); }
  // Returns the variant for a prediction. Looks only at inputs that the outputs of keep_outputs depend on.
  std::size_t variant_for_outputs() const { return variant_for(read_by_outputs_); }

 private:
  const graph::Graph &forward() const { return draft_.first().forward; }
  const Shape &shape_in(std::size_t variant, std::size_t input) const;
  std::size_t variant_for(const std::vector<bool> &needed) const;
  std::size_t matching_variant(const std::vector<bool> &needed) const;

  struct Checked {
    IndexChecks checks;
    std::vector<std::optional<IndexChecks::Fault>> faults;  // per input
  };

  const draft::Draft &draft_;
  std::vector<std::optional<Shape>> shapes_;  // of inputs that were set
  const std::vector<bool> every_input_;       // true for each input: a step needs them all
  std::vector<bool> read_by_outputs_;         // per input
  std::vector<Checked> checked_;              // per variant
};

}  // namespace protrain::session
