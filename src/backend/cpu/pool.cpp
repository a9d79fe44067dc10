// MaxPool, AveragePool and their gradients. In MaxPool and AveragePool, members share the rows of y. In the gradients
// they share the planes, so that the shapes alone fix the order of a plane's sums. A plane is one channel of a sample.
//
// The windows of a row are computed together. One pass takes the same element of every window: in x these elements lie
// a stride apart. The next pass takes the next element. Narrow types are widened row by row.
#include <algorithm>
#include <limits>

#include "backend/common/clones.h"
#include "backend/common/pool_shape.h"
#include "backend/common/scratch_layout.h"
#include "backend/cpu/conv.h"
#include "backend/cpu/floats.h"

namespace protrain::backend::cpu {

namespace {

// Loops over the windows of a row. A call handles one element of every window: the first of each, or the second of
// each, and so on. In x these elements lie kStride apart, or `stride` apart if kStride is 0.
template <int kStride>
struct RowLoops {
  PROTRAIN_CLONES static void take_larger(const float *x, std::int64_t stride, std::int64_t count, float *best) {
#pragma GCC ivdep
    for (std::int64_t i = 0; i < count; ++i) {
      const float value = x[i * (kStride > 0 ? kStride : stride)];
      best[i] = value > best[i] || value != value ? value : best[i];
    }
  }
  // Takes the larger elements as take_larger() does, and writes their places to `at`. `place` is the place of x[0].
  PROTRAIN_CLONES static void choose_larger(const float *x, std::int64_t stride, std::int64_t count, float *best,
                                            std::int32_t *at, std::int32_t place) {
    const auto step = static_cast<std::int32_t>(kStride > 0 ? kStride : stride);
#pragma GCC ivdep
    for (std::int64_t i = 0; i < count; ++i) {
      const float value = x[i * (kStride > 0 ? kStride : stride)];
      const bool taken = value > best[i] || value != value || at[i] < 0;
      best[i] = taken ? value : best[i];
      at[i] = taken ? place + static_cast<std::int32_t>(i) * step : at[i];
    }
  }
  PROTRAIN_CLONES static void add(const float *x, std::int64_t stride, std::int64_t count, float *sums) {
#pragma GCC ivdep
    for (std::int64_t i = 0; i < count; ++i) sums[i] += x[i * (kStride > 0 ? kStride : stride)];
  }
  PROTRAIN_CLONES static void spread(const float *dy, std::int64_t stride, std::int64_t count, float *dx) {
#pragma GCC ivdep
    for (std::int64_t i = 0; i < count; ++i) dx[i * (kStride > 0 ? kStride : stride)] += dy[i];
  }
};

struct Divide {
  PROTRAIN_CLONES static void by(const float *counts, float scale, std::int64_t count, const float *from, float *to) {
#pragma GCC ivdep
    for (std::int64_t i = 0; i < count; ++i) to[i] = from[i] / (counts[i] * scale);
  }
};

// Calls act(RowLoops) with the loops for a stride.
template <typename Act>
void with_stride(std::int64_t stride, Act act) {
  if (stride == 1) return act(RowLoops<1>{});
  if (stride == 2) return act(RowLoops<2>{});
  act(RowLoops<0>{});
}

// The place of a row of windows. `plane` is the plane that contains the row. `first` and `second` are the numbers of
// the row's windows along the first two spatial axes, which are the same for all windows of the row.
struct RowPlace {
  std::int64_t plane, first, second;
};

class PoolKernel : public CpuKernel {
 protected:
  explicit PoolKernel(const KernelRequest &request) : shape_(request), reaching_(reaching(shape_)) {
    for (std::int64_t k = reaching_.begin; k < std::min(reaching_.end, reaching_.begin + kMostKept); ++k)
      inside_.push_back(windows_of(k));
    for (std::int64_t o = 0; o < shape_.output[2]; ++o) counts_.push_back(static_cast<float>(shape_.counted(2, o)));
  }

  std::int64_t width() const { return shape_.output[2]; }
  std::int64_t rows_of_plane() const { return shape_.output[0] * shape_.output[1]; }
  RowPlace place_of(std::int64_t row) const {
    const std::int64_t in_plane = row % rows_of_plane();
    return {row / rows_of_plane(), in_plane / shape_.output[1], in_plane % shape_.output[1]};
  }

  // Calls act(place of the row in a plane of x) for each row of x that the windows reach, in order.
  template <typename Act>
  void each_row_of_x(const RowPlace &row, Act act) const {
    const PoolShape &s = shape_;
    for (std::int64_t k = 0; k < s.kernel[0]; ++k) {
      const std::int64_t i = row.first * s.strides[0] + k * s.dilations[0] - s.before[0];
      for (std::int64_t l = 0; i >= 0 && i < s.input[0] && l < s.kernel[1]; ++l) {
        const std::int64_t j = row.second * s.strides[1] + l * s.dilations[1] - s.before[1];
        if (j >= 0 && j < s.input[1]) act((i * s.input[1] + j) * s.input[2]);
      }
    }
  }
  // Calls act(windows, place) for each element of a window along the last axis, in order. `windows` is the range of
  // windows in which this element lies inside of x. `place` is the element's place in a row of x, for the first of
  // these windows.
  template <typename Act>
  void each_element(Act act) const {
    for (std::int64_t k = reaching_.begin; k < reaching_.end; ++k) {
      const auto at = static_cast<std::size_t>(k - reaching_.begin);
      const Range windows = at < inside_.size() ? inside_[at] : windows_of(k);
      if (windows.begin < windows.end) act(windows, windows.begin * shape_.strides[2] + place_in_first_window(k));
    }
  }

