// Opens a device and prints "0 DESCRIPTION", or the error's code, subject and text.
#include <cstdio>

#include "backend/backend.h"
#include "base/error.h"

int main(int, char **arguments) {
  try {
    std::printf("0 %s\n", protrain::backend::open(arguments[1], 1)->info().description.c_str());
  } catch (const protrain::Error &error) {
    std::printf("%d %s: %s\n", static_cast<int>(error.code), error.subject.c_str(), error.text.c_str());
  }
}
