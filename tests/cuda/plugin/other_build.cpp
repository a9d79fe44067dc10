// A plugin of another build. The library must ask for the build id, see the difference and not open the plugin. The
// function that opens it aborts, so that a call does not go unnoticed.
#include <cstdlib>

#define PROTRAIN_EXPORT extern "C" __attribute__((visibility("default")))

PROTRAIN_EXPORT const char *protrain_plugin_build_id() { return "0.0.9-somebody-elses"; }
PROTRAIN_EXPORT void *protrain_plugin_open() { std::abort(); }
