// The optimizer's update of arrays in the host's memory, by any number of threads. The CPU makes all its updates this
// way. A GPU makes the updates of parameters that rest in host memory this way.
#pragma once

#include <memory>

#include "backend/backend.h"
#include "base/threads.h"

namespace protrain::backend {

class HostUpdate {
 public:
  virtual ~HostUpdate() = default;
  // Updates this member's share of the arrays, without waiting for other members. `launch` has the operands described
  // at Device::compile_update.
  virtual void run(const Member &member, const Launch &launch) const = 0;
};

// Makes the update of a request. Code::unsupported if weights of this type cannot be updated by gradients of this type.
std::unique_ptr<HostUpdate> make_host_update(const UpdateRequest &request);

}  // namespace protrain::backend
