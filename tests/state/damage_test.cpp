// Damaged files, files of other programs and files of another version must be refused, each with the right error code,
// before any byte is loaded.
#include "sealed.h"
#include "small.h"

namespace protrain::state::damage_test {
namespace {

class DamagedCheckpoint : public SavedCheckpoint {
 protected:
  DamagedCheckpoint() : path_(save_step(10)) {}

  std::string file(const std::string &name) const { return path_ + "/" + name; }
  std::string manifest() const { return get(file("manifest.json")); }
  // Loads the checkpoint and returns the error. A load that fails must not have passed on any bytes.
  Error refusal(const Description &wanted = small(10)) const {
    std::size_t writes = 0;
    const Error error =
        error_of([&] { Checkpoint::open(directory_).load(wanted, [&](auto, auto, auto, auto) { ++writes; }); });
    EXPECT_TRUE(writes == 0 || error.code == Code::ok);
    return error;
  }
  // The error for a manifest in which `to` replaces `from`. The manifest's checksum is correct.
  Error refusal_of(const std::string &from, const std::string &to) const {
    const std::string whole = manifest();
    std::string text = whole;
    EXPECT_NE(text.find(from), std::string::npos) << from;
    put(file("manifest.json"), test::sealed(text.replace(text.find(from), from.size(), to)));
    const Error error = refusal();
    put(file("manifest.json"), whole);
    return error;
  }

