// A plugin of another build. The library must ask for its build id and then open nothing, so the other function aborts.
#include <cstdlib>

#define PROTRAIN_EXPORT extern "C" __attribute__((visibility("default")))

PROTRAIN_EXPORT const char *protrain_plugin_build_id() { return "0.0.9-somebody-elses"; }
PROTRAIN_EXPORT void *protrain_plugin_open() { std::abort(); }
