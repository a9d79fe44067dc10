#include "backend/cpu/floats.h"

namespace protrain::backend::cpu {

namespace {
template <typename T>
struct Loops {
  PROTRAIN_CLONES static void widen(const T *from, float *to, std::int64_t count) {
#pragma GCC ivdep
    for (std::int64_t i = 0; i < count; ++i) to[i] = widened(from[i]);
  }
  PROTRAIN_CLONES static void narrow(const float *from, T *to, std::int64_t count) {
#pragma GCC ivdep
    for (std::int64_t i = 0; i < count; ++i) to[i] = narrowed<T>(from[i]);
  }
};
}  // namespace

template <typename T>
void widen(const T *from, float *to, std::int64_t count) {
  Loops<T>::widen(from, to, count);
}
template <typename T>
void narrow(const float *from, T *to, std::int64_t count) {
  Loops<T>::narrow(from, to, count);
}

template void widen(const float *from, float *to, std::int64_t count);
template void widen(const bf16 *from, float *to, std::int64_t count);
template void widen(const f16 *from, float *to, std::int64_t count);
template void narrow(const float *from, float *to, std::int64_t count);
template void narrow(const float *from, bf16 *to, std::int64_t count);
template void narrow(const float *from, f16 *to, std::int64_t count);

}  // namespace protrain::backend::cpu
