// The conformance suite: what every backend must do, written once. A test is run by every contender: the cpu, a GPU
// where there is one, and the CUDA kernels on the host's processor (tests/cuda).
//
// Each node is run as it stands, and once more with its float32 operands in each narrow type of the contender. What a
// contender cannot do is in its lists, with the reason; what is listed and goes well all the same is a failure.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "one_node.h"

namespace protrain::test {

// Some operator's kernels, in one precision or in any.
struct Exception {
  std::string_view op;  // "*": all
  std::string_view precision;
  std::string_view reason;
};

struct Contender {
  std::string name;
  // The same kernels under other circumstances, which may not change a bit: thread orders, addresses.
  struct Way {
    std::string name;
    Machine *machine;
    void (*prepare)();  // nullptr: nothing to be done
  };
  std::vector<Way> ways;
  std::vector<Exception> unsupported, expected_failures;
  std::vector<std::string_view> other_bits;  // operators whose bits may differ from way to way
  std::vector<DType> narrow() const;         // the device's precisions beside float32
  bool computes_in(DType dtype) const;
};

const std::vector<Contender> &contenders();

class Conformance : public testing::TestWithParam<const Contender *> {
 public:
  // Outputs are the reference's within `tolerance` (|error| over the larger of 1 and |value|; integers and bools
  // exactly), the same bits in every way, and nothing beside them is touched.
  void expect_reference(const OneNode &one, double tolerance = 1e-5) const;
  // Where some of its outputs are absent, the others have the same bits.
  void expect_outputs_apart(const OneNode &one) const;
  // Running the node raises Code::arg with this text.
  void expect_error(const OneNode &one, const std::string &text) const;

 private:
  // The node as it stands, and with its float32 operands in each narrow type, with the name of the precision.
  std::vector<std::pair<OneNode, std::string_view>> in_each_precision(const OneNode &one) const;
  void expect_in(const OneNode &one, std::string_view precision, double tolerance) const;
};

std::vector<const Contender *> entered();
std::string name_of_contender(const testing::TestParamInfo<const Contender *> &info);

// Tests `TEST_P(NAME, ...)` of every contender.
#define PROTRAIN_FAMILY(NAME) \
  using NAME = Conformance;   \
  INSTANTIATE_TEST_SUITE_P(, NAME, testing::ValuesIn(entered()), name_of_contender)

}  // namespace protrain::test