  // Chooses the largest element of each window of a row. Writes its value to `best` and its place in the plane to `at`.
  // read(place) returns the row of x that begins at this place of the plane, as floats.
  template <typename Read>
  void choose(const RowPlace &row, Read read, float *best, std::int32_t *at) const {
    std::fill_n(best, width(), -std::numeric_limits<float>::infinity());
    std::fill_n(at, width(), -1);
    each_row_of_x(row, [&](std::int64_t row_at) {
      const float *x = read(row_at);
      with_stride(shape_.strides[2], [&]<int kStride>(RowLoops<kStride>) {
        each_element([&](const Range &windows, std::int64_t from) {
          RowLoops<kStride>::choose_larger(x + from, shape_.strides[2], windows.size(), best + windows.begin,
                                           at + windows.begin, static_cast<std::int32_t>(row_at + from));
        });
      });
    });
  }

  // Divides a row of numbers, one for each window, by the number of elements that AveragePool counts in the window.
  void divide(const RowPlace &row, const float *from, float *to) const {
    const std::int64_t others = shape_.counted(0, row.first) * shape_.counted(1, row.second);
    Divide::by(counts_.data(), static_cast<float>(others), width(), from, to);
  }

  const PoolShape shape_;

 private:
  // Returns which elements of a window, counted along the last axis, can lie inside of x. With many pads these are few.
  static Range reaching(const PoolShape &s) {
    const std::int64_t farthest = (s.output[2] - 1) * s.strides[2];  // from the first window to the last
    const std::int64_t begin = std::max<std::int64_t>(divided_up(s.before[2] - farthest, s.dilations[2]), 0);
    return {begin, std::min(divided_up(s.before[2] + s.input[2], s.dilations[2]), s.kernel[2])};
  }
  std::int64_t place_in_first_window(std::int64_t k) const { return k * shape_.dilations[2] - shape_.before[2]; }
  // Returns the windows, along the last axis, whose k-th element lies inside of x and not in the pads.
  Range windows_of(std::int64_t k) const {
    const std::int64_t begin = place_in_first_window(k), stride = shape_.strides[2];
    const std::int64_t least = begin >= 0 ? 0 : divided_up(-begin, stride);
    const std::int64_t end = begin >= shape_.input[2] ? 0 : (shape_.input[2] - 1 - begin) / stride + 1;
    return {std::min(least, shape_.output[2]), std::min(end, shape_.output[2])};
  }

  static constexpr std::int64_t kMostKept = 1 << 12;
  const Range reaching_;
  std::vector<Range> inside_;  // windows_of() the first kMostKept of the elements `reaching_`
  std::vector<float> counts_;  // how many elements of each window along the last axis count
};

template <typename T>
class Pool : public PoolKernel {
 public:
  Pool(const KernelRequest &request, int team_size) : PoolKernel(request) {
    ScratchLayout own;
    x_at_ = own.take<float>(shape_.input[2]);
    y_at_ = own.take<float>(width());
    places_at_ = own.take<std::int32_t>(width());
    scratch_ = TeamScratch(0, own.total());
    scratch_bytes = scratch_.bytes(members_at_work(shape_.planes * rows_of_plane(), team_size));
  }

  void run(Member &member, const Launch &launch) override {
    const Range mine = share(shape_.planes * rows_of_plane(), 1, member);
    float *x_room = scratch_.own<float>(member, launch, x_at_), *y_room = scratch_.own<float>(member, launch, y_at_);
    std::int32_t *places = scratch_.own<std::int32_t>(member, launch, places_at_);
    T *y = optional_output<T>(launch, 0);
    std::int64_t *indices = optional_output<std::int64_t>(launch, 1);
    for (std::int64_t row = mine.begin; row < mine.end; ++row) {
      const RowPlace at = place_of(row);
      const T *plane = input<T>(launch, 0) + at.plane * shape_.input_count();
      const auto read = [&](std::int64_t row_at) { return row_of(plane + row_at, x_room); };
      float *to = y_room;
      if constexpr (std::is_same_v<T, float>)
        if (y != nullptr) to = y + row * width();
      if (indices != nullptr) {
        choose(at, read, to, places);
        for (std::int64_t i = 0; i < width(); ++i) indices[row * width() + i] = index_of(at.plane, places[i]);
      } else if (shape_.largest) {
        take(at, read, to, -std::numeric_limits<float>::infinity(),
             [](auto loops, auto... arguments) { decltype(loops)::take_larger(arguments...); });
      } else {
        take(at, read, to, 0.0f, [](auto loops, auto... arguments) { decltype(loops)::add(arguments...); });
        divide(at, to, to);
      }
      if constexpr (!std::is_same_v<T, float>)
        if (y != nullptr) narrow(to, y + row * width(), width());
    }
  }

