// Messages: an arena that owns protobuf's messages. If memory runs out while a message is parsed or copied, a message
// on the heap leaks its finished parts. An arena frees them.
#pragma once

#include <google/protobuf/arena.h>

#include <cstddef>
#include <cstdlib>
#include <new>

namespace protrain::onnx_import {

class Messages {
 public:
  template <typename Message>
  Message &make() {
    return *google::protobuf::Arena::CreateMessage<Message>(&arena_);
  }
  template <typename Message>
  Message &copy(const Message &original) {
    Message &made = make<Message>();
    made.CopyFrom(original);
    return made;
  }

 private:
  // Allocates zeroed memory for the arena. The arena registers an object's destructor before it calls the constructor.
  // So if the constructor throws, the arena later destroys an object that was never constructed. In zeroed memory this
  // does no harm, because a string of zeros owns nothing.
  static void *take(std::size_t bytes) {
    void *at = std::calloc(1, bytes);
    if (at == nullptr) throw std::bad_alloc();
    return at;
  }
  static void give_back(void *at, std::size_t) { std::free(at); }
  static google::protobuf::ArenaOptions options() {
    google::protobuf::ArenaOptions options;
    options.block_alloc = &take;
    options.block_dealloc = &give_back;
    return options;
  }

  google::protobuf::Arena arena_{options()};
};

}  // namespace protrain::onnx_import
