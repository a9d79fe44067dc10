// An input of the model that an array feeds.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "array_file.h"
#include "shuffle.h"

namespace tool {

// The value of an input in one batch, in the form in which a session takes it.
struct InputValue {
  std::string input;
  protrain_dtype dtype;
  std::vector<std::int64_t> shape;
  std::vector<std::byte> bytes;
};

// Axis 0 of the array counts batches or samples. An array of batches has one axis more than the input, and each batch
// takes one row of the array. An array of samples has as many axes as the input, and each batch takes one row of the
// array for each of its samples. After the last row, the first row follows again.
class ArrayInput {
 public:
  // `axes` is the input's number of axes, if the model gives it. `type` is the input's type (conversion.h).
  ArrayInput(std::string input, std::optional<std::size_t> axes, const std::string &type, ArrayFile file);

  const std::string &input() const { return input_; }
  const std::string &path() const { return file_.path(); }
  bool of_samples() const { return of_samples_; }
  std::uint64_t rows() const { return file_.rows(); }
  // Returns the shape of the input in one batch. `samples`, the number of samples in a batch, is used only for an array
  // of samples.
  std::vector<std::int64_t> shape(std::int64_t samples) const;
  std::string reading() const;  // "labels.npy of shape (40, 1), read as 40 batches of (1)", for messages
  // Returns the value of a batch that begins with row `first`.
  InputValue read(std::uint64_t first, std::int64_t samples, const std::optional<Shuffle> &shuffle) const;

 private:
  std::string input_;
  ArrayFile file_;
  bool of_samples_;
  protrain_dtype taken_as_;
};

}  // namespace tool
