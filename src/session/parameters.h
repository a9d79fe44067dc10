// Parameters: reads and writes every parameter of floats as float32, wherever it rests and whatever type a step
// computes in. If masters are kept in two planes (arith/planes.h), it splits what it writes and joins what it reads.
// With several ranks, each rank has its shards and sends them to the ranks that read.
//   Parameters also fills quantised weights, from the file or by rounding the file's floats, and frozen weights in
// float64, from the file. Neither these weights nor the frozen base of adapters are in shown(). Parameters must not be
// used during a step.
#pragma once

#include <optional>
#include <span>

#include "comm/channel.h"
#include "draft/draft.h"
#include "run/store.h"
#include "session/frozen_base.h"

namespace protrain::session {

// The number of the array that holds the moving average of weights, if there is one.
inline constexpr std::size_t kAverageArray = 1;

class Parameters {
 public:
  // Draft, store and channel must outlive this object. `base` is hash_of_base().
  Parameters(const draft::Draft &draft, run::Store &store, comm::Channel &channel, std::uint64_t base);

  // Returns, as positions in the graph's list of parameters, those whose values are float32 or narrower floats. Leaves
  // out the frozen base of adapters, and the scales of rounded matrices. All functions of this class take such
  // positions.
  const std::vector<std::size_t> &shown() const { return shown_; }
  const std::string &name(std::size_t p) const { return forward().value(forward().parameters.at(p)).name; }
  const Shape &shape(std::size_t p) const { return forward().value(forward().parameters.at(p)).type.shape; }
  std::size_t elements(std::size_t p) const { return static_cast<std::size_t>(element_count(shape(p))); }
  std::size_t elements() const;                                    // of all shown parameters
  std::optional<std::size_t> find(const std::string &name) const;  // among the shown parameters

  // Fills weights from the file, and arrays on the disk with zeros, on up to `threads` threads. `reachable` means that
  // the host can write to the device's memory. `base` is the memory of frozen weights, or nullptr. If another session
  // has filled this memory, it stays as it is.
  void fill(int threads, bool reachable, FrozenBase *base);
  // Returns hash_of_base().
  std::uint64_t base() const { return base_; }
  // Switches the adapters on or off. While they are off, matrix B of each is zero, and its values are kept aside.
  void use_adapters(bool use);
  bool uses_adapters() const { return unused_.empty(); }
  // Fills the optimizer's arrays with the state that the model's file declares.
  void fill_moments();

  // read() and write() copy whole elements of an array, from byte `offset` of the array on. Array 0 is the weights: as
  // float32 for a parameter in shown(), and in the stored type for any other parameter. Arrays from 1 on are those of
  // Optimizer::state(). With several ranks, all ranks must make the same call: read() gives every rank all values, and
  // in write() each rank stores the values that it keeps.
  void read(std::size_t parameter, std::size_t array, std::uint64_t offset, std::span<std::byte> out);
  void write(std::size_t parameter, std::size_t array, std::uint64_t offset, std::span<const std::byte> in);
  // Reads the weights of shown parameters one after the other. Of a disk, it reads each piece once.
  void read_all(const std::vector<std::size_t> &parameters, std::span<float> out);
  // New values for a whole array of a parameter.
  struct NewValues {
    std::size_t parameter, array;
    std::span<const std::byte> values;
  };
  // Writes arrays that belong together. If one cannot be written, the error says that the state is broken.
  void write_together(const std::vector<NewValues> &changes);
  void read_grad(std::size_t parameter, std::span<float> out);
  // owned() returns how many elements this rank owns of each array of each shown parameter. read_owned() reads these
  // elements of an array. Its `offset` is in bytes and counts from the first element that this rank owns.
  std::vector<std::vector<std::uint64_t>> owned() const;
  void read_owned(std::size_t parameter, std::size_t array, std::uint64_t offset, std::span<std::byte> out);
  // Reads as read() does, but only rank `reader` gets the values. The other ranks pass an `out` of the same size, which
  // they use as scratch memory.
  void read_for(int reader, std::size_t parameter, std::size_t array, std::uint64_t offset, std::span<std::byte> out);

 private:
  struct PlaneBuffer;
  PlaneBuffer plane_buffer(std::size_t parameter, std::size_t elements) const;

