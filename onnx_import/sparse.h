// Sparse tensors become dense ones before anything else reads them.
#pragma once

#include "onnx_import/model.pb.h"
#include "onnx_import/tensors.h"

namespace protrain::onnx_import {

// Replaces all sparse initializers, and all sparse values of Constants, by dense tensors. Throws Code::limit if the
// dense tensors take more than 64 MiB plus 64 times the bytes of the sparse ones in the file.
void make_dense(ModelProto &model, const Storage &storage);

}  // namespace protrain::onnx_import
