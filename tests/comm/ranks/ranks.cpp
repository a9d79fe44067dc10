// One rank of a group that tries its channel. ranks.sh starts the group.
//   comm_ranks SCENARIO mpi
//   comm_ranks SCENARIO gloo RANK RANKS RENDEZVOUS
//   comm_ranks SCENARIO nccl RANK RANKS RENDEZVOUS    over the stand-in for NCCL, with Gloo between the hosts
// Prints "rank N: SCENARIO as expected", or else what went wrong. In scenarios with a failure, rank 1 fails, or rank 0
// if SCENARIO ends with -by-0.
//   comm_ranks port
// Prints the number of a port on which nobody listens.
#include <dlfcn.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "comm/address.h"
#include "comm/agree.h"
#include "comm/launch.h"
#include "stranger.h"

namespace protrain::comm {
namespace {

using namespace std::chrono_literals;
constexpr auto kPatience = 60s;     // the channel's timeout if all goes well in the scenario
std::chrono::seconds timeout = 3s;  // the channel's timeout if the scenario has a failure
int failing = 1;                    // the rank that fails, if the scenario has a failure
bool between_gpus = false;          // the channel is NCCL's

struct Unexpected {
  std::string text;
};

void expect(bool holds, const std::string &text) {
  if (!holds) throw Unexpected{text};
}

// Message number `part` that rank `from` sends to rank `to` in this round.
std::vector<std::byte> message(int from, int to, std::size_t round, std::size_t part, std::size_t bytes) {
  constexpr std::size_t kPeriod = 251;
  const int first = from * 31 + to * 17 + static_cast<int>(round * 7 + part * 5);
  std::vector<std::byte> all(bytes);
  for (std::size_t i = 0; i < std::min(bytes, kPeriod); ++i)
    all[i] = static_cast<std::byte>(first + static_cast<int>(i));
  for (std::size_t at = kPeriod; at < bytes; at += kPeriod)
    std::copy_n(all.begin(), std::min(kPeriod, bytes - at), all.begin() + static_cast<std::ptrdiff_t>(at));
  return all;
}

// Exchanges messages of random sizes. Every rank draws the same random numbers, so it knows what the others send.
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
            sent.push_back(message(from, to, round, part, bytes));
            sends.push_back({to, sent.back().data(), bytes});
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
      expect(received[r] == message(receives[r].rank, channel.rank(), round, part_of[r], received[r].size()),
             "a byte of round " + std::to_string(round) + " is not the one that was sent");
  }
}

void agree(Channel &channel) {
  for (int round = 0; round < 200; ++round) {
    const std::vector<int> values = gather_values(channel, 100 * round + channel.rank());
    for (int r = 0; r < channel.ranks(); ++r)
      expect(values.at(static_cast<std::size_t>(r)) == 100 * round + r, "a value of another rank is wrong");
  }
  for (const std::size_t length : {0, 1000, 1 << 20}) {
    const auto text_of = [&](std::size_t rank) { return std::string(rank * length, static_cast<char>('a' + rank)); };
    const std::size_t rank = static_cast<std::size_t>(channel.rank());
    const std::vector<std::string> texts = gather_texts(channel, text_of(rank));
    for (std::size_t r = 0; r < texts.size(); ++r) expect(texts[r] == text_of(r), "a text is wrong");
    const std::string text = broadcast_text(channel, std::string(rank == 0 ? length : 17, rank == 0 ? 'z' : 'y'));
    expect(text == std::string(length, 'z'), "the text of rank 0 is wrong");
  }
  std::vector<int> all;
  for (int r = 0; r < channel.ranks(); ++r) all.push_back(r);
  expect(ranks_of_this_machine(channel) == all, "not all ranks are on this machine");
  barrier(channel);
}

