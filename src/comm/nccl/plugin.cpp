// The functions that the plugin for NCCL exports.
#include "comm/plugin.h"

#include "comm/nccl/channel.h"

#define PROTRAIN_EXPORT extern "C" __attribute__((visibility("default")))

PROTRAIN_EXPORT const char *protrain_plugin_build_id() { return PROTRAIN_COMM_BUILD_ID; }

PROTRAIN_EXPORT protrain::comm::Channel *protrain_plugin_open_gpu_channel(const protrain::comm::GpuRequest &request,
                                                                          protrain::Error &error) {
  return protrain::comm::open_or_say<protrain::comm::nccl::NcclChannel>(request, error);
}
