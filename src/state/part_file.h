// The files of tensors of a checkpoint. A file of a checkpoint's only part holds whole tensors. If there are several
// parts, each file holds a run of every tensor's elements, as a tensor of one dimension; the runs of parts 0, 1, ...
// follow each other.
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

// Opens the file `name` of the folder `folder` ("" or "NAME/") in `root`. Its size, its first pieces and its header are
// checked.
PartFile open_part(const std::string &root, const std::string &folder, const std::string &name,
                   const FileRecord &record);

// A tensor of an optimizer file is called PARAMETER/ARRAY; nothing for other names.
struct ArrayName {
  std::string parameter, array;
};
std::optional<ArrayName> array_of(const std::string &tensor);

// The whole tensors of which the files hold runs. `shape_of` gives a name's shape, or nullptr if there is none.
// Code::format if the files do not have the same names, or a tensor not as many elements as its shape.
std::vector<Tensor> whole_tensors(const std::vector<PartFile> &parts,
                                  const std::function<const Shape *(const std::string &name)> &shape_of);

}  // namespace protrain::state
