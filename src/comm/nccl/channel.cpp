#include "comm/nccl/channel.h"

#include <cuda.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <thread>

#include "comm/agree.h"

namespace protrain::comm::nccl {

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kQuestion(1);  // between two looks at the hosts' channel
constexpr std::chrono::seconds kFarewell(5);  // the longest time that an orderly end may take

void check(cudaError_t code, const char *what) {
  require(code == cudaSuccess, Code::device, "comm", "{}: {}", what, cudaGetErrorString(code));
}

// Returns a function of the driver, or nullptr without a driver.
template <typename Function>
Function driver_function(const char *name) {
  void *found = nullptr;
#if CUDART_VERSION >= 12050
  const cudaError_t code = cudaGetDriverEntryPointByVersion(name, &found, 12000, cudaEnableDefault);
#else
  const cudaError_t code = cudaGetDriverEntryPoint(name, &found, cudaEnableDefault);
#endif
  return code == cudaSuccess ? reinterpret_cast<Function>(found) : nullptr;
}

// Gives the calling thread back the CUDA context that it had, as src/backend/cuda does.
class CallersContext {
 public:
  CallersContext() {
    static const auto get = driver_function<decltype(&cuCtxGetCurrent)>("cuCtxGetCurrent");
    if (get == nullptr || get(&context_) != CUDA_SUCCESS) context_ = nullptr;
  }
  ~CallersContext() {
    static const auto set = driver_function<decltype(&cuCtxSetCurrent)>("cuCtxSetCurrent");
    if (set != nullptr) set(context_);
  }
  CallersContext(const CallersContext &) = delete;
  CallersContext &operator=(const CallersContext &) = delete;

 private:
  CUcontext context_ = nullptr;
};

// Throws if the call failed. ncclInProgress is no failure: calls of a non-blocking communicator may return before they
// are done.
void check(ncclResult_t code, const char *what) {
  if (code == ncclSuccess || code == ncclInProgress) return;
  std::string reason = ncclGetErrorString(code);
  if (const char *last = ncclGetLastError(nullptr); last != nullptr && *last != 0) reason += std::string("; ") + last;
  fail(code == ncclRemoteError ? Code::peer : Code::device, "comm", "{}: {}", what, reason);
}

// Pauses between two polls. The first polls follow each other at once, because short exchanges take microseconds. Later
// polls leave the core to whoever computes.
void rest(int polls) {
  if (polls > 100) std::this_thread::sleep_for(std::chrono::microseconds(std::min(polls, 1000)));
}

// Returns the id by which the ranks find each other. Rank 0 draws it.
ncclUniqueId common_id(Channel &hosts) {
  ncclUniqueId id{};
  std::string text;
  if (hosts.rank() == 0) {
    check(ncclGetUniqueId(&id), "ncclGetUniqueId");
    text.assign(id.internal, sizeof id.internal);
  }
  text = broadcast_text(hosts, text);
  std::memcpy(id.internal, text.data(), std::min(text.size(), sizeof id.internal));
  return id;
}

}  // namespace

NcclChannel::NcclChannel(const GpuRequest &request) : hosts_(request.hosts), timeout_(request.timeout) {
  const CallersContext callers;
  try {
    check(cudaDeviceGetByPCIBusId(&gpu_, request.cuda_pci_bus_id.c_str()), "cudaDeviceGetByPCIBusId");
    use_gpu();
    check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
    meet();
  } catch (const Error &error) {
    break_with(error);
    abort_communicator();
    if (stream_ != nullptr) cudaStreamDestroy(stream_);
    throw *broken_;
  }
}

void NcclChannel::meet() {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  const ncclUniqueId id = common_id(hosts_);
  check(ncclCommInitRankConfig(&communicator_, ranks(), id, rank(), &config), "ncclCommInitRankConfig");
  poll([this] { return is_issued(); }, "the ranks did not meet");
}

