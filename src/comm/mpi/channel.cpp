#include "comm/mpi/channel.h"

#include <algorithm>
#include <deque>
#include <thread>

#include "comm/mpi/start.h"

namespace protrain::comm::mpi {

namespace {

constexpr int kDataTag = 1, kAbortTag = 2;
constexpr std::uint64_t kMostBytes = 1 << 30;  // of one message, because MPI counts with int
constexpr std::size_t kMostReason = 1000;      // bytes of the reason of an abort

// Pauses between two polls. The first polls follow each other at once, because most exchanges take microseconds. Later
// polls leave the core to whoever computes.
void rest(int polls) {
  if (polls > 100) std::this_thread::sleep_for(std::chrono::microseconds(std::min(polls, 1000)));
}

// Returns memory for the reason of an abort. This memory is never freed, because nobody waits until the other ranks
// have read the reason.
std::string &new_reason() {
  static auto &reasons = *new std::deque<std::string>;
  const std::lock_guard lock(mpi_mutex);
  std::string &reason = reasons.emplace_back();
  reason.reserve(kMostReason);
  return reason;
}

// While this object lives, errors that MPI reports through one of its own communicators are returned. By default they
// end the process.
class ErrorsReturned {
 public:
  explicit ErrorsReturned(MPI_Comm of) : of_(of), kept_(MPI_Comm_get_errhandler(of, &before_) == MPI_SUCCESS) {
    if (kept_) MPI_Comm_set_errhandler(of_, MPI_ERRORS_RETURN);
  }
  ErrorsReturned(const ErrorsReturned &) = delete;
  ErrorsReturned &operator=(const ErrorsReturned &) = delete;
  ~ErrorsReturned() {
    if (!kept_) return;
    MPI_Comm_set_errhandler(of_, before_);
    MPI_Errhandler_free(&before_);
  }

