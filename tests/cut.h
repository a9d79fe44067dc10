// Removes the loss from a model's file, as if an exporter had written a model that ends in logits.
#pragma once

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <functional>
#include <set>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "onnx_import/wire.h"

namespace protrain::test {

inline std::string read_file(const std::string &path) {
  std::ostringstream out;
  out << std::ifstream(path, std::ios::binary).rdbuf();
  return out.str();
}

// Calls `visit(number, whole, content)` for each field of a message. `whole` has all bytes of the field. `content` has
// only the bytes after the field's tag and length, and is empty if the field has no length.
inline void each_field(const std::string &message,
                       const std::function<void(int, const std::string &, const std::string &)> &visit) {
  std::size_t at = 0;
  const auto number = [&] {
    std::uint64_t value = 0;
    for (int shift = 0;; shift += 7) {
      const auto byte = static_cast<std::uint8_t>(message.at(at++));
      value |= std::uint64_t{byte & 0x7fu} << shift;
      if (byte < 0x80) return value;
    }
  };
  while (at < message.size()) {
    const std::size_t begin = at;
    const std::uint64_t key = number(), wire = key & 7;
    const std::uint64_t length = wire == 0 ? (number(), 0) : wire == 1 ? 8 : wire == 5 ? 4 : number();
    const std::string content = wire == 2 ? message.substr(at, length) : "";
    at += length;
    visit(static_cast<int>(key >> 3), message.substr(begin, at - begin), content);
  }
}

// Removes `input` from the model, and all nodes that depend on it. `output`, a ValueInfo, becomes the only output.
//   Shape nodes that read `input` are not removed, because an exporter can take the batch size from any input. They now
// read `twin`, an input of the same shape.
inline std::string cut(const std::string &model, const std::string &input, const std::string &twin,
                       const std::string &output) {
  std::set<std::string> gone = {input};
  const auto node_of = [&](const std::string &content, const std::string &whole) {
    std::vector<std::string> read, made;
    std::string rest;
    bool shape = false;
    each_field(content, [&](int number, const std::string &part, const std::string &text) {
      if (number == 1) read.push_back(text);
      if (number == 2) made.push_back(text);
      if (number == 4) shape = text == "Shape";
      if (number != 1) rest += part;
    });
    if (shape && read.front() == input) return field(1, field(1, twin) + rest);
    const bool drops = std::ranges::any_of(read, [&](const std::string &name) { return gone.contains(name); });
    if (drops) gone.insert(made.begin(), made.end());
    return drops ? std::string() : whole;
  };
  const auto name_of = [](const std::string &content) {
    std::string name;
    each_field(content, [&](int number, const std::string &, const std::string &text) {
      if (number == 1) name = text;
    });
    return name;
  };
  const auto graph = [&](const std::string &message) {
    std::string kept;
    each_field(message, [&](int number, const std::string &whole, const std::string &content) {
      if (number == 1)
        kept += node_of(content, whole);
      else if (number != 12 && (number != 11 || name_of(content) != input))
        kept += whole;
    });
    return kept + field(12, output);
  };
  std::string out;
  each_field(model, [&](int number, const std::string &whole, const std::string &content) {
    out += number == 7 ? field(7, graph(content)) : whole;
  });
  return out;
}

}  // namespace protrain::test
