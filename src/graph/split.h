// Split: undoes a merge. Some exporters merge equal initializers into one. A Split makes one of them separate again.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace protrain::graph {

// A copy of the initializer `original` for some of its readers in the file. If the file has an Identity that makes a
// value of this name, the copy takes the place of that node, and `readers` is empty.
struct Split {
  struct Reader {
    std::string output;  // the node's first output with a name; identifies the node
    std::size_t input;
  };
  std::string name;
  std::string original;
  std::vector<Reader> readers;

  // The name by which the file knows the tensor.
  const std::string &name_in_file() const { return readers.empty() ? name : original; }
};

}  // namespace protrain::graph
