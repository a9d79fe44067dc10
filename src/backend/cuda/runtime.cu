#include "backend/cuda/runtime.h"

#include <cuda.h>
#include <cuda_runtime.h>

#include <mutex>
#include <string_view>

#include "base/error.h"

namespace protrain::backend::cuda {

namespace {
void check(cudaError_t status, const char *doing) {
  if (status == cudaSuccess) return;
  cudaGetLastError();  // clears the error, if CUDA can clear it
  fail(status == cudaErrorMemoryAllocation ? Code::nomem : Code::device, "device", "{}: {} ({})", doing,
       cudaGetErrorString(status), cudaGetErrorName(status));
}

std::string version_text(int version) { return fmt::format("{}.{}", version / 1000, version % 1000 / 10); }

// Returns the driver's version. Throws Code::device if no driver is installed.
int driver_version() {
  int driver = 0;
  require(cudaDriverGetVersion(&driver) == cudaSuccess && driver > 0, Code::device, "device",
          "no driver of NVIDIA's is installed, or none that this build (CUDA {}) can talk to",
          version_text(CUDART_VERSION));
  return driver;
}

// Returns a function of the driver, or nullptr without a driver. The runtime has no call for what these functions do.
template <typename Function>
Function driver_function(const char *name) {
  void *found = nullptr;
#if CUDART_VERSION >= 12050
  const cudaError_t status = cudaGetDriverEntryPointByVersion(name, &found, 12000, cudaEnableDefault);
#else
  const cudaError_t status = cudaGetDriverEntryPoint(name, &found, cudaEnableDefault);
#endif
  if (status == cudaSuccess) return reinterpret_cast<Function>(found);
  cudaGetLastError();
  return nullptr;
}
}  // namespace

int device_count() {
  driver_version();
  int count = 0;
  check(cudaGetDeviceCount(&count), "the devices could not be counted");
  return count;
}

std::string pci_bus_id(int index) {
  char id[32] = "";
  check(cudaDeviceGetPCIBusId(id, sizeof id, index), "the device's place on the bus is not known");
  return id;
}

std::string open_device(int index) {
  const int driver = driver_version(), count = device_count();
  require(index < count, Code::device, "device", "there is no device cuda:{}; this machine has {} of CUDA's", index,
          count);
  use_device(index);
  cudaDeviceProp properties;
  check(cudaGetDeviceProperties(&properties, index), "the device could not be described");
  require(properties.major >= 8, Code::unsupported, "device", "{} has compute capability {}.{}; 8.0 is the oldest",
          std::string_view(properties.name), properties.major, properties.minor);
  return fmt::format("{}, compute capability {}.{}, driver {}", std::string_view(properties.name), properties.major,
                     properties.minor, version_text(driver));
}

std::uint64_t free_memory() {
  std::size_t free = 0, total = 0;
  check(cudaMemGetInfo(&free, &total), "the device's memory could not be asked for");
  return free;
}

void use_device(int index) { check(cudaSetDevice(index), "the device cannot be used"); }

Context current_context() {
  static const auto get = driver_function<decltype(&cuCtxGetCurrent)>("cuCtxGetCurrent");
  Context context = nullptr;
  if (get == nullptr || get(&context) != CUDA_SUCCESS) return nullptr;
  return context;
}
void make_current(Context context) {
  static const auto set = driver_function<decltype(&cuCtxSetCurrent)>("cuCtxSetCurrent");
  if (set != nullptr) set(context);
}

void *allocate(std::uint64_t bytes) {
  void *memory = nullptr;
  if (bytes == 0) bytes = 1;
  const cudaError_t status = cudaMalloc(&memory, bytes);
  if (status != cudaSuccess) {
    cudaGetLastError();
    fail(status == cudaErrorMemoryAllocation ? Code::nomem : Code::device, "device arena",
         "{} bytes of the device's memory were refused: {}", bytes, cudaGetErrorString(status));
  }
  // Clears the memory in the thread's own stream and waits for that stream alone. A wait for the whole device would do
  // harm while another thread captures a step: CUDA refuses such a wait, and the capture fails.
  clear(cudaStreamPerThread, memory, bytes);
  finish(cudaStreamPerThread);
  return memory;
}

void release(void *memory) { cudaFree(memory); }

void *allocate_reachable(std::uint64_t bytes) {
  void *memory = nullptr;
  check(cudaHostAlloc(&memory, bytes, cudaHostAllocMapped | cudaHostAllocPortable), "memory of the host");
  for (std::uint64_t i = 0; i < bytes; ++i) static_cast<unsigned char *>(memory)[i] = 0;
  return memory;
}

void release_reachable(void *memory) { cudaFreeHost(memory); }

bool pin(void *host, std::uint64_t bytes) {
  if (cudaHostRegister(host, bytes, cudaHostRegisterPortable) == cudaSuccess) return true;
  cudaGetLastError();
  return false;
}

void unpin(void *host) {
  if (cudaHostUnregister(host) != cudaSuccess) cudaGetLastError();
}

Stream make_stream() {
  Stream stream = nullptr;
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "a stream could not be made");
  return stream;
}
void destroy(Stream stream) { cudaStreamDestroy(stream); }
void finish(Stream stream) { check(cudaStreamSynchronize(stream), "the device's work failed"); }

