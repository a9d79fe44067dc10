// The activations that the operator Gated accepts.
#pragma once

#include <string>

#include "graph/attributes.h"

namespace protrain::test {

inline const graph::Attributes kActivations[] = {
    {{"activation", std::string("Silu")}},
    {{"activation", std::string("Gelu")}},
    {{"activation", std::string("Gelu")}, {"approximate", std::string("tanh")}},
    {{"activation", std::string("Sigmoid")}},
    {{"activation", std::string("Relu")}},
    {{"activation", std::string("Tanh")}}};

}  // namespace protrain::test