// Exchanges a byte with every other rank. So meet() returns only after all ranks have called it.
void meet(Channel &channel) { gather_values(channel, std::byte{1}); }

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
  if (channel.rank() == failing) {
    meet(channel);
    return fail_here();
  }
  const auto start = std::chrono::steady_clock::now();
  const Error error = error_of([&] {
    meet(channel);  // may fail already, if the other rank's failure arrives first
    meet(channel);
  });
  const auto took = std::chrono::steady_clock::now() - start;
  expect(std::find(codes.begin(), codes.end(), error.code) != codes.end(), "the error is: " + error.text);
  expect(error.text.find(text) != std::string::npos, "the error does not say why: " + error.text);
  expect(error.text.find(".cc:") == std::string::npos, "the error shows a transport's source: " + error.text);
  const bool nameless = between_gpus && error.code == Code::timeout;  // NCCL does not say which rank is late
  expect(nameless || error.subject.starts_with("rank "), "the error's subject is " + error.subject);
  expect(took < 2 * timeout + 3s, "it took too long");
  expect(error_of([&] { meet(channel); }).text == error.text, "the second error differs from the first");
}

constexpr auto kUntilRank1Fails = 500ms;

// Rank 0 sends a message to rank 2 and waits for rank 1, which fails. Rank 0 gets an error and overwrites the message
// in its memory. Rank 2 begins to receive only after `delay`. It must get an error or the message, never the new bytes.
void reuse_what_was_sent(Channel &channel, std::chrono::milliseconds delay) {
  constexpr std::size_t kBytes = 3'000'000;
  constexpr auto kUntilAllHaveRead = 5s;  // on a busy machine too
  std::vector<std::byte> bytes(kBytes, std::byte{channel.rank() == 0});
  barrier(channel);
  if (channel.rank() == 1) {
    std::this_thread::sleep_for(kUntilRank1Fails);
    channel.abort("the disk is full");
    return std::this_thread::sleep_for(kUntilAllHaveRead);
  }
  const Send send{2, bytes.data(), kBytes};
  const Receive of_rank_1{1, bytes.data(), 1}, of_rank_0{0, bytes.data(), kBytes};
  if (channel.rank() == 2) std::this_thread::sleep_for(delay);
  try {
    if (channel.rank() == 0)
      channel.exchange({&send, 1}, {&of_rank_1, 1});
    else
      channel.exchange({}, {&of_rank_0, 1});
    expect(channel.rank() == 2, "no error");
    expect(std::ranges::count(bytes, std::byte{1}) == std::ssize(bytes), "another's bytes came without an error");
  } catch (const Error &error) {
    expect(error.code == Code::peer, "the error is: " + error.text);
  }
  std::ranges::fill(bytes, std::byte{2});
  std::this_thread::sleep_for(kUntilAllHaveRead);
}

// The failing rank cannot use its GPU, while the other ranks wait for it in NCCL. All ranks must learn the reason, and
// the channel between the hosts must be unusable afterwards.
void open_without_a_gpu(Channel &hosts) {
  const bool fails = hosts.rank() == failing;
  const Error error = error_of([&] {
    open_between_gpus({hosts, fails ? "no GPU" : fmt::format("emulated:{}", hosts.rank()), timeout});
  });
  expect(error.code == (fails ? Code::device : Code::peer), "the error is: " + error.text);
  expect(error.text.find("cudaDeviceGetByPCIBusId") != std::string::npos, "the error does not say why: " + error.text);
  expect(error.facts.channel_broken, "the channel seems to be whole");
  error_of([&] { hosts.throw_if_failed(); });
}

// Each rank forks a child that exits at once, as a host program's loader of data may do. The channel must stay whole.
void exit_in_children(Channel &channel) {
  meet(channel);
  const pid_t child = fork();
  if (child == 0) std::exit(0);
  expect(child > 0, "there is no child");
  int status = 0;
  pid_t ended = 0;
  for (const auto end = std::chrono::steady_clock::now() + 10s; ended == 0 && std::chrono::steady_clock::now() < end;) {
    ended = waitpid(child, &status, WNOHANG);
    if (ended == 0) std::this_thread::sleep_for(10ms);
  }
  if (ended == 0) kill(child, SIGKILL);
  expect(ended == child && WIFEXITED(status) && WEXITSTATUS(status) == 0, "the child did not exit");
  exchange_at_random(channel);
}