  // The memory that a chunk's weights are read into.
  struct Planes {
    std::byte *weights;
    std::byte *low;  // nullptr if there is no low plane
  };

  // The elements of an array that this rank has, and where they are.
  struct Kept {
    std::uint64_t first, elements;
    program::Operand at;
  };
  Kept kept_weights(std::size_t parameter) const;
  // A range of elements of an array, such as the shard that a rank owns.
  struct Elements {
    std::uint64_t begin, end;
  };
  Elements shard(std::size_t parameter, std::size_t array, int rank) const;
  Elements own_shard(std::size_t parameter, std::size_t array) const {
    return shard(parameter, array, channel_.rank());
  }
  const graph::OptimizerArray &optimizer_array(std::size_t array) const {  // not for array 0
    return state().optimizer_arrays[array - 1 + planes_below()];
  }
  std::uint64_t element_bytes(std::size_t parameter, std::size_t array = 0) const;
  // Reads or writes elements that this rank has, from element `first` of the array on.
  void read_own(std::size_t parameter, std::size_t array, std::uint64_t first, std::span<std::byte> out);
  void write_own(std::size_t parameter, std::size_t array, std::uint64_t first, std::span<const std::byte> in);
  // Elements of an array that a reader wants, from `first` on.
  struct Wanted {
    std::size_t parameter, array;
    std::uint64_t first, element_bytes;
    std::span<std::byte> out;
  };
  // Fills in those parts of `wanted.out` that other ranks own. This rank's shard is there already. Only rank `reader`
  // gets the parts, or every rank if `reader` is negative.
  void complete(const Wanted &wanted, int reader);
  template <typename Read>
  void gather(const Wanted &wanted, int reader, Read &&read_shard);

  const graph::Graph &forward() const { return draft_.first().forward; }
  const program::State &state() const { return draft_.programs.state; }
  const program::Buffer &buffer(program::BufferId id) const { return state().buffers[index(id)]; }
  const graph::Value &value(std::size_t parameter) const;
  bool is_split(std::size_t parameter) const {
    return value(parameter).type.dtype == DType::bf16 || value(parameter).type.dtype == DType::f16;
  }
  // Returns how many arrays in state().optimizer_arrays precede those of Optimizer::state(): 1 for the low plane if
  // there is one, else 0.
  std::size_t planes_below() const;
  const program::Buffer *low_plane(std::size_t chunk) const;

  void fill_in_place(const std::vector<std::size_t> &chunks, int threads);
  void fill_through_memory(std::size_t chunk);
  void read_chunk(std::size_t chunk, const Planes &to) const;
  void read_masters(std::size_t parameter, const Planes &to) const;
  // Reads bytes of the values that a parameter starts with. Adapters start with new values, or with those of an adapter
  // file. All other parameters start with the values of the model's file.
  void read_start(std::size_t parameter, std::uint64_t offset, std::span<std::byte> out) const;

  // A cache of the last matrix that was rounded (quantised), with the values of all its parts. The parts are read one
  // after the other, so the matrix is rounded only once.
  struct LastRounded {
    const passes::RoundedMatrix *matrix = nullptr;
    passes::RoundedValues values = {};
  };
  // The part of a quantised (rounded) matrix that a parameter holds. A quantised matrix is stored as several
  // parameters: part 0 is the quantised elements, and further parts are scales, zero points and offsets.
  struct RoundedPart {
    const passes::RoundedMatrix *matrix = nullptr;  // nullptr: the parameter holds the file's values
    std::size_t part = 0;
  };
  RoundedPart rounded_part(std::size_t parameter) const;
  void read_rounded(const RoundedPart &part, LastRounded &last, std::uint64_t offset, std::span<std::byte> out) const;

  void read_at(const program::Operand &at, std::uint64_t offset, std::span<std::byte> out);
  void write_at(const program::Operand &at, std::uint64_t offset, std::span<const std::byte> in);
  template <typename Act>
  void each_part(std::size_t parameter, std::uint64_t bytes, Act &&act);

  const draft::Draft &draft_;
  run::Store &store_;
  comm::Channel &channel_;
  std::vector<std::size_t> shown_;
  const std::uint64_t base_;
  std::vector<float> unused_;  // matrix B of all adapters, while they are off; else empty
};

}  // namespace protrain::session
