// Sparse tensors become dense ones before anything else reads them.
#pragma once

#include "onnx_import/model.pb.h"
#include "onnx_import/tensors.h"

namespace protrain::onnx_import {

// Puts dense tensors in the place of all sparse initializers and of all Constants with a sparse value. Code::limit if
// they would take more than 64 MiB and 64 times what the file holds of them.
void make_dense(ModelProto &model, const Storage &storage);

}  // namespace protrain::onnx_import
