// FlatBuffers: a table begins with the distance back to its vtable, which gives the place of each field within the
// table. Strings, vectors and other tables are elsewhere; a field holds the distance from itself to them.
#include "onnx_import/ort_checkpoint.h"

#include <cstring>
#include <optional>
#include <span>

#include "base/error.h"
#include "onnx_import/names.h"

namespace protrain::onnx_import {

namespace {

constexpr std::uint64_t kMostTensors = 1 << 16;
constexpr std::uint64_t kMostNameBytes = 16 << 20;  // of all names together, because tables may share bytes
constexpr std::uint32_t kMostDims = 64;
constexpr std::uint64_t kIdentifierAt = 4;
constexpr char kIdentifier[] = {'O', 'D', 'T', 'C'};

// Numbers of the fields that are read, by table.
enum Root : std::uint16_t { kModule = 1, kGroups = 2 };
enum Module : std::uint16_t { kTrained, kFrozen, kNominal };
enum TensorField : std::uint16_t { kName = 0, kDims = 2, kDataType = 3, kRawBytes = 4, kExternalOffset = 6 };
enum Group : std::uint16_t { kStep = 1, kLearningRate = 2, kStates = 3 };
enum State : std::uint16_t { kParameter, kMomentums };

// The place of a vector's first element, and the number of elements.
struct Vector {
  std::uint64_t at = 0;
  std::uint32_t count = 0;
};

class CheckpointReader {
 public:
  explicit CheckpointReader(const File &file) : file_(file) {}

  OrtCheckpoint read() {
    char identifier[sizeof kIdentifier] = {};
    if (file_.size() >= kIdentifierAt + sizeof identifier)
      file_.read(kIdentifierAt, std::as_writable_bytes(std::span(identifier)));
    require(std::memcmp(identifier, kIdentifier, sizeof identifier) == 0, Code::format, file_.path(),
            "not a checkpoint of onnxruntime-training: its bytes 4 to 7 are not ODTC");
    const std::uint64_t root = pointed(0);
    OrtCheckpoint checkpoint;
    if (const auto module = table(root, kModule)) read_module(*module, checkpoint);
    const Vector groups = vector(root, kGroups, sizeof(std::uint32_t));
    require(groups.count <= 1, Code::unsupported, file_.path(), "{} groups of an optimizer; one is supported",
            groups.count);
    if (groups.count == 1) read_group(pointed(groups.at), checkpoint);
    return checkpoint;
  }

 private:
  void read_module(std::uint64_t module, OrtCheckpoint &to) {
    require(number<std::uint8_t>(module, kNominal, 0) == 0, Code::unsupported, file_.path(),
            "a nominal checkpoint, which holds no values; give the complete one that was written beside it");
    to.trained = tensors(module, kTrained);
    to.frozen = tensors(module, kFrozen);
  }

  void read_group(std::uint64_t group, OrtCheckpoint &to) {
    to.steps = number<std::int64_t>(group, kStep, 0);
    require(to.steps >= 0, Code::format, file_.path(), "its optimizer has made {} steps", to.steps);
    to.learning_rate = number<float>(group, kLearningRate, 0);
    const Vector states = vector(group, kStates, sizeof(std::uint32_t));
    for (std::uint32_t i = 0; i < states.count; ++i) {
      const std::uint64_t state = element(states, i);
      count_tensor();
      const std::string parameter = name(state, kParameter);
      const bool fresh = to.moments.emplace(parameter, tensors(state, kMomentums)).second;
      require(fresh, Code::format, parameter, "two states of an optimizer in {}", file_.path());
    }
  }

  std::vector<CheckpointTensor> tensors(std::uint64_t in, std::uint16_t field) {
    const Vector places = vector(in, field, sizeof(std::uint32_t));
    std::vector<CheckpointTensor> found;
    for (std::uint32_t i = 0; i < places.count; ++i) {
      count_tensor();
      found.push_back(tensor(element(places, i)));
    }
    return found;
  }