 private:
  const float *row_of(const T *x, float *room) const {
    if constexpr (std::is_same_v<T, float>) return x;
    widen(x, room, shape_.input[2]);
    return room;
  }
  // Reduces the elements of each window of a row to one number by `join`, beginning with `start`.
  template <typename Read, typename Join>
  void take(const RowPlace &row, Read read, float *to, float start, Join join) const {
    std::fill_n(to, width(), start);
    each_row_of_x(row, [&](std::int64_t row_at) {
      const float *x = read(row_at);
      with_stride(shape_.strides[2], [&](auto loops) {
        each_element([&](const Range &windows, std::int64_t from) {
          join(loops, x + from, shape_.strides[2], windows.size(), to + windows.begin);
        });
      });
    });
  }
  std::int64_t index_of(std::int64_t plane, std::int64_t place) const {
    if (place < 0) return -1;
    const std::int64_t i = place / (shape_.input[1] * shape_.input[2]), j = place / shape_.input[2] % shape_.input[1];
    return plane * shape_.input_count() + i * shape_.index_steps[0] + j * shape_.index_steps[1] +
           place % shape_.input[2] * shape_.index_steps[2];
  }

  std::uint64_t x_at_, y_at_, places_at_;
  TeamScratch scratch_;
};

template <typename T>
class PoolGrad : public PoolKernel {
 public:
  PoolGrad(const KernelRequest &request, int team_size) : PoolKernel(request) {
    ScratchLayout own;
    const bool narrow = !std::is_same_v<T, float>;
    dy_at_ = own.take<float>(width());
    best_at_ = own.take<float>(width());
    places_at_ = own.take<std::int32_t>(width());
    x_at_ = own.take<float>(narrow ? shape_.input[2] : 0);
    dx_at_ = own.take<float>(narrow ? shape_.input_count() : 0);
    scratch_ = TeamScratch(0, own.total());
    scratch_bytes = scratch_.bytes(members_at_work(shape_.planes, team_size));
  }

  void run(Member &member, const Launch &launch) override {
    const Range mine = share(shape_.planes, 1, member);
    float *dy_room = scratch_.own<float>(member, launch, dy_at_), *sums = scratch_.own<float>(member, launch, dx_at_);
    for (std::int64_t plane = mine.begin; plane < mine.end; ++plane) {
      T *dx = output<T>(launch, 0) + plane * shape_.input_count();
      if constexpr (std::is_same_v<T, float>) sums = dx;
      std::fill_n(sums, shape_.input_count(), 0.0f);
      for (std::int64_t row = plane * rows_of_plane(); row < (plane + 1) * rows_of_plane(); ++row) {
        const RowPlace at = place_of(row);
        widen(input<T>(launch, 0) + row * width(), dy_room, width());
        if (shape_.largest)
          give_to_largest(member, launch, at, dy_room, sums);
        else
          give_to_all(at, dy_room, sums);
      }
      if constexpr (!std::is_same_v<T, float>) narrow(sums, dx, shape_.input_count());
    }
  }

 private:
  void give_to_largest(const Member &member, const Launch &launch, const RowPlace &row, const float *dy,
                       float *sums) const {
    const T *plane = input<T>(launch, 1) + row.plane * shape_.input_count();
    float *room = scratch_.own<float>(member, launch, x_at_), *best = scratch_.own<float>(member, launch, best_at_);
    std::int32_t *at = scratch_.own<std::int32_t>(member, launch, places_at_);
    choose(
        row,
        [&](std::int64_t row_at) -> const float * {
          if constexpr (std::is_same_v<T, float>) return plane + row_at;
          widen(plane + row_at, room, shape_.input[2]);
          return room;
        },
        best, at);
    for (std::int64_t i = 0; i < width(); ++i)
      if (at[i] >= 0) sums[at[i]] += dy[i];
  }
  void give_to_all(const RowPlace &row, float *dy, float *sums) const {
    divide(row, dy, dy);
    each_row_of_x(row, [&](std::int64_t row_at) {
      with_stride(shape_.strides[2], [&]<int kStride>(RowLoops<kStride>) {
        each_element([&](const Range &windows, std::int64_t to) {
          RowLoops<kStride>::spread(dy + windows.begin, shape_.strides[2], windows.size(), sums + row_at + to);
        });
      });
    });
  }

  std::uint64_t dy_at_, best_at_, places_at_, x_at_, dx_at_;
  TeamScratch scratch_;
};
}  // namespace

KernelPtr make_pool(const KernelRequest &request, int team_size) {
  return make_by_float<Pool>(request, request.inputs.at(0), team_size);
}
KernelPtr make_pool_grad(const KernelRequest &request, int team_size) {
  return make_by_float<PoolGrad>(request, request.inputs.at(0), team_size);
}

}  // namespace protrain::backend::cpu
