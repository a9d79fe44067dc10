// Conversion of a data file's elements to the type that an input of the model has.
#pragma once

#include <protrain.h>

#include <cstddef>
#include <string>
#include <vector>

namespace tool {

// Returns the type in which a session takes elements of type `from` for an input. `wanted` is the input's type, as
// `protrain check` names it. Elements that already have the input's type keep it. Otherwise, elements for an input of
// floating-point numbers become float32, and whole numbers for an input of whole numbers get the input's type. Throws
// Failure, with `subject` and `input`, if floating-point numbers would have to become whole numbers.
protrain_dtype taken_as(protrain_dtype from, const std::string &wanted, const std::string &subject,
                        const std::string &input);

// Converts all elements. Throws Failure, whose text names `subject`, for a whole number that type `to` cannot hold.
std::vector<std::byte> converted(const std::vector<std::byte> &elements, protrain_dtype from, protrain_dtype to,
                                 const std::string &subject);

}  // namespace tool
