// A small checkpoint with known bytes, in a directory that is removed with the test.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <thread>

#include "errors.h"
#include "state/checkpoint.h"

namespace protrain::state {

namespace fs = std::filesystem;

// Byte `at` of an array in the checkpoint of step `step`.
inline std::byte byte_of(std::uint64_t step, std::size_t parameter, std::size_t array, std::uint64_t at) {
  std::uint64_t mixed =
      (step + 1) * 0x9E3779B97F4A7C15u + parameter * 0xC2B2AE3D27D4EB4Fu + array * 0x165667B19E3779F9u;
  mixed += at / 8 * 0x27D4EB2F165667C5u;
  return static_cast<std::byte>((mixed ^ mixed >> 29) >> at % 8 * 8);
}

inline std::vector<SavedArray> moments(std::uint64_t elements) {
  return {{.name = "moment1", .elements = elements}, {.name = "moment2", .elements = elements}};
}

inline void reshape(Parameter &parameter, const Shape &shape) {
  parameter.shape = shape;
  parameter.arrays = moments(static_cast<std::uint64_t>(element_count(shape)));
}

// Returns the description of a checkpoint after `step` steps. The optimizer has two arrays for the parameter "coded":
// one with a byte for each element, and one with a float32 scale for each block of 16 elements.
inline Description small(std::uint64_t step) {
  return {.optimizer = "adamw",
          .counters = {{kStep, step}, {"seed", ~0ull}},
          .parameters = {
              {.name = "wte", .shape = {16, 3}, .arrays = moments(48)},
              {.name = "frozen/bias", .shape = {7}, .arrays = {}},
              {.name = "empty", .shape = {0, 4}, .arrays = moments(0)},
              {.name = "coded",
               .shape = {9, 11},
               .arrays = {{.name = "scale", .elements = 7}, {.name = "code", .dtype = DType::u8, .elements = 99}}},
              {.name = "sca\"la\n", .shape = {}, .arrays = moments(1)}}};
}

// type_of() and elements_of() describe an array of a parameter. Array 0 is the weights.
inline DType type_of(const Parameter &parameter, std::size_t array) {
  return array == 0 ? DType::f32 : parameter.arrays[array - 1].dtype;
}
inline std::uint64_t elements_of(const Parameter &parameter, std::size_t array) {
  return array == 0 ? static_cast<std::uint64_t>(element_count(parameter.shape)) : parameter.arrays[array - 1].elements;
}

inline Read reader(std::uint64_t step) {
  return [step](std::size_t parameter, std::size_t array, std::uint64_t offset, std::span<std::byte> out) {
    for (std::size_t i = 0; i < out.size(); ++i) out[i] = byte_of(step, parameter, array, offset + i);
  };
}

// Part `number` of `count`. The elements are cut unevenly, and small parameters have none in some parts.
inline Part part_of(const Description &description, std::size_t number, std::size_t count) {
  Part part{.number = number, .count = count, .elements = {}};
  for (const Parameter &parameter : description.parameters) {
    part.elements.emplace_back();
    for (std::size_t a = 0; a <= parameter.arrays.size(); ++a) {
      const std::uint64_t all = elements_of(parameter, a);
      part.elements.back().push_back(all * (number + 1) / count - all * number / count);
    }
  }
  return part;
}

// Returns a function from which a save reads the bytes of one part.
inline Read reader(std::uint64_t step, const Description &description, const Part &part) {
  std::map<std::pair<std::size_t, std::size_t>, std::uint64_t> first;  // bytes
  for (std::size_t n = 0; n < part.number; ++n) {
    const Part before = part_of(description, n, part.count);
    for (std::size_t p = 0; p < before.elements.size(); ++p)
      for (std::size_t a = 0; a < before.elements[p].size(); ++a)
        first[{p, a}] += before.elements[p][a] * size_of(type_of(description.parameters[p], a));
  }
  return
      [step, first](std::size_t parameter, std::size_t array, std::uint64_t offset, std::span<std::byte> out) mutable {
        reader(step)(parameter, array, first[{parameter, array}] + offset, out);
      };
}

// Saves in `count` parts, each written by a thread of its own.
inline std::string save_in_parts(const std::string &directory, const Description &description, std::size_t count) {
  const std::uint64_t step = description.counters.at(kStep);
  Saving saving(directory, step);
  std::vector<std::string> texts(count);
  std::vector<std::thread> threads;
  for (std::size_t n = 0; n < count; ++n)
    threads.emplace_back([&, n] {
      const Part part = part_of(description, n, count);
      texts[n] = save_part(saving.folder(), description, part, reader(step, description, part));
    });
  for (std::thread &thread : threads) thread.join();
  return saving.finish(description, texts);
}

// Receives loaded bytes and counts them. The test fails if a byte differs from the checkpoint of `step`.
class Comparison {
 public:
  explicit Comparison(std::uint64_t step) : step_(step) {}
  void operator()(std::size_t parameter, std::size_t array, std::uint64_t offset, std::span<const std::byte> bytes) {
    for (std::size_t i = 0; i < bytes.size(); ++i)
      ASSERT_EQ(bytes[i], byte_of(step_, parameter, array, offset + i)) << parameter << " " << array << " " << i;
    seen += bytes.size();
  }
  std::uint64_t seen = 0;

 private:
  std::uint64_t step_;
};

inline std::uint64_t bytes_in(const Description &description) {
  std::uint64_t bytes = 0;
  for (const Parameter &parameter : description.parameters)
    for (std::size_t a = 0; a <= parameter.arrays.size(); ++a)
      bytes += elements_of(parameter, a) * size_of(type_of(parameter, a));
  return bytes;
}

// Opens and loads a checkpoint, and compares all bytes with those of its step. Returns the step.
inline std::uint64_t load_all(const std::string &path, const Description &wanted) {
  const Checkpoint checkpoint = Checkpoint::open(path);
  const std::uint64_t step = checkpoint.description().counters.at(kStep);
  Comparison comparison(step);
  checkpoint.load(wanted, std::ref(comparison));
  EXPECT_EQ(comparison.seen, bytes_in(wanted));
  return step;
}
inline std::uint64_t load_all(const std::string &path) { return load_all(path, small(0)); }

using test::error_of;

inline std::string get(const std::string &path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream bytes;
  bytes << file.rdbuf();
  return bytes.str();
}

inline void put(const std::string &path, const std::string &bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}

class SavedCheckpoint : public testing::Test {
 protected:
  SavedCheckpoint() {
    std::string pattern = testing::TempDir() + "/state-XXXXXX";
    directory_ = fs::canonical(mkdtemp(pattern.data())).string();
  }
  ~SavedCheckpoint() override { fs::remove_all(directory_); }

  std::string save_step(std::uint64_t step) const { return save(directory_, small(step), reader(step)); }
  std::size_t entries() const {
    return static_cast<std::size_t>(std::distance(fs::directory_iterator(directory_), fs::directory_iterator()));
  }

  std::string directory_;
};

}  // namespace protrain::state
