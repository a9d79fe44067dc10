/* api_test NAME: runs one test of the C ABI. */
#include "check.h"

int main(int argc, char **argv) {
  static const struct {
    const char *name;
    void (*run)(void);
  } tests[] = {{"life", test_life},     {"parameters", test_parameters}, {"save", test_save}, {"misuse", test_misuse},
               {"errors", test_errors}, {"threads", test_threads},       {"plan", test_plan}, {"host", test_host},
               {"exit", test_exit}};
  for (size_t i = 0; argc == 2 && i < sizeof tests / sizeof tests[0]; ++i) {
    if (strcmp(argv[1], tests[i].name) != 0) continue;
    tests[i].run();
    return 0;
  }
  fprintf(stderr, "usage: api_test life|parameters|save|misuse|errors|threads|plan|host|exit\n");
  return 2;
}
