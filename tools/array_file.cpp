#include "array_file.h"

#include <fmt/format.h>

#include <cstring>

#include "handles.h"
#include "npy.h"
#include "safetensors.h"

namespace tool {

ArrayFile::ArrayFile(const std::string &path, const std::string &tensor) : file_(path) {
  layout_ = path.ends_with(".safetensors") ? safetensors_layout(file_, tensor) : npy_layout(file_);
  if (layout_.shape.empty()) throw Failure(fmt::format("{}: an array with at least one axis is needed", path));
  row_bytes_ = element_bytes(layout_.dtype);
  for (std::size_t i = 1; i < layout_.shape.size(); ++i) row_bytes_ *= static_cast<std::size_t>(layout_.shape[i]);
  if (layout_.column_major && layout_.shape.size() > 1) order_rows();
}

void ArrayFile::read_row(std::uint64_t index, std::byte *out) const {
  if (ordered_.empty())
    file_.read(layout_.offset + index * row_bytes_, out, row_bytes_);
  else
    std::memcpy(out, ordered_.data() + index * row_bytes_, row_bytes_);
}

// Reads a whole column-major array and puts it in row order, because in the file the elements of a row lie far apart.
// The file is a sequence of runs. A run holds one element of each row, so rows() elements, and all of them have the
// same place within their rows. From one run to the next, this place moves along the second axis first.
void ArrayFile::order_rows() {
  const std::size_t bytes = element_bytes(layout_.dtype), places = row_bytes_ / bytes;
  if (rows() == 0 || places == 0) return;
  std::vector<std::byte> run(rows() * bytes);
  ordered_.resize(rows() * row_bytes_);
  std::vector<std::int64_t> at(layout_.shape.size());  // the indices of a place; the first one is not used
  for (std::size_t i = 0; i < places; ++i) {
    file_.read(layout_.offset + i * run.size(), run.data(), run.size());
    std::size_t place = 0;
    for (std::size_t axis = 1; axis < at.size(); ++axis)
      place = place * static_cast<std::size_t>(layout_.shape[axis]) + static_cast<std::size_t>(at[axis]);
    for (std::size_t row = 0; row < rows(); ++row)
      std::memcpy(&ordered_[row * row_bytes_ + place * bytes], &run[row * bytes], bytes);
    for (std::size_t axis = 1; axis < at.size() && ++at[axis] == layout_.shape[axis]; ++axis) at[axis] = 0;
  }
}

}  // namespace tool
