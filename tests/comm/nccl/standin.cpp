// Stands in for NCCL and for CUDA's runtime in libprotrain_nccl.so, on machines without GPUs. It defines the functions
// that src/comm/nccl calls. Ranks are processes of one machine and exchange bytes over shared memory. The stand-in is
// as strict as the real libraries, so that tests find wrong uses of them:
//   - a communicator is non-blocking: calls return before they are done, and the state tells when they are;
//   - a group's messages move later, on a thread of the communicator's, in parallel and at an irregular pace;
//   - messages must lie in the memory of the emulated GPU, if the process has one;
//   - two ranks on one GPU, a send and a receive of different sizes, and calls outside a group or after a failure are
//     errors;
//   - NCCL does not report that a rank is gone: its partners wait for ever.
#include <cuda.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <nccl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <filesystem>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

// The context of a GPU.
struct CUctx_st {
  int gpu;
};

namespace {

constexpr int kMostRanks = 8;
constexpr std::uint64_t kRing = 64 << 10;  // the most bytes under way from one rank to another

thread_local CUctx_st *current_context = nullptr;
thread_local std::string last_error;

// ---- The memory that the processes share.

// Bytes from one rank to another. `written` and `read` count all bytes since the beginning.
struct Ring {
  std::atomic<std::uint64_t> written, read;
  std::array<std::byte, kRing> bytes;
};

struct Shared {
  std::atomic<int> arrived;                                    // ranks that have come
  std::atomic<int> finished;                                   // ranks that have finalized
  std::array<std::atomic<int>, kMostRanks> gpu;                // the GPU of each rank, plus 1; 0: unknown
  std::array<std::array<Ring, kMostRanks>, kMostRanks> rings;  // by sender and receiver
};

Shared *open_shared(const char *name) {
  const int file = shm_open(name, O_RDWR | O_CREAT, 0600);
  if (file < 0 || ftruncate(file, sizeof(Shared)) != 0) return nullptr;
  void *memory = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  return memory == MAP_FAILED ? nullptr : static_cast<Shared *>(memory);
}

// ---- The emulated GPU's memory, which belongs to the emulated plugin.

struct EmulatedMemory {
  void (*access)(int begins) = nullptr;
  int (*holds)(const void *begin, std::uint64_t bytes) = nullptr;
};

EmulatedMemory emulated_memory() {
  Dl_info info;
  if (dladdr(reinterpret_cast<const void *>(&emulated_memory), &info) == 0) return {};
  const auto plugin = std::filesystem::path(info.dli_fname).parent_path() / "libprotrain_cuda.so";
  void *handle = dlopen(plugin.c_str(), RTLD_NOW | RTLD_NOLOAD);
  if (handle == nullptr) return {};
  return {reinterpret_cast<void (*)(int)>(dlsym(handle, "protrain_emulated_access")),
          reinterpret_cast<int (*)(const void *, std::uint64_t)>(dlsym(handle, "protrain_emulated_holds"))};
}

// ---- Groups of messages.

struct Message {
  bool sends;
  int peer;
  std::byte *at;
  std::uint64_t bytes;
  std::uint64_t done = 0;    // of the header and the bytes
  std::uint64_t header = 0;  // a receiver's: the number of bytes that the sender announced
};

struct Group {
  std::vector<Message> messages;
  cudaStream_t stream = nullptr;
};

}  // namespace

struct CUstream_st {
  std::atomic<int> at_work{0};  // groups that have not ended
};

struct ncclComm {
  std::string name;
  int rank = 0, ranks = 0, gpu = 0;
  Shared *shared = nullptr;
  EmulatedMemory memory;
  std::atomic<ncclResult_t> state{ncclInProgress};
  std::atomic<bool> ends{false}, finalizes{false};
  std::mutex mutex;  // guards groups
  std::deque<Group> groups;
  std::thread thread;

