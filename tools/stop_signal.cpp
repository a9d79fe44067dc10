#include "stop_signal.h"

#include <csignal>

namespace tool {

namespace {

volatile std::sig_atomic_t signal_number = 0;

}  // namespace

void note_stop_signals() {
  struct sigaction action {};
  action.sa_handler = [](int number) { signal_number = number; };
  action.sa_flags = static_cast<int>(SA_RESETHAND | SA_RESTART);
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

int stop_signal() { return signal_number; }

}  // namespace tool
