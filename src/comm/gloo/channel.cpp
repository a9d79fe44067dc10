#include "comm/gloo/channel.h"

#include <gloo/common/error.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/unbound_buffer.h>

#include <map>
#include <thread>

#include "base/signals.h"
#include "comm/gloo/mesh.h"
#include "comm/gloo/store.h"

namespace protrain::comm::gloo {

namespace {

using Buffer = std::unique_ptr<::gloo::transport::UnboundBuffer>;

constexpr std::size_t kMostReason = 1000;              // bytes of the reason of an abort
constexpr std::chrono::milliseconds kReasonWait(200);  // a rank's reason may arrive after its connection has ended
constexpr int kPartsBits = 20;                         // slot bits for the message's number; the exchange's lies above

std::string key_of_reason(int rank) { return fmt::format("protrain-failed-{}", rank); }

Error peer_failed(int rank, const std::string &reason) {
  return {Code::peer, fmt::format("rank {}", rank), fmt::format("rank {} failed: {}", rank, reason)};
}

bool timed_out(const std::exception &error) {
  return std::string_view(error.what()).find("imed out") != std::string_view::npos ||
         std::string_view(error.what()).find("timeout") != std::string_view::npos;
}

// A store in a folder that all ranks share. It differs from Gloo's in two ways: set() refuses a key that is set
// already, and wait() does not round its timeout up to whole seconds.
class FolderStore final : public ::gloo::rendezvous::FileStore {
 public:
  using FileStore::FileStore;
  void set(const std::string &key, const std::vector<char> &value) override {
    require(!check({key}), Code::arg, "rendezvous",
            "another session has met there, or another rank has the same number; give each session a new folder and "
            "each rank a number of its own");
    FileStore::set(key, value);
  }
  void wait(const std::vector<std::string> &keys) override { wait(keys, kDefaultTimeout); }
  void wait(const std::vector<std::string> &keys, const std::chrono::milliseconds &timeout) override {
    for (const Deadline deadline(timeout); !check(keys); std::this_thread::sleep_for(std::chrono::milliseconds(10)))
      require(!deadline.over(), Code::timeout, "rendezvous", "timed out, because no rank has set '{}'", keys.at(0));
  }
};

std::unique_ptr<::gloo::rendezvous::Store> store_of(const ChannelRequest &request, const Deadline &deadline) {
  if (request.rendezvous.find('/') == std::string::npos) return std::make_unique<TcpStore>(request, deadline);
  return std::make_unique<FolderStore>(request.rendezvous);
}

// Gives the messages of one exchange their slots in Gloo. Both ends number the messages between them in order, so a
// send and its receive have the same slot.
class Slots {
 public:
  explicit Slots(std::uint64_t exchange) : first_(exchange << kPartsBits) {}
  std::uint64_t next(int rank) { return first_ + parts_[rank]++; }

