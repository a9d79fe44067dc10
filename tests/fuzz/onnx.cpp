// Fuzzes ONNX files. The target opens, prepares and differentiates the model. There are a real file and a real folder
// that a model can name as the place of its external data.
#include "fuzz/differentiate.h"

using namespace protrain;

int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t size) {
  fuzz::differentiate(std::string(fuzz::text_of(data, size)));
  return 0;
}