// Expects that the channel has left the calling thread without a current CUDA context, as it was before.
void expect_no_context() {
  const auto folder = std::filesystem::read_symlink("/proc/self/exe").parent_path();
  void *plugin = dlopen((folder / "libprotrain_nccl.so").c_str(), RTLD_NOW | RTLD_NOLOAD);
  expect(plugin != nullptr, "the plugin for NCCL is not loaded");
  const auto has_context = reinterpret_cast<int (*)()>(dlsym(plugin, "protrain_standin_has_context"));
  expect(has_context != nullptr && has_context() == 0, "the channel has left a current context behind");
}

void run(const std::string &scenario, Channel &channel) {
  if (scenario == "forked") return exit_in_children(channel);
  if (scenario == "exchange" || scenario == "strangers") return exchange_at_random(channel);
  if (scenario == "agree") return agree(channel);
  if (scenario == "no-gpu") return open_without_a_gpu(channel);
  if (scenario == "reuse") return reuse_what_was_sent(channel, 3 * kUntilRank1Fails);
  if (scenario == "reuse-meanwhile") return reuse_what_was_sent(channel, kUntilRank1Fails);
  if (scenario == "abort")  // the others hear the reason
    return with_failure(
        channel, [&] { channel.abort("the disk is full"); }, {Code::peer}, "the disk is full");
  if (scenario == "quits")  // the failing rank says why, and is gone
    return with_failure(
        channel,
        [&] {
          channel.abort("the disk is full");
          _exit(3);
        },
        {Code::peer}, "the disk is full");
  if (scenario == "late")
    return with_failure(
        channel, [] { std::this_thread::sleep_for(timeout + 1s); }, {Code::timeout, Code::peer}, "");
  if (scenario == "killed")
    return with_failure(
        channel, [] { _exit(3); }, {Code::peer, Code::timeout}, "");
  if (scenario == "cancelled") {  // by another thread of each rank, while all wait for the failing one
    meet(channel);
    if (channel.rank() == failing) return std::this_thread::sleep_for(1s);
    std::thread other([&] {
      std::this_thread::sleep_for(200ms);
      channel.abort("cancelled by the user");
    });
    const Error error = error_of([&] { meet(channel); });
    other.join();
    return expect(error.text.find("cancelled by the user") != std::string::npos, "the error is: " + error.text);
  }
  throw Unexpected{"there is no such scenario"};
}

// The failing rank never opens its channel. For the others, open() must fail with a timeout, or because rank 0 gave up
// before them.
void meet_in_vain(const ChannelRequest &request) {
  if (request.rank == failing) return std::this_thread::sleep_for(timeout + 1s);
  const Error error = error_of([&] { open(request); });
  const bool another_gave_up = error.code == Code::peer && error.text.find("rank 0 failed") != std::string::npos;
  expect(error.code == Code::timeout || another_gave_up, "the error is: " + error.text);
}

void expect_refusal(const ChannelRequest &request, Code code, const std::string &text) {
  const Error error = error_of([&] { open(request); });
  expect(error.code == code && error.subject == "rendezvous" && error.text.find(text) != std::string::npos,
         "the error is: " + error.subject + ": " + error.text);
}

// The ranks meet in a folder where another session has met and failed. Each rank must be told that another session has
// met there, and not why that session failed.
void meet_where_others_have_met(const ChannelRequest &request) {
  const std::unique_ptr<Channel> others = open(request);
  error_of([&] {
    meet(*others);
    if (request.rank == failing) others->abort("the disk is full");
    meet(*others);
  });
  expect_refusal(request, Code::arg, "another session has met there");
}

// A record as ranks send it to each other while they meet: both sizes, the key, the value.
std::string record(const std::string &key, const std::string &value) {
  const std::uint32_t sizes[] = {static_cast<std::uint32_t>(key.size()), static_cast<std::uint32_t>(value.size())};
  return std::string(reinterpret_cast<const char *>(sizes), sizeof sizes) + key + value;
}