  Ring &ring(int from, int to) const {
    return shared->rings[static_cast<std::size_t>(from)][static_cast<std::size_t>(to)];
  }
  void run();
  bool meet();
  void work(Group &group);
  bool advance(Message &message) const;
};

namespace {

// The group of messages that this thread has begun.
thread_local int group_depth = 0;
thread_local std::vector<Message> open_group;
thread_local ncclComm *group_of = nullptr;
thread_local cudaStream_t stream_of_group = nullptr;

ncclResult_t wrong(ncclResult_t code, const char *text) {
  last_error = text;
  return code;
}

void pause(std::uint64_t turn) {
  if (turn % 7 == 3) std::this_thread::sleep_for(std::chrono::microseconds(turn * 2654435761u % 300));
}

// put() and take() copy up to `bytes` bytes into the ring or out of it. They return how many they copied.
std::uint64_t put(Ring &ring, const std::byte *from, std::uint64_t bytes) {
  const std::uint64_t written = ring.written.load(), count = std::min(bytes, kRing - (written - ring.read.load()));
  for (std::uint64_t i = 0; i < count; ++i) ring.bytes[(written + i) % kRing] = from[i];
  ring.written.store(written + count);
  return count;
}
std::uint64_t take(Ring &ring, std::byte *to, std::uint64_t bytes) {
  const std::uint64_t read = ring.read.load(), count = std::min(bytes, ring.written.load() - read);
  for (std::uint64_t i = 0; i < count; ++i) to[i] = ring.bytes[(read + i) % kRing];
  ring.read.store(read + count);
  return count;
}

}  // namespace

// Sends or receives the next bytes of the message, until the ring is full or empty. Returns whether any byte moved. In
// the ring, a message begins with its size.
bool ncclComm::advance(Message &message) const {
  constexpr std::uint64_t kHeader = sizeof message.header;
  Ring &way = message.sends ? ring(rank, message.peer) : ring(message.peer, rank);
  std::uint64_t moved = 0;
  if (message.done < kHeader) {
    if (message.sends) message.header = message.bytes;
    auto *header = reinterpret_cast<std::byte *>(&message.header) + message.done;
    moved = message.sends ? put(way, header, kHeader - message.done) : take(way, header, kHeader - message.done);
  } else {
    std::byte *at = message.at + (message.done - kHeader);
    const std::uint64_t left = message.bytes + kHeader - message.done;
    moved = message.sends ? put(way, at, left) : take(way, at, left);
  }
  message.done += moved;
  return moved > 0;
}

// Moves all messages of a group. Messages to the same rank, or from the same rank, move in the group's order. Others do
// not wait for each other.
void ncclComm::work(Group &group) {
  std::uint64_t turn = 0;
  while (!group.messages.empty() && !ends) {
    if (memory.access != nullptr) memory.access(1);
    bool moved = false;
    std::array<std::array<bool, 2>, kMostRanks> busy{};
    for (Message &message : group.messages) {
      bool &first = busy[static_cast<std::size_t>(message.peer)][message.sends];
      if (first) continue;
      first = true;
      moved |= advance(message);
      if (message.done >= sizeof message.header && message.header != message.bytes) state = ncclInvalidUsage;
    }
    if (memory.access != nullptr) memory.access(0);
    if (state == ncclInvalidUsage) return;
    std::erase_if(group.messages, [](const Message &m) { return m.done == m.bytes + sizeof m.header; });
    if (!moved) std::this_thread::sleep_for(std::chrono::microseconds(50));
    pause(++turn);
  }
}

// Waits for all ranks. Returns false if the communicator is aborted before that, or if another rank uses the same GPU.
bool ncclComm::meet() {
  shared->gpu[static_cast<std::size_t>(rank)] = gpu + 1;
  ++shared->arrived;
  while (shared->arrived < ranks && !ends) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  if (ends) return false;
  shm_unlink(name.c_str());  // all have it open
  for (int r = 0; r < ranks; ++r)
    if (r != rank && shared->gpu[static_cast<std::size_t>(r)] == gpu + 1) {
      state = ncclInvalidUsage;  // NCCL says: duplicate GPU detected
      return false;
    }
  state = ncclSuccess;
  return true;
}

