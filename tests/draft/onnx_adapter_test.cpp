// ONNX Runtime's files of adapters. fixtures/adapters/runtime.onnx_adapter is one that it wrote itself.
#include "draft/onnx_adapter.h"

#include <gtest/gtest.h>

#include <cstring>
#include <functional>

#include "errors.h"
#include "fixtures.h"
#include "scratch.h"

namespace protrain::draft::onnx_adapter_test {
namespace {

using test::error_of;

std::vector<state::Tensor> tensors_of(const std::string &path) { return tensors_of_onnx_adapter(File::open(path)); }

const state::Tensor &named(const std::vector<state::Tensor> &tensors, std::string_view end) {
  return *std::ranges::find_if(tensors, [&](const state::Tensor &tensor) { return tensor.name.ends_with(end); });
}

TEST(OnnxAdapter, OfOnnxRuntimeIsRead) {
  const std::string path = test::fixture("adapters/runtime.onnx_adapter");
  const auto tensors = tensors_of(path);
  ASSERT_EQ(tensors.size(), 2u);
  const state::Tensor &a = named(tensors, "c_fc.lora_A.weight"), &b = named(tensors, "c_fc.lora_B.weight");
  EXPECT_EQ(a.shape, Shape({2, 64}));
  EXPECT_EQ(a.dtype, DType::f32);
  EXPECT_EQ(b.shape, Shape({256, 2}));
  EXPECT_EQ(b.dtype, DType::f16);
  float values[3];
  File::open(path).read(a.begin, std::as_writable_bytes(std::span(values)));
  EXPECT_EQ(values[2], 2.0f / 64);
}

std::string written(const test::Scratch &scratch) {
  const std::vector<state::Tensor> tensors = {{.name = "one.lora_A.weight", .shape = {1, 3}},
                                              {.name = "o.lora_B.weight", .shape = {2, 1}, .dtype = DType::bf16},
                                              {.name = "double", .shape = {2}, .dtype = DType::f64},
                                              {.name = "empty", .shape = {0, 5}, .dtype = DType::f16}};
  write_onnx_adapter(scratch / "a.onnx_adapter", tensors, [&](std::size_t i) {
    return std::vector<std::byte>(*state::tensor_bytes(tensors[i].shape, tensors[i].dtype),
                                  static_cast<std::byte>(i + 1));
  });
  return scratch / "a.onnx_adapter";
}

TEST(OnnxAdapter, IsReadAsItWasWritten) {
  const test::Scratch scratch;
  const std::string path = written(scratch);
  const auto tensors = tensors_of(path);
  ASSERT_EQ(tensors.size(), 4u);
  EXPECT_EQ(tensors[0].name, "one.lora_A.weight");
  EXPECT_EQ(tensors[1].shape, Shape({2, 1}));
  EXPECT_EQ(tensors[1].dtype, DType::bf16);
  EXPECT_EQ(tensors[2].dtype, DType::f64);
  EXPECT_EQ(tensors[3].shape, Shape({0, 5}));
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(tensors[i].begin % 8, 0u);
    std::vector<std::byte> bytes(tensors[i].end - tensors[i].begin);
    File::open(path).read(tensors[i].begin, bytes);
    EXPECT_TRUE(std::ranges::all_of(bytes, [&](std::byte b) { return b == static_cast<std::byte>(i + 1); }));
  }
}

// A hostile file of few bytes may list one tensor a million times, or many tensors whose long names share their bytes.
// Both must be refused.
TEST(OnnxAdapter, HasEachTensorOnceWithANameOfItsOwn) {
  const test::Scratch scratch;
  const auto error_of_two = [&](const std::function<void(std::string &)> &change) {
    const std::vector<state::Tensor> tensors = {{.name = "first", .shape = {1}},
                                                {.name = std::string(5000, 'b'), .shape = {1}}};
    write_onnx_adapter(scratch / "two.onnx_adapter", tensors, [](std::size_t) { return std::vector<std::byte>(4); });
    std::string bytes = scratch.get("two.onnx_adapter");
    change(bytes);
    return error_of([&] { tensors_of(scratch.put("two.onnx_adapter", bytes)); });
  };
  const auto word_at = [](std::string &bytes, std::size_t at) {
    std::uint32_t word = 0;
    std::memcpy(&word, &bytes[at], sizeof word);
    return word;
  };
  EXPECT_EQ(error_of_two([](std::string &) {}).code, Code::ok);

  const std::size_t list = 8 + 12 + 5 * 4 + 4;  // two words begin here: the distances to the tensors' tables
  const Error repeated = error_of_two([&](std::string &bytes) {
    const std::uint32_t again = word_at(bytes, list) - 4;
    std::memcpy(&bytes[list + 4], &again, sizeof again);
  });
  EXPECT_EQ(repeated.code, Code::format);
  EXPECT_NE(repeated.text.find("two tensors of the name first"), std::string::npos) << repeated.text;

  const Error shared = error_of_two([&](std::string &bytes) {
    const std::size_t name = bytes.find("bbb") + 1;  // a name that begins inside the second one
    const std::uint32_t length = 4900;
    std::memcpy(&bytes[name], &length, sizeof length);
    const std::size_t field = list + word_at(bytes, list) + 4;
    const auto distance = static_cast<std::uint32_t>(name - field);
    std::memcpy(&bytes[field], &distance, sizeof distance);
  });
  EXPECT_EQ(shared.code, Code::format);
  EXPECT_NE(shared.text.find("share their bytes"), std::string::npos) << shared.text;
}

TEST(OnnxAdapter, IsReadWholeOrRefused) {
  const test::Scratch scratch;
  written(scratch);
  const std::string whole = scratch.get("a.onnx_adapter");
  for (std::size_t bytes = 0; bytes < whole.size(); ++bytes) {
    const Error error = error_of([&] { tensors_of(scratch.put("cut", whole.substr(0, bytes))); });
    EXPECT_EQ(error.code, Code::format) << bytes << error.text;
  }
}

// Overwrites four bytes at each even offset with extreme values. The reader must refuse the file, or find only tensors
// that end inside it.
TEST(OnnxAdapter, SurvivesAnyChangeOfAWord) {
  const test::Scratch scratch;
  written(scratch);
  const std::string whole = scratch.get("a.onnx_adapter");
  std::size_t refused = 0;
  for (std::size_t at = 0; at + 4 <= whole.size(); at += 2)
    for (const std::uint32_t word : {0u, 1u, 0x7fffffffu, 0x80000000u, 0xffffffffu}) {
      std::string changed = whole;
      std::memcpy(&changed[at], &word, sizeof word);
      try {
        for (const state::Tensor &tensor : tensors_of(scratch.put("changed", changed)))
          EXPECT_LE(tensor.end, changed.size());
      } catch (const Error &) {
        ++refused;
      }
    }
  EXPECT_GT(refused, 100u);
}

}  // namespace
}  // namespace protrain::draft::onnx_adapter_test
