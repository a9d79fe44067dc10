// Tests which input the library takes for a model's batch, and which dim of the input for the number of samples.
#include "draft/batch.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "draft/check.h"
#include "draft/loaded_model.h"
#include "fixtures.h"
#include "onnx_import/wire.h"
#include "session/session.h"

namespace protrain::draft::batch_test {
namespace {

using onnx_import::Dim;

ModelInput input(const std::string &name, DType dtype, std::vector<Dim> dims) {
  return {{.name = name, .dtype = dtype, .dims = std::move(dims)}};
}

const ModelInput kImage = input("image", DType::f32, {"N", Dim(3), "height", "width"});
const ModelInput kIds = input("ids", DType::i64, {"batch", "sequence"});
const ModelInput kScale = input("scale", DType::f32, {});

TEST(Batch, IsThatOfTheFirstInputOfIntegersThatHasAnAxis) {
  const Batch batch =
      batch_of({kScale, kImage, input("count", DType::i64, {}), kIds}, {{"batch", 4}, {"sequence", 32}, {"N", 7}});
  EXPECT_EQ(batch.input, "ids");
  EXPECT_EQ(batch.dim, "batch");
  EXPECT_EQ(batch.samples, 4);
  EXPECT_EQ(batch.tokens_per_sample, 32);
  EXPECT_EQ(batch.tokens(), 128);
}

TEST(Batch, IsThatOfTheFirstInputThatHasAnAxisWhereThereAreNoIntegers) {
  const Batch batch = batch_of({kScale, kImage}, {{"N", 7}, {"height", 8}, {"width", 8}});
  EXPECT_EQ(batch.input, "image");
  EXPECT_EQ(batch.dim, "N");
  EXPECT_EQ(batch.samples, 7);
  EXPECT_EQ(batch.tokens_per_sample, 0) << "pixels are no tokens";
}

TEST(Batch, IsOneSampleWhereNoInputHasAnAxis) {
  const Batch batch = batch_of({kScale}, {});
  EXPECT_EQ(batch.input, "");
  EXPECT_EQ(batch.samples, 1);
  EXPECT_EQ(batch.tokens(), 0);
}

TEST(Batch, IsOpenWhereItsDimIsNotBound) {
  EXPECT_EQ(batch_of({kIds}, {{"sequence", 32}}).samples, 0);
  EXPECT_EQ(batch_of({kIds}, {{"sequence", 32}}).tokens_per_sample, 32);
  EXPECT_EQ(batch_of({kIds}, {{"batch", 4}}).tokens_per_sample, 0);
  EXPECT_EQ(batch_of({input("ids", DType::i32, {Dim(4), kUnknownDim})}, {}).tokens_per_sample, 0);
}

TEST(Batch, OfFixedSizesHasNoDim) {
  const Batch batch = batch_of({input("ids", DType::i32, {Dim(4), Dim(8), Dim(2)})}, {});
  EXPECT_EQ(batch.dim, "");
  EXPECT_EQ(batch.samples, 4);
  EXPECT_EQ(batch.tokens_per_sample, 16);
}

TEST(Batch, IsReportedByCheckAsTheModelIsLoaded) {
  Options options;
  options.set("dim", "batch=3");
  options.set("dim", "sequence=16");
  const std::string model = test::fixture("gpt2-dynamic-opset18.onnx");
  const auto answer = nlohmann::json::parse(check_model(options, model)).at("batch");
  const Batch batch = load_model(settings_of(options), model).batch;
  EXPECT_EQ(answer, (nlohmann::json{{"input", batch.input},
                                    {"dim", batch.dim},
                                    {"samples", batch.samples},
                                    {"tokens_per_sample", batch.tokens_per_sample}}));
  EXPECT_EQ(batch.samples, 3);
  EXPECT_EQ(batch.tokens_per_sample, 16);
}

// The input x has features, not tokens. The attached loss's labels are classes, and count as one token per sample.
TEST(Batch, CountsTheLabelsOfAnAttachedLoss) {
  const test::Scratch scratch;
  test::Wire wire;
  wire.inputs = {test::value("x", test::kFloat, {"batch", "3"})};
  wire.outputs = {test::value("y", test::kFloat, {"batch", "4"})};
  const std::string model = scratch.put("model.onnx", wire.bytes());
  Options options;
  options.set("loss", "cross_entropy");
  const auto answer = nlohmann::json::parse(check_model(options, model)).at("batch");
  EXPECT_EQ(answer, (nlohmann::json{{"input", "labels"}, {"dim", "batch"}, {"samples", 2}, {"tokens_per_sample", 1}}));
  options.set("tokens_per_step", "6");
  const auto session = session::Session::create(options, model, nullptr);
  EXPECT_EQ(session->input_shape(0), (Shape{6, 3})) << "the whole step fits";
}

}  // namespace
}  // namespace protrain::draft::batch_test
