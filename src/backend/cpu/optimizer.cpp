// Updates of weights in place, and the check that scalars are finite.
#include <cmath>

#include "backend/common/host_update.h"
#include "backend/cpu/kernel.h"

namespace protrain::backend::cpu {

namespace {
class Update : public CpuKernel {
 public:
  explicit Update(const UpdateRequest &request) : update_(make_host_update(request)) {}
  void run(Member &member, const Launch &launch) override { update_->run(member, launch); }

 private:
  const std::unique_ptr<HostUpdate> update_;
};

class Check : public CpuKernel {
 public:
  Check(DType dtype, const std::vector<std::uint32_t> &words) : dtype_(dtype), words_(words) {
    require(dtype == DType::f32 || dtype == DType::f64, Code::unsupported, "check",
            "the cpu checks float32 and float64 scalars, these are {}", name_of(dtype));
  }

  void run(Member &member, const Launch &launch) override {
    if (member.index != 0) return;
    auto &status = *output<std::uint32_t>(launch, 0);
    for (std::size_t i = 0; i < words_.size() && status == 0; ++i) {
      const double value = dtype_ == DType::f32 ? *input<float>(launch, i) : *input<double>(launch, i);
      if (!std::isfinite(value)) status = words_[i];
    }
    if (auto *copy = optional_output<std::uint32_t>(launch, 1)) *copy = status;
  }

 private:
  const DType dtype_;
  const std::vector<std::uint32_t> words_;
};
}  // namespace

KernelPtr make_update(const UpdateRequest &request) { return std::make_unique<Update>(request); }

KernelPtr make_check(DType dtype, const std::vector<std::uint32_t> &words) {
  return std::make_unique<Check>(dtype, words);
}

}  // namespace protrain::backend::cpu
