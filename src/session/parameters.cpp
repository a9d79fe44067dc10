#include "session/parameters.h"

#include <algorithm>
#include <cstring>
#include <new>

#include "arith/planes.h"
#include "base/error.h"
#include "base/on_threads.h"
#include "comm/agree.h"

namespace protrain::session {

namespace {

constexpr std::size_t kPartElements = 256 << 10;  // elements converted between planes and float32 at a time
constexpr std::size_t kNarrowBytes = 2;

template <typename T>
T element(const std::byte *at, std::size_t i) {
  T value;
  std::memcpy(&value, at + i * sizeof value, sizeof value);
  return value;
}
template <typename T>
void set_element(std::byte *at, std::size_t i, T value) {
  std::memcpy(at + i * sizeof value, &value, sizeof value);
}

// Calls act(T{}), where T is the 16-bit float type that `dtype` names.
template <typename Act>
void with_narrow(DType dtype, Act &&act) {
  if (dtype == DType::f16)
    act(arith::f16{});
  else
    act(arith::bf16{});
}

template <typename T>
void split(std::span<const std::byte> masters, std::byte *high, std::byte *low) {
  for (std::size_t i = 0; i < masters.size() / sizeof(float); ++i) {
    const arith::Planes<T> planes = arith::split<T>(element<float>(masters.data(), i));
    set_element(high, i, planes.high);
    set_element(low, i, planes.low);
  }
}
// Rounds float32 master weights to the type T: to nearest, ties to even, as frameworks do.
template <typename T>
void round(std::span<const std::byte> masters, std::byte *rounded) {
  for (std::size_t i = 0; i < masters.size() / sizeof(float); ++i)
    set_element(rounded, i, arith::narrowed<T>(element<float>(masters.data(), i)));
}

// Joins two planes into float32 masters. If `low` is null there is no low plane, and `high` is only widened.
template <typename T>
void join(const std::byte *high, const std::byte *low, std::span<std::byte> masters) {
  for (std::size_t i = 0; i < masters.size() / sizeof(float); ++i) {
    const T upper = element<T>(high, i);
    set_element(masters.data(), i,
                low ? arith::joined(upper, element<arith::LowPlane<T>>(low, i)) : arith::widened(upper));
  }
}

}  // namespace

// A buffer for the planes of some masters while they are converted.
struct Parameters::PlaneBuffer {
  PlaneBuffer(DType narrow, std::size_t elements)
      : dtype(narrow),
        low_size(narrow == DType::f16 ? sizeof(arith::LowPlane<arith::f16>) : sizeof(arith::LowPlane<arith::bf16>)),
        high(elements * kNarrowBytes),
        low(elements * low_size) {}

  std::size_t elements() const { return high.size() / kNarrowBytes; }
  std::span<std::byte> high_of(std::size_t count) { return std::span(high).first(count * kNarrowBytes); }
  std::span<std::byte> low_of(std::size_t count) { return std::span(low).first(count * low_size); }

  // Splits masters into the two planes. Frozen parameters have only the upper plane.
  void split(std::span<const std::byte> masters, bool frozen) {
    with_narrow(dtype, [&]<typename T>(T) {
      if (frozen)
        session::round<T>(masters, high.data());
      else
        session::split<T>(masters, high.data(), low.data());
    });
  }
  void join(std::span<std::byte> masters, bool trained) const {
    with_narrow(dtype, [&]<typename T>(T) { session::join<T>(high.data(), trained ? low.data() : nullptr, masters); });
  }