// Connects to rank 0's port several times and sends words that no rank would send. Rank 0 must close each of these
// connections. After that, opens further connections that send nothing, or too little, and returns them. The ranks must
// meet in spite of all these connections.
std::vector<Stranger> bring_strangers(int port) {
  std::mt19937 random(7);
  std::string noise(100'000, ' ');
  for (char &byte : noise) byte = static_cast<char>(random());
  for (const std::string &words :
       {noise, std::string("GET / HTTP/1.1\r\nHost: rank0\r\n\r\n"), std::string(8, '\xff'), record("", ""),
        record("protrain", "1 of 3"), record("protrain 0.0.0-another build", "1 of 3"),
        record("protrain " PROTRAIN_COMM_BUILD_ID, "3 of 3"), record(std::string(1000, 'x'), "").substr(0, 900)}) {
    const Stranger stranger(port);
    stranger.say(words);
    expect(stranger.is_closed(), "rank 0 listens to a stranger");
  }
  std::vector<Stranger> silent;
  for (int i = 0; i < 100; ++i) silent.emplace_back(port);
  silent.back().say("prot");
  return silent;
}

// Tries to open channels that cannot work: the HOST:PORT, the rank or the number of ranks is wrong. Each error must
// name the reason. This process plays all ranks.
void be_refused(ChannelRequest request, int port) {
  request.ranks = 3;
  {
    const Occupant occupant(port);
    expect(occupant.listens(), "the port is not free");
    expect_refusal(request, Code::arg, "in use");
    expect_refusal(request, Code::arg, request.rendezvous);
    request.rank = 1;
    const std::jthread answers([&](const std::stop_token &stop) {
      while (!stop.stop_requested()) occupant.answer("HTTP/1.1 400 Bad Request\r\n\r\n");
    });
    expect_refusal(request, Code::timeout, "does not speak");
  }
  request.timeout = 4s;
  std::jthread rank_0([request]() mutable {
    request.rank = 0;
    error_of([&] { open(request); });
  });
  {
    const Stranger impostor(port);  // greets as rank 1 would
    impostor.say(record("protrain " PROTRAIN_COMM_BUILD_ID, "1 of 3"));
    expect(impostor.hears(), "rank 0 lets nobody in");
    request.timeout = 500ms;
    expect_refusal(request, Code::timeout, "a number of its own");
    request.ranks = 4;
    expect_refusal(request, Code::timeout, "number of ranks");
    impostor.say(record("", std::string(2 << 20, 'x')));
    while (impostor.hears()) continue;  // reads the rest of rank 0's answer to the greeting
    expect(impostor.is_closed(), "a rank may send what it likes");
  }
  request.rendezvous = std::string(70, 'x') + ":29500";  // longer than a name may be, so nobody is asked for it
  expect_refusal(request, Code::arg, "not known");
}

// Reads the next record and returns its value.
std::string value_from(const Stranger &stranger) {
  std::uint32_t sizes[2] = {};
  const std::string head = stranger.take(sizeof sizes);
  if (head.size() == sizeof sizes) std::memcpy(sizes, head.data(), sizeof sizes);
  stranger.take(sizes[0]);
  return stranger.take(sizes[1]);
}

// An address of this machine that is not a loopback address, or "".
std::string address_of_network() {
  ifaddrs *all = nullptr;
  std::string found;
  if (getifaddrs(&all) != 0) return found;
  for (const ifaddrs *one = all; one != nullptr && found.empty(); one = one->ifa_next) {
    if (one->ifa_addr == nullptr || one->ifa_addr->sa_family != AF_INET || (one->ifa_flags & IFF_LOOPBACK) != 0)
      continue;
    char text[NI_MAXHOST] = "";
    if (getnameinfo(one->ifa_addr, sizeof(sockaddr_in), text, sizeof text, nullptr, 0, NI_NUMERICHOST) == 0)
      found = text;
  }
  freeifaddrs(all);
  return found;
}

// Rank 1 announces an address higher than rank 0's and then never connects. Between two ranks, the one with the higher
// address connects to the other, so rank 0 waits. Rank 0 must give up in time, although Gloo alone would wait for five
// times the timeout.
void wait_for_one_that_never_connects(ChannelRequest request, int port) {
  request.ranks = 2;
  request.timeout = timeout;
  setenv("GLOO_SOCKET_IFNAME", "lo", 1);
  const std::string network = address_of_network();
  if (!network.empty()) request.rendezvous = fmt::format("{}:{}", network, port);
  const auto start = std::chrono::steady_clock::now();
  std::optional<Error> error;
  std::jthread rank_0([&] { error = error_of([&] { open(request); }); });
  const Stranger rank_1(port);
  rank_1.say(record("protrain " PROTRAIN_COMM_BUILD_ID, "1 of 2"));
  value_from(rank_1);
  std::string address = value_from(rank_1);
  const std::string own = {127, 0, 0, 1}, higher = {127, 127, 127, 127};
  expect(address.find(own) != std::string::npos, "rank 0 does not say its address");
  rank_1.say(record("1", address.replace(address.find(own), own.size(), higher)));
  rank_0.join();
  expect(std::chrono::steady_clock::now() - start < 2 * timeout + 3s, "it took too long");
  expect(error->code == Code::timeout && error->text.find("rank 1 did not connect") != std::string::npos, error->text);
  const bool advises = error->text.find("GLOO_SOCKET_IFNAME") != std::string::npos;
  expect(advises == !network.empty(), "the advice is: " + error->text);
}

}  // namespace
}  // namespace protrain::comm

