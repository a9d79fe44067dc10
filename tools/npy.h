// NumPy's .npy format.
#pragma once

#include <string>

#include "array_layout.h"
#include "input_file.h"

namespace tool {

// NumPy's name of a type, such as "<f4". Throws Failure for a type that NumPy lacks.
std::string npy_descr(protrain_dtype dtype, const std::string &path);

// Reads the header. Throws Failure unless the file is a little-endian array whose data fit its shape.
ArrayLayout npy_layout(const InputFile &file);

}  // namespace tool