  std::string path_;
};

TEST_F(DamagedCheckpoint, OneBitInAnyByteIsFound) {
  for (const char *name : {"weights.safetensors", "optimizer.safetensors", "manifest.json"}) {
    const std::string whole = get(file(name));
    for (std::size_t i = 0; i < whole.size(); ++i) {
      std::string bytes = whole;
      bytes[i] = static_cast<char>(bytes[i] ^ 1 << i % 8);
      put(file(name), bytes);
      const Error error = refusal();
      ASSERT_TRUE(error.code == Code::corrupt || (error.code == Code::format && name[0] == 'm'))
          << name << " byte " << i << ": " << static_cast<int>(error.code) << " " << error.text;
    }
    put(file(name), whole);
  }
  EXPECT_EQ(refusal().code, Code::ok);
}

TEST_F(DamagedCheckpoint, AFileThatIsCutIsFound) {
  for (const char *name : {"weights.safetensors", "optimizer.safetensors", "manifest.json"}) {
    const std::string whole = get(file(name));
    for (std::size_t bytes = 0; bytes < whole.size(); ++bytes) {
      put(file(name), whole.substr(0, bytes));
      ASSERT_EQ(refusal().code, Code::corrupt) << name << " of " << bytes << " bytes";
    }
    put(file(name), whole + '\0');
    EXPECT_NE(refusal().code, Code::ok);
    put(file(name), whole);
  }
}

TEST_F(DamagedCheckpoint, AMissingFileIsNamed) {
  for (const char *name : {"weights.safetensors", "optimizer.safetensors"}) {
    fs::rename(file(name), directory_ + "/away");
    const Error error = refusal();
    EXPECT_EQ(error.code, Code::corrupt);
    EXPECT_EQ(error.subject, file(name));
    fs::rename(directory_ + "/away", file(name));
  }
  fs::remove(file("manifest.json"));
  EXPECT_EQ(refusal().code, Code::format);
}

TEST_F(DamagedCheckpoint, ALinkInPlaceOfAFileOrFolderIsNotFollowed) {
  fs::rename(file("weights.safetensors"), directory_ + "/away");
  fs::create_symlink(directory_ + "/away", file("weights.safetensors"));
  EXPECT_EQ(refusal().code, Code::path);
  fs::rename(path_, directory_ + "/real");
  fs::create_directory_symlink(directory_ + "/real", path_);
  EXPECT_EQ(refusal().code, Code::path);
}

TEST_F(DamagedCheckpoint, TheErrorNamesTheCheckpointBeforeIt) {
  save_step(9);
  put(file("weights.safetensors"), "");
  const Error error = refusal();
  EXPECT_EQ(error.code, Code::corrupt);
  EXPECT_NE(error.text.find("the checkpoint before it is " + directory_ + "/step-0000000009"), std::string::npos);
}

TEST_F(DamagedCheckpoint, FarFromTheHeaderItIsFoundAsWell) {
  Description large = small(11);
  reshape(large.parameters[0], {5'000'000});
  path_ = save(directory_, large, reader(11));
  std::string bytes = get(file("optimizer.safetensors"));
  bytes[33'000'000] = static_cast<char>(bytes[33'000'000] + 1);
  put(file("optimizer.safetensors"), bytes);
  const Error error = refusal(large);
  EXPECT_EQ(error.code, Code::corrupt);
  EXPECT_EQ(error.text, "bytes 16777216 to 33554432 do not match their checksum; the checkpoint before it is " +
                            directory_ + "/step-0000000010");
}

TEST_F(DamagedCheckpoint, WhatIsNoCheckpointIsSaidToBeNone) {
  EXPECT_EQ(error_of([&] { Checkpoint::open(directory_ + "/nothing"); }).code, Code::io);
  fs::create_directory(directory_ + "/empty");
  EXPECT_EQ(error_of([&] { Checkpoint::open(directory_ + "/empty"); }).code, Code::format);
  EXPECT_EQ(error_of([&] { Checkpoint::open(file("manifest.json")); }).code, Code::path);
  put(file("manifest.json"), "{\"name\": \"of something else\"}\n");
  EXPECT_EQ(refusal().code, Code::format);
}

TEST_F(DamagedCheckpoint, AManifestThatSaysSomethingImpossibleIsRefused) {
  EXPECT_EQ(refusal_of("\"version\": 1", "\"version\": 3").code, Code::version);
  EXPECT_EQ(refusal_of("\"version\": 1", "\"version\": 2").code, Code::format);
  EXPECT_EQ(refusal_of("\"version\": 1", "\"version\": 0").code, Code::format);
  EXPECT_EQ(refusal_of("\"version\": 1", "\"version\": -1").code, Code::format);
  EXPECT_EQ(refusal_of("\"version\": 1", "\"version\": 1, \"version\": 1").code, Code::format);
  EXPECT_EQ(refusal_of("\"version\": 1", "\"version\": 1, \"later\": [[[[[[[[[[0]]]]]]]]]]").code, Code::format);
  EXPECT_EQ(refusal_of("\"version\": 1", "\"version\": 1, \"later\": [0]").code, Code::ok);
  EXPECT_EQ(refusal_of("\"version\": 1", "\"version\": 1,").code, Code::format);
  EXPECT_EQ(refusal_of("\"step\": 10", "\"step\": 1e1").code, Code::format);
  EXPECT_EQ(refusal_of("\"step\": 10", "\"step\": 11").code, Code::mismatch);
  EXPECT_EQ(refusal_of("\"step\": 10", "\"stop\": 10").code, Code::format);
  EXPECT_EQ(refusal_of("\"optimizer\": \"adamw\"", "\"optimizer\": 7").code, Code::format);
  EXPECT_EQ(refusal_of("\"piece_bytes\": 16777216", "\"piece_bytes\": 1").code, Code::format);
  EXPECT_EQ(refusal_of("\"weights.safetensors\"", "\"../weights\"").code, Code::format);
  EXPECT_EQ(refusal_of("\"pieces\": [", "\"pieces\": [\"00\", ").code, Code::format);
  EXPECT_EQ(refusal_of("\"bytes\": ", "\"bytes\": 1").code, Code::corrupt);
}

// The manifest and the folder's name must give the same step, also if the path that open() gets ends with slashes. If
// the folder is copied to a name without a step, the copy opens with any step.
TEST_F(DamagedCheckpoint, AStepThatIsNotThatOfTheFolderIsRefused) {
  fs::copy(path_, directory_ + "/best", fs::copy_options::recursive);
  std::string text = manifest();
  text = test::sealed(text.replace(text.find("\"step\": 10"), 10, "\"step\": 12"));
  put(file("manifest.json"), text);
  for (const std::string &path : {directory_, path_, path_ + "/", path_ + "//"}) {
    const Error error = error_of([&] { Checkpoint::open(path); });
    EXPECT_EQ(error.code, Code::mismatch) << path;
    EXPECT_EQ(error.text, "holds step 12, but its name says otherwise") << path;
  }
  EXPECT_EQ(Checkpoint::open(directory_ + "/best").description().counters.at(kStep), 10u);
  put(directory_ + "/best/manifest.json", text);
  EXPECT_EQ(Checkpoint::open(directory_ + "/best").description().counters.at(kStep), 12u);
}

TEST_F(DamagedCheckpoint, ACheckpointOfAnotherModelTellsTheDifferences) {
  const auto difference = [&](auto change) {
    Description wanted = small(10);
    change(wanted);
    const Error error = refusal(wanted);
    EXPECT_EQ(error.code, Code::mismatch) << error.text;
    const std::string remedy = "; resume with the model and the options that it was saved with";
    EXPECT_TRUE(error.text.ends_with(remedy)) << error.text;
    const std::size_t begin = error.text.find(": ") + 2;
    return error.text.substr(begin, error.text.size() - remedy.size() - begin);
  };
  EXPECT_EQ(difference([](Description &d) {
              d.parameters[0].shape = {3, 16};
            }),
            "wte has shape [16, 3] there and [3, 16] here");
  EXPECT_EQ(difference([](Description &d) {
              d.parameters[0].shape = {2, 3};
              d.parameters[0].arrays = moments(6);
            }),
            "wte has shape [16, 3] there and [2, 3] here");
  EXPECT_EQ(difference([](Description &d) { d.parameters[1].name = "bias"; }),
            "bias is missing there; frozen/bias is there only");
  EXPECT_EQ(difference([](Description &d) { d.optimizer = "sgd"; }), "the optimizer is adamw there and sgd here");
  EXPECT_EQ(difference([](Description &d) { d.parameters[1].arrays = moments(7); }),
            "the optimizer keeps [] of frozen/bias there and [moment1, moment2] here");
  EXPECT_EQ(difference([](Description &d) {
              for (int i = 0; i < 9; ++i) d.parameters.push_back({std::string("x") + char('0' + i), {}, {}});
            }),
            "x0 is missing there; x1 is missing there; x2 is missing there; x3 is missing there; x4 is missing there; "
            "and 4 more");
}

TEST_F(DamagedCheckpoint, WhatGoesWrongWhileItIsHandedOverBreaksTheState) {
  const Error error = error_of([&] {
    Checkpoint::open(directory_).load(small(10), [](auto, auto, auto, auto) { fail(Code::io, "disk", "full"); });
  });
  EXPECT_EQ(error.code, Code::io);
  EXPECT_TRUE(error.facts.state_broken);
}

}  // namespace
}  // namespace protrain::state::damage_test
