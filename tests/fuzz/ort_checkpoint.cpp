// Fuzzes checkpoints of onnxruntime-training. The values of an accepted checkpoint must lie in the file.
#include "onnx_import/ort_checkpoint.h"

#include <memory>
#include <vector>

#include "fuzz/answer.h"

using namespace protrain;

namespace {

void expect_within(const std::vector<onnx_import::CheckpointTensor> &tensors, std::size_t size) {
  for (const onnx_import::CheckpointTensor &tensor : tensors)
    fuzz::expect(tensor.beside || (tensor.offset <= size && tensor.bytes <= size - tensor.offset),
                 "a tensor that is not in the file");
}

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t size) {
  const auto *bytes = reinterpret_cast<const std::byte *>(data);
  const File file = File::in_memory("fuzz", std::make_shared<const std::vector<std::byte>>(bytes, bytes + size));
  fuzz::answer([&] {
    const onnx_import::OrtCheckpoint checkpoint = onnx_import::read_ort_checkpoint(file);
    expect_within(checkpoint.trained, size);
    expect_within(checkpoint.frozen, size);
    for (const auto &[parameter, moments] : checkpoint.moments) expect_within(moments, size);
  });
  return 0;
}
