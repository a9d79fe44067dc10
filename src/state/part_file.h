// The tensor files of a checkpoint. If the checkpoint has a single part, its files hold whole tensors. If it has
// several parts, each file holds a contiguous range of the elements of every tensor, as a tensor of one dimension. The
// ranges of parts 0, 1, ... join into the whole tensor.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/files.h"
#include "state/pieces.h"
#include "state/tensor_file.h"

namespace protrain::state {

struct PartFile {
  File file;
  FileRecord record;
  std::uint64_t data_begin = 0;
  std::vector<Tensor> tensors;  // offsets from data_begin
};

bool contains(const std::vector<DirectoryEntry> &entries, const std::string &name);

// Opens the file `name` of the folder `folder` ("" or "NAME/") in `root`. Checks the file's size, first pieces and
// header.
PartFile open_part(const std::string &root, const std::string &folder, const std::string &name,
                   const FileRecord &record);

// The two halves of a tensor's name in an optimizer file, PARAMETER/ARRAY. array_of() returns an empty optional for
// other names.
struct ArrayName {
  std::string parameter, array;
};
std::optional<ArrayName> array_of(const std::string &tensor);

// Returns the shape in which an optimizer's array of `elements` elements is saved. This is the parameter's shape if the
// parameter has the same number of elements, else a single dimension.
Shape whole_shape(const Shape &of_parameter, std::uint64_t elements);

// Returns the whole tensors that the parts join into. shape_of(name, elements) must return the shape of the tensor
// `name`, or an empty optional if the tensor is unknown. `elements` is the number of elements that all parts of the
// tensor have together. Code::format if the parts name different tensors, or if a tensor's elements do not add up to
// its shape.
using ShapeOf = std::function<std::optional<Shape>(const std::string &name, std::uint64_t elements)>;
std::vector<Tensor> whole_tensors(const std::vector<PartFile> &parts, const ShapeOf &shape_of);

}  // namespace protrain::state