 private:
  const MPI_Comm of_;
  MPI_Errhandler before_ = MPI_ERRHANDLER_NULL;
  const bool kept_;
};

}  // namespace

MpiChannel::MpiChannel(const ChannelRequest &request) : timeout_(request.timeout), reason_(new_reason()) {
  const Clock::time_point deadline = Clock::now() + timeout_;  // of the whole meeting
  {
    const std::lock_guard lock(mpi_mutex);
    start_mpi(deadline);
    check(MPI_Comm_size(MPI_COMM_WORLD, &ranks_), "MPI_Comm_size");
    check(MPI_Comm_rank(MPI_COMM_WORLD, &rank_), "MPI_Comm_rank");
  }
  data_ = communicator_of_all(deadline);
  control_ = communicator_of_all(deadline);
}

// Duplicates MPI_COMM_WORLD. Every rank must take part, so the ranks meet here.
MPI_Comm MpiChannel::communicator_of_all(std::chrono::steady_clock::time_point deadline) const {
  MPI_Comm own = MPI_COMM_NULL;
  MPI_Request request = MPI_REQUEST_NULL;
  for (int polls = 0;; ++polls) {
    {
      const std::lock_guard lock(mpi_mutex);
      if (polls == 0) check(MPI_Comm_idup(MPI_COMM_WORLD, &own, &request), "MPI_Comm_idup");
      int over = 0;
      check(MPI_Test(&request, &over, MPI_STATUS_IGNORE), "MPI_Test");
      if (over != 0) {
        check(MPI_Comm_set_errhandler(own, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
        return own;
      }
      any_broken = any_broken || Clock::now() >= deadline;  // MPI cannot be ended with this under way
      require(Clock::now() < deadline, Code::timeout, "comm", "not all of {} ranks opened their channels within {} ms",
              ranks_, timeout_.count());
    }
    rest(polls);
  }
}

MpiChannel::~MpiChannel() {
  const std::lock_guard lock(mpi_mutex);
  int over = 0;
  // Frees the communicators, unless the channel is broken or MPI has ended. Only all ranks together can free a
  // communicator, so a broken channel leaves its own unfreed.
  if (broken_ || MPI_Finalized(&over) != MPI_SUCCESS || over != 0) return;
  // If another rank has given up its channel, it may have sent messages that this rank never received. MPICH 4.2 calls
  // them an error. It reports the error through communicators of its own, because the freed one no longer exists.
  const ErrorsReturned in_world(MPI_COMM_WORLD), in_self(MPI_COMM_SELF);
  for (MPI_Comm *own : {&data_, &control_}) MPI_Comm_free(own);
}

void MpiChannel::exchange(std::span<const Send> sends, std::span<const Receive> receives) {
  try {
    {
      const std::lock_guard lock(mpi_mutex);
      if (broken_) throw *broken_;
      begin(sends, receives);
    }
    wait();
  } catch (const Error &error) {
    const std::lock_guard lock(mpi_mutex);
    break_with(error);
    throw *broken_;
  } catch (const std::bad_alloc &) {
    const std::lock_guard lock(mpi_mutex);
    break_with({Code::nomem, "", "out of memory"});
    throw *broken_;
  }
}

void MpiChannel::throw_if_failed() {
  const std::lock_guard lock(mpi_mutex);
  if (broken_) throw *broken_;
  try {
    require_no_abort();
  } catch (const Error &error) {
    break_with(error);
    throw *broken_;
  }
}

void MpiChannel::begin(std::span<const Send> sends, std::span<const Receive> receives) {
  const auto each_message = [](std::uint64_t bytes, auto &&act) {
    for (std::uint64_t at = 0; at < bytes; at += kMostBytes)
      act(at, static_cast<int>(std::min(bytes - at, kMostBytes)));
    if (bytes == 0) act(std::uint64_t{0}, 0);  // a barrier is made of empty messages
  };
  for (const Receive &receive : receives)
    each_message(receive.bytes, [&](std::uint64_t at, int count) {
      Message &message = messages_.emplace_back(Message{MPI_REQUEST_NULL, receive.rank, true});
      check(MPI_Irecv(receive.data + at, count, MPI_BYTE, receive.rank, kDataTag, data_, &message.request),
            "MPI_Irecv");
    });
  for (const Send &send : sends)
    each_message(send.bytes, [&](std::uint64_t at, int count) {
      Message &message = messages_.emplace_back(Message{MPI_REQUEST_NULL, send.rank, false});
      check(MPI_Isend(send.data + at, count, MPI_BYTE, send.rank, kDataTag, data_, &message.request), "MPI_Isend");
    });
}

// Polls until all messages are over. A rank that has aborted may change the memory that it sends from. So messages are
// good only if the sender had not aborted before their last byte was sent. To be sure of this, wait() probes for an
// abort twice after the last message is over. A single MPI_Iprobe may miss an abort that has arrived, because it may
// look for an abort before it takes in what has arrived.
void MpiChannel::wait() {
  const Clock::time_point deadline = Clock::now() + timeout_;
  for (int polls = 0;; ++polls) {
    {
      const std::lock_guard lock(mpi_mutex);
      if (broken_) throw *broken_;
      remove_messages_that_are_over();
      require_no_abort();
      if (messages_.empty()) return require_no_abort();
      require(Clock::now() < deadline, Code::timeout, fmt::format("rank {}", messages_.front().rank),
              "rank {} did not answer within {} ms", messages_.front().rank, timeout_.count());
    }
    rest(polls);
  }
}

void MpiChannel::remove_messages_that_are_over() {
  std::erase_if(messages_, [](Message &message) {
    int over = 0;
    check(MPI_Test(&message.request, &over, MPI_STATUS_IGNORE), "MPI_Test");
    return over != 0;
  });
}

void MpiChannel::require_no_abort() {
  int there = 0, length = 0;
  MPI_Status status;
  check(MPI_Iprobe(MPI_ANY_SOURCE, kAbortTag, control_, &there, &status), "MPI_Iprobe");
  if (there == 0) return;
  check(MPI_Get_count(&status, MPI_BYTE, &length), "MPI_Get_count");
  std::string reason(static_cast<std::size_t>(length), ' ');
  check(MPI_Recv(reason.data(), length, MPI_BYTE, status.MPI_SOURCE, kAbortTag, control_, MPI_STATUS_IGNORE),
        "MPI_Recv");
  fail(Code::peer, fmt::format("rank {}", status.MPI_SOURCE), "rank {} failed: {}", status.MPI_SOURCE, reason);
}

// Gives up all messages and tells the other ranks why. Receives are cancelled, because nothing may write into this
// rank's memory any more. Sends stay under way, because other ranks may still be reading them.
void MpiChannel::break_with(Error error) {
  if (broken_) return;
  broken_ = std::move(error);
  broken_->facts.channel_broken = true;
  any_broken = true;
  for (Message &message : messages_) {
    if (message.request == MPI_REQUEST_NULL) continue;  // it could not be begun
    if (message.receives) MPI_Cancel(&message.request);
    MPI_Request_free(&message.request);
  }
  messages_.clear();
  const std::string &reason = reason_.assign(broken_->text, 0, kMostReason);
  for (int r = 0; r < ranks_; ++r) {
    MPI_Request request = MPI_REQUEST_NULL;
    if (r == rank_) continue;
    MPI_Isend(reason.data(), static_cast<int>(reason.size()), MPI_BYTE, r, kAbortTag, control_, &request);
    if (request != MPI_REQUEST_NULL) MPI_Request_free(&request);
  }
}

void MpiChannel::abort(const std::string &reason) noexcept {
  try {
    const std::lock_guard lock(mpi_mutex);
    int over = 0;
    if (MPI_Finalized(&over) != MPI_SUCCESS || over != 0) return;
    try {
      break_with({Code::state, "comm", reason});
    } catch (const std::bad_alloc &) {  // a short text needs no memory
      break_with({Code::state, "comm", "out of memory"});
    }
  } catch (const std::exception &) {  // the others then find out by their deadline
  }
}

}  // namespace protrain::comm::mpi
