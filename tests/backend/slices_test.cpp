// The kernel LinearCrossEntropyGrad works through the rows of its logits in slices. Its results must have the same bits
// whatever the size of a slice. The tests use the loss infonce, in which every key is a class, and the label of a query
// is its own key.
//   tests/CMakeLists.txt runs these tests again with ONEDNN_MAX_CPU_ISA, so that oneDNN computes products as on older
// processors.
#include <omp.h>

#include <cstring>
#include <numeric>

#include "backend/cpu/linear_loss.h"
#include "base/memory.h"
#include "one_node.h"

namespace protrain::backend::cpu::slices_test {
namespace {

using test::Array;
using test::Type;
using Bits = std::vector<std::byte>;

// Runs kernels on the same queries and keys (count, width).
class Pairs {
 public:
  Pairs(DType dtype, std::int64_t count, std::int64_t width)
      : one_{"LinearCrossEntropyGrad",
             {{"reduction", std::string("mean")}, {"panels", std::int64_t{1}}},
             {vectors({dtype, {count, width}}, 1), vectors({dtype, {count, width}}, 2), own_keys(count)},
             {true, true, true}},
        node_(test::node_of(one_)),
        request_{node_, {}, test::infer(one_)},
        memory_(std::uint64_t{64} << 20, "operands") {
    std::byte *at = memory_.data();
    const auto take = [&](const Type &type) {
      return std::exchange(at, at + round_up(byte_count(type.dtype, type.shape), kAlignment));
    };
    for (const Array &input : one_.inputs) {
      request_.inputs.push_back(input.type());
      inputs_.push_back(take(input.type()));
      input.write_dense(static_cast<std::byte *>(inputs_.back()));
    }
    for (const Type &type : request_.outputs) outputs_.push_back(take(type));
  }

  // Returns the bits of the loss, and of the gradients of the queries and the keys. make(request, threads) makes the
  // kernel.
  template <typename Make>
  std::vector<Bits> run(int threads, const Make &make) {
    for (std::size_t i = 0; i < outputs_.size(); ++i) std::memset(outputs_[i], 0xFF, bytes_of(i));
    Team team(threads, "slices");
    team.enter([&] {
      team.run([](Member &) { omp_set_num_threads(1); });
      const KernelPtr kernel = make(request_, threads);
      const MemoryBlock scratch(kernel->scratch_bytes, "scratch");
      team.run([&](Member &member) { kernel->run(member, {inputs_, outputs_, scratch.data(), nullptr}); });
    });
    std::vector<Bits> results;
    for (std::size_t i = 0; i < outputs_.size(); ++i) {
      const auto *at = static_cast<const std::byte *>(outputs_[i]);
      results.emplace_back(at, at + bytes_of(i));
    }
    return results;
  }

 private:
  static Array vectors(const Type &type, unsigned seed) {
    return Array::from_doubles(type, test::random_floats(type.shape, seed).doubles());
  }
  static Array own_keys(std::int64_t count) {
    std::vector<std::int64_t> labels(static_cast<std::size_t>(count));
    std::iota(labels.begin(), labels.end(), 0);
    return Array::from_integers({DType::i64, {count}}, labels);
  }
  std::uint64_t bytes_of(std::size_t output) const {
    return byte_count(request_.outputs[output].dtype, request_.outputs[output].shape);
  }

  const test::OneNode one_;
  const graph::Node node_;
  KernelRequest request_;
  MemoryBlock memory_;
  std::vector<void *> inputs_, outputs_;
};

void expect_same_bits(DType dtype, std::int64_t count, std::int64_t width, int threads) {
  Pairs pairs(dtype, count, width);
  const std::vector<Bits> whole = pairs.run(threads, make_linear_cross_entropy);
  float loss = 0;
  std::memcpy(&loss, whole[0].data(), sizeof loss);
  EXPECT_GT(loss, 0) << loss;
  for (const std::int64_t rows : {64, 192, 512}) {
    const SliceRule slices{.bytes = rows * count * 4, .least_rows = 16, .row_grain = 16};
    const auto make = [&](const KernelRequest &request, int team_size) {
      return make_linear_cross_entropy_in(slices, request, team_size);
    };
    const std::vector<Bits> sliced = pairs.run(threads, make);
    const char *const names[] = {"loss", "gradient of queries", "gradient of keys"};
    for (std::size_t i = 0; i < whole.size(); ++i)
      EXPECT_TRUE(sliced[i] == whole[i]) << names[i] << ": " << count << " pairs, slices of " << rows << " rows, width "
                                         << width << ", " << threads << " threads";
  }
}

class ContrastiveLoss : public testing::TestWithParam<DType> {};

TEST_P(ContrastiveLoss, HasTheSameBitsForEverySizeOfSlices) {
  expect_same_bits(GetParam(), 1024, 64, 1);
  expect_same_bits(GetParam(), 1024, 384, 2);
}

TEST_P(ContrastiveLoss, HasThemWithARestOfAPanelAndWithMoreThreadsThanPanels) {
  expect_same_bits(GetParam(), 1100, 40, 2);
  expect_same_bits(GetParam(), 1000, 40, 20);
}

TEST_P(ContrastiveLoss, HasThemWithSeveralBlocks) {
  expect_same_bits(GetParam(), GetParam() == DType::f32 ? 4500 : 8500, 8, 2);
}

INSTANTIATE_TEST_SUITE_P(Types, ContrastiveLoss, testing::Values(DType::f32, DType::bf16),
                         [](const auto &info) { return std::string(name_of(info.param)); });

}  // namespace
}  // namespace protrain::backend::cpu::slices_test