void ncclComm::run() {
  if (!meet()) return;
  while (!ends) {
    Group group;
    {
      const std::lock_guard lock(mutex);
      if (!groups.empty()) {
        group = std::move(groups.front());
        groups.pop_front();
      }
    }
    if (group.stream != nullptr) {
      work(group);
      if (state == ncclInvalidUsage) return;
      if (!ends) --group.stream->at_work;
    } else if (finalizes) {
      ++shared->finished;
      while (shared->finished < ranks && !ends) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      if (!ends) state = ncclSuccess;
      return;
    } else {
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
  }
}

extern "C" {

// ---- CUDA's runtime.

cudaError_t cudaDeviceGetByPCIBusId(int *device, const char *id) {
  return std::sscanf(id, "emulated:%d", device) == 1 ? cudaSuccess : cudaErrorInvalidDevice;
}
cudaError_t cudaSetDevice(int device) {
  static std::array contexts = {CUctx_st{0}, CUctx_st{1}, CUctx_st{2}, CUctx_st{3},
                                CUctx_st{4}, CUctx_st{5}, CUctx_st{6}, CUctx_st{7}};
  if (device < 0 || device >= static_cast<int>(contexts.size())) return cudaErrorInvalidDevice;
  current_context = &contexts[static_cast<std::size_t>(device)];
  return cudaSuccess;
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned) {
  if (current_context == nullptr) return cudaErrorDeviceUninitialized;
  *stream = new CUstream_st;
  return cudaSuccess;
}
cudaError_t cudaStreamQuery(cudaStream_t stream) {
  if (current_context == nullptr) return cudaErrorDeviceUninitialized;
  return stream->at_work > 0 ? cudaErrorNotReady : cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  if (current_context == nullptr) std::abort();  // CUDA would open a GPU for this call
  delete stream;
  return cudaSuccess;
}
const char *cudaGetErrorString(cudaError_t) { return "an error of the stand-in"; }

// ---- CUDA's driver.

static CUresult get_context(CUcontext *context) {
  *context = current_context;
  return CUDA_SUCCESS;
}
static CUresult set_context(CUcontext context) {
  current_context = context;
  return CUDA_SUCCESS;
}
static cudaError_t driver_function(const char *name, void **function) {
  const bool gets = std::strcmp(name, "cuCtxGetCurrent") == 0;
  if (!gets && std::strcmp(name, "cuCtxSetCurrent") != 0) return cudaErrorInvalidValue;
  *function = gets ? reinterpret_cast<void *>(&get_context) : reinterpret_cast<void *>(&set_context);
  return cudaSuccess;
}
#if CUDART_VERSION >= 12050
cudaError_t cudaGetDriverEntryPointByVersion(const char *name, void **function, unsigned, unsigned long long,
                                             cudaDriverEntryPointQueryResult *) {
  return driver_function(name, function);
}
#else
cudaError_t cudaGetDriverEntryPoint(const char *name, void **function, unsigned long long,
                                    cudaDriverEntryPointQueryResult *) {
  return driver_function(name, function);
}
#endif
// Tells a test whether the calling thread has a current context.
__attribute__((visibility("default"))) int protrain_standin_has_context() { return current_context != nullptr ? 1 : 0; }

// ---- NCCL.

const char *ncclGetErrorString(ncclResult_t code) {
  return code == ncclInvalidUsage ? "invalid usage" : "an error of the stand-in";
}
const char *ncclGetLastError(ncclComm_t) { return last_error.c_str(); }

ncclResult_t ncclGetUniqueId(ncclUniqueId *id) {
  static std::atomic<int> count{0};
  std::snprintf(id->internal, sizeof id->internal, "/protrain-nccl-%d-%d", getpid(), count++);
  return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t *communicator, int ranks, ncclUniqueId id, int rank,
                                    ncclConfig_t *config) {
  if (config == nullptr || config->blocking != 0) return wrong(ncclInvalidArgument, "the communicator would block");
  if (ranks > kMostRanks || rank < 0 || rank >= ranks) return wrong(ncclInvalidArgument, "no such rank");
  if (current_context == nullptr) return wrong(ncclInvalidUsage, "no GPU is current");
  auto made = std::make_unique<ncclComm>();
  made->name = id.internal;
  made->rank = rank;
  made->ranks = ranks;
  made->gpu = current_context->gpu;
  made->shared = open_shared(id.internal);
  made->memory = emulated_memory();
  if (made->shared == nullptr) return wrong(ncclSystemError, "no shared memory");
  *communicator = made.release();
  (*communicator)->thread = std::thread([own = *communicator] { own->run(); });
  return ncclInProgress;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t communicator, ncclResult_t *state) {
  *state = communicator->state;
  return ncclSuccess;
}

ncclResult_t ncclGroupStart() {
  ++group_depth;
  return ncclSuccess;
}

static ncclResult_t add(const Message &message, ncclDataType_t type, ncclComm_t communicator, cudaStream_t stream) {
  if (group_depth == 0) return wrong(ncclInvalidUsage, "a message outside a group");
  if (communicator->state != ncclSuccess) return wrong(ncclInvalidUsage, "the communicator is not ready");
  if (type != ncclInt8 || message.bytes == 0)
    return wrong(ncclInvalidArgument, "the stand-in counts bytes, and at least one");
  if (message.peer < 0 || message.peer >= communicator->ranks || message.peer == communicator->rank)
    return wrong(ncclInvalidArgument, "no such peer");
  if (communicator->memory.holds != nullptr && communicator->memory.holds(message.at, message.bytes) == 0)
    return wrong(ncclInvalidArgument, "a message lies outside the GPU's memory");
  open_group.push_back(message);
  group_of = communicator;
  stream_of_group = stream;
  return ncclSuccess;
}
ncclResult_t ncclSend(const void *at, size_t count, ncclDataType_t type, int peer, ncclComm_t communicator,
                      cudaStream_t stream) {
  return add({true, peer, static_cast<std::byte *>(const_cast<void *>(at)), count}, type, communicator, stream);
}
ncclResult_t ncclRecv(void *at, size_t count, ncclDataType_t type, int peer, ncclComm_t communicator,
                      cudaStream_t stream) {
  return add({false, peer, static_cast<std::byte *>(at), count}, type, communicator, stream);
}

ncclResult_t ncclGroupEnd() {
  if (group_depth == 0) return wrong(ncclInvalidUsage, "no group was begun");
  if (--group_depth > 0 || open_group.empty()) return ncclSuccess;
  const std::lock_guard lock(group_of->mutex);
  ++stream_of_group->at_work;
  group_of->groups.push_back({std::move(open_group), stream_of_group});
  open_group.clear();
  return ncclInProgress;
}

ncclResult_t ncclCommFinalize(ncclComm_t communicator) {
  communicator->state = ncclInProgress;
  communicator->finalizes = true;
  return ncclInProgress;
}

static void end(ncclComm_t communicator) {
  communicator->ends = true;
  communicator->thread.join();
  munmap(communicator->shared, sizeof(Shared));
  delete communicator;
}
ncclResult_t ncclCommDestroy(ncclComm_t communicator) {
  if (!communicator->finalizes || communicator->state != ncclSuccess) std::abort();  // NCCL would wait here
  end(communicator);
  return ncclSuccess;
}
ncclResult_t ncclCommAbort(ncclComm_t communicator) {
  shm_unlink(communicator->name.c_str());  // nothing has unlinked it yet if some ranks never came
  end(communicator);
  return ncclSuccess;
}

}  // extern "C"
