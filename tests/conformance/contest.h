// The conformance suite: the duties of every backend, written once. Every contender runs each test: the cpu, a GPU if
// there is one, and the CUDA kernels on the host's processor (tests/cuda).
//
// Each node runs as it stands, and again with its float32 operands in each narrow type of the contender. Each contender
// lists what it cannot do, with the reason. A listed case that succeeds is a failure.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "one_node.h"

namespace protrain::test {

// Kernels of one operator or of all, in one precision or in any.
struct Exception {
  std::string_view op;  // "*": all
  std::string_view precision;
  std::string_view reason;
};

struct Contender {
  std::string name;
  // The same kernels under different circumstances that may not change a bit: thread orders, addresses.
  struct Way {
    std::string name;
    Machine *machine;
    void (*prepare)();  // nullptr: nothing to do
  };
  std::vector<Way> ways;
  std::vector<Exception> unsupported, expected_failures;
  std::vector<std::string_view> other_bits;   // operators whose bits may differ between ways
  std::vector<DType> narrow = {DType::bf16};  // types that it computes in beside float32
  bool computes_in(DType dtype) const;
};

const std::vector<Contender> &contenders();

class Conformance : public testing::TestWithParam<const Contender *> {
 public:
  // Checks that outputs equal the reference's within `tolerance` (|error| over the larger of 1 and |value|; integers
  // and bools exactly), have the same bits in every way, and that nothing beside them is touched.
  void expect_reference(const OneNode &one, double tolerance = 1e-5) const;
  // Checks that outputs keep their bits if others are absent.
  void expect_outputs_apart(const OneNode &one) const;
  // Checks that running the node throws Code::arg with this text.
  void expect_error(const OneNode &one, const std::string &text) const;

 private:
  // The node as it stands and with its float32 operands in each narrow type, each with its precision's name.
  std::vector<std::pair<OneNode, std::string_view>> in_each_precision(const OneNode &one) const;
  void expect_in(const OneNode &one, std::string_view precision, double tolerance) const;
};

std::vector<const Contender *> entered();
std::string name_of_contender(const testing::TestParamInfo<const Contender *> &info);

// Makes every contender run the tests `TEST_P(NAME, ...)`.
#define PROTRAIN_FAMILY(NAME) \
  using NAME = Conformance;   \
  INSTANTIATE_TEST_SUITE_P(, NAME, testing::ValuesIn(entered()), name_of_contender)

}  // namespace protrain::test
