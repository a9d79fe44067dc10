// Rotary position embedding: pairs of the last dim are rotated by an angle that depends on the position. The gradient
// is the same operator with the negated angle.
#include "backend/cuda/elementwise.h"

namespace protrain::backend::cuda {

namespace {
struct Rotation {
  std::int64_t heads, dims, half;  // half: pairs that are rotated
  std::int64_t table_rows[2];      // of cosines, of sines
  float sign;                      // 1, or -1 to rotate back
  bool interleaved;                // elements 2i and 2i + 1 are a pair; else i and half + i
};

template <typename T>
class Rotary : public CudaKernel {
 public:
  explicit Rotary(const KernelRequest &request) {
    const graph::Attributes &attributes = request.node.attributes;
    const Shape &shape = request.inputs.at(0).shape;  // (B, S, H, D)
    require(shape.size() == 4, Code::shape, subject(request), "x is {}, (B, S, H, D) is expected", to_text(shape));
    rows_ = shape[0] * shape[1] * shape[2];
    r_.heads = shape[2];
    r_.dims = shape[3];
    r_.half = attributes.integer("rotary_dim", r_.dims) / 2;
    require(r_.half >= 0 && 2 * r_.half <= r_.dims, Code::shape, subject(request), "{} dims cannot turn in heads of {}",
            2 * r_.half, r_.dims);
    for (std::size_t i : {0, 1}) {
      const Shape &table = request.inputs.at(i + 1).shape;  // (1|B, S, R/2)
      require(table == Shape{1, shape[1], r_.half} || table == Shape{shape[0], shape[1], r_.half}, Code::shape,
              subject(request), "a table of {} for x of {}", to_text(table), to_text(shape));
      require_dtype(request, request.inputs[i + 1], request.inputs[0].dtype);
      r_.table_rows[i] = table[0] * table[1];
    }
    r_.sign = attributes.integer("inverse", 0) != 0 ? -1.0f : 1.0f;
    r_.interleaved = attributes.integer("interleaved", 0) != 0;
  }

  void run(Stream stream, const Launch &launch) override {
    const T *x = input<T>(launch, 0), *cosines = input<T>(launch, 1), *sines = input<T>(launch, 2);
    T *y = output<T>(launch, 0);
    // A thread rotates a pair, or copies an element that is not rotated.
    each(stream, rows_ * (r_.dims - r_.half), [x, cosines, sines, y, r = r_] __device__(std::int64_t i) {
      std::int64_t at = 0, head = 0;
      const std::int64_t row = divide(i, r.dims - r.half, at), position = divide(row, r.heads, head);
      const T *from = x + row * r.dims;
      T *to = y + row * r.dims;
      if (at >= r.half) {
        to[r.half + at] = from[r.half + at];
        return;
      }
      const std::int64_t first = r.interleaved ? 2 * at : at, second = r.interleaved ? 2 * at + 1 : r.half + at;
      std::int64_t cosine_row = 0, sine_row = 0;
      divide(position, r.table_rows[0], cosine_row), divide(position, r.table_rows[1], sine_row);
      const float c = widened(cosines[cosine_row * r.half + at]);
      const float s = r.sign * widened(sines[sine_row * r.half + at]);
      const float a = widened(from[first]), b = widened(from[second]);
      to[first] = narrowed<T>(a * c - b * s);
      to[second] = narrowed<T>(b * c + a * s);
    });
  }

 private:
  Rotation r_{};
  std::int64_t rows_;
};
}  // namespace

KernelPtr make_rotary(const KernelRequest &request, DeviceState &) {
  return by_float(request, request.inputs.at(0),
                  [&]<typename T>(T) -> KernelPtr { return std::make_unique<Rotary<T>>(request); });
}

}  // namespace protrain::backend::cuda
