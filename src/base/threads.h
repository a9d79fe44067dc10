// Team: a fixed set of named threads that run one function at a time, together. All threads belong to the team; the
// caller of enter() only waits. Between steps all of them sleep.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

namespace protrain {

class Team;

// One thread's place in a run.
class Member {
 public:
  Member(int index_, int size_, Team *team) : index(index_), size(size_), team_(team) {}

  // Waits until every member of the run is here. Throws (do not catch it) when another member's work threw,
  // so that a run always ends.
  void barrier();

  const int index;  // 0 .. size - 1
  const int size;

 private:
  Team *team_;
};

struct Range {
  std::int64_t begin = 0, end = 0;
  std::int64_t size() const { return end - begin; }
};

// Returns the part of [0, count) that member `index` of `size` works on. Parts are cut at multiples of `grain` and
// differ by at most one grain.
Range share(std::int64_t count, std::int64_t grain, int index, int size);
inline Range share(std::int64_t count, std::int64_t grain, const Member &member) {
  return share(count, grain, member.index, member.size);
}

class Team {
 public:
  // Threads are called "name/0", "name/1", ... and receive no signals. Code::nomem if the system refuses one.
  Team(int size, const std::string &name);
  ~Team();
  Team(const Team &) = delete;
  Team &operator=(const Team &) = delete;

  int size() const;

  // Runs issue(argument) on member 0 and returns when `issue` is done; its exception comes out here. Only one thread
  // may call enter() at a time. On member 0 itself, inside another enter(), it just calls issue(argument).
  void enter(void (*issue)(void *), void *argument);
  // Runs work(argument, member) on every member and returns when all are done; call it inside enter(). If members
  // throw, the exception of the lowest one comes out here.
  void run(void (*work)(void *, Member &), void *argument);

  // Both do the same with any callable, which is taken by reference.
  template <typename Issue>
  void enter(Issue &&issue) {
    enter([](void *self) { (*static_cast<std::remove_reference_t<Issue> *>(self))(); }, &issue);
  }
  template <typename Work>
  void run(Work &&work) {
    run([](void *self, Member &member) { (*static_cast<std::remove_reference_t<Work> *>(self))(member); }, &work);
  }

 private:
  friend class Member;
  struct State;
  std::unique_ptr<State> state_;
};

// Returns how many threads this process may run at once, by the scheduler's affinity mask and the cgroup's processor
// quota; at least 1.
int available_threads();

}  // namespace protrain
