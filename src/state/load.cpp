// Loading: nothing in a file is used before its checksum has matched, and no tensor is given to the caller before all
// checksums have.
#include <algorithm>
#include <optional>
#include <tuple>

#include "base/error.h"
#include "base/text.h"
#include "state/checkpoint.h"
#include "state/difference.h"
#include "state/folders.h"
#include "state/manifest.h"
#include "state/pieces.h"
#include "state/tensor_file.h"

namespace protrain::state {

// One of a checkpoint's two files of tensors.
struct DataFile {
  File file;
  FileRecord record;
  std::uint64_t data_begin = 0;
  std::vector<Tensor> tensors;  // offsets from data_begin
};

namespace {

using Kind = DirectoryEntry::Kind;

// Reads the header from pieces whose checksums have matched.
std::string read_header(const File &file, const FileRecord &record, std::span<std::byte> buffer) {
  std::string text(std::min(kLengthBytes, record.bytes), '\0');
  scan(file, record, 1, buffer, nullptr);
  file.read(0, std::as_writable_bytes(std::span(text)));
  const std::uint64_t length = header_length(text, record.bytes, file.path()), end = kLengthBytes + length;
  text.clear();
  scan(file, record, piece_count(end), buffer, [&](std::uint64_t offset, std::span<const std::byte> bytes) {
    const std::uint64_t wanted = offset < end ? std::min<std::uint64_t>(bytes.size(), end - offset) : 0;
    text.append(reinterpret_cast<const char *>(bytes.data()), wanted);
  });
  return text.substr(kLengthBytes);
}

bool contains(const std::vector<DirectoryEntry> &entries, const std::string &name) {
  return std::ranges::find(entries, name, &DirectoryEntry::name) != entries.end();
}

DataFile open_data(const std::string &root, const std::string &folder, const char *name, const FileRecord &record) {
  const std::string path = root + "/" + folder + name;
  require(contains(list_directory(root + "/" + folder), name), Code::corrupt, path,
          "is missing; the manifest beside it expects {} bytes", record.bytes);
  DataFile data{.file = File::open_beneath(root, folder + name), .record = record, .data_begin = 0, .tensors = {}};
  require(data.file.size() == record.bytes, Code::corrupt, path, "has {} bytes; the manifest beside it expects {}",
          data.file.size(), record.bytes);
  std::vector<std::byte> buffer(kBufferBytes);
  const std::string header = read_header(data.file, record, buffer);
  data.data_begin = kLengthBytes + header.size();
  data.tensors = parse_header(header, record.bytes - data.data_begin, path);
  return data;
}

Manifest read_manifest(const std::string &root, const std::string &folder) {
  const File file = File::open_beneath(root, folder + kManifestName);
  require(file.size() <= kManifestLimit, Code::limit, file.path(), "has {} bytes; no manifest is over {}", file.size(),
          kManifestLimit);
  std::string text(file.size(), '\0');
  file.read(0, std::as_writable_bytes(std::span(text)));
  return parse_manifest(text, file.path());
}

// The parameters that the two headers describe.
std::vector<Parameter> parameters_of(const DataFile &weights, const DataFile &optimizer) {
  std::vector<Parameter> parameters;
  std::map<std::string, std::size_t> by_name;
  for (const Tensor &tensor : weights.tensors) {
    by_name[tensor.name] = parameters.size();
    parameters.push_back({.name = tensor.name, .shape = tensor.shape, .arrays = {}});
  }
  for (const Tensor &tensor : optimizer.tensors) {
    const std::size_t slash = std::min(tensor.name.rfind('/'), tensor.name.size());
    const auto found = by_name.find(tensor.name.substr(0, slash));
    require(found != by_name.end() && slash < tensor.name.size() && tensor.shape == parameters[found->second].shape,
            Code::format, optimizer.file.path(), "{} belongs to no parameter of its shape", printable(tensor.name));
    parameters[found->second].arrays.push_back(tensor.name.substr(slash + 1));
  }
  return parameters;
}

// Returns the names of folders with a manifest, and of links that are called like checkpoints; the newest first.
std::vector<std::string> candidates(const std::string &parent, const std::vector<DirectoryEntry> &entries) {
  std::vector<std::pair<Folder, DirectoryEntry>> found;
  for (const DirectoryEntry &entry : entries)
    if (const auto folder = parse_folder(entry.name); folder && entry.kind != Kind::file)
      found.emplace_back(*folder, entry);
  std::ranges::sort(found, [](const auto &a, const auto &b) {
    return std::tie(b.first.step, a.first.aside) < std::tie(a.first.step, b.first.aside);
  });
  std::vector<std::string> names;
  for (const auto &[folder, entry] : found)
    if (entry.kind == Kind::other || contains(list_directory(parent + "/" + entry.name), kManifestName))
      names.push_back(entry.name);
  return names;
}

// Returns the step in a folder's name; nothing if save() gives no such names, as for a copy with another name.
std::optional<std::uint64_t> named_step(std::string_view path) {
  path = path.substr(0, path.find_last_not_of('/') + 1);
  const auto folder = parse_folder(path.substr(path.rfind('/') + 1));
  return folder ? std::optional(folder->step) : std::nullopt;
}

// Runs `body`, which reads a checkpoint. If it throws an Error, adds to the text the name of the earlier checkpoint, if
// there is one.
template <typename Body>
auto naming(const std::string &earlier, const Body &body) {
  try {
    return body();
  } catch (const Error &error) {
    if (earlier.empty()) throw;
    fail(error.code, error.subject, "{}; the checkpoint before it is {}", error.text, earlier);
  }
}

// The bytes of a tensor in the file, and the array that they belong to.
struct TensorRange {
  std::uint64_t begin = 0, end = 0;  // in the file
  std::size_t parameter = 0, array = 0;
};

void pour(const DataFile &data, const std::vector<TensorRange> &ranges, std::span<std::byte> buffer,
          const Write &write) {
  auto range = ranges.begin();
  scan(data.file, data.record, data.record.pieces.size(), buffer, [&](std::uint64_t at, auto bytes) {
    while (!bytes.empty() && range != ranges.end()) {
      const std::uint64_t target = at < range->begin ? range->begin : range->end;
      const auto part = bytes.first(std::min<std::uint64_t>(bytes.size(), target - at));
      if (at >= range->begin && !part.empty()) write(range->parameter, range->array, at - range->begin, part);
      at += part.size();
      bytes = bytes.subspan(part.size());
      if (at == range->end) ++range;
    }
  });
}

}  // namespace

struct Checkpoint::Contents {
  std::string path, earlier;
  Description description;
  DataFile weights, optimizer;
};

Checkpoint::Checkpoint(std::unique_ptr<Contents> contents) : contents_(std::move(contents)) {}
Checkpoint::Checkpoint(Checkpoint &&) noexcept = default;
Checkpoint::~Checkpoint() = default;

const std::string &Checkpoint::path() const { return contents_->path; }
const Description &Checkpoint::description() const { return contents_->description; }

Checkpoint Checkpoint::open(const std::string &path) {
  const auto entries = list_directory(path);
  const bool itself = contains(entries, kManifestName);
  const auto names = itself ? std::vector<std::string>{""} : candidates(path, entries);
  require(!names.empty(), Code::format, path, "no complete checkpoint in it");
  const std::string folder = itself ? "" : names.front() + "/", whole = itself ? path : path + "/" + names.front();
  const std::string earlier = names.size() < 2 ? "" : path + "/" + names[1];
  return naming(earlier, [&] {
    Manifest manifest = read_manifest(path, folder);
    const auto step = manifest.counters.find(kStep);
    require(step != manifest.counters.end() && step->second >> 63 == 0, Code::format, path, "its step is no count");
    require(named_step(whole).value_or(step->second) == step->second, Code::mismatch, whole,
            "holds step {}, but its name says otherwise", step->second);
    auto contents = std::make_unique<Contents>(
        Contents{.path = whole,
                 .earlier = earlier,
                 .description = {},
                 .weights = open_data(path, folder, kWeightsName, manifest.weights),
                 .optimizer = open_data(path, folder, kOptimizerName, manifest.optimizer_state)});
    contents->description = {.optimizer = manifest.optimizer,
                             .counters = manifest.counters,
                             .parameters = parameters_of(contents->weights, contents->optimizer)};
    return Checkpoint(std::move(contents));
  });
}

void Checkpoint::load(const Description &wanted, const Write &write) const {
  const Contents &c = *contents_;
  require_same(c.path, c.description, wanted);
  const ByName here = index_of(wanted.parameters);
  std::vector<TensorRange> weights, arrays;
  for (const Tensor &tensor : c.weights.tensors)
    weights.push_back(
        {c.weights.data_begin + tensor.begin, c.weights.data_begin + tensor.end, here.at(tensor.name), 0});
  for (const Tensor &tensor : c.optimizer.tensors) {
    const std::size_t slash = tensor.name.rfind('/'), parameter = here.at(tensor.name.substr(0, slash));
    const auto &names = wanted.parameters[parameter].arrays;
    const auto array = std::ranges::find(names, tensor.name.substr(slash + 1)) - names.begin() + 1;
    arrays.push_back({c.optimizer.data_begin + tensor.begin, c.optimizer.data_begin + tensor.end, parameter,
                      static_cast<std::size_t>(array)});
  }
  std::vector<std::byte> buffer(kBufferBytes);
  naming(c.earlier, [&] {
    for (const DataFile *data : {&c.weights, &c.optimizer})
      scan(data->file, data->record, data->record.pieces.size(), buffer, nullptr);
  });
  try {
    pour(c.weights, weights, buffer, write);
    pour(c.optimizer, arrays, buffer, write);
  } catch (const Error &error) {
    throw Error(error.code, error.subject, error.text, {.state_broken = true});
  }
}

}  // namespace protrain::state
