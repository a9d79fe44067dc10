// Split: one initializer of a file taken apart into several again.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace protrain::graph {

// A copy of the initializer `original` for some of its readers in the file.
struct Split {
  struct Reader {
    std::string output;  // names the node: its first output that has a name
    std::size_t input;
  };
  std::string name;
  std::string original;
  std::vector<Reader> readers;
};

}  // namespace protrain::graph
