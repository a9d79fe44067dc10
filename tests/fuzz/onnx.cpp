// Bytes that may be an ONNX file. They are opened, prepared and differentiated, with external data in reach.
#include "fuzz/differentiate.h"

using namespace protrain;

int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t size) {
  fuzz::differentiate(std::string(fuzz::text_of(data, size)));
  return 0;
}
