// Decoders with inputs for earlier tokens. The option `past` leaves these inputs empty, and nobody needs to set them.
#include "draft/past.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "draft/check.h"
#include "draft/hostile_cases.h"
#include "session/session.h"

namespace protrain::draft::past_test {
namespace {

using test::error_of;
using test::floats;
using test::int_attribute;
using test::kFloat;
using test::kInt64;
using test::node;
using test::value;

// Returns a decoder with a past. It joins the past rows and the rows w[ids] and multiplies them by the mask. The loss
// is the mean of the product.
test::Wire decoder(const test::Names &past_dims = {"batch", "past_length", "2"}) {
  test::Wire wire;
  wire.initializers = {floats("w", {3, 2}, {1, 2, 3, 4, 5, 6})};
  wire.inputs = {value("ids", kInt64, {"batch", "length"}), value("past_key_values.0.key", kFloat, past_dims),
                 value("mask", kFloat, {"batch", "past_length + length", "1"})};
  wire.nodes = {node("Gather", {"w", "ids"}, {"rows"}),
                node("Concat", {"past_key_values.0.key", "rows"}, {"present"}, {int_attribute("axis", 1)}),
                node("Mul", {"present", "mask"}, {"shown"}),
                node("ReduceMean", {"shown"}, {"loss"}, {int_attribute("keepdims", 0)})};
  wire.outputs = {value("loss", kFloat, {}), value("present", kFloat, {})};
  return wire;
}

using Dims = std::map<std::string, std::string>;

class Past : public testing::Test {
 protected:
  std::string put(const test::Wire &wire) { return scratch_.put("model.onnx", wire.bytes()); }
  Dims dims(const std::vector<std::string> &inputs, const std::vector<test::Names> &of) {
    test::Wire wire;
    for (std::size_t i = 0; i < inputs.size(); ++i) wire.inputs.push_back(value(inputs[i], kFloat, of[i]));
    return past_dims(*test::open_bytes(scratch_, wire.bytes()));
  }
  std::unique_ptr<session::Session> session(const std::vector<std::pair<std::string, std::string>> &options) {
    Options all;
    all.set("trainable", "w");
    all.set("dim", "batch=2");
    all.set("dim", "length=2");
    for (const auto &[key, text] : options) all.set(key, text);
    return session::Session::create(all, put(decoder()), nullptr);
  }

  test::Scratch scratch_;
};

TEST_F(Past, IsCountedByADimOfItsOwn) {
  EXPECT_EQ(dims({"past_key_values.0.key", "ids"}, {{"batch", "4", "past", "8"}, {"batch", "length"}}),
            (Dims{{"past", "past_key_values.0.key"}}));
  EXPECT_EQ(dims({"past_0"}, {{"2", "batch", "4", "p", "8"}}).size(), 1u) << "keys and values in one";
  EXPECT_EQ(dims({"K_Cache_0"}, {{"", "", "", ""}}), (Dims{{"K_Cache_0_dim2", "K_Cache_0"}}));
  EXPECT_EQ(dims({"past_key_values.0.key"}, {{"rows", "8", "past"}}), (Dims{{"past", "past_key_values.0.key"}}))
      << "keys may lie with the features first";
  EXPECT_EQ(dims({"past_length", "keys"}, {{"n"}, {"batch", "4", "past", "8"}}), Dims{});
  EXPECT_EQ(dims({"past_key_values.0.key"}, {{"batch", "4", "16", "8"}}), Dims{});
}

TEST_F(Past, OfLengthNoneNeedsNoInputs) {
  const auto model = session({{"past", "none"}, {"constant", "mask=1"}});
  ASSERT_EQ(model->input_count(), 1u);
  const std::int64_t ids[] = {0, 1, 2, 0};
  model->set_input("ids", DType::i64, {2, 2}, ids);
  model->set_input("past_key_values.0.key", DType::f32, {2, 0, 2}, nullptr);
  EXPECT_EQ(model->step().loss, (1 + 2 + 3 + 4 + 5 + 6 + 1 + 2) / 8.0f);
  EXPECT_EQ(error_of([&] {
              model->set_input("mask", DType::f32, {2, 2, 1}, ids);
            }).text,
            "input mask is bound to a value or nothing reads it; the session's inputs are ids");
}

TEST_F(Past, ThatIsNotBoundIsAnErrorThatNamesTheOption) {
  const Error unbound = error_of([&] { session({}); });
  EXPECT_EQ(unbound.code, Code::shape);
  EXPECT_EQ(unbound.subject, "past_length");
  EXPECT_NE(unbound.text.find("past=none"), std::string::npos) << unbound.text;
  EXPECT_EQ(error_of([&] { session({{"past", "none"}, {"dim", "past_length=3"}}); }).subject, "past");
  EXPECT_EQ(session({{"dim", "past_length=3"}})->input_count(), 3u);
  Options none;
  none.set("past", "none");
  EXPECT_EQ(error_of([&] { session::Session::create(none, put(test::Wire()), nullptr); }).subject, "past");
}

TEST_F(Past, MustBeEmptyUnderAllBindingsOrNone) {
  const Error mixed = error_of([&] { session({{"dim", "past_length=0"}, {"shapes", "past_length=3"}}); });
  EXPECT_EQ(mixed.code, Code::shape);
  EXPECT_EQ(mixed.text, "an input has elements under one of the bindings only");
}

TEST_F(Past, IsEmptyUnlessCheckIsToldOtherwise) {
  Options options;
  options.set("trainable", "w");
  const auto about = nlohmann::json::parse(check_model(options, put(decoder())));
  EXPECT_TRUE(about["trainable"]) << about.dump();
  EXPECT_EQ(about["dims"]["past_length"]["value"], 0);
  EXPECT_TRUE(about["dims"]["past_length"]["default"]);
  EXPECT_EQ(about["inputs"].size(), 2u) << "those that want values";
}

TEST_F(Past, OfNoSamplesIsNoPast) {
  const Error nobody = error_of([&] { session({{"past", "none"}, {"shapes", "batch=0"}}); });
  EXPECT_EQ(nobody.code, Code::shape);
  EXPECT_EQ(nobody.subject, "ids");
  EXPECT_NE(nobody.text.find("at least one sample"), std::string::npos) << nobody.text;
}

}  // namespace
}  // namespace protrain::draft::past_test
