// Windows that hold several documents. The loss of each document must have the same bits as if the document were alone
// in a window.
#include <gtest/gtest.h>

#include <bit>
#include <random>

#include "errors.h"
#include "session/session.h"
#include "train/command.h"

namespace protrain::packed_test {
namespace {

using session::Session;
using test::error_of;

constexpr std::int64_t kBatch = 2, kLength = 40;
constexpr std::int64_t kIgnored = -100;

struct Document {
  std::size_t begin, length;  // within the batch of windows
  std::vector<std::int64_t> tokens;
};

// Random documents that fill the windows. None crosses the border of a window.
std::vector<Document> documents() {
  std::mt19937 bits(7);
  std::vector<Document> all;
  std::size_t begin = 0;
  for (std::size_t length : {7, 28, 5, 13, 2, 25}) {
    Document &one = all.emplace_back(Document{begin, length, {}});
    for (std::size_t i = 0; i < length; ++i) one.tokens.push_back(static_cast<std::int64_t>(bits() % 50));
    begin += length;
  }
  return all;
}

struct Windows {
  std::vector<std::int64_t> ids = std::vector<std::int64_t>(kBatch * kLength, 1), labels, positions;

  // At first each window is a single document, in which no label counts.
  Windows() : labels(ids.size(), kIgnored) {
    for (std::size_t i = 0; i < ids.size(); ++i) positions.push_back(static_cast<std::int64_t>(i) % kLength);
  }
  // Puts a document at `begin`. Its labels count if `counts`.
  void put(const Document &document, std::size_t begin, bool counts) {
    for (std::size_t i = 0; i < document.length; ++i) {
      ids[begin + i] = document.tokens[i];
      positions[begin + i] = static_cast<std::int64_t>(i);
      if (counts && i > 0) labels[begin + i] = document.tokens[i];
    }
  }
  // Turns the rest of the first window, from `begin` on, into a second document.
  void restart(std::size_t begin) {
    for (std::size_t i = begin; i < kLength; ++i) positions[i] = static_cast<std::int64_t>(i - begin);
  }
};

std::unique_ptr<Session> open(const std::string &model, bool packed, const std::string &precision = "fp32") {
  draft::Options options;
  options.set("dim", "batch=" + std::to_string(kBatch));
  options.set("dim", "sequence=" + std::to_string(kLength));
  options.set("threads", "2");
  options.set("precision", precision);
  if (model.starts_with("families/")) options.set("constant", "attention_mask=1");
  if (packed) options.set("packed", "positions");
  return Session::create(options, test::fixture(model + ".onnx"), nullptr);
}

void feed(Session &session, const Windows &windows, bool packed) {
  const Shape shape = {kBatch, kLength};
  session.set_input("input_ids", DType::i64, shape, windows.ids.data());
  session.set_input("labels", DType::i64, shape, windows.labels.data());
  if (packed) session.set_input("positions", DType::i64, shape, windows.positions.data());
}

std::uint32_t loss_bits(Session &session, const Windows &windows, bool packed = true) {
  feed(session, windows, packed);
  return std::bit_cast<std::uint32_t>(session.evaluate());
}

class Packed : public testing::TestWithParam<std::string> {};

TEST_P(Packed, DocumentsHaveTheLossThatTheyHaveAlone) {
  for (const char *precision : {"fp32", "bf16"}) {
    if (std::string_view(precision) == "bf16" && GetParam()[0] != 'l') continue;  // one model says enough
    const auto packed = open(GetParam(), true, precision), plain = open(GetParam(), false, precision);
    const std::vector<Document> all = documents();
    for (std::size_t counted = 0; counted < all.size(); ++counted) {
      Windows together, alone;
      for (std::size_t i = 0; i < all.size(); ++i) together.put(all[i], all[i].begin, i == counted);
      alone.put(all[counted], 0, true);
      EXPECT_EQ(loss_bits(*packed, together), loss_bits(*plain, alone, false)) << precision << " " << counted;
      alone.restart(all[counted].length);
      EXPECT_EQ(loss_bits(*packed, together), loss_bits(*packed, alone)) << precision << " " << counted;
    }
  }
}

TEST_P(Packed, DocumentsTrainTogetherAsTheyWouldInWindowsOfTheirOwn) {
  const auto packed = open(GetParam(), true), plain = open(GetParam(), false);
  Windows together;
  for (const Document &one : documents()) together.put(one, one.begin, true);
  feed(*packed, together, true);
  double sum = 0, count = 0;
  for (const Document &one : documents()) {
    Windows alone;
    alone.put(one, 0, true);
    feed(*plain, alone, false);
    sum += plain->evaluate() * static_cast<double>(one.length - 1);
    count += static_cast<double>(one.length - 1);
  }
  EXPECT_NEAR(packed->step().loss, sum / count, 1e-6 * sum / count);
  EXPECT_LT(packed->step().loss, sum / count);
}

INSTANTIATE_TEST_SUITE_P(Models, Packed,
                         testing::Values("gpt2-dynamic-opset18", "opt-dynamic-opset18", "llama-dynamic-opset18",
                                         "mistral-dynamic-opset23", "families/bloom.torchscript13"),
                         [](const auto &info) {
                           const std::string name = info.param.substr(info.param.find('/') + 1);  // npos + 1 is 0
                           return name.substr(0, name.find_first_of("-."));
                         });

TEST(PackedDocuments, AreRefusedWhereTheModelPoolsItsTokens) {
  const Error error = error_of([] {
    draft::Options options;
    for (const auto &[key, value] : {std::pair("packed", "positions"), std::pair("loss", "cross_entropy"),
                                     std::pair("loss_output", "logits"), std::pair("dim", "batch=3")})
      options.set(key, value);
    Session::create(options, test::fixture("outputs/classes.onnx"), nullptr);
  });
  EXPECT_EQ(error.code, Code::unsupported);
  EXPECT_EQ(error.subject, "packed");
}

}  // namespace
}  // namespace protrain::packed_test
