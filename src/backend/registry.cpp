// Which devices there are.
#include "backend/cpu/device.h"
#include "base/error.h"

namespace protrain::backend {

std::unique_ptr<Device> open(const std::string &device, int threads) {
  if (device == "cpu") return open_cpu(threads);
  fail(Code::unsupported, "device", "there is no device \"{}\"; this build knows: cpu", device);
}

}  // namespace protrain::backend
