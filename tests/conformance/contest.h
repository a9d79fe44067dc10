// The conformance suite: tests that every backend must pass, written once. Each test runs on every contender: the CPU,
// a GPU if there is one, and the CUDA kernels emulated on the host (tests/cuda).
//
// Each node runs in float32, and again in each 16-bit type that the contender supports, with its float32 operands
// rounded to that type. A contender lists what it does not support, with the reason. A test fails if something on that
// list works after all.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "one_node.h"

namespace protrain::test {

// An operator whose kernels do not work in a precision.
struct Exception {
  std::string_view op;         // "*": all
  std::string_view precision;  // "*": all
  std::string_view reason;
};

struct Contender {
  std::string name;
  // A way to run the same kernels, such as with another number or order of threads. Every way must give the same bits.
  struct Way {
    std::string name;
    Machine *machine;
    void (*prepare)();  // called before each run; may be nullptr
  };
  std::vector<Way> ways;
  std::vector<Exception> unsupported, expected_failures;
  std::vector<std::string_view> other_bits;  // operators whose bits may differ between ways
  std::vector<DType> narrow() const;         // the device's 16-bit precisions
  bool computes_in(DType dtype) const;
};

const std::vector<Contender> &contenders();

class Conformance : public testing::TestWithParam<const Contender *> {
 public:
  // Expects that the outputs equal the reference's within `tolerance`, that every Way of the contender gives the same
  // bits, and that no memory around the outputs changes. The tolerance is for |error| divided by the larger of 1 and
  // |value|. Integers and bools must be equal.
  void expect_reference(const OneNode &one, double tolerance = 1e-5) const;
  // Expects that an output has the same bits whichever other outputs are absent.
  void expect_outputs_apart(const OneNode &one) const;
  // Expects that running the node throws an Error with Code::arg and this text.
  void expect_error(const OneNode &one, const std::string &text) const;

 private:
  // Returns pairs of a node and the name of its precision: the given node in float32, and in each 16-bit type of the
  // contender.
  std::vector<std::pair<OneNode, std::string_view>> in_each_precision(const OneNode &one) const;
  void expect_in(const OneNode &one, std::string_view precision, double tolerance) const;
};

std::vector<const Contender *> entered();
std::string name_of_contender(const testing::TestParamInfo<const Contender *> &info);

// Makes every TEST_P(NAME, ...) run on every contender.
#define PROTRAIN_FAMILY(NAME) \
  using NAME = Conformance;   \
  INSTANTIATE_TEST_SUITE_P(, NAME, testing::ValuesIn(entered()), name_of_contender)

}  // namespace protrain::test