  DType dtype;
  std::uint64_t low_size;  // bytes per element
  std::vector<std::byte> high, low;
};

Parameters::Parameters(const draft::Draft &draft, run::Store &store, comm::Channel &channel, std::uint64_t base)
    : draft_(draft), store_(store), channel_(channel), base_(base) {
  for (std::size_t p = 0; p < forward().parameters.size(); ++p)
    if (fits_float32(value(p).type.dtype) && (draft.adapters.empty() || !value(p).frozen) && rounded_part(p).part == 0)
      shown_.push_back(p);
}

Parameters::PlaneBuffer Parameters::plane_buffer(std::size_t p, std::size_t elements) const {
  return {value(p).type.dtype, std::min(elements, kPartElements)};
}

const graph::Value &Parameters::value(std::size_t p) const {
  const graph::Graph &graph = draft_.first().training.graph;
  return graph.value(graph.parameters[p]);
}

std::size_t Parameters::planes_below() const {
  return state().optimizer_arrays.size() - static_cast<std::size_t>(draft_.settings.optimizer.state_count());
}

const program::Buffer *Parameters::low_plane(std::size_t chunk) const {
  const bool there = planes_below() > 0 && !state().chunks[chunk].optimizer.empty();
  return there ? &buffer(state().chunks[chunk].optimizer[0]) : nullptr;
}

std::size_t Parameters::elements() const {
  std::size_t sum = 0;
  for (const std::size_t p : shown_) sum += elements(p);
  return sum;
}

std::optional<std::size_t> Parameters::find(const std::string &name) const {
  const graph::ValueId id = forward().find(name);
  const auto found = std::ranges::find_if(shown_, [&](std::size_t p) { return forward().parameters[p] == id; });
  return found == shown_.end() ? std::nullopt : std::optional(*found);
}

void Parameters::fill(int threads, bool reachable, FrozenBase *base) {
  std::vector<std::size_t> in_place, frozen;
  for (std::size_t c = 0; c < state().chunks.size(); ++c) {
    const program::Buffer &weights = buffer(state().chunks[c].weights);
    if (base != nullptr && weights.tier == Tier::device && weights.offset < state().frozen_bytes)
      frozen.push_back(c);
    else if (weights.tier == Tier::host || (weights.tier == Tier::device && reachable))
      in_place.push_back(c);
    else
      fill_through_memory(c);
  }
  fill_in_place(in_place, threads);
  if (base != nullptr) base->fill([&] { fill_in_place(frozen, threads); });
}

// Fills chunks that the host can write to directly. Divides them among threads, because the first touch of new memory
// takes longer than copying a file out of the page cache.
void Parameters::fill_in_place(const std::vector<std::size_t> &chunks, int threads) {
  on_threads(chunks.size(), threads, "protrain-read", [&](std::size_t i) {
    const program::Buffer *low = low_plane(chunks[i]);
    read_chunk(chunks[i],
               {store_.address(buffer(state().chunks[chunks[i]].weights)), low ? store_.address(*low) : nullptr});
  });
}

// Fills a chunk that the host cannot write to directly. A region of the disk must be written before it is read. So this
// function writes zeros to the regions for which the model file has no values, such as those of the optimizer's state.
void Parameters::fill_through_memory(std::size_t c) {
  const program::State::Chunk &chunk = state().chunks[c];
  const program::Buffer &weights = buffer(chunk.weights), *low = low_plane(c);
  std::byte *at = store_.staging(weights.bytes + (low ? low->bytes : 0));
  const Planes planes = {at, low ? at + weights.bytes : nullptr};
  read_chunk(c, planes);
  if (weights.tier == Tier::device) {
    store_.write(weights, 0, planes.weights, weights.bytes);
    if (low) store_.write(*low, 0, planes.low, low->bytes);
    return;
  }
  store_.write_disk(weights.offset, planes.weights, weights.bytes);
  if (low) store_.write_disk(low->offset, planes.low, low->bytes);
  for (std::size_t i = planes_below(); i < chunk.optimizer.size(); ++i)
    store_.clear_disk(buffer(chunk.optimizer[i]).offset, buffer(chunk.optimizer[i]).bytes);
  if (chunk.gradient == program::BufferId::none) return;
  for (std::size_t p : chunk.parameters) {
    if (!state().parameters[p].trained) continue;
    const grad::Training &training = draft_.first().training;
    const graph::Type &type = training.graph.value(training.gradients[p]).type;
    const program::Operand home = state().gradient(p);
    store_.clear_disk(buffer(home.buffer).offset + home.offset, byte_count(type.dtype, type.shape));
  }
}

void Parameters::read_chunk(std::size_t chunk, const Planes &to) const {
  LastRounded last;
  for (std::size_t p : state().chunks[chunk].parameters) {
    if (is_split(p)) {
      read_masters(p, to);
      continue;
    }
    const Kept kept = kept_weights(p);
    const std::uint64_t size = element_bytes(p);
    const std::span<std::byte> out(to.weights + kept.at.offset, kept.elements * size);
    if (const RoundedPart part = rounded_part(p); part.matrix != nullptr)
      read_rounded(part, last, kept.first * size, out);
    else
      read_start(p, kept.first * size, out);
  }
}

Parameters::RoundedPart Parameters::rounded_part(std::size_t p) const {
  const std::string &name = value(p).name;
  for (const passes::RoundedMatrix &matrix : draft_.rounded) {
    if (matrix.parameter == name) return {&matrix, 0};
    const auto other = std::ranges::find(matrix.others, name);
    if (other != matrix.others.end()) return {&matrix, 1 + static_cast<std::size_t>(other - matrix.others.begin())};
  }
  return {};
}

void Parameters::read_rounded(const RoundedPart &part, LastRounded &last, std::uint64_t offset,
                              std::span<std::byte> out) const {
  if (last.matrix != part.matrix) {
    const std::string &in_file = draft_.in_file(part.matrix->parameter);
    last = {part.matrix, passes::round(*part.matrix, [&](std::int64_t first, std::span<float> floats) {
              draft_.file->read(in_file, static_cast<std::uint64_t>(first) * sizeof(float),
                                std::as_writable_bytes(floats));
            })};
  }
  std::ranges::copy(last.values.part(part.part).subspan(offset, out.size()), out.begin());
}

void Parameters::read_start(std::size_t p, std::uint64_t offset, std::span<std::byte> out) const {
  const passes::AdapterMatrix *matrix = passes::find_matrix(draft_.adapters, value(p).name);
  if (matrix == nullptr) return draft_.file->read(draft_.in_file(value(p).name), offset, out);
  std::vector<float> values(out.size() / sizeof(float));
  const auto seed = static_cast<std::uint64_t>(draft_.settings.seed.value_or(0));
  if (matrix->tensor.empty())
    passes::start_values(*matrix, seed, offset / sizeof(float), values);
  else
    draft_.adapter->read(matrix->tensor, offset / sizeof(float), values);
  std::ranges::copy(std::as_bytes(std::span(values)), out.begin());
}

// Reads a parameter's masters from the file, which holds float32, and splits them into planes. A rank may have all of
// the upper plane and only its shard of the lower one.
void Parameters::read_masters(std::size_t p, const Planes &to) const {
  const program::State::Parameter &parameter = state().parameters[p];
  const Kept kept = kept_weights(p);
  const Elements own = own_shard(p, 0);
  PlaneBuffer planes = plane_buffer(p, kept.elements);
  std::byte *high = to.weights + kept.at.offset, *low = nullptr;
  if (parameter.trained) low = to.low + parameter.optimizer_at[0];
  std::vector<float> masters(planes.elements());
  for (std::uint64_t at = kept.first; at < kept.first + kept.elements; at += masters.size()) {
    const std::size_t count = std::min<std::uint64_t>(masters.size(), kept.first + kept.elements - at);
    const std::span<std::byte> bytes = std::as_writable_bytes(std::span(masters).first(count));
    read_start(p, at * sizeof(float), bytes);
    planes.split(bytes, value(p).frozen);
    std::ranges::copy(planes.high_of(count), high + (at - kept.first) * kNarrowBytes);
    const std::uint64_t begin = std::max(at, own.begin), end = std::min(at + count, own.end);
    if (low && begin < end)
      std::ranges::copy(planes.low_of(count).subspan((begin - at) * planes.low_size, (end - begin) * planes.low_size),
                        low + (begin - own.begin) * planes.low_size);
  }
}

// Reads all values and allocates all memory before it makes the first change, so that a failed read or allocation
// changes nothing.
void Parameters::use_adapters(bool use) {
  if (use == uses_adapters()) return;
  std::vector<std::size_t> matrices;
  std::size_t count = 0;
  for (const passes::Adapter &adapter : draft_.adapters) {
    matrices.push_back(*find(adapter.b.name));
    count += elements(matrices.back());
  }
  std::vector<float> values(use ? 0 : count);
  if (!use) read_all(matrices, values);
  const std::vector<float> zeros(values.size());
  const std::span<const std::byte> written = std::as_bytes(std::span(use ? unused_ : zeros));

  std::vector<NewValues> changes;
  std::size_t at = 0;
  for (const std::size_t p : matrices) {
    const std::size_t bytes = elements(p) * sizeof(float);
    changes.push_back({p, 0, written.subspan(at, bytes)});
    at += bytes;
  }
  write_together(changes);
  unused_ = std::move(values);
}

void Parameters::read_all(const std::vector<std::size_t> &parameters, std::span<float> out) {
  const run::Store::Sweep sweep(store_);
  for (const std::size_t p : parameters) {
    read(p, 0, 0, std::as_writable_bytes(out.first(elements(p))));
    out = out.subspan(elements(p));
  }
}

// Fills the moments, which are in float32 for all optimizers that a file can declare. A file holds no moving average of
// weights, so the array of the average is left as it is.
void Parameters::fill_moments() {
  const auto &moments = draft_.file->declared().training->moments;
  run::Store::Sweep sweep(store_);
  std::vector<std::byte> part;
  for (const std::size_t p : shown_) {
    const auto found = moments.find(name(p));
    if (found == moments.end() || !state().parameters[p].trained) continue;
    // The number of arrays before the moments.
    const std::size_t before = draft_.settings.optimizer.average > 0 ? kAverageArray + 1 : 1;
    const std::size_t wanted = draft_.settings.optimizer.state().size() + 1 - before;
    require(
        found->second.size() == wanted, Code::mismatch, name(p),
        "the file has {} moments for it, and the optimizer keeps {}; set the option optimizer to begin without them",
        found->second.size(), wanted);
    for (std::size_t m = 0; m < wanted; ++m)
      for (std::size_t at = 0; at < elements(p); at += kPartElements) {
        part.resize(std::min(elements(p) - at, kPartElements) * sizeof(float));
        draft_.file->read(found->second[m], at * sizeof(float), part);
        write(p, m + before, at * sizeof(float), part);
      }
  }
  sweep.finish();
}

void Parameters::read_at(const program::Operand &at, std::uint64_t offset, std::span<std::byte> out) {
  store_.read(buffer(at.buffer), at.offset + offset, out.data(), out.size());
}

void Parameters::write_at(const program::Operand &at, std::uint64_t offset, std::span<const std::byte> in) {
  store_.write(buffer(at.buffer), at.offset + offset, in.data(), in.size());
}

Parameters::Kept Parameters::kept_weights(std::size_t p) const {
  const program::State::Parameter &parameter = state().parameters[p];
  const program::State::Chunk &chunk = state().chunks[parameter.chunk];
  if (chunk.sharded) return {own_shard(p, 0).begin, parameter.elements, state().weights(p)};
  return {0, elements(p), {chunk.weights, parameter.whole_at}};
}

Parameters::Elements Parameters::shard(std::size_t p, std::size_t array, int rank) const {
  const graph::Shards &shards = state().shards;
  const auto begin = static_cast<std::uint64_t>(shards.begin(p, rank)),
             end = static_cast<std::uint64_t>(shards.begin(p, rank + 1));
  if (array == 0) return {begin, end};
  return {optimizer_array(array).count(begin), optimizer_array(array).count(end)};
}

std::uint64_t Parameters::element_bytes(std::size_t p, std::size_t array) const {
  if (array > 0) return size_of(optimizer_array(array).dtype);
  return is_split(p) ? sizeof(float) : size_of(value(p).type.dtype);
}

// Goes through `bytes` bytes of float32 masters of a parameter whose masters are kept in planes. Goes part by part, and
// calls act(buffer, at, count) for the part with the elements from `at` to `at` + `count` - 1. `buffer` has room for
// the planes of the part.
template <typename Act>
void Parameters::each_part(std::size_t p, std::uint64_t bytes, Act &&act) {
  const std::size_t elements = bytes / sizeof(float);
  PlaneBuffer planes = plane_buffer(p, elements);
  std::optional<run::Store::Sweep> sweep;  // moves each piece once, though parts are smaller
  if (buffer(state().weights(p).buffer).tier == Tier::disk) sweep.emplace(store_);
  for (std::size_t at = 0; at < elements; at += planes.elements())
    act(planes, at, std::min(planes.elements(), elements - at));
  if (sweep) sweep->finish();
}

void Parameters::read_own(std::size_t p, std::size_t array, std::uint64_t first, std::span<std::byte> out) {
  const std::uint64_t begin = own_shard(p, array).begin;
  if (array > 0)
    return read_at(state().optimizer(p, array - 1 + planes_below()), (first - begin) * element_bytes(p, array), out);
  const Kept kept = kept_weights(p);
  if (!is_split(p)) return read_at(kept.at, (first - kept.first) * element_bytes(p), out);
  each_part(p, out.size(), [&](PlaneBuffer &planes, std::size_t at, std::size_t count) {
    const bool trained = state().parameters[p].trained;
    read_at(kept.at, (first + at - kept.first) * kNarrowBytes, planes.high_of(count));
    if (trained) read_at(state().optimizer(p, 0), (first + at - begin) * planes.low_size, planes.low_of(count));
    planes.join(out.subspan(at * sizeof(float), count * sizeof(float)), trained);
  });
}

// Writes a range of an array's elements. This rank must keep all elements of the range. If masters are kept in two
// planes, writes the upper plane of the whole range, but the lower plane only of the elements in this rank's shard.
void Parameters::write_own(std::size_t p, std::size_t array, std::uint64_t first, std::span<const std::byte> in) {
  const Elements own = own_shard(p, array);
  if (array > 0)
    return write_at(state().optimizer(p, array - 1 + planes_below()), (first - own.begin) * element_bytes(p, array),
                    in);
  const Kept kept = kept_weights(p);
  if (!is_split(p)) return write_at(kept.at, (first - kept.first) * element_bytes(p), in);
  each_part(p, in.size(), [&](PlaneBuffer &planes, std::size_t at, std::size_t count) {
    planes.split(in.subspan(at * sizeof(float), count * sizeof(float)), value(p).frozen);
    const std::uint64_t from = first + at;
    write_at(kept.at, (from - kept.first) * kNarrowBytes, planes.high_of(count));
    const std::uint64_t begin = std::max(from, own.begin), end = std::min(from + count, own.end);
    if (state().parameters[p].trained && begin < end)
      write_at(state().optimizer(p, 0), (begin - own.begin) * planes.low_size,
               planes.low_of(count).subspan((begin - from) * planes.low_size, (end - begin) * planes.low_size));
  });
}

void Parameters::complete(const Wanted &wanted, int reader) {
  const std::uint64_t size = wanted.element_bytes, first = wanted.first, end = first + wanted.out.size() / size;
  const auto part_of = [&](int rank) {
    const Elements range = shard(wanted.parameter, wanted.array, rank);
    const std::uint64_t from = std::clamp(range.begin, first, end), to = std::clamp(range.end, from, end);
    return wanted.out.subspan((from - first) * size, (to - from) * size);
  };
  std::vector<comm::Send> sends;
  std::vector<comm::Receive> receives;
  const std::span<std::byte> own = part_of(channel_.rank());
  for (int r = 0; r < channel_.ranks(); ++r) {
    if (r == channel_.rank()) continue;
    if ((reader < 0 || reader == r) && !own.empty()) sends.push_back({r, own.data(), own.size()});
    const std::span<std::byte> theirs = part_of(r);
    if ((reader < 0 || reader == channel_.rank()) && !theirs.empty())
      receives.push_back({r, theirs.data(), theirs.size()});
  }
  channel_.exchange(sends, receives);
}

// Fills wanted.out on rank `reader`, or on all ranks if `reader` is negative. read_shard(first, part) reads the
// elements in this rank's shard. complete() gets the other elements from the ranks that own them. If read_shard()
// fails, tells the other ranks, because they may wait for this rank's elements.
template <typename Read>
void Parameters::gather(const Wanted &wanted, int reader, Read &&read_shard) {
  const auto [p, array, first, size, out] = wanted;
  const Elements own = own_shard(p, array);
  const std::uint64_t end = first + out.size() / size;
  const std::uint64_t from = std::clamp(own.begin, first, end), to = std::clamp(own.end, from, end);
  try {
    if (from < to) read_shard(from, out.subspan((from - first) * size, (to - from) * size));
  } catch (Error &error) {
    error.facts.channel_broken |= channel_.ranks() > 1;
    comm::abort_for(channel_, error);
    throw;
  }
  if (channel_.ranks() > 1) complete(wanted, reader);
}

std::vector<std::vector<std::uint64_t>> Parameters::owned() const {
  std::vector<std::vector<std::uint64_t>> elements;
  const std::size_t moments = draft_.settings.optimizer.state().size();
  for (const std::size_t p : shown_) {
    std::vector<std::uint64_t> &own = elements.emplace_back();
    for (std::size_t array = 0; array <= (state().parameters[p].trained ? moments : 0); ++array) {
      const Elements shard = own_shard(p, array);
      own.push_back(shard.end - shard.begin);
    }
  }
  return elements;
}

void Parameters::read_owned(std::size_t p, std::size_t array, std::uint64_t offset, std::span<std::byte> out) {
  read_own(p, array, own_shard(p, array).begin + offset / element_bytes(p, array), out);
}

void Parameters::read_for(int reader, std::size_t p, std::size_t array, std::uint64_t offset,
                          std::span<std::byte> out) {
  const std::uint64_t size = element_bytes(p, array);
  gather({p, array, offset / size, size, out}, reader,
         [&](std::uint64_t first, std::span<std::byte> part) { read_own(p, array, first, part); });
}

void Parameters::read(std::size_t p, std::size_t array, std::uint64_t offset, std::span<std::byte> out) {
  read_for(-1, p, array, offset, out);
}

void Parameters::write(std::size_t p, std::size_t array, std::uint64_t offset, std::span<const std::byte> in) {
  const std::uint64_t size = element_bytes(p, array), first = offset / size;
  const std::uint64_t end = first + in.size() / size;
  const Elements own = own_shard(p, array);
  const Kept kept = kept_weights(p);
  const Elements wanted = array > 0 ? own : Elements{kept.first, kept.first + kept.elements};
  const std::uint64_t from = std::clamp(wanted.begin, first, end), to = std::clamp(wanted.end, from, end);
  if (from < to) write_own(p, array, from, in.subspan((from - first) * size, (to - from) * size));
}

void Parameters::write_together(const std::vector<NewValues> &changes) {
  try {
    run::Store::Sweep sweep(store_);
    for (const NewValues &change : changes) write(change.parameter, change.array, 0, change.values);
    sweep.finish();
  } catch (Error &error) {
    error.facts.state_broken = true;
    throw;
  } catch (const std::bad_alloc &) {
    throw Error(Code::nomem, "", "out of memory", {.state_broken = true});  // short texts, which allocate nothing
  }
}

// Reads a gradient as float32. 16-bit floats are read into the second half of the memory that their float32 values will
// fill, and are widened from there.
//   A gradient on the disk is read with read_disk(), because its pieces are counted from the beginning of the gradient.
// Store::read() would count them from the beginning of the buffer.
void Parameters::read_grad(std::size_t p, std::span<float> out) {
  const grad::Training &training = draft_.first().training;
  const DType dtype = training.graph.value(training.gradients[p]).type.dtype;
  const program::BufferId kept = state().kept[p];
  const program::Operand at = kept != program::BufferId::none ? program::Operand{kept, 0} : state().gradient(p);
  gather({p, 0, 0, sizeof(float), std::as_writable_bytes(out)}, -1, [&](std::uint64_t, std::span<std::byte> shard) {
    const std::size_t count = shard.size() / sizeof(float), bytes = count * size_of(dtype);
    std::byte *to = shard.data() + (shard.size() - bytes);
    if (buffer(at.buffer).tier == Tier::disk)
      store_.read_disk(buffer(at.buffer).offset + at.offset, to, bytes);
    else
      read_at(at, 0, {to, bytes});
    if (dtype == DType::f32) return;
    with_narrow(dtype, [&]<typename T>(T) {
      for (std::size_t i = 0; i < count; ++i) set_element(shard.data(), i, arith::widened(element<T>(to, i)));
    });
  });
}

}  // namespace protrain::session
