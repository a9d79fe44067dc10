// Messages: an arena that owns protobuf's messages. A message parsed or copied on the heap leaks its finished parts if
// memory runs out halfway. An arena gives all of it back.
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
  // The arena registers an object for destruction before it constructs it. If the constructor throws, the arena
  // destroys raw memory, so this memory is zeroed: a string of zeros holds nothing.
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
