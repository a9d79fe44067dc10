// The safetensors header. A header that the library writes can be read back. A header that contradicts its data is
// refused.
#include "state/tensor_file.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace protrain::state::tensor_file_test {
namespace {

Code refusal(const std::string &header, std::uint64_t data_bytes = 8) {
  try {
    parse_header(header, data_bytes, "file");
  } catch (const Error &error) {
    return error.code;
  }
  return Code::ok;
}

std::string tensor(const std::string &shape, const std::string &offsets) {
  return R"({"dtype":"F32","shape":)" + shape + R"(,"data_offsets":)" + offsets + "}";
}

TEST(TensorFile, HeaderIsReadBackAndPutsTheDataOnABoundary) {
  std::vector<Tensor> tensors;
  append_tensor(tensors, "a\"\n\xC3\xA9", {2, 3});
  append_tensor(tensors, "empty", {0});
  append_tensor(tensors, "scalar", {});
  const std::string text = header_of(tensors);
  EXPECT_EQ(text.size() % 64, 0u);
  EXPECT_EQ(header_length(text.substr(0, 8), text.size() + 28, "file"), text.size() - 8);
  EXPECT_EQ(parse_header(text.substr(8), 28, "file"), tensors);
}

TEST(TensorFile, HeadersOfOthersAreRead) {
  EXPECT_EQ(refusal(R"({"__metadata__":{"format":"pt"},"b":)" + tensor("[1]", "[4,8]") + R"(,"a":)" +
                    tensor("[1]", "[0,4]") + "}   "),
            Code::ok);
  EXPECT_EQ(refusal("{}", 0), Code::ok);
}

TEST(TensorFile, NarrowFloatsAreRead) {
  const std::string header = R"({"a":{"dtype":"BF16","shape":[2],"data_offsets":[0,4]},)"
                             R"("b":{"dtype":"F16","shape":[2],"data_offsets":[4,8]}})";
  const std::vector<Tensor> tensors = parse_header(header, 8, "file");
  ASSERT_EQ(tensors.size(), 2u);
  EXPECT_EQ(tensors[0].dtype, DType::bf16);
  EXPECT_EQ(tensors[1].dtype, DType::f16);
}

TEST(TensorFile, HeadersThatLieAreRefused) {
  const std::string a = R"({"a":)", b = R"(,"b":)";
  EXPECT_EQ(refusal(a + tensor("[2]", "[0,8]") + "}"), Code::ok);
  EXPECT_EQ(refusal(a + tensor("[3]", "[0,8]") + "}"), Code::format);
  EXPECT_EQ(refusal(a + tensor("[1]", "[4,8]") + "}"), Code::format);                               // a gap
  EXPECT_EQ(refusal(a + tensor("[1]", "[0,4]") + "}"), Code::format);                               // bytes are left
  EXPECT_EQ(refusal(a + tensor("[2]", "[0,8]") + b + tensor("[1]", "[4,8]") + "}"), Code::format);  // an overlap
  EXPECT_EQ(refusal(a + tensor("[2]", "[0,8]") + R"(,"a":)" + tensor("[0]", "[8,8]") + "}"), Code::format);  // twice
  EXPECT_EQ(refusal(a + tensor("[2]", "[8,0]") + "}"), Code::format);
  EXPECT_EQ(refusal(a + tensor("[-2]", "[0,8]") + "}"), Code::format);
  EXPECT_EQ(refusal(a + tensor("[2.0]", "[0,8]") + "}"), Code::format);
  EXPECT_EQ(refusal(a + tensor("[4611686018427387904,2]", "[0,8]") + "}"), Code::format);
  EXPECT_EQ(refusal(a + tensor("[9223372036854775808]", "[0,8]") + "}"), Code::format);
  EXPECT_EQ(refusal(a + tensor("2", "[0,8]") + "}"), Code::format);
  EXPECT_EQ(refusal(a + tensor("[2]", "[0]") + "}"), Code::format);
  EXPECT_EQ(refusal(a + R"({"dtype":"I32","shape":[2],"data_offsets":[0,8]}})"), Code::unsupported);
  EXPECT_EQ(refusal(a + R"({"shape":[2],"data_offsets":[0,8]}})"), Code::format);
  EXPECT_EQ(refusal(a + "7}"), Code::format);
  EXPECT_EQ(refusal(" {}", 0), Code::format);
  EXPECT_EQ(refusal("{", 0), Code::format);
  EXPECT_EQ(refusal("", 0), Code::format);
  EXPECT_EQ(refusal("{\"\xFF\":1}", 0), Code::format);
}

TEST(TensorFile, LengthsThatNoFileHasAreRefused) {
  const auto refusal = [](const std::string &bytes, std::uint64_t file_bytes) {
    try {
      header_length(bytes, file_bytes, "file");
    } catch (const Error &error) {
      return error.code;
    }
    return Code::ok;
  };
  EXPECT_EQ(refusal(std::string("\2\0\0\0\0\0\0\0", 8), 10), Code::ok);
  EXPECT_EQ(refusal(std::string("\2\0\0\0\0\0\0\0", 8), 9), Code::format);
  EXPECT_EQ(refusal("\2", 1), Code::format);
  EXPECT_EQ(refusal(std::string(8, '\xFF'), 1 << 20), Code::limit);
}

}  // namespace
}  // namespace protrain::state::tensor_file_test
