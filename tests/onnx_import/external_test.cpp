// External data: the files that may be read, and every known way to point outside of the model's directory.
#include <sys/stat.h>

#include <atomic>
#include <cctype>
#include <set>
#include <span>
#include <thread>

#include "base/sha1.h"
#include "onnx_import/wire.h"

namespace protrain::onnx_import::external_test {
namespace {

namespace fs = std::filesystem;
using test::external;
using test::field;
using test::floats;
using test::kFloat;
using test::pair;
using test::raw;
using test::Scratch;
using test::tensor;
using test::Wire;

const std::vector<float> kValues{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};

std::string model(const std::string &data) {
  Wire wire;
  wire.initializers = {tensor("w", kFloat, {3, 4}, data)};
  return wire.bytes();
}
std::string entry(const std::string &key, const std::string &value) { return field(13, pair(key, value)); }
const std::string kIsExternal = field(14, 1);

class External : public testing::Test {
 protected:
  External() {
    fs::create_directories(scratch_ / "m/sub");
    scratch_.put("m/w", raw(kValues));
    scratch_.put("m/sub/w", raw(kValues));
    scratch_.put("secret", raw(kValues));
  }
  std::unique_ptr<Model> open(const std::string &data) {
    return Model::open(scratch_.put("m/model.onnx", model(data)));
  }
  // The error from opening the model or from loading its weight.
  Error error(const std::string &data) {
    const Error found = test::error_of([&] { open(data)->load("w"); });
    EXPECT_EQ(found.text.find("errno"), std::string::npos) << found.text;
    return found;
  }
  void expect_loads(const std::string &data) {
    EXPECT_EQ(open(data)->load("w").doubles(), std::vector<double>(kValues.begin(), kValues.end()));
  }

