// One rank of a group that tries its channel. ranks.sh starts the group.
//   comm_ranks SCENARIO mpi
//   comm_ranks SCENARIO gloo RANK RANKS FOLDER
// Prints "rank N: SCENARIO as expected" if so, or what was otherwise.
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "comm/agree.h"

namespace protrain::comm {
namespace {

using namespace std::chrono_literals;
constexpr auto kTimeout = 3s, kPatience = 30s;  // of failing scenarios; of the others
constexpr int kFailing = 1;                     // the rank that fails where one does

struct Unexpected {
  std::string text;
};

void expect(bool holds, const std::string &text) {
  if (!holds) throw Unexpected{text};
}

// The byte at this place of what one rank sends to another.
std::byte byte_of(int from, int to, std::size_t round, std::size_t part, std::size_t at) {
  return static_cast<std::byte>(from * 31 + to * 17 + static_cast<int>(round * 7 + part * 5 + at % 251));
}

// Every rank draws the same numbers, so it knows what the others send.
void exchange_at_random(Channel &channel) {
  constexpr std::size_t kRounds = 25, kSizes[] = {0, 1, 63, 64, 4096, 70'000, 3'000'000};
  std::mt19937 random(7);
  const auto below = [&](std::size_t n) { return random() % n; };
  for (std::size_t round = 0; round < kRounds; ++round) {
    std::vector<std::vector<std::byte>> sent, received;
    std::vector<Send> sends;
    std::vector<Receive> receives;
    std::vector<std::size_t> part_of;
    for (int from = 0; from < channel.ranks(); ++from)
      for (int to = 0; to < channel.ranks(); ++to) {
        if (from == to) continue;
        const std::size_t parts = below(4);
        for (std::size_t part = 0; part < parts; ++part) {
          const std::size_t bytes = kSizes[below(std::size(kSizes))];
          if (from == channel.rank()) {
            std::vector<std::byte> &own = sent.emplace_back(bytes);
            for (std::size_t i = 0; i < bytes; ++i) own[i] = byte_of(from, to, round, part, i);
            sends.push_back({to, own.data(), bytes});
          }
          if (to == channel.rank()) {
            std::vector<std::byte> &theirs = received.emplace_back(bytes);
            receives.push_back({from, theirs.data(), bytes});
            part_of.push_back(part);
          }
        }
      }
    channel.exchange(sends, receives);
    for (std::size_t r = 0; r < receives.size(); ++r)
      for (std::size_t i = 0; i < received[r].size(); ++i)
        expect(received[r][i] == byte_of(receives[r].rank, channel.rank(), round, part_of[r], i),
               "a byte of round " + std::to_string(round) + " is not the one that was sent");
  }
}

void agree(Channel &channel) {
  for (int round = 0; round < 200; ++round) {
    const std::vector<int> values = gather_values(channel, 100 * round + channel.rank());
    for (int r = 0; r < channel.ranks(); ++r)
      expect(values.at(static_cast<std::size_t>(r)) == 100 * round + r, "a value of another rank is wrong");
  }
  const std::vector<std::string> texts =
      gather_texts(channel, std::string(static_cast<std::size_t>(channel.rank()) * 1000, 'x'));
  for (std::size_t r = 0; r < texts.size(); ++r) expect(texts[r] == std::string(r * 1000, 'x'), "a text is wrong");
  barrier(channel);
}

Error error_of(const std::function<void()> &act) {
  try {
    act();
  } catch (const Error &error) {
    return error;
  }
  throw Unexpected{"no error"};
}

// A failing scenario. The failing rank calls `fail_here`; the others wait for it and must get an error in time.
void with_failure(Channel &channel, const std::function<void()> &fail_here, std::initializer_list<Code> codes,
                  const std::string &text) {
  if (channel.rank() == kFailing) {
    barrier(channel);
    return fail_here();
  }
  const auto start = std::chrono::steady_clock::now();
  const Error error = error_of([&] {
    barrier(channel);  // the failure may already overtake this one
    barrier(channel);
  });
  const auto took = std::chrono::steady_clock::now() - start;
  expect(std::find(codes.begin(), codes.end(), error.code) != codes.end(), "the error is: " + error.text);
  expect(error.text.find(text) != std::string::npos, "the error does not say why: " + error.text);
  expect(error.subject.starts_with("rank "), "the error's subject is " + error.subject);
  expect(took < 2 * kTimeout + 3s, "it took too long");
  expect(error_of([&] { barrier(channel); }).text == error.text, "the second error differs from the first");
}

void run(const std::string &scenario, Channel &channel) {
  if (scenario == "exchange") return exchange_at_random(channel);
  if (scenario == "agree") return agree(channel);
  if (scenario == "abort")  // the others hear the reason
    return with_failure(
        channel, [&] { channel.abort("the disk is full"); }, {Code::peer}, "the disk is full");
  if (scenario == "late")
    return with_failure(
        channel, [] { std::this_thread::sleep_for(kTimeout + 1s); }, {Code::timeout, Code::peer}, "");
  if (scenario == "killed")
    return with_failure(
        channel, [] { _exit(3); }, {Code::peer, Code::timeout}, "");
  if (scenario == "cancelled") {  // by another thread of each rank, while all wait for the failing one
    barrier(channel);
    if (channel.rank() == kFailing) return std::this_thread::sleep_for(1s);
    std::thread other([&] {
      std::this_thread::sleep_for(200ms);
      channel.abort("cancelled by the user");
    });
    const Error error = error_of([&] { barrier(channel); });
    other.join();
    return expect(error.text.find("cancelled by the user") != std::string::npos, "the error is: " + error.text);
  }
  throw Unexpected{"there is no such scenario"};
}

// The failing rank never opens its channel.
void meet_in_vain(const ChannelRequest &request) {
  if (request.rank == kFailing) return std::this_thread::sleep_for(kTimeout + 1s);
  const Error error = error_of([&] { open(request); });
  expect(error.code == Code::timeout, "the error is: " + error.text);
}

}  // namespace
}  // namespace protrain::comm

int main(int argc, char **argv) {
  using namespace protrain;
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  if (arguments.size() != 2 && arguments.size() != 5) return 2;
  const std::string &scenario = arguments[0];
  const bool whole = scenario == "exchange" || scenario == "agree";
  comm::ChannelRequest request{.transport = comm::Transport::mpi,
                               .timeout = whole ? std::chrono::milliseconds(comm::kPatience) : comm::kTimeout};
  if (arguments.size() == 5) {
    request.transport = comm::Transport::gloo;
    request.rank = std::stoi(arguments[2]);
    request.ranks = std::stoi(arguments[3]);
    request.rendezvous = arguments[4];
  }
  std::string text = "as expected";
  int rank = -1;
  try {
    rank = request.rank;
    if (scenario == "absent") {
      comm::meet_in_vain(request);
    } else {
      const std::unique_ptr<comm::Channel> channel = comm::open(request);
      rank = channel->rank();
      comm::run(scenario, *channel);
    }
  } catch (const comm::Unexpected &unexpected) {
    text = unexpected.text;
  } catch (const Error &error) {
    text = error.subject + ": " + error.text;
  }
  std::printf("rank %d: %s %s\n", rank, scenario.c_str(), text.c_str());
  std::fflush(stdout);
  // mpirun ends all ranks as soon as one has left after a failure, also those that have not yet seen it.
  if (!whole && request.transport == comm::Transport::mpi) std::this_thread::sleep_for(std::chrono::seconds(3));
  return text == "as expected" ? 0 : 1;
}
