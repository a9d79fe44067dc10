// Counts allocations during steps. libprotrain may make none, and other libraries none above 1 KiB. This program
// replaces malloc and operator new for the whole process. It recognizes the caller by the return address.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <malloc.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <new>

#include "fixtures.h"
#include "scratch.h"
#include "session/session.h"

extern "C" {
void *__libc_malloc(size_t);
void *__libc_calloc(size_t, size_t);
void *__libc_realloc(void *, size_t);
void *__libc_memalign(size_t, size_t);
void __libc_free(void *);
}

namespace {

constexpr std::size_t kLibraryLimit = 1024;

std::atomic<bool> counting{false};
std::atomic<int> ours{0}, libraries{0}, libraries_large{0};
std::atomic<std::size_t> largest{0};

// Counts an allocation, as one of libprotrain or of another library. libprotrain is linked into this program, so a
// caller outside of the program belongs to another library.
void count(std::size_t bytes, const void *caller) {
  if (!counting.load(std::memory_order_relaxed)) return;
  static const void *self = [] {
    Dl_info info{};
    dladdr(reinterpret_cast<const void *>(&kLibraryLimit), &info);
    return info.dli_fbase;
  }();
  Dl_info info{};
  const bool known = dladdr(caller, &info) != 0;
  if (known && info.dli_fbase == self) {
    ++ours;
  } else {
    ++libraries;
    if (bytes > kLibraryLimit) ++libraries_large;
    if (bytes > largest) largest = bytes;
  }
}

}  // namespace

extern "C" {
void *malloc(size_t bytes) {
  count(bytes, __builtin_return_address(0));
  return __libc_malloc(bytes);
}
void *calloc(size_t n, size_t bytes) {
  count(n * bytes, __builtin_return_address(0));
  return __libc_calloc(n, bytes);
}
void *realloc(void *at, size_t bytes) {
  count(bytes, __builtin_return_address(0));
  return __libc_realloc(at, bytes);
}
void *memalign(size_t alignment, size_t bytes) {
  count(bytes, __builtin_return_address(0));
  return __libc_memalign(alignment, bytes);
}
void *aligned_alloc(size_t alignment, size_t bytes) {
  count(bytes, __builtin_return_address(0));
  return __libc_memalign(alignment, bytes);
}
int posix_memalign(void **out, size_t alignment, size_t bytes) {
  count(bytes, __builtin_return_address(0));
  *out = __libc_memalign(alignment, bytes);
  return *out == nullptr ? ENOMEM : 0;
}
void free(void *at) { __libc_free(at); }
}

void *operator new(std::size_t bytes) {
  count(bytes, __builtin_return_address(0));
  if (void *at = __libc_malloc(bytes)) return at;
  throw std::bad_alloc();
}
void *operator new[](std::size_t bytes) {
  count(bytes, __builtin_return_address(0));
  if (void *at = __libc_malloc(bytes)) return at;
  throw std::bad_alloc();
}
void operator delete(void *at) noexcept { __libc_free(at); }
void operator delete(void *at, std::size_t) noexcept { __libc_free(at); }
void operator delete[](void *at) noexcept { __libc_free(at); }
void operator delete[](void *at, std::size_t) noexcept { __libc_free(at); }

namespace protrain::allocation_test {
namespace {

struct Case {
  const char *name, *model, *plan;  // plan "": none is given
  std::vector<std::pair<std::string, std::string>> options = {};
};

void PrintTo(const Case &one, std::ostream *out) { *out << one.name; }

class StepAllocations : public testing::TestWithParam<Case> {
 protected:
  draft::Options options() const {
    draft::Options options;
    for (const char *dim : {"batch=2", "sequence=32"}) options.set("dim", dim);
    options.set("threads", "2");
    for (const auto &[key, value] : GetParam().options) options.set(key, value);
    if (*GetParam().plan == 0) return options;
    options.set("plan", directory_.file("plan.json", GetParam().plan));
    options.set("offload_dir", directory_.path());
    return options;
  }

 private:
  test::Scratch directory_;
};

const std::vector<std::pair<std::string, std::string>> kApart = {
    {"device_memory", "1GiB"}, {"host_memory", "1GiB"}, {"trial", "workers"}};

const std::vector<Case> kCases = {
    {"gpt2", "gpt2-dynamic-opset18.onnx", ""},
    {"llama", "llama-dynamic-opset23.onnx", ""},
    {"bf16", "llama-dynamic-opset23.onnx", "", {{"precision", "bf16"}}},
    {"fp16_accumulated_on_disk",
     "gpt2-dynamic-opset18.onnx",
     R"({"n_persist": 0, "n_buffer": 2, "n_host": 0, "n_swap": 2, "n_checkpoint": 9, "piece_bytes": 4096})",
     {{"precision", "fp16"}, {"accumulation", "2"}}},
    {"bf16_accumulated_on_disk",
     "gpt2-dynamic-opset18.onnx",
     R"({"n_persist": 0, "n_buffer": 2, "n_host": 0, "n_swap": 2, "n_checkpoint": 9, "piece_bytes": 4096})",
     {{"precision", "bf16"}, {"accumulation", "2"}}},
    {"accumulated_and_clipped", "gpt2-dynamic-opset18.onnx", "", {{"accumulation", "2"}, {"clip_norm", "1"}}},
    {"on_disk_in_pieces", "llama-dynamic-opset23.onnx",
     R"({"n_persist": 0, "n_buffer": 2, "n_host": 0, "n_swap": 2, "n_checkpoint": 9, "piece_bytes": 4096})"},
    {"selective", "gpt2-dynamic-opset18.onnx", R"({"n_selective": 99})"},
    {"host_and_disk_with_workers", "gpt2-dynamic-opset18.onnx",
     R"({"n_persist": 0, "n_buffer": 2, "n_host": 4, "n_swap": 2, "chunk_bytes": 65536})", kApart},
};

TEST_P(StepAllocations, AreNoneOfOursAndNoneAboveOneKibibyteOfALibrarys) {
  const auto session = session::Session::create(options(), test::fixture(GetParam().model), nullptr);
  const auto ids = test::load_tokens("input_ids.npy"), labels = test::load_tokens("labels.npy");
  const Shape shape = {test::kBatch, test::kSequence};
  session->set_input("input_ids", DType::i64, shape, ids.data());
  session->set_input("labels", DType::i64, shape, labels.data());
  session->step();
  session->step();  // completes the step if it takes two batches

  ours = libraries = libraries_large = 0;
  largest = 0;
  counting = true;
  ::operator delete(::operator new(1));  // shows that counting works
  session->step();
  session->step();
  session->evaluate();
  counting = false;
  EXPECT_EQ(ours, 1) << "the probe above, and nothing else";
  EXPECT_EQ(libraries_large, 0) << "the largest was " << largest << " bytes";
  std::printf("[ figures  ] ours 0, libraries %d, the largest of %zu bytes\n", libraries.load(), largest.load());
}

INSTANTIATE_TEST_SUITE_P(Models, StepAllocations, testing::ValuesIn(kCases),
                         [](const auto &info) { return std::string(info.param.name); });

}  // namespace
}  // namespace protrain::allocation_test
