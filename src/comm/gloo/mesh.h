// Mesh: Gloo's connections of this rank to every other rank.
#pragma once

#include <gloo/context.h>

#include <exception>
#include <string>

#include "comm/channel.h"
#include "comm/gloo/deadline.h"

namespace gloo::rendezvous {
class Store;
}

namespace protrain::comm::gloo {

// Returns the text of an error. Gloo's own errors begin with a place in Gloo's source, which is left out.
std::string words_of(const std::exception &error);

// Connects this rank to all others within one deadline. Gloo can make the connections itself, but then waits up to five
// times its timeout for each rank.
class Mesh final : public ::gloo::Context {
 public:
  // Returns when this rank is connected to every other rank. The ranks find each other's addresses in the store. Throws
  // what Gloo or the store throws, and Code::timeout if the deadline passes first.
  Mesh(const ChannelRequest &request, ::gloo::rendezvous::Store &store, const Deadline &deadline);

 private:
  void connect_all(const ChannelRequest &request, std::size_t own_bytes, ::gloo::rendezvous::Store &store,
                   const Deadline &deadline);
};

}  // namespace protrain::comm::gloo