Event make_event() {
  Event event = nullptr;
  check(cudaEventCreateWithFlags(&event, cudaEventBlockingSync), "an event could not be made");
  return event;
}
void destroy(Event event) { cudaEventDestroy(event); }
void record(Event event, Stream stream) { check(cudaEventRecord(event, stream), "an event could not be recorded"); }
void wait(Stream stream, Event event) { check(cudaStreamWaitEvent(stream, event, 0), "an event cannot be waited for"); }
void finish(Event event) { check(cudaEventSynchronize(event), "the device's work failed"); }
std::int64_t ns_between(Event begin, Event end) {
  float milliseconds = 0;
  check(cudaEventElapsedTime(&milliseconds, begin, end), "the time between two events is not known");
  return static_cast<std::int64_t>(static_cast<double>(milliseconds) * 1e6);
}

// Captures in the thread-local mode. Calls such as cudaMalloc by other threads then neither break the capture nor are
// refused. A call of this thread that cannot be captured is an error; in the relaxed mode it would run at once.
void begin_capture(Stream stream) {
  check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "a capture could not begin");
}
CapturedGraph end_capture(Stream stream) {
  cudaGraph_t graph = nullptr;
  check(cudaStreamEndCapture(stream, &graph), "a capture failed");
  CapturedGraph captured = nullptr;
  const cudaError_t status = cudaGraphInstantiateWithFlags(&captured, graph, 0);
  cudaGraphDestroy(graph);
  check(status, "a graph could not be made ready");
  // Uploads the graph now, outside of steps, because the upload takes memory and a refusal does no harm here. Otherwise
  // the graph's first launch, inside a step, would take the memory.
  const cudaError_t uploaded = cudaGraphUpload(captured, stream);
  if (uploaded != cudaSuccess) destroy(captured);
  check(uploaded, "a graph could not be brought to the device");
  return captured;
}
void abandon_capture(Stream stream) {
  cudaGraph_t graph = nullptr;
  cudaStreamEndCapture(stream, &graph);
  if (graph != nullptr) cudaGraphDestroy(graph);
  cudaGetLastError();
}
void record_captured(Event event, Stream stream) {
  check(cudaEventRecordWithFlags(event, stream, cudaEventRecordExternal), "an event could not be captured");
}
void launch(CapturedGraph captured, Stream stream) {
  check(cudaGraphLaunch(captured, stream), "a graph's launch failed");
}
void destroy(CapturedGraph captured) { cudaGraphExecDestroy(captured); }

void copy(Stream stream, void *to, const void *from, std::uint64_t bytes) {
  if (bytes > 0) check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream), "a copy could not be issued");
}
// Copies in the thread's own stream and waits for the copy. cudaMemcpy may return before the last bytes have arrived.
void copy_now(void *to, const void *from, std::uint64_t bytes) {
  if (bytes == 0) return;
  copy(cudaStreamPerThread, to, from, bytes);
  check(cudaStreamSynchronize(cudaStreamPerThread), "a copy failed");
}
void clear(Stream stream, void *memory, std::uint64_t bytes) {
  if (bytes > 0) check(cudaMemsetAsync(memory, 0, bytes, stream), "memory could not be cleared");
}

void check_launch() { check(cudaGetLastError(), "a kernel could not be launched"); }

std::size_t most_shared() {
  int device = 0, bytes = 0;
  check(cudaGetDevice(&device), "the device is not known");
  check(cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device), "its shared memory");
  return static_cast<std::size_t>(bytes);
}
// Lets launches of `kernel` use `bytes` of dynamic shared memory. Never lowers the kernel's limit, because captured
// launches of the same kernel may need more.
void allow_shared(const void *kernel, std::size_t bytes) {
  static std::mutex one_at_a_time;
  const std::lock_guard lock(one_at_a_time);
  cudaFuncAttributes attributes;
  check(cudaFuncGetAttributes(&attributes, kernel), "a kernel's shared memory is not known");
  if (static_cast<std::size_t>(attributes.maxDynamicSharedSizeBytes) >= bytes) return;
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes)),
        "a kernel's shared memory was refused");
}

}  // namespace protrain::backend::cuda
