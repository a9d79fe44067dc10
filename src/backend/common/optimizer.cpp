// The arrays that each optimizer keeps, which are the same on every device.
#include "arith/code8.h"
#include "backend/backend.h"
#include "base/error.h"

namespace protrain::backend {

static_assert(graph::kGrain % arith::kCodedBlock == 0);

const char *Optimizer::name() const {
  switch (kind) {
    case Kind::adamw:
      return coded ? "adamw8bit" : decoupled ? "adamw" : "adam";
    case Kind::sgd:
      return "sgd";
    case Kind::adagrad:
      return "adagrad";
    case Kind::lion:
      return "lion";
    case Kind::assign:
      break;
  }
  fail(Code::internal, "optimizer", "of an unknown kind");
}

std::vector<graph::OptimizerArray> Optimizer::state() const {
  std::vector<graph::OptimizerArray> arrays;
  if (average > 0) arrays.push_back({.name = kAverageName});
  if (kind == Kind::adamw && coded) {
    for (const char *scale : {"scale1", "scale2"}) arrays.push_back({.name = scale, .block = arith::kCodedBlock});
    for (const char *moment : {"moment1", "moment2"}) arrays.push_back({.name = moment, .dtype = DType::u8});
  } else if (kind == Kind::adamw) {
    for (const char *moment : {"moment1", "moment2"}) arrays.push_back({.name = moment});
  }
  if (kind == Kind::lion) arrays.push_back({.name = "moment"});
  if (kind == Kind::adagrad) arrays.push_back({.name = "sum"});
  if (kind == Kind::sgd && momentum != 0) arrays.push_back({.name = "momentum"});
  return arrays;
}

}  // namespace protrain::backend