  CheckpointTensor tensor(std::uint64_t at) {
    CheckpointTensor tensor{.name = name(at, kName), .dims = {}};
    const Vector dims = vector(at, kDims, sizeof(std::int64_t));
    require(dims.count <= kMostDims, Code::limit, tensor.name, "rank {}; at most {} is allowed", dims.count, kMostDims);
    for (std::uint32_t d = 0; d < dims.count; ++d)
      tensor.dims.push_back(value<std::int64_t>(dims.at + d * sizeof(std::int64_t)));
    tensor.data_type = number<std::int32_t>(at, kDataType, 0);
    const auto beside = number<std::int64_t>(at, kExternalOffset, -1);
    tensor.beside = beside >= 0;
    const Vector data = vector(at, kRawBytes, 1);
    tensor.offset = tensor.beside ? static_cast<std::uint64_t>(beside) : data.at;
    tensor.bytes = data.count;
    return tensor;
  }

  void count_tensor() {
    require(++tensors_ <= kMostTensors, Code::limit, file_.path(), "more than {} tensors", kMostTensors);
  }

  [[noreturn]] void fail_damaged(std::uint64_t at) const {
    fail(Code::format, file_.path(), "damaged: what byte {} leads to is not within its {} bytes", at, file_.size());
  }
  void require_within(std::uint64_t at, std::uint64_t bytes) const {
    if (at > file_.size() || bytes > file_.size() - at) fail_damaged(at);
  }

  template <typename T>
  T value(std::uint64_t at) const {
    require_within(at, sizeof(T));
    T out;
    file_.read(at, std::as_writable_bytes(std::span(&out, 1)));
    return out;
  }

  // Reads a distance at `at`, and returns the place that lies so many bytes after `at`.
  std::uint64_t pointed(std::uint64_t at) const {
    const std::uint64_t to = at + value<std::uint32_t>(at);
    require_within(to, sizeof(std::uint32_t));
    return to;
  }
  std::uint64_t element(const Vector &vector, std::uint32_t i) const {
    return pointed(vector.at + i * sizeof(std::uint32_t));
  }

  // Returns the place of a table's field, or an empty optional if the table does not have this field.
  std::optional<std::uint64_t> place(std::uint64_t table, std::uint16_t field) const {
    const auto back = static_cast<std::int64_t>(value<std::int32_t>(table));
    const std::int64_t vtable = static_cast<std::int64_t>(table) - back;
    if (vtable < 0) fail_damaged(table);
    const std::uint64_t entries = static_cast<std::uint64_t>(vtable);
    const std::uint64_t entry = 2 * sizeof(std::uint16_t) + field * sizeof(std::uint16_t);
    if (value<std::uint16_t>(entries) < entry + sizeof(std::uint16_t)) return std::nullopt;
    const std::uint64_t distance = value<std::uint16_t>(entries + entry);
    return distance == 0 ? std::nullopt : std::optional(table + distance);
  }

  template <typename T>
  T number(std::uint64_t table, std::uint16_t field, T absent) const {
    const auto at = place(table, field);
    return at ? value<T>(*at) : absent;
  }
  std::optional<std::uint64_t> table(std::uint64_t in, std::uint16_t field) const {
    const auto at = place(in, field);
    return at ? std::optional(pointed(*at)) : std::nullopt;
  }
  Vector vector(std::uint64_t table, std::uint16_t field, std::uint64_t element_bytes) const {
    const auto at = place(table, field);
    if (!at) return {};
    const std::uint64_t begin = pointed(*at);
    const Vector found = {begin + sizeof(std::uint32_t), value<std::uint32_t>(begin)};
    require_within(found.at, found.count * element_bytes);
    return found;
  }

  std::string name(std::uint64_t table, std::uint16_t field) {
    const Vector text = vector(table, field, 1);
    require(text.count <= kMaxNameBytes && (name_bytes_ += text.count) <= kMostNameBytes, Code::limit, file_.path(),
            "a name of {} bytes; {} are allowed, and {} for all names", text.count, kMaxNameBytes, kMostNameBytes);
    std::string name(text.count, '\0');
    file_.read(text.at, std::as_writable_bytes(std::span(name)));
    check_name(name, file_.path(), "tensor");
    return name;
  }

  const File &file_;
  std::uint64_t tensors_ = 0, name_bytes_ = 0;
};

}  // namespace

OrtCheckpoint read_ort_checkpoint(const File &file) { return CheckpointReader(file).read(); }

}  // namespace protrain::onnx_import
