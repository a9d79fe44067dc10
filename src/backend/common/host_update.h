// The optimizer's update of arrays in the host's memory, by any number of threads. The CPU makes all its updates this
// way, and a GPU those of parameters that rest with the host.
#pragma once

#include <memory>

#include "backend/backend.h"
#include "base/threads.h"

namespace protrain::backend {

class HostUpdate {
 public:
  virtual ~HostUpdate() = default;
  // Updates the member's share; no barrier. The launch is that of Device::compile_update.
  virtual void run(const Member &member, const Launch &launch) const = 0;
};

// Code::unsupported where there is no update of such weights by such gradients.
std::unique_ptr<HostUpdate> make_host_update(const UpdateRequest &request);

}  // namespace protrain::backend
