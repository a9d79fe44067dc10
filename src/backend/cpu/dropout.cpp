// Dropout, and its gradient, which is the same operator on dy. Within a step an element's random number depends only on
// its sample and on its position in the sample. So neither the team's size nor a cut into micro-batches changes a bit.
#include <algorithm>

#include "arith/random.h"
#include "backend/cpu/elementwise.h"
#include "backend/cpu/floats.h"

namespace protrain::backend::cpu {

namespace {
constexpr std::int64_t kQuads = 128;  // groups of four numbers that are drawn at a time: 2 KiB on the stack
constexpr std::int64_t kDrawn = 4 * kQuads;

struct Rule {
  std::uint32_t drop_below;
  float scale;
};

// Elements [begin, end) of one sample. x, y and mask point to the sample's first element.
template <typename T>
struct SamplePart {
  const T *x;
  T *y;
  bool *mask;
  std::int64_t begin, end;
};

PROTRAIN_CLONES
void draw(arith::Stream stream, std::uint64_t sample, Range quads, std::uint32_t *__restrict out) {
  const std::int64_t count = quads.size();
  for (std::int64_t i = 0; i < count; ++i) {
    const arith::Words words = arith::numbers(stream, sample, static_cast<std::uint64_t>(quads.begin + i));
    for (int j = 0; j < 4; ++j) out[4 * i + j] = words.word[j];
  }
}

template <typename T>
struct Loops {
  PROTRAIN_CLONES static void apply(const std::uint32_t *__restrict number, const T *x, T *y, std::int64_t count,
                                    Rule rule) {
#pragma GCC ivdep
    for (std::int64_t i = 0; i < count; ++i) {
      const float scaled = widened(x[i]) * rule.scale;
      y[i] = narrowed<T>(number[i] >= rule.drop_below ? scaled : 0.0f);
    }
  }
};

PROTRAIN_CLONES
void compare(const std::uint32_t *__restrict number, bool *__restrict mask, std::int64_t count, Rule rule) {
  for (std::int64_t i = 0; i < count; ++i) mask[i] = number[i] >= rule.drop_below;
}

template <typename T>
void drop(arith::Stream stream, std::uint64_t sample, const SamplePart<T> &part, Rule rule) {
  alignas(64) std::uint32_t numbers[kDrawn];
  for (std::int64_t at = part.begin, next = at; at < part.end; at = next) {
    const std::int64_t drawn_from = at / 4 * 4;
    next = std::min(drawn_from + kDrawn, part.end);
    draw(stream, sample, {drawn_from / 4, (next + 3) / 4}, numbers);
    const std::uint32_t *number = numbers + (at - drawn_from);
    if (part.y != nullptr) Loops<T>::apply(number, part.x + at, part.y + at, next - at, rule);
    if (part.mask != nullptr) compare(number, part.mask + at, next - at, rule);
  }
}

template <typename T>
class DropoutKernel : public CpuKernel {
 public:
  explicit DropoutKernel(const KernelRequest &request)
      : rule_{arith::drop_below(ratio(request)), arith::keep_scale(ratio(request))},
        key_(static_cast<std::uint64_t>(request.node.attributes.integer("key", 0))),
        samples_(request.node.attributes.integer("samples", 0)),
        count_(element_count(request.inputs[0].shape)),
        per_sample_(count_ / std::max<std::int64_t>(samples_, 1)) {}

  void run(Member &member, const Launch &launch) override {
    const Range mine = share(count_, kElementGrain, member);
    const StepScalars &now = *launch.scalars;
    const arith::Stream stream = arith::stream_of(now.seed, now.step, key_);
    for (std::int64_t at = mine.begin, next = at; at < mine.end; at = next) {
      const std::int64_t sample = at / per_sample_, first = sample * per_sample_;
      next = std::min(first + per_sample_, mine.end);
      SamplePart<T> part{.x = input<T>(launch, 0) + first,
                         .y = optional_output<T>(launch, 0),
                         .mask = optional_output<bool>(launch, 1),
                         .begin = at - first,
                         .end = next - first};
      if (part.y != nullptr) part.y += first;
      if (part.mask != nullptr) part.mask += first;
      drop(stream, samples_ == 0 ? 0 : now.first_sample + static_cast<std::uint64_t>(sample), part, rule_);
    }
  }

 private:
  static float ratio(const KernelRequest &request) {
    return static_cast<float>(request.node.attributes.real("ratio", 0.5));
  }

  const Rule rule_;
  const std::uint64_t key_;
  const std::int64_t samples_, count_, per_sample_;
};
}  // namespace

KernelPtr make_dropout(const KernelRequest &request, int) {
  return make_by_float<DropoutKernel>(request, request.inputs[0]);
}

}  // namespace protrain::backend::cpu
