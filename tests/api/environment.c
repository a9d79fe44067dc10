/* With comm=none, creating a session reads no variable of a launcher. */
#include "check.h"

extern char **environ;

static int asked; /* how often a variable of a launcher was asked for */

/* Takes the place of the C library's function, for the library too. */
__attribute__((visibility("default"))) char *getenv(const char *name) {
  static const char *const launchers[] = {"OMPI_", "PMIX_", "PMI_", "SLURM_", "GLOO_"};
  for (size_t i = 0; i < sizeof launchers / sizeof launchers[0]; ++i)
    if (strncmp(name, launchers[i], strlen(launchers[i])) == 0) ++asked;
  const size_t length = strlen(name);
  for (char **variable = environ; variable != NULL && *variable != NULL; ++variable)
    if (strncmp(*variable, name, length) == 0 && (*variable)[length] == '=') return *variable + length + 1;
  return NULL;
}

static int asked_with(const char *comm) {
  protrain_options *options = gpt2_options();
  OK(protrain_options_set(options, "comm", comm));
  asked = 0;
  protrain_session_destroy(gpt2_session(options));
  return asked;
}

int main(void) {
  CHECK(asked_with("auto") > 0);
  CHECK(asked_with("none") == 0);
  return 0;
}