int main(int argc, char **argv) {
  using namespace protrain;
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  if (arguments.size() == 1 && arguments[0] == "port") return std::printf("%d\n", comm::free_port()) < 0;
  if (arguments.size() != 2 && arguments.size() != 5) return 2;
  std::string scenario = arguments[0];
  if (scenario.ends_with("-by-0")) {
    scenario.resize(scenario.size() - 5);
    comm::failing = 0;
  }
  const bool whole = one_of(scenario, {"exchange", "agree", "strangers", "forked"});
  const bool over_mpi = arguments.size() == 2;
  if (over_mpi) comm::timeout = std::chrono::seconds(10);  // it includes the start of MPI, slow on a busy machine
  comm::ChannelRequest request{.transport = comm::Transport::mpi, .timeout = whole ? comm::kPatience : comm::timeout};
  if (arguments.size() == 5) {
    request.transport = comm::Transport::gloo;
    comm::between_gpus = arguments[1] == "nccl";
    request.rank = std::stoi(arguments[2]);
    request.ranks = std::stoi(arguments[3]);
    request.rendezvous = arguments[4];
  } else if (const std::optional<comm::Launched> launched = comm::launched()) {
    request.rank = launched->rank;
  }
  std::string text = "as expected";
  int rank = -1;
  try {
    rank = request.rank;
    const auto port = [&] { return std::stoi(comm::address_of(request.rendezvous).value().port); };
    if (scenario == "absent") {
      comm::meet_in_vain(request);
    } else if (scenario == "used") {
      comm::meet_where_others_have_met(request);
    } else if (scenario == "refused") {
      comm::be_refused(request, port());
    } else if (scenario == "unconnected") {
      comm::wait_for_one_that_never_connects(request, port());
    } else {
      std::vector<comm::Stranger> strangers;
      if (scenario == "strangers" && rank == comm::failing) strangers = comm::bring_strangers(port());
      const std::unique_ptr<comm::Channel> hosts = comm::open(request);
      std::unique_ptr<comm::Channel> gpus;
      rank = hosts->rank();
      if (comm::between_gpus && scenario != "no-gpu")
        gpus = comm::open_between_gpus({*hosts, fmt::format("emulated:{}", rank), request.timeout});
      for (const comm::Stranger &stranger : strangers) comm::expect(stranger.is_closed(), "a stranger stayed");
      comm::run(scenario, gpus ? *gpus : *hosts);
      gpus.reset();
      if (comm::between_gpus) comm::expect_no_context();
    }
  } catch (const comm::Unexpected &unexpected) {
    text = unexpected.text;
  } catch (const Error &error) {
    text = error.subject + ": " + error.text;
  }
  std::printf("rank %d: %s %s\n", rank, arguments[0].c_str(), text.c_str());
  std::fflush(stdout);
  // mpirun ends all ranks as soon as one has left with an error. The others first need time to see the failure.
  if (!whole && over_mpi) std::this_thread::sleep_for(std::chrono::seconds(3));
  return text == "as expected" ? 0 : 1;
}