 private:
  const std::uint64_t first_;
  std::map<int, std::uint64_t> parts_;
};

}  // namespace

GlooChannel::GlooChannel(const ChannelRequest &request) : GlooChannel(request, Deadline(request.timeout)) {}

GlooChannel::GlooChannel(const ChannelRequest &request, const Deadline &deadline)
    : rank_(request.rank), ranks_(request.ranks), timeout_(request.timeout), store_(store_of(request, deadline)) {
  const WithheldSignal guard(SIGPIPE);  // for Gloo's thread too
  try {
    context_ = std::make_shared<Mesh>(request, *store_, deadline);
  } catch (const std::exception &error) {
    const bool late = timed_out(error);
    const auto *refusal = dynamic_cast<const Error *>(&error);
    // True if the rendezvous belongs to another session. In that case this rank neither leaves its reason for the
    // failure there nor looks for one, because a reason found there would be of the other session.
    const bool taken = refusal != nullptr && refusal->code == Code::arg;
    // Looks whether rank 0 gave up first and left a reason. That reason says more than Gloo's error.
    const bool may_know = !late && !taken && rank_ != 0;
    const std::optional<std::string> reason = may_know ? reason_of(0, kReasonWait) : std::nullopt;
    const std::string within = late ? fmt::format(" within {} ms", timeout_.count()) : "";
    const std::string why = reason ? "rank 0 failed: " + *reason : words_of(error);
    const Code code = late ? Code::timeout : (taken ? Code::arg : Code::peer);
    const Error own(code, "rendezvous",
                    fmt::format("{} ranks did not meet in {}{}: {}", ranks_, request.rendezvous, within, why));
    if (!taken) leave_reason(own.text);
    throw own;
  }
}

GlooChannel::~GlooChannel() {
  const WithheldSignal guard(SIGPIPE);
  context_.reset();
}

void GlooChannel::exchange(std::span<const Send> sends, std::span<const Receive> receives) {
  {
    const std::lock_guard lock(mutex_);
    if (broken_) throw *broken_;
  }
  const WithheldSignal guard(SIGPIPE);
  std::vector<std::pair<int, Buffer>> sent, received;
  const Deadline deadline(timeout_);
  int at = rank_;  // the rank that an error will name
  try {
    Slots from(exchanges_), to(exchanges_);
    ++exchanges_;
    for (const Receive &receive : receives) {
      at = receive.rank;
      received.emplace_back(at, context_->createUnboundBuffer(receive.data, receive.bytes));
      received.back().second->recv(at, from.next(at), 0, receive.bytes);
    }
    for (const Send &send : sends) {
      at = send.rank;
      sent.emplace_back(at, context_->createUnboundBuffer(const_cast<std::byte *>(send.data), send.bytes));
      sent.back().second->send(at, to.next(at), 0, send.bytes);
    }
    for (const auto &[rank, buffer] : received) {
      at = rank;
      buffer->waitRecv(deadline.left());
    }
    for (const auto &[rank, buffer] : sent) {
      at = rank;
      buffer->waitSend(deadline.left());
    }
  } catch (const std::exception &error) {
    const bool no_memory = dynamic_cast<const std::bad_alloc *>(&error) != nullptr;
    try {
      break_with(no_memory ? Error(Code::nomem, "", "out of memory") : error_of(at, error));
    } catch (const std::bad_alloc &) {  // short texts need no memory
      break_with({Code::nomem, "", "out of memory"});
    }
    const std::lock_guard lock(mutex_);
    throw *broken_;
  }
}

std::optional<std::string> GlooChannel::reason_of(int rank, std::chrono::milliseconds wait) {
  try {
    store_->wait({key_of_reason(rank)}, wait);
    const std::vector<char> text = store_->get(key_of_reason(rank));
    return std::string(text.begin(), text.end());
  } catch (const std::exception &) {
    return std::nullopt;
  }
}

void GlooChannel::leave_reason(std::string_view reason) {
  try {
    reason = reason.substr(0, kMostReason);
    store_->set(key_of_reason(rank_), {reason.begin(), reason.end()});
  } catch (const std::exception &) {  // the others then learn only that this rank left
  }
}

Error GlooChannel::error_of(int rank, const std::exception &found) {
  const std::string subject = fmt::format("rank {}", rank);
  if (const std::optional<std::string> reason = reason_of(rank, kReasonWait)) return peer_failed(rank, *reason);
  if (timed_out(found))
    return {Code::timeout, subject, fmt::format("rank {} did not answer within {} ms", rank, timeout_.count())};
  return {Code::peer, subject,
          fmt::format("rank {} left: it was killed, or the network failed ({})", rank, words_of(found))};
}

void GlooChannel::break_with(const Error &error) {
  const WithheldSignal guard(SIGPIPE);
  {
    const std::lock_guard lock(mutex_);
    if (broken_) return;
    broken_ = error;
    broken_->facts.channel_broken = true;
  }
  leave_reason(error.text);
  context_->closeConnections();
}

// Throws if the channel is broken, or if another rank has aborted and left its reason in the store. In the second case
// this rank's channel is broken from then on. The store must be asked, because Gloo's own connections show a failure
// only when something is sent.
void GlooChannel::throw_if_failed() {
  {
    const std::lock_guard lock(mutex_);
    if (broken_) throw *broken_;
  }
  const WithheldSignal guard(SIGPIPE);
  for (int r = 0; r < ranks_; ++r) {
    if (r == rank_) continue;
    const std::optional<std::string> reason = reason_of(r, std::chrono::milliseconds(1));
    if (!reason) continue;
    break_with(peer_failed(r, *reason));
    const std::lock_guard lock(mutex_);
    throw *broken_;
  }
}

void GlooChannel::abort(const std::string &reason) noexcept {
  try {
    try {
      break_with({Code::state, "comm", reason});
    } catch (const std::bad_alloc &) {  // short texts need no memory
      break_with({Code::state, "comm", "out of memory"});
    }
  } catch (const std::exception &) {  // the others then find out by their deadline
  }
}

}  // namespace protrain::comm::gloo
