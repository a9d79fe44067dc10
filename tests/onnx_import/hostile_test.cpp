// Malformed and malicious model files. Each must be refused with its code, and the message must name the fault.
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "onnx_import/hostile_cases.h"

namespace protrain::onnx_import::hostile_test {
namespace {

using test::HostileFile;
using test::kFloat;
using test::node;
using test::raw_data;
using test::Scratch;
using test::tensor;
using test::value;
using test::Wire;

class Hostile : public testing::TestWithParam<HostileFile> {};

TEST_P(Hostile, IsRefusedByName) {
  const Scratch scratch;
  const Error error = test::error_of([&] { test::open_bytes(scratch, GetParam().bytes()); });
  EXPECT_EQ(static_cast<int>(error.code), static_cast<int>(GetParam().code)) << error.text;
  EXPECT_NE(error.text.find(GetParam().text), std::string::npos) << error.text;
  EXPECT_EQ(error.subject, GetParam().subject != nullptr ? GetParam().subject : scratch / "model.onnx");
  EXPECT_LT(error.text.size(), 600u);
}

const auto kCaseName = [](const testing::TestParamInfo<HostileFile> &info) { return std::string(info.param.name); };
INSTANTIATE_TEST_SUITE_P(Format, Hostile, testing::ValuesIn(test::format_cases()), kCaseName);
INSTANTIATE_TEST_SUITE_P(Limit, Hostile, testing::ValuesIn(test::limit_cases()), kCaseName);
INSTANTIATE_TEST_SUITE_P(Version, Hostile, testing::ValuesIn(test::version_cases()), kCaseName);
INSTANTIATE_TEST_SUITE_P(Tensor, Hostile, testing::ValuesIn(test::tensor_cases()), kCaseName);
INSTANTIATE_TEST_SUITE_P(Graph, Hostile, testing::ValuesIn(test::graph_cases()), kCaseName);

TEST(HostileFile, BeyondTwoGibibytesIsOverTheLimit) {
  const Scratch scratch;
  const std::string path = scratch.put("model.onnx", "");
  for (const std::uint64_t bytes : {0x7fffffffull, 0x80000000ull, 0x80000001ull, 3ull << 30}) {
    std::filesystem::resize_file(path, bytes);
    const Error error = test::error_of([&] { Model::open(path); });
    EXPECT_EQ(error.code, Code::limit);
    EXPECT_NE(error.text.find("use external data"), std::string::npos) << error.text;
  }
}

TEST(HostileFile, WhatIsNoFileIsNotOpened) {
  const Scratch scratch;
  ASSERT_EQ(::mkfifo((scratch / "fifo").c_str(), 0600), 0);
  const int bound = ::socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un address{.sun_family = AF_UNIX, .sun_path = {}};
  (scratch / "socket").copy(address.sun_path, sizeof address.sun_path - 1);
  ASSERT_EQ(::bind(bound, reinterpret_cast<const sockaddr *>(&address), sizeof address), 0);
  ::close(bound);
  for (const std::string &path :
       {scratch / "fifo", scratch / "socket", std::string("/dev/zero"), std::string("/proc/self/mem")})
    EXPECT_EQ(test::error_of([&] { Model::open(path); }).code, Code::path) << path;
  EXPECT_EQ(test::error_of([&] { Model::open(scratch / "none"); }).code, Code::io);
  EXPECT_EQ(test::error_of([&] { Model::open(scratch.path()); }).code, Code::io);
}

// The library reads files and does not map them, because access beyond the end of a mapped file would end the process.
TEST(HostileFile, ThatShrinksWhileItIsOpenIsAnError) {
  const Scratch scratch;
  const std::string bytes = test::weight(tensor("w", kFloat, {500}, raw_data(std::string(2000, '\0'))))();
  const auto model = test::open_bytes(scratch, bytes);
  std::filesystem::resize_file(scratch / "model.onnx", 1000);
  const Error error = test::error_of([&] { model->load("w"); });
  EXPECT_EQ(error.code, Code::io);
  EXPECT_EQ(error.subject, scratch / "model.onnx");
}

TEST(HostileFile, EmptyTensorsAreLegal) {
  const Scratch scratch;
  const auto model = test::open_bytes(scratch, test::weight(tensor("w", kFloat, {0, 4}, raw_data("")))());
  EXPECT_EQ(model->load("w").shape(), (Shape{0, 4}));
}

TEST(HostileFile, LongChainsOfNodesOpen) {
  const Scratch scratch;
  Wire wire;
  wire.nodes = {node("MatMul", {"x", "w"}, {"n0"})};
  for (int i = 0; i < 20'000; ++i)
    wire.nodes.insert(wire.nodes.end(), node("Neg", {"n" + std::to_string(i)}, {"n" + std::to_string(i + 1)}));
  wire.outputs = {value("n20000", kFloat, {"2", "4"})};
  EXPECT_EQ(test::open_bytes(scratch, wire.bytes())->graph({}).node_count(), 20'001u);
}

// Each weight of the branch has the name of one of the model's weights, so the branch's weight is renamed. Then the
// bodies inside the branch are searched for nodes that read a renamed weight. The time for this must not grow with the
// number of weights times the number of bodies.
TEST(HostileFile, ManyBodiesBesideManyWeightsOpen) {
  constexpr int kMany = 15'000;
  test::Names weights, nodes = {node("Neg", {"x"}, {"a"})};
  for (int i = 0; i < kMany; ++i) {
    weights.push_back(test::floats("w" + std::to_string(i), {2}, {1, 2}));
    nodes.push_back(node("If", {"c"}, {"d" + std::to_string(i)},
                         {test::body_attribute("then_branch", {}, {node("Neg", {"x"}, {"e"})}, {"e"}),
                          test::body_attribute("else_branch", {}, {node("Abs", {"x"}, {"e"})}, {"e"})}));
  }
  Wire wire;
  wire.inputs.push_back(value("c", test::kBool, {}));
  wire.initializers.insert(wire.initializers.end(), weights.begin(), weights.end());
  wire.nodes.push_back(node("If", {"c"}, {"z"},
                            {test::body_attribute("then_branch", {}, nodes, {"a"}, weights),
                             test::body_attribute("else_branch", {}, {node("Abs", {"x"}, {"b"})}, {"b"})}));
  const Scratch scratch;
  EXPECT_EQ(test::open_bytes(scratch, wire.bytes())->bodies().size(), 2u * kMany + 2);
}

}  // namespace
}  // namespace protrain::onnx_import::hostile_test
