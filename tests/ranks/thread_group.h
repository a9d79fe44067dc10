// ThreadGroup: ranks that are threads of this process. They reach each other through mailboxes, with the deadlines and
// errors of a real transport. tests/ranks/processes.sh uses processes, over MPI and Gloo.
#pragma once

#include <condition_variable>
#include <cstring>
#include <deque>
#include <exception>
#include <functional>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

#include "base/error.h"
#include "comm/channel.h"

namespace protrain::test {

class ThreadGroup {
 public:
  explicit ThreadGroup(int ranks, std::chrono::milliseconds timeout = std::chrono::seconds(60))
      : ranks_(ranks), timeout_(timeout), left_(static_cast<std::size_t>(ranks)) {}

  // Calls work(channel) on a thread for each rank, and returns each rank's error, if any.
  std::vector<std::exception_ptr> run(const std::function<void(std::shared_ptr<comm::Channel>)> &work) {
    std::vector<std::exception_ptr> errors(static_cast<std::size_t>(ranks_));
    std::vector<std::thread> threads;
    for (int rank = 0; rank < ranks_; ++rank)
      threads.emplace_back([&, rank] {
        try {
          work(std::make_shared<ThreadChannel>(*this, rank));
        } catch (...) {
          errors[static_cast<std::size_t>(rank)] = std::current_exception();
        }
      });
    for (std::thread &thread : threads) thread.join();
    return errors;
  }

 private:
  class ThreadChannel final : public comm::Channel {
   public:
    ThreadChannel(ThreadGroup &group, int rank) : group_(group), rank_(rank) {}
    ~ThreadChannel() override { group_.leave(rank_, "it left"); }
    int rank() const override { return rank_; }
    int ranks() const override { return group_.ranks_; }
    void exchange(std::span<const comm::Send> sends, std::span<const comm::Receive> receives) override {
      try {
        group_.exchange(rank_, sends, receives);
      } catch (const Error &error) {
        abort(error.text);
        throw;
      }
    }
    void abort(const std::string &reason) noexcept override { group_.leave(rank_, reason); }
    void throw_if_failed() override { group_.throw_if_failed(rank_); }

   private:
    ThreadGroup &group_;
    const int rank_;
  };

  using Mailbox = std::deque<std::vector<std::byte>>;

  void exchange(int rank, std::span<const comm::Send> sends, std::span<const comm::Receive> receives) {
    std::unique_lock lock(mutex_);
    for (const comm::Send &send : sends) mail_[{rank, send.rank}].push_back(copy_of(send));
    changed_.notify_all();
    for (const comm::Receive &receive : receives) {
      Mailbox &mail = mail_[{receive.rank, rank}];
      const auto left = [&](int one) -> const std::string & { return left_[static_cast<std::size_t>(one)]; };
      const bool came = changed_.wait_for(
          lock, timeout_, [&] { return !mail.empty() || !left(receive.rank).empty() || !left(rank).empty(); });
      const std::string subject = fmt::format("rank {}", receive.rank);
      if (!came) throw Error(Code::timeout, subject, "no answer in time", {.channel_broken = true});
      if (mail.empty())
        throw Error(Code::peer, subject, fmt::format("{} failed: {}", subject, left(receive.rank)),
                    {.channel_broken = true});
      if (mail.front().size() != receive.bytes)
        throw Error(Code::internal, subject, "the sizes of a message differ", {.channel_broken = true});
      if (receive.bytes > 0) std::memcpy(receive.data, mail.front().data(), receive.bytes);
      spare_.push_back(std::move(mail.front()));
      mail.pop_front();
    }
  }

  // Copies a message. Reuses the memory of a received message, which saves the time that the system takes to clear new
  // memory.
  std::vector<std::byte> copy_of(const comm::Send &send) {
    std::vector<std::byte> message;
    if (!spare_.empty()) {
      message = std::move(spare_.back());
      spare_.pop_back();
    }
    message.assign(send.data, send.data + send.bytes);
    return message;
  }

  void throw_if_failed(int rank) {
    const std::lock_guard lock(mutex_);
    for (std::size_t r = 0; r < left_.size(); ++r)
      if (static_cast<int>(r) != rank && !left_[r].empty())
        throw Error(Code::peer, fmt::format("rank {}", r), fmt::format("rank {} failed: {}", r, left_[r]),
                    {.channel_broken = true});
  }

  void leave(int rank, const std::string &reason) noexcept {
    const std::lock_guard lock(mutex_);
    std::string &said = left_[static_cast<std::size_t>(rank)];
    if (said.empty()) said = reason;
    changed_.notify_all();
  }

  const int ranks_;
  const std::chrono::milliseconds timeout_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::pair<int, int>, Mailbox> mail_;  // by sender and receiver
  std::vector<std::vector<std::byte>> spare_;    // messages that were received
  std::vector<std::string> left_;                // per rank: why it left; "": it did not
};

}  // namespace protrain::test
