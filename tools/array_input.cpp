#include "array_input.h"

#include <fmt/format.h>

#include "array_layout.h"
#include "conversion.h"
#include "handles.h"

namespace tool {

ArrayInput::ArrayInput(std::string input, std::optional<std::size_t> axes, const std::string &type, ArrayFile file)
    : input_(std::move(input)),
      file_(std::move(file)),
      of_samples_(axes && *axes == file_.shape().size()),
      taken_as_(taken_as(file_.dtype(), type, path(), input_)) {
  if (rows() == 0) throw Failure(fmt::format("{}: nothing along axis 0", path()));
}

std::vector<std::int64_t> ArrayInput::shape(std::int64_t samples) const {
  std::vector<std::int64_t> shape = file_.shape();
  if (of_samples_)
    shape.front() = samples;
  else
    shape.erase(shape.begin());
  return shape;
}

std::string ArrayInput::reading() const {
  const std::vector<std::int64_t> &shape = file_.shape();
  return fmt::format("{} of shape {}, read as {} {} of {}", path(), tuple_text(shape), rows(),
                     of_samples_ ? "samples" : "batches", tuple_text({shape.begin() + 1, shape.end()}));
}

InputValue ArrayInput::read(std::uint64_t first, std::int64_t samples, const std::optional<Shuffle> &shuffle) const {
  const std::uint64_t count = of_samples_ ? static_cast<std::uint64_t>(samples) : 1;
  std::vector<std::byte> elements(count * file_.row_bytes());
  for (std::uint64_t row = 0; row < count; ++row)
    file_.read_row(taken(first + row, rows(), shuffle), elements.data() + row * file_.row_bytes());
  if (taken_as_ != file_.dtype()) elements = converted(elements, file_.dtype(), taken_as_, path());
  return {input_, taken_as_, shape(samples), std::move(elements)};
}

}  // namespace tool
