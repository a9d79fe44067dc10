// A C++ host program that sets an option again and again. Each time another allocation of this call fails: the first,
// then the second, and so on.
#include <cstdlib>
#include <new>

extern "C" {
#include "check.h"
}

namespace {

int allowed = -1;  // allocations that still succeed; -1: all

}  // namespace

void *operator new(size_t bytes) {
  if (allowed == 0) throw std::bad_alloc();
  if (allowed > 0) --allowed;
  void *at = std::malloc(bytes);
  return at != nullptr ? at : throw std::bad_alloc();
}
void operator delete(void *at) noexcept { std::free(at); }
void operator delete(void *at, size_t) noexcept { std::free(at); }

int main() {
  const char *const before = "a directory whose name is too long to lie within a std::string";
  const char *const after = "another directory whose name is too long to lie within a std::string";
  const char *value = nullptr;
  protrain_options *options = nullptr;
  OK(protrain_options_create(&options));
  OK(protrain_options_set(options, "profile_dir", before));
  int failures = 0;
  for (bool set = false; !set; ++failures) {
    allowed = failures;
    protrain_error *error = protrain_options_set(options, "profile_dir", after);
    allowed = -1;
    set = error == nullptr;
    CHECK(set || protrain_error_code(error) == PROTRAIN_ERROR_NOMEM);
    protrain_error_destroy(error);
    OK(protrain_options_get(options, "profile_dir", &value));
    CHECK(strcmp(value, set ? after : before) == 0);
  }
  CHECK(failures > 1);
  protrain_options_destroy(options);
}
