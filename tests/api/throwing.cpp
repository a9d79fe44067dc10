// A C++ host program whose log callback throws. The library goes on, and no exception escapes from it.
#include <stdexcept>

extern "C" {
#include "check.h"
}

namespace {

int heard = 0;

void throws(const char *, void *) {
  ++heard;
  throw std::runtime_error("the host's own");
}

}  // namespace

int main() {
  protrain_options *options = nullptr;
  const char *json = nullptr;
  OK(protrain_options_create(&options));
  for (const char *dim : {"batch=2", "sequence=32"}) OK(protrain_options_set(options, "dim", dim));
  OK(protrain_options_set(options, "profile_dir", "api_throwing_profile"));
  OK(protrain_options_set_log(options, throws, nullptr));
  OK(protrain_model_profile(options, gpt2_path(), &json));
  CHECK(strstr(json, "\"kernels\"") != nullptr);
  CHECK(heard > 10);
  protrain_options_destroy(options);
}
