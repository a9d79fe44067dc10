// A rank that trains until a call fails. injected.py starts a group of such ranks and makes one of them fail.
//   injected_rank KIND MODEL REPORTS CHECKPOINTS KEY=VALUE...
// The signal SIGUSR1 makes this rank fail in the way that KIND names: `error` (the disk fails), `exception` (no memory
// is left), `nan` (a value of the next batch is NaN) or `label` (a label of the next batch lies beyond the classes).
// For all other kinds injected.py makes the rank fail from outside, for example by SIGKILL. The file REPORTS/rank.N
// gets a line for each event: the time of the monotonic clock in seconds, the event, a number, and a text.
#include <dlfcn.h>
#include <fcntl.h>
#include <liburing.h>
#include <protrain.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <string>
#include <vector>

#define STANDS_IN extern "C" __attribute__((visibility("default")))

namespace {

enum Kind : int { outside, error, exception, nan_value, label };
constexpr const char *kKindNames[] = {"", "error", "exception", "nan", "label"};
constexpr int kStepsToSave = 8, kStepsAfter = 2;

Kind kind = outside;
volatile sig_atomic_t injected = 0;
int report = -1;

bool injects(Kind one) { return injected != 0 && kind == one; }
bool disk_fails() {
  if (!injects(error)) return false;
  errno = EIO;
  return true;
}

template <typename Function>
Function *next(const char *name) {
  return reinterpret_cast<Function *>(dlsym(RTLD_NEXT, name));
}

void say(const char *event, int number, const char *text) {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  dprintf(report, "%ld.%09ld %s %d %s\n", static_cast<long>(now.tv_sec), now.tv_nsec, event, number, text);
}

int rank_of(int argc, char **argv) {
  for (int i = 5; i < argc; ++i)
    if (std::strncmp(argv[i], "rank=", 5) == 0) return std::atoi(argv[i] + 5);
  for (const char *name : {"OMPI_COMM_WORLD_RANK", "PMI_RANK"})
    if (const char *text = std::getenv(name); text != nullptr) return std::atoi(text);
  return 0;
}

void require(protrain_error *error) {
  if (error == nullptr) return;
  say("broken", protrain_error_code(error), protrain_error_text(error));
  _exit(3);
}

// Returns false if `error` is nullptr. Otherwise reports the error, sets `usable` to whether the session is still
// usable, and returns true.
bool failed(protrain_error *error, bool *usable) {
  if (error == nullptr) return false;
  injected = 0;
  *usable = protrain_error_usable(error) == 1;
  say("failed", protrain_error_code(error), protrain_error_text(error));
  protrain_error_destroy(error);
  return true;
}

bool set_inputs(protrain_session *session, bool *usable) {
  static std::vector<float> pixels(2 * 3 * 16 * 16, 0.5f);
  static std::vector<int64_t> labels = {0, 1};
  const int64_t image[] = {2, 3, 16, 16}, batch[] = {2};
  pixels[7] = injects(nan_value) ? std::nanf("") : 0.5f;
  labels[1] = injects(label) ? 1 << 20 : 1;
  return !failed(protrain_session_set_input(session, "pixel_values", PROTRAIN_FLOAT32, image, 4, pixels.data(),
                                            pixels.size() * sizeof(float)),
                 usable) &&
         !failed(protrain_session_set_input(session, "labels", PROTRAIN_INT64, batch, 1, labels.data(),
                                            labels.size() * sizeof(int64_t)),
                 usable);
}

// Trains until a call fails. If the session is still usable after the error, trains for kStepsAfter more steps.
void train(protrain_session *session, const char *checkpoints) {
  bool usable = true;
  int after = -1;  // steps since the error; -1: there was none
  for (int step = 1; usable && after < kStepsAfter; ++step) {
    float loss = 0;
    if (!set_inputs(session, &usable)) _exit(1);  // as a program does that cannot go on; the others see it leave
    const bool saves = step % kStepsToSave == 0 && after < 0;
    if (failed(protrain_step(session, &loss), &usable) ||
        (saves && failed(protrain_session_save(session, checkpoints), &usable)))
      after = 0;
    else if (after >= 0)
      ++after;
  }
  if (usable) say("went-on", after, "");
}

}  // namespace

void *operator new(size_t bytes) {
  void *at = injects(exception) ? nullptr : std::malloc(bytes);
  return at != nullptr ? at : throw std::bad_alloc();
}
void operator delete(void *at) noexcept { std::free(at); }
void operator delete(void *at, size_t) noexcept { std::free(at); }

STANDS_IN ssize_t pread(int file, void *to, size_t bytes, off_t at) {
  static const auto real = next<decltype(::pread)>("pread");
  return disk_fails() ? -1 : real(file, to, bytes, at);
}
STANDS_IN ssize_t pwrite(int file, const void *from, size_t bytes, off_t at) {
  static const auto real = next<decltype(::pwrite)>("pwrite");
  return disk_fails() ? -1 : real(file, from, bytes, at);
}
STANDS_IN int io_uring_submit(io_uring *ring) {
  static const auto real = next<decltype(::io_uring_submit)>("io_uring_submit");
  return disk_fails() ? -EIO : real(ring);
}

int main(int argc, char **argv) {
  if (argc < 5) return 2;
  for (const Kind one : {error, exception, nan_value, label})
    if (std::strcmp(argv[1], kKindNames[one]) == 0) kind = one;
  signal(SIGUSR1, [](int) { injected = 1; });
  signal(SIGXFSZ, SIG_IGN);
  report = open((std::string(argv[3]) + "/rank." + std::to_string(rank_of(argc, argv))).c_str(),
                O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  say("ready", getpid(), "");
  protrain_options *options = nullptr;
  require(protrain_options_create(&options));
  for (int i = 5; i < argc; ++i) {
    const std::string option = argv[i];
    const std::size_t at = option.find('=');
    require(protrain_options_set(options, option.substr(0, at).c_str(), option.substr(at + 1).c_str()));
  }
  protrain_session *session = nullptr;
  bool usable = true;
  if (!failed(protrain_session_create(options, argv[2], &session), &usable)) {
    say("created", 0, "");
    train(session, argv[4]);
  }
  // A launcher of MPI ends the other ranks as soon as one has left. This rank waits, so that they can report first.
  if (std::getenv("PROTRAIN_INJECTED_WAIT") != nullptr) sleep(2);
  protrain_session_destroy(session);
  protrain_options_destroy(options);
  say("left", 0, "");
  return 0;
}
