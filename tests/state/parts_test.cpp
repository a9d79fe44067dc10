// Checkpoints in several parts, as several ranks write them. A checkpoint is complete or absent, and damage in any part
// is found.
#include "sealed.h"
#include "small.h"

namespace protrain::state::parts_test {
namespace {

class Parts : public SavedCheckpoint {
 protected:
  std::string file(const std::string &name) const { return directory_ + "/step-0000000010/" + name; }
  // Loads the checkpoint and returns the error. A load that fails must not have passed on any bytes.
  Error refusal() const {
    std::size_t writes = 0;
    const Error error =
        error_of([&] { Checkpoint::open(directory_).load(small(10), [&](auto, auto, auto, auto) { ++writes; }); });
    EXPECT_TRUE(writes == 0 || error.code == Code::ok);
    return error;
  }
  // The error for a manifest in which `to` replaces `from`. The manifest's checksum is correct.
  Error refusal_of(const std::string &from, const std::string &to) const {
    const std::string whole = get(file("manifest.json"));
    std::string text = whole;
    EXPECT_NE(text.find(from), std::string::npos) << from;
    put(file("manifest.json"), test::sealed(text.replace(text.find(from), from.size(), to)));
    const Error error = refusal();
    put(file("manifest.json"), whole);
    return error;
  }
  // Writes a checkpoint in two parts, the second one as if its parameters were `other`. Returns the error of loading
  // it.
  Error refusal_with(const Description &other) const {
    Saving saving(directory_, 10);
    std::vector<std::string> texts;
    for (std::size_t n = 0; n < 2; ++n) {
      const Description &written = n == 1 ? other : small(10);
      const Part part = part_of(written, n, 2);
      texts.push_back(save_part(saving.folder(), written, part, reader(10, written, part)));
    }
    saving.finish(small(10), texts);
    return refusal();
  }
};

TEST_F(Parts, OfAnyNumberComeBack) {
  for (std::size_t count = 1; count <= 9; ++count) {
    EXPECT_EQ(save_in_parts(directory_, small(count), count), directory_ + fmt::format("/step-{:010}", count));
    EXPECT_EQ(load_all(directory_), count);
    EXPECT_EQ(Checkpoint::open(directory_).description().counters, small(count).counters);
  }
}

TEST_F(Parts, AreLargerThanBuffersAndPieces) {
  Description large = small(1);
  reshape(large.parameters[0], {3, 1'900'001});
  save_in_parts(directory_, large, 2);
  EXPECT_EQ(load_all(directory_, large), 1u);
}

TEST_F(Parts, TheOnlyOneHasTheBytesOfAPlainSave) {
  save_step(10);
  std::map<std::string, std::string> plain;
  for (const char *name : {"weights.safetensors", "optimizer.safetensors", "manifest.json"})
    plain[name] = get(file(name));
  save_in_parts(directory_, small(10), 1);
  for (const auto &[name, bytes] : plain) EXPECT_EQ(get(file(name)), bytes) << name;
}

TEST_F(Parts, OfAnotherNumberReplaceTheCheckpointOfTheSameStep) {
  for (const std::size_t count : {3, 1, 2}) {
    save_in_parts(directory_, small(10), count);
    EXPECT_EQ(entries(), 1u);
    EXPECT_EQ(load_all(directory_), 10u);
  }
}

TEST_F(Parts, WithoutOneOfThemThereIsNoCheckpoint) {
  save_step(1);
  {
    Saving saving(directory_, 2);
    std::vector<std::string> texts;
    for (std::size_t n = 0; n < 3; ++n) {
      const Part part = part_of(small(2), n, 3);
      texts.push_back(save_part(saving.folder(), small(2), part, reader(2, small(2), part)));
    }
    const std::string last = saving.folder() + "/optimizer-00003-of-00003.safetensors", bytes = get(last);
    put(last, bytes.substr(1));
    const Error cut = error_of([&] { saving.finish(small(2), texts); });
    EXPECT_EQ(cut.code, Code::io);
    EXPECT_EQ(cut.subject, last);
    fs::remove(last);
    const Error missing = error_of([&] { saving.finish(small(2), texts); });
    EXPECT_EQ(missing.code, Code::io);
    EXPECT_NE(missing.text.find("rank 2"), std::string::npos) << missing.text;
    EXPECT_EQ(load_all(directory_), 1u);
  }
  EXPECT_EQ(entries(), 1u);
  EXPECT_EQ(load_all(directory_), 1u);
}

TEST_F(Parts, AFolderThatIsNotHereIsNotSeen) {
  const Saving saving(directory_, 1);
  EXPECT_TRUE(sees(saving.folder()));
  EXPECT_FALSE(sees(saving.folder() + "x"));
  EXPECT_FALSE(sees(directory_ + "/none/" + fs::path(saving.folder()).filename().string()));
}

TEST_F(Parts, OneBitInAnyByteIsFoundAndSoIsAMissingByte) {
  save_in_parts(directory_, small(10), 2);
  for (const auto &entry : fs::directory_iterator(directory_ + "/step-0000000010")) {
    const std::string path = entry.path().string(), whole = get(path);
    for (std::size_t i = 0; i < whole.size(); ++i) {
      std::string bytes = whole;
      bytes[i] = static_cast<char>(bytes[i] ^ 1 << i % 8);
      put(path, bytes);
      const Error error = refusal();
      const bool manifest = path.ends_with(".json");
      ASSERT_TRUE(error.code == Code::corrupt || (error.code == Code::format && manifest)) << path << " byte " << i;
    }
    for (std::size_t bytes = 0; bytes < whole.size(); bytes += 7) {
      put(path, whole.substr(0, bytes));
      ASSERT_EQ(refusal().code, Code::corrupt) << path << " of " << bytes << " bytes";
    }
    fs::remove(path);
    if (!path.ends_with(".json")) {
      EXPECT_EQ(refusal().subject, path);
    }
    put(path, whole);
  }
  EXPECT_EQ(refusal().code, Code::ok);
}

TEST_F(Parts, AManifestThatSaysSomethingImpossibleIsRefused) {
  save_in_parts(directory_, small(10), 2);
  EXPECT_EQ(refusal_of("\"parts\": 2", "\"parts\": 1").code, Code::format);
  EXPECT_EQ(refusal_of("\"parts\": 2", "\"parts\": 0").code, Code::format);
  EXPECT_EQ(refusal_of("\"parts\": 2", "\"parts\": 3").code, Code::format);
  EXPECT_EQ(refusal_of("\"parts\": 2", "\"parts\": 401").code, Code::limit);
  EXPECT_EQ(refusal_of("\"parts\": 2", "\"parts\": \"2\"").code, Code::format);
  EXPECT_EQ(refusal_of("\"version\": 2", "\"version\": 1").code, Code::format);
  EXPECT_EQ(refusal_of("\"shapes\"", "\"sizes\"").code, Code::format);
  EXPECT_EQ(refusal_of("\"shapes\": {", "\"shapes\": [0], \"other\": {").code, Code::format);
  EXPECT_EQ(refusal_of("\"wte\"", "\"wpe\"").code, Code::format);
  EXPECT_EQ(refusal_of("\"wte\": [\n   16", "\"wte\": [\n   17").code, Code::format);
  EXPECT_EQ(refusal_of("\"wte\": [\n   16", "\"wte\": [\n   -1").code, Code::format);
  EXPECT_EQ(refusal_of("\"wte\": [\n   16", "\"wte\": [\n   9223372036854775807").code, Code::format);
  EXPECT_EQ(refusal_of("\"wte\": [\n   16", "\"wte\": [\n   4, 4").code, Code::mismatch);
  EXPECT_EQ(refusal_of("weights-00002-of-00002", "weights-00003-of-00002").code, Code::format);
}

TEST_F(Parts, ThatDoNotBelongTogetherAreRefused) {
  EXPECT_EQ(refusal_with(small(10)).code, Code::ok);
  Description other = small(10);
  other.parameters[0].shape = {15, 3};
  EXPECT_EQ(refusal_with(other).code, Code::format);
  other = small(10);
  other.parameters[0].name = "wpe";
  EXPECT_EQ(refusal_with(other).code, Code::format);
  other = small(10);
  other.parameters.pop_back();
  EXPECT_EQ(refusal_with(other).code, Code::format);
  other = small(10);
  other.parameters[0].arrays.pop_back();
  EXPECT_EQ(refusal_with(other).code, Code::format);
}

}  // namespace
}  // namespace protrain::state::parts_test
