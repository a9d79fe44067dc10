// Team: a fixed set of named threads that all run the same function at the same time. The caller of enter() is none of
// them and only waits. Between calls of enter() the team's threads sleep.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>

namespace protrain {

class Team;

// A thread of a team. The function that the team runs gets its thread's Member as an argument.
class Member {
 public:
  Member(int index_, int size_, Team *team) : index(index_), size(size_), team_(team) {}

  // Returns once every member of the run has called barrier(). If another member's work threw, barrier() throws too, so
  // that the run ends; do not catch this exception.
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

// Returns how many members of a team of `size` get work if `count` items are shared with a grain of 1. These are the
// members with the lowest indices. The others need no scratch of their own.
inline int members_at_work(std::int64_t count, int size) {
  return static_cast<int>(std::min<std::int64_t>(count, size));
}

class Team {
 public:
  // Threads are called "name/0", "name/1", ... and receive no signals. Throws Code::nomem if the system refuses a
  // thread.
  Team(int size, const std::string &name);
  ~Team();
  Team(const Team &) = delete;
  Team &operator=(const Team &) = delete;

  int size() const;

  // Runs issue(argument) on member 0 and returns when issue() is done. An exception of `issue` comes out here. Only one
  // thread may call enter() at a time. A call on member 0, inside another enter(), simply calls issue(argument).
  void enter(void (*issue)(void *), void *argument);
  // Runs work(argument, member) on every member and returns when all are done; call it inside enter(). If members
  // throw, the exception of the lowest one comes out here.
  void run(void (*work)(void *, Member &), void *argument);

  // Forms of enter() and run() that take any callable, by reference, instead of a function and its argument.
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

// Returns how many threads this process may run at once, by the scheduler's affinity mask or OpenMP's places, and the
// cgroup's processor quota; at least 1.
int available_threads();

}  // namespace protrain
