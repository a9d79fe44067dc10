/* Compiles protrain.h alone. CMakeLists.txt names the dialects. */
#include <protrain.h>

int main(void) {
  protrain_options *options = 0;
  protrain_error *error = protrain_options_create(&options);
  const int failed = protrain_error_code(error) != PROTRAIN_OK || protrain_version()[0] == '\0';
  protrain_error_destroy(error);
  protrain_options_destroy(options);
  return failed;
}
