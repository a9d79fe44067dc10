// Bytes that may be an ONNX file. The target opens, prepares and differentiates them. External data is available.
#include "fuzz/differentiate.h"

using namespace protrain;

int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t size) {
  fuzz::differentiate(std::string(fuzz::text_of(data, size)));
  return 0;
}
