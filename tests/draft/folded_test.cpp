// Files in which PyTorch's exporter (optimize=True) folded a parameter into a constant, with and without the exporter's
// metadata. Such a file trains, but not as PyTorch's model would, and `check` must warn of this.
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "draft/check.h"
#include "fixtures.h"

namespace protrain::draft::folded_test {
namespace {

using Json = nlohmann::json;

struct FoldedFile {
  const char *model, *parameter;  // the parameter is no longer in the file
  const char *computed;           // the constant that the exporter computed from the parameter
};

class FoldedFiles : public testing::TestWithParam<FoldedFile> {
 protected:
  static Json about(const std::string &exporter) {
    return Json::parse(check_model(
        Options{}, test::fixture("folded/part-" + std::string(GetParam().model) + "." + exporter + ".onnx")));
  }
  static std::string doubt(const Json &about) {
    for (const Json &row : about["doubtful"])
      if (row["name"] == GetParam().computed) return row["doubt"];
    return "";
  }
  static bool has(const Json &rows, const std::string &name) {
    return std::ranges::any_of(rows, [&](const Json &row) { return row["name"] == name; });
  }
};

TEST_P(FoldedFiles, MetadataNameTheParameterThatIsGone) {
  for (const char *exporter : {"dynamo18-told", "dynamo23-told"}) {
    const Json found = about(exporter);
    EXPECT_TRUE(found["trainable"]) << exporter;
    EXPECT_FALSE(has(found["parameters"], GetParam().parameter)) << exporter;
    EXPECT_NE(doubt(found).find(GetParam().parameter), std::string::npos) << exporter << ": " << doubt(found);
  }
}

TEST_P(FoldedFiles, WithoutMetadataWhatWasComputedIsDoubtful) {
  const Json found = about("dynamo18");
  EXPECT_TRUE(found["trainable"]);
  EXPECT_NE(doubt(found), "");
}

INSTANTIATE_TEST_SUITE_P(Parts, FoldedFiles,
                         testing::Values(FoldedFile{"numbers", "m.mixed", "add_1"},
                                         FoldedFile{"scan", "m.A_log", "neg"},
                                         FoldedFile{"scores", "m.head_scale", "exp"}),
                         [](const auto &info) { return info.param.model; });

}  // namespace
}  // namespace protrain::draft::folded_test
