// The activations that the operator Gated may use.
#pragma once

#include "arith/unary.h"
#include "backend/request.h"
#include "base/error.h"

namespace protrain::backend {

// Calls make(F{}), where F is the activation in arith/unary.h that the node's attributes name.
template <typename Make>
auto by_activation(const KernelRequest &request, Make make) {
  const std::string name = request.node.attributes.text("activation", "");
  if (name == "Silu") return make(arith::Silu{});
  if (name == "Gelu" && request.node.attributes.text("approximate", "none") == "tanh") return make(arith::GeluTanh{});
  if (name == "Gelu") return make(arith::Gelu{});
  if (name == "Sigmoid") return make(arith::Sigmoid{});
  if (name == "Relu") return make(arith::Relu{});
  require(name == "Tanh", Code::unsupported, subject(request), "{} has no loop for {}", request.node.op, name);
  return make(arith::Tanh{});
}

}  // namespace protrain::backend
