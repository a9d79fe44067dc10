#include "stop_signal.h"

#include <csignal>

namespace tool {

namespace {

volatile std::sig_atomic_t signal_number = 0;

}  // namespace

void note_stop_signals() {
  struct sigaction action {};
  action.sa_handler = [](int number) {
    if (signal_number == 0) signal_number = number;  // Ctrl-C also ends the program that reads the output
  };
  action.sa_flags = static_cast<int>(SA_RESETHAND | SA_RESTART);
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  struct sigaction hangup {};
  sigaction(SIGHUP, nullptr, &hangup);
  if (hangup.sa_handler != SIG_IGN) sigaction(SIGHUP, &action, nullptr);  // nohup ignores it
  action.sa_flags = static_cast<int>(SA_RESTART);
  sigaction(SIGPIPE, &action, nullptr);
}

int stop_signal() { return signal_number; }

}  // namespace tool
