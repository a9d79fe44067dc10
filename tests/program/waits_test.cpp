#include "hand_built.h"
#include "program/vector_clocks.h"

namespace protrain::program::waits_test {
namespace {

using Waits = std::vector<std::size_t>;

// Builds a Program of instructions on given queues, over buffers of 64 bytes. A buffer with slot s begins at byte 64 *
// s; buffers with the same slot share memory.
class Bare {
 public:
  BufferId buffer(std::uint64_t slot) {
    program.buffers.push_back({.name = "b", .bytes = 64, .offset = slot * 64});
    program.arena_bytes[Tier::device] = std::max(program.arena_bytes[Tier::device], (slot + 1) * 64);
    return static_cast<BufferId>(program.buffers.size() - 1);
  }
  void emit(Queue queue, std::vector<BufferId> reads, std::vector<BufferId> writes,
            std::vector<BufferId> releases = {}) {
    Instruction instruction{.queue = queue, .releases = std::move(releases)};
    for (BufferId id : reads) instruction.inputs.push_back({id, 0});
    for (BufferId id : writes) instruction.outputs.push_back({id, 0});
    program.instructions.push_back(std::move(instruction));
  }
  std::vector<Waits> waits() {
    add_waits(program);
    std::vector<Waits> all;
    for (const Instruction &instruction : program.instructions) all.push_back(instruction.waits);
    return all;
  }

  Program program;
};

TEST(Waits, AreNotNeededWithinOneQueue) {
  Bare bare;
  const BufferId a = bare.buffer(0), b = bare.buffer(1);
  bare.emit(Queue::compute, {}, {a});
  bare.emit(Queue::compute, {a}, {b}, {a});
  EXPECT_EQ(bare.waits(), (std::vector<Waits>{{}, {}}));
}

TEST(Waits, MakeAReaderComeAfterTheWriter) {
  Bare bare;
  const BufferId a = bare.buffer(0), b = bare.buffer(1);
  bare.emit(Queue::upload, {}, {a});
  bare.emit(Queue::compute, {}, {b});
  bare.emit(Queue::compute, {a}, {b});
  EXPECT_EQ(bare.waits(), (std::vector<Waits>{{}, {}, {0}}));
}

TEST(Waits, MakeAWriterComeAfterEveryReader) {
  Bare bare;
  const BufferId a = bare.buffer(0), b = bare.buffer(1), c = bare.buffer(2);
  bare.emit(Queue::compute, {}, {a});
  bare.emit(Queue::download, {a}, {b});
  bare.emit(Queue::host, {a}, {c});
  bare.emit(Queue::compute, {}, {a});
  EXPECT_EQ(bare.waits(), (std::vector<Waits>{{}, {0}, {0}, {1, 2}}));
}

TEST(Waits, AreLeftOutWhereAnotherImpliesThem) {
  Bare bare;
  const BufferId a = bare.buffer(0), b = bare.buffer(1), c = bare.buffer(2);
  bare.emit(Queue::upload, {}, {a});
  bare.emit(Queue::compute, {a}, {b});
  bare.emit(Queue::download, {a, b}, {c});  // a wait for instruction 1 implies one for 0
  EXPECT_EQ(bare.waits(), (std::vector<Waits>{{}, {0}, {1}}));
}

TEST(Waits, MakeABufferComeAfterTheReleaseOfItsBytes) {
  Bare bare;
  const BufferId a = bare.buffer(0), b = bare.buffer(1), again = bare.buffer(0);
  bare.emit(Queue::compute, {}, {a});
  bare.emit(Queue::download, {a}, {b}, {a});
  bare.emit(Queue::compute, {}, {again});
  EXPECT_EQ(bare.waits(), (std::vector<Waits>{{}, {0}, {1}}));
}

TEST(Waits, DoNotTieBuffersThatShareNoByte) {
  Bare bare;
  const BufferId a = bare.buffer(0), b = bare.buffer(1), other = bare.buffer(2);
  bare.emit(Queue::compute, {}, {a});
  bare.emit(Queue::download, {a}, {b}, {a});
  bare.emit(Queue::compute, {}, {other});
  EXPECT_EQ(bare.waits()[2], Waits{});
}

TEST(Waits, ComeAfterEachReleaseOfBytesThatWereGivenBackInPieces) {
  Bare bare;
  const BufferId a = bare.buffer(0), b = bare.buffer(1), c = bare.buffer(2), d = bare.buffer(3);
  bare.emit(Queue::upload, {}, {a, b});
  bare.emit(Queue::download, {a}, {c}, {a});
  bare.emit(Queue::host, {b}, {d}, {b});
  const BufferId both = bare.buffer(0);
  bare.program.buffers[index(both)].bytes = 128;
  bare.emit(Queue::compute, {}, {both});
  EXPECT_EQ(bare.waits()[3], (Waits{1, 2}));
}

TEST(Waits, MakeAReleaseComeAfterAllWhoStillUseTheBuffer) {
  Bare bare;
  const BufferId a = bare.buffer(0), b = bare.buffer(1);
  bare.emit(Queue::compute, {}, {a});
  bare.emit(Queue::download, {a}, {b});
  bare.emit(Queue::compute, {a}, {}, {a});
  EXPECT_EQ(bare.waits()[2], (Waits{1}));
}

TEST(Waits, CanBeAddedAnew) {
  const TwoBlocks model;
  const Program sound = model.lowered(model.plan(Tier::disk, plan::BlockMode::swap));
  Program program = sound;
  program.instructions.back().waits = {0, 1, 2};
  add_waits(program);
  EXPECT_EQ(program, sound);
}

TEST(Waits, OrderReadsAndWritesOfOneArrayOnTheDisk) {
  Bare bare;
  const BufferId array = bare.buffer(0), a = bare.buffer(1), b = bare.buffer(2), c = bare.buffer(3);
  bare.program.buffers[index(array)].persistent = true;
  bare.emit(Queue::disk_read, {array}, {a});
  bare.emit(Queue::compute, {}, {b});
  bare.emit(Queue::disk_write, {b}, {array});
  bare.emit(Queue::disk_read, {array}, {c});
  EXPECT_EQ(bare.waits(), (std::vector<Waits>{{}, {}, {0, 1}, {2}}));
}

}  // namespace
}  // namespace protrain::program::waits_test
