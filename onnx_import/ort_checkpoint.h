// Reads a checkpoint of onnxruntime-training: a file in the format of FlatBuffers, which holds the values of a model's
// parameters and, after training, the state of an optimizer.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/files.h"

namespace protrain::onnx_import {

// A tensor's place. Its values are not read.
struct CheckpointTensor {
  std::string name;
  std::vector<std::int64_t> dims;
  std::int32_t data_type = 0;           // as ONNX counts them
  bool beside = false;                  // the values lie in a file of their own, whose name ends in .data
  std::uint64_t offset = 0, bytes = 0;  // `bytes` only if the values lie in the checkpoint itself
};

struct OrtCheckpoint {
  std::vector<CheckpointTensor> trained, frozen;
  std::int64_t steps = 0;                                        // updates that the optimizer has made
  float learning_rate = 0;                                       // 0: not given
  std::map<std::string, std::vector<CheckpointTensor>> moments;  // by parameter
};

// Reads the tables and no values. Every offset and length is checked. Throws Code::format if the file is damaged.
// Throws Code::limit for more than 65,536 tensors or 16 MiB of names. Throws Code::unsupported for a nominal
// checkpoint, which has no values, and for an optimizer that has several groups.
OrtCheckpoint read_ort_checkpoint(const File &file);

}  // namespace protrain::onnx_import