// Waits until the other ranks have read what this rank sent, and then destroys the communicator. Aborts the
// communicator instead if the channel is broken, if NCCL reports an error, or if the wait takes longer than kFarewell.
NcclChannel::~NcclChannel() {
  const CallersContext callers;
  cudaSetDevice(gpu_);
  bool orderly = !broken_ && ncclCommFinalize(communicator_) != ncclInvalidArgument;
  const Clock::time_point end = Clock::now() + kFarewell;
  ncclResult_t state = ncclInProgress;
  for (int polls = 0; orderly && state == ncclInProgress; ++polls) {
    orderly = ncclCommGetAsyncError(communicator_, &state) == ncclSuccess && Clock::now() < end;
    rest(polls);
  }
  if (orderly && state == ncclSuccess)
    ncclCommDestroy(communicator_);
  else
    abort_communicator();
  cudaStreamDestroy(stream_);
}

void NcclChannel::exchange(std::span<const Send> sends, std::span<const Receive> receives) {
  throw_if_broken();
  const CallersContext callers;
  try {
    use_gpu();
    begin(sends, receives);
    poll(
        [this] {
          if (!is_issued()) return false;
          const cudaError_t state = cudaStreamQuery(stream_);
          if (state != cudaErrorNotReady) check(state, "an exchange between GPUs");
          return state == cudaSuccess;
        },
        "an exchange between GPUs did not end");
  } catch (const Error &error) {
    break_with(error);
    abort_communicator();  // the caller may use the memory again, so nothing may be sent from it any more
    throw_if_broken();
  }
}

void NcclChannel::abort_communicator() {
  if (communicator_ != nullptr) ncclCommAbort(communicator_);
  communicator_ = nullptr;
}

// Begins all messages of an exchange as one group. NCCL matches the messages between two ranks by their order.
void NcclChannel::begin(std::span<const Send> sends, std::span<const Receive> receives) {
  check(ncclGroupStart(), "ncclGroupStart");
  ncclResult_t code = ncclSuccess;
  const auto note = [&](ncclResult_t one) {
    if (one != ncclSuccess && one != ncclInProgress) code = one;
  };
  for (const Send &send : sends)
    if (send.bytes > 0) note(ncclSend(send.data, send.bytes, ncclInt8, send.rank, communicator_, stream_));
  for (const Receive &receive : receives)
    if (receive.bytes > 0) note(ncclRecv(receive.data, receive.bytes, ncclInt8, receive.rank, communicator_, stream_));
  const ncclResult_t ended = ncclGroupEnd();  // a group must be ended, whatever happened in it
  check(code, "ncclSend or ncclRecv");
  check(ended, "ncclGroupEnd");
}

bool NcclChannel::is_issued() {
  ncclResult_t state = ncclSuccess;
  check(ncclCommGetAsyncError(communicator_, &state), "ncclCommGetAsyncError");
  check(state, "NCCL");
  return state == ncclSuccess;
}

template <typename Done>
void NcclChannel::poll(Done done, const char *what) {
  const Clock::time_point begin = Clock::now();
  Clock::time_point question = begin + kQuestion;
  for (int polls = 0;; ++polls) {
    throw_if_broken();
    try {
      if (done()) return;
    } catch (const Error &) {
      hosts_.throw_if_failed();  // the hosts' channel may know the rank and the reason
      throw;
    }
    const Clock::time_point now = Clock::now();
    if (now >= question) {
      hosts_.throw_if_failed();
      question = now + kQuestion;
    }
    require(now - begin < timeout_, Code::timeout, "comm", "{} within {} ms; a rank may have failed", what,
            timeout_.count());
    rest(polls);
  }
}

void NcclChannel::use_gpu() const { check(cudaSetDevice(gpu_), "cudaSetDevice"); }

void NcclChannel::throw_if_broken() {
  const std::lock_guard lock(mutex_);
  if (broken_) throw *broken_;
}

void NcclChannel::throw_if_failed() {
  throw_if_broken();
  try {
    hosts_.throw_if_failed();
  } catch (const Error &error) {
    break_with(error);
    throw;
  }
}

void NcclChannel::break_with(const Error &error) noexcept {
  {
    const std::lock_guard lock(mutex_);
    if (broken_) return;
    broken_ = error;
    broken_->facts.channel_broken = true;
  }
  hosts_.abort(error.text);
}

void NcclChannel::abort(const std::string &reason) noexcept {
  try {
    break_with({Code::state, "comm", reason});
  } catch (const std::bad_alloc &) {  // the others then find out by their deadline
  }
}

}  // namespace protrain::comm::nccl