  Scratch scratch_;
};

TEST_F(External, DataBesideTheModelIsRead) {
  for (const char *location : {"w", "./w", "sub/w", "sub//w", "sub/./w"}) expect_loads(external(location, "0", "48"));
  expect_loads(entry("location", "w") + kIsExternal);
  expect_loads(external("w", "0", "48") + entry("__class__", "x") + entry("basepath", "/etc"));
}

TEST_F(External, FilesAreListedEvenIfTheyAreMissing) {
  Wire wire;
  wire.nodes.push_back(test::node("Constant", {}, {"c"},
                                  {test::tensor_attribute("value", tensor("", kFloat, {1}, external("c", "0", "4")))}));
  wire.initializers = {tensor("w", kFloat, {3, 4}, external("sub/./w", "0", "48"))};
  const auto model = Model::open(scratch_.put("m/model.onnx", wire.bytes()));
  EXPECT_EQ(model->files(), (std::set<std::string>{scratch_ / "m/c", scratch_ / "m/model.onnx", scratch_ / "m/sub/w"}));
}

TEST_F(External, OffsetsNeedNoAlignment) {
  scratch_.put("m/w", "x" + raw(kValues) + "tail");
  expect_loads(external("w", "1", "48"));
}

TEST_F(External, LocationsThatLeadOutAreRefusedAsText) {
  for (const char *location :
       {"../secret", "a/../../secret", "./../secret", "a/b/../../../secret", "sub/../w", "sub/..", "/etc/passwd", "//x",
        "~", "~/x", "C:\\x", "c:x", "\\\\host\\x", "..\\x", "file:///etc/passwd", "http://x/y", "*/_ORT_MEM_ADDR_/*",
        "*/_ORT_NATIVE_ENDIAN_MEM_ADDR_/*"}) {
    const Error found = error(external(location, "0", "48"));
    EXPECT_EQ(found.code, Code::path) << location;
    EXPECT_EQ(found.subject, "w");
  }
  EXPECT_NE(error(external("../secret", "0", "48")).text.find("escapes model directory"), std::string::npos);
  EXPECT_NE(error(external("*/_ORT_MEM_ADDR_/*", "4096", "48")).text.find("unknown marker"), std::string::npos);
}

TEST_F(External, LocationsThatNameNothingAreMalformed) {
  for (const std::string &location : {std::string(), std::string("."), std::string(".."), std::string("./."),
                                      std::string("w\0x", 3), std::string("w\n"), std::string(5000, 'w')})
    EXPECT_EQ(error(external(location, "0", "48")).code, Code::format) << location.size();
  EXPECT_EQ(error(entry("offset", "0") + kIsExternal).code, Code::format);
  EXPECT_EQ(error(external("w", "0", "48") + entry("location", "w")).code, Code::format);
  EXPECT_EQ(error(external("w", "0", "48") + entry("length", "48")).code, Code::format);
}

TEST_F(External, LinksMayNotLeadOut) {
  fs::create_symlink("../secret", scratch_ / "m/out");
  fs::create_symlink("..", scratch_ / "m/up");
  fs::create_symlink("nowhere", scratch_ / "m/dangling");
  fs::create_symlink("loop", scratch_ / "m/loop");
  for (const char *location : {"out", "up/secret", "dangling", "loop"}) {
    const Error found = error(external(location, "0", "48"));
    EXPECT_EQ(found.code, Code::path) << location << ": " << found.text;
  }
  fs::create_symlink("sub/w", scratch_ / "m/inside");
  expect_loads(external("inside", "0", "48"));
}

TEST_F(External, DownloadCachesThatLinkBothFilesToOnePlaceWork) {
  fs::create_directories(scratch_ / "blobs");
  fs::create_directories(scratch_ / "snapshots/1");
  scratch_.put("blobs/aa", model(external("weights.bin", "0", "48")));
  scratch_.put("blobs/bb", raw(kValues));
  fs::create_symlink("../../blobs/aa", scratch_ / "snapshots/1/model.onnx");
  fs::create_symlink("../../blobs/bb", scratch_ / "snapshots/1/weights.bin");
  const auto opened = Model::open(scratch_ / "snapshots/1/model.onnx");
  EXPECT_EQ(opened->load("w").doubles()[11], 12);
}

// Reads parts of a tensor in an external file, of a small tensor in the model file, and of a tensor in the model file
// that is too large to be loaded when the model is opened.
TEST_F(External, PartsOfWeightsAreReadByThemselves) {
  std::vector<float> many(70'000);
  for (std::size_t i = 0; i < many.size(); ++i) many[i] = static_cast<float>(i);
  for (const auto &[data, values] :
       std::vector<std::pair<std::string, std::vector<float>>>{{external("w", "0", "48"), kValues},
                                                               {test::raw_data(raw(kValues)), kValues},
                                                               {field(4, raw(kValues)), kValues}}) {
    std::vector<float> part(5);
    const auto opened = open(data);
    opened->read("w", 3 * sizeof(float), std::as_writable_bytes(std::span(part)));
    EXPECT_EQ(part, std::vector<float>(values.begin() + 3, values.begin() + 8));
    EXPECT_EQ(test::error_of([&] { opened->read("w", 40, std::as_writable_bytes(std::span(part))); }).code,
              Code::internal);
  }
  Wire wire;
  wire.initializers = {tensor("w", kFloat, {70'000}, test::raw_data(raw(many)))};
  std::vector<float> part(20'000);
  Model::open(scratch_.put("m/large.onnx", wire.bytes()))
      ->read("w", 50'000 * sizeof(float), std::as_writable_bytes(std::span(part)));
  EXPECT_EQ(part, std::vector<float>(many.begin() + 50'000, many.end()));
}

// A model in memory reads external data only from the directory that is given with the bytes.
TEST_F(External, ModelInMemoryReadsOnlyTheDirectoryItIsGiven) {
  const auto from = [&](const std::string &data, const std::string &directory) {
    const std::string bytes = model(data);
    const auto *begin = reinterpret_cast<const std::byte *>(bytes.data());
    return Model::open({std::make_shared<const std::vector<std::byte>>(begin, begin + bytes.size()), directory});
  };
  const std::vector<double> expected(kValues.begin(), kValues.end());
  EXPECT_EQ(from(external("w", "0", "48"), scratch_ / "m")->load("w").doubles(), expected);
  EXPECT_EQ(from(test::raw_data(raw(kValues)), "")->load("w").doubles(), expected);
  const auto refused = [&](const std::string &data, const std::string &directory) {
    const Error found = test::error_of([&] { from(data, directory)->load("w"); });
    EXPECT_EQ(found.subject, "w");
    return found.code;
  };
  EXPECT_EQ(refused(external("w", "0", "48"), ""), Code::path);
  EXPECT_EQ(refused(external("../w", "0", "48"), ""), Code::path);
  EXPECT_EQ(refused(external("../secret", "0", "48"), scratch_ / "m"), Code::path);
  fs::create_symlink("../secret", scratch_ / "m/out");
  EXPECT_EQ(refused(external("out", "0", "48"), scratch_ / "m"), Code::path);
  EXPECT_EQ(test::error_of([&] { from(external("none", "0", "48"), scratch_ / "m")->load("w"); }).code, Code::io);
}

TEST_F(External, ModelInMemoryIsWrittenOut) {
  const std::string bytes = model(external("w", "0", "48"));
  const auto *begin = reinterpret_cast<const std::byte *>(bytes.data());
  const auto opened =
      Model::open({std::make_shared<const std::vector<std::byte>>(begin, begin + bytes.size()), scratch_ / "m"});
  const auto none = [](const std::string &, std::byte *) { return false; };
  opened->save(scratch_ / "out.onnx", none);
  EXPECT_EQ(Model::open(scratch_ / "out.onnx")->load("w").doubles(),
            std::vector<double>(kValues.begin(), kValues.end()));
  EXPECT_EQ(test::error_of([&] { opened->save(scratch_ / "m/w", none); }).code, Code::path);
}

TEST_F(External, LinkPutThereAfterOpeningIsNotFollowed) {
  const auto opened = open(external("w", "0", "48"));
  fs::remove(scratch_ / "m/w");
  fs::create_symlink("../secret", scratch_ / "m/w");
  EXPECT_EQ(test::error_of([&] { opened->load("w"); }).code, Code::path);
}

TEST_F(External, OnlyRegularFilesOtherThanTheModel) {
  ASSERT_EQ(::mkfifo((scratch_ / "m/fifo").c_str(), 0600), 0);
  for (const char *location : {"fifo", "sub", "model.onnx"})
    EXPECT_EQ(error(external(location, "0", "48")).code, Code::path) << location;
  fs::create_hard_link(scratch_ / "secret", scratch_ / "m/hard");  // a hard link looks like any other file
  expect_loads(external("hard", "0", "48"));
}

TEST_F(External, NumbersArePlainDecimals) {
  for (const char *number : {"-1", "1e9", "0x10", " 5", "5 ", "+5", "99999999999999999999", ""}) {
    const Error offset = error(external("w", number, "48"));
    EXPECT_EQ(offset.code, Code::format) << number;
    EXPECT_NE(offset.text.find("offset"), std::string::npos) << offset.text;
    EXPECT_EQ(error(external("w", "0", number)).code, Code::format) << number;
  }
}

TEST_F(External, ChecksumsAreCompared) {
  const auto with = [](const std::string &sum) { return external("w", "0", "48") + entry("checksum", sum); };
  Sha1 sha1;
  sha1.add(std::as_bytes(std::span(kValues)));
  std::string sum = sha1.hex();
  expect_loads(with(sum));
  for (char &c : sum) c = static_cast<char>(std::toupper(c));
  expect_loads(with(sum));
  sum[7] = sum[7] == '0' ? '1' : '0';
  const Error wrong = error(with(sum));
  EXPECT_EQ(wrong.code, Code::corrupt);
  EXPECT_EQ(wrong.subject, "w");
  EXPECT_NE(wrong.text.find("SHA-1 of w"), std::string::npos) << wrong.text;
  for (const char *none : {"", "abc", "zz01f5e0d2dc1a5ae04bd8e4bbaef1e0a3a22a0a"})
    EXPECT_EQ(error(with(none)).code, Code::format) << none;
  fs::resize_file(scratch_ / "m/w", std::uint64_t{1} << 40);  // sparse, and too large to be read for its checksum
  std::vector<std::byte> out(48);
  EXPECT_EQ(test::error_of([&] { open(with(sum))->read("w", 0, out); }).code, Code::limit);
}

// Another thread keeps replacing the file by a link to a secret file, and then the link by the file again. Each load
// must read the file or fail.
TEST_F(External, SwappedLinksAreNeverFollowed) {
  scratch_.put("secret", raw(std::vector<float>(12, -1)));
  fs::create_symlink("../secret", scratch_ / "m/link");
  const std::string path = scratch_.put("m/model.onnx", model(external("w", "0", "48")));
  std::atomic<bool> done = false;
  std::thread swapping([&] {
    while (!done) {
      fs::create_symlink("../secret", scratch_ / "m/new");
      fs::rename(scratch_ / "m/new", scratch_ / "m/w");
      scratch_.put("m/new", raw(kValues));
      fs::rename(scratch_ / "m/new", scratch_ / "m/w");
    }
  });
  int read = 0, refused = 0;
  for (int i = 0; i < 100'000 && (read < 50 || refused < 50); ++i) {
    try {
      EXPECT_EQ(Model::open(path)->load("w").doubles()[0], 1);
      ++read;
    } catch (const Error &error) {
      EXPECT_TRUE(error.code == Code::path || error.code == Code::io) << error.text;
      ++refused;
    }
  }
  done = true;
  swapping.join();
  EXPECT_GT(read, 0);
}

TEST_F(External, FilesThatShrinkAreAnError) {
  const auto opened = open(external("w", "0", "48"));
  fs::resize_file(scratch_ / "m/w", 47);
  EXPECT_EQ(test::error_of([&] { opened->load("w"); }).code, Code::shape);
}

// The declared data exists, as a sparse file of terabytes. A constant of that size must not be loaded.
TEST_F(External, HugeConstantsAreNotLoaded) {
  const std::int64_t elements = std::int64_t{1} << 40;
  std::ofstream(scratch_ / "m/huge").close();
  fs::resize_file(scratch_ / "m/huge", std::uint64_t{1} << 43);
  Wire wire;
  wire.initializers.push_back(tensor("i", test::kInt64, {elements}, entry("location", "huge") + kIsExternal));
  wire.nodes.push_back(test::node("Reshape", {"x", "i"}, {"r"}));
  const auto opened = Model::open(scratch_.put("m/model.onnx", wire.bytes()));
  const Error found = test::error_of([&] { opened->graph({}); });
  EXPECT_EQ(found.code, Code::limit);
  EXPECT_EQ(found.subject, scratch_ / "m/model.onnx");
}

// Many constants share one file. Each is below the limit, so the library must add up their sizes.
TEST_F(External, ConstantsThatShareAFileAreCountedEach) {
  fs::resize_file(scratch_ / "m/w", 60 << 20);
  Wire wire;
  for (int i = 0; i < 20'000; ++i) {
    const std::string name = "i" + std::to_string(i);
    wire.initializers.push_back(tensor(name, test::kInt64, {60 << 17}, entry("location", "w") + kIsExternal));
    wire.nodes.push_back(test::node("Neg", {name}, {"n" + std::to_string(i)}));
  }
  const auto opened = Model::open(scratch_.put("m/model.onnx", wire.bytes()));
  const Error found = test::error_of([&] { opened->graph({}); });
  EXPECT_EQ(found.code, Code::limit) << found.text;
}

TEST_F(External, AttributesHoldSmallTensors) {
  fs::resize_file(scratch_ / "m/w", 4096);
  Wire wire;
  wire.nodes.push_back(
      test::node("Odd", {"x"}, {"z"},
                 {test::tensor_attribute("value", tensor("", kFloat, {1024}, entry("location", "w") + kIsExternal))}));
  const Error found = test::error_of([&] { Model::open(scratch_.put("m/model.onnx", wire.bytes())); });
  EXPECT_EQ(found.code, Code::limit) << found.text;
  EXPECT_EQ(found.subject, "make_z.value");
}

TEST_F(External, ManyFilesAreTooMany) {
  Wire wire;
  for (int i = 0; i < 66'000; ++i)
    wire.initializers.push_back(
        tensor("t" + std::to_string(i), kFloat, {1}, entry("location", "f" + std::to_string(i)) + kIsExternal));
  EXPECT_EQ(test::error_of([&] { Model::open(scratch_.put("m/model.onnx", wire.bytes())); }).code, Code::limit);
}

TEST_F(External, RangesLieInsideTheFile) {
  for (const char *offset : {"1", "48", "49", "9223372036854775807"}) {
    const Error found = error(external("w", offset, "48"));
    EXPECT_EQ(found.code, Code::shape) << offset;
    EXPECT_NE(found.text.find("external data range"), std::string::npos) << found.text;
  }
  for (const char *length : {"0", "47", "49", "9223372036854775807"})
    EXPECT_EQ(error(external("w", "0", length)).code, Code::shape) << length;
  scratch_.put("m/w", raw(kValues) + "tail");  // without a length, the tensor must fill the rest of the file
  EXPECT_EQ(error(entry("location", "w") + kIsExternal).code, Code::shape);
}

TEST_F(External, RangesMayBeSharedButNotPartly) {
  scratch_.put("m/w", raw(kValues) + raw(kValues));
  Wire wire;
  const auto both = [&](const char *offset) {
    wire.initializers = {tensor("w", kFloat, {3, 4}, external("w", "0", "48")),
                         tensor("v", kFloat, {3, 4}, external("w", offset, "48"))};
    return Model::open(scratch_.put("m/model.onnx", wire.bytes()));
  };
  both("0");
  both("48");
  const Error found = test::error_of([&] { both("44"); });
  EXPECT_EQ(found.code, Code::format);
  EXPECT_EQ(found.subject, "v");
}

TEST_F(External, InlineAndExternalDataExcludeEachOther) {
  EXPECT_EQ(error(external("w", "0", "48") + test::raw_data(raw(kValues))).code, Code::format);
  EXPECT_EQ(error(external("w", "0", "48") + field(14, 0)).code, Code::format);
  EXPECT_EQ(error(external("w", "0", "48") + field(14, 7)).code, Code::format);
}

TEST_F(External, ModelWithoutItsDataOpensAndSaysSoWhenRead) {
  const auto opened = open(external("none", "0", "48"));
  EXPECT_EQ(opened->graph({}).node_count(), 1u);
  EXPECT_EQ(test::error_of([&] { opened->load("w"); }).code, Code::io);
  const auto huge = Model::open(scratch_.put("m/model.onnx", [] {
    Wire wire;
    wire.initializers = {tensor("w", kFloat, {std::int64_t{1} << 50}, entry("location", "none") + kIsExternal)};
    return wire.bytes();
  }()));
  EXPECT_EQ(test::error_of([&] { huge->load("w"); }).code, Code::io);
}

TEST_F(External, DataOfConstantNodesIsCheckedLikewise) {
  const auto constant = [&](const std::string &data) {
    Wire wire;
    wire.nodes.push_back(
        test::node("Constant", {}, {"c"}, {test::tensor_attribute("value", tensor("", kFloat, {3, 4}, data))}));
    return Model::open(scratch_.put("m/model.onnx", wire.bytes()));
  };
  const graph::Graph found = constant(external("w", "0", "48"))->graph({});
  EXPECT_EQ(found.value(found.find("c")).array.doubles()[11], 12);
  const Error out = test::error_of([&] { constant(external("../secret", "0", "48")); });
  EXPECT_EQ(out.code, Code::path);
  EXPECT_EQ(out.subject, "make_c");
}

}  // namespace
}  // namespace protrain::onnx_import::external_test
