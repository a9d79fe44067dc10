// Loads checkpoints. Nothing in a file is used before its checksum has matched, and no tensor is given to the caller
// before all checksums have matched.
#include <algorithm>
#include <optional>
#include <tuple>

#include "base/checksum.h"
#include "base/error.h"
#include "base/text.h"
#include "state/checkpoint.h"
#include "state/difference.h"
#include "state/folders.h"
#include "state/manifest.h"
#include "state/part_file.h"

namespace protrain::state {

namespace {

using Kind = DirectoryEntry::Kind;

Manifest read_manifest(const std::string &root, const std::string &folder) {
  const File file = File::open_beneath(root, folder + kManifestName);
  require(file.size() <= kManifestLimit, Code::limit, file.path(), "has {} bytes; no manifest is over {}", file.size(),
          kManifestLimit);
  std::string text(file.size(), '\0');
  file.read(0, std::as_writable_bytes(std::span(text)));
  return parse_manifest(text, file.path());
}

// Returns the parameters that the headers describe.
std::vector<Parameter> parameters_of(const std::vector<Tensor> &weights, const std::vector<Tensor> &arrays,
                                     const std::string &file) {
  std::vector<Parameter> parameters;
  std::map<std::string, std::size_t> by_name;
  for (const Tensor &tensor : weights) {
    require(tensor.dtype == DType::f32, Code::unsupported, file, "the weights {} are {}; checkpoints hold float32",
            printable(tensor.name), name_of(tensor.dtype));
    by_name[tensor.name] = parameters.size();
    parameters.push_back({.name = tensor.name, .shape = tensor.shape, .arrays = {}});
  }
  for (const Tensor &tensor : arrays) {
    const ArrayName name = array_of(tensor.name).value_or(ArrayName{});
    const auto found = by_name.find(name.parameter);
    const auto elements = static_cast<std::uint64_t>(element_count(tensor.shape));
    require(!name.array.empty() && found != by_name.end() &&
                tensor.shape == whole_shape(parameters[found->second].shape, elements),
            Code::format, file, "{} belongs to no parameter of its shape", printable(tensor.name));
    parameters[found->second].arrays.push_back({.name = name.array, .dtype = tensor.dtype, .elements = elements});
  }
  return parameters;
}

// Returns the names of folders with a manifest, the newest first. Also returns links that are named like checkpoints:
// if the newest is a link, opening it must be an error, and no older checkpoint may be opened in place of the link.
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

// Returns the step in a folder's name. Returns an empty optional for a name that save() does not give, such as the name
// of a renamed copy.
std::optional<std::uint64_t> named_step(std::string_view path) {
  path = path.substr(0, path.find_last_not_of('/') + 1);
  const auto folder = parse_folder(path.substr(path.rfind('/') + 1));
  return folder ? std::optional(folder->step) : std::nullopt;
}

// Runs `body`, which reads a checkpoint. If `body` throws an Error, adds to the Error's text that there is an earlier
// checkpoint, whose path is `earlier`. Adds nothing if `earlier` is "".
template <typename Body>
auto naming(const std::string &earlier, const Body &body) {
  try {
    return body();
  } catch (const Error &error) {
    if (earlier.empty()) throw;
    fail(error.code, error.subject, "{}; the checkpoint before it is {}", error.text, earlier);
  }
}

// The bytes of a tensor in a file, and the array that they belong to.
struct TensorRange {
  std::uint64_t begin = 0, end = 0;  // in the file
  std::uint64_t first = 0;           // byte of the array that is at `begin`
  std::size_t parameter = 0, array = 0;
};

void pour(const PartFile &part, const std::vector<TensorRange> &ranges, std::span<std::byte> buffer,
          const Write &write) {
  auto range = ranges.begin();
  scan(part.file, part.record, part.record.pieces.size(), buffer, [&](std::uint64_t at, auto bytes) {
    while (!bytes.empty() && range != ranges.end()) {
      const std::uint64_t target = at < range->begin ? range->begin : range->end;
      const auto run = bytes.first(std::min<std::uint64_t>(bytes.size(), target - at));
      if (at >= range->begin && !run.empty())
        write(range->parameter, range->array, range->first + (at - range->begin), run);
      at += run.size();
      bytes = bytes.subspan(run.size());
      if (at == range->end) ++range;
    }
  });
}

// Returns for each file the ranges of its tensors. array_at(name) returns the parameter and the array of a tensor.
template <typename ArrayAt>
std::vector<std::vector<TensorRange>> ranges_of(const std::vector<PartFile> &parts, const ArrayAt &array_at) {
  std::vector<std::vector<TensorRange>> ranges;
  std::map<std::string, std::uint64_t> before;  // bytes of an array in earlier parts
  for (const PartFile &part : parts) {
    std::vector<TensorRange> &own = ranges.emplace_back();
    for (const Tensor &tensor : part.tensors) {
      const auto [parameter, array] = array_at(tensor.name);
      std::uint64_t &first = before[tensor.name];
      own.push_back({.begin = part.data_begin + tensor.begin,
                     .end = part.data_begin + tensor.end,
                     .first = first,
                     .parameter = parameter,
                     .array = array});
      first += tensor.end - tensor.begin;
    }
  }
  return ranges;
}

}  // namespace

struct Checkpoint::Contents {
  std::string path, earlier, identity;
  Description description;
  std::vector<PartFile> weights, optimizer;  // in the order of parts
};

Checkpoint::Checkpoint(std::unique_ptr<Contents> contents) : contents_(std::move(contents)) {}
Checkpoint::Checkpoint(Checkpoint &&) noexcept = default;
Checkpoint::~Checkpoint() = default;

const std::string &Checkpoint::path() const { return contents_->path; }
const Description &Checkpoint::description() const { return contents_->description; }
const std::string &Checkpoint::identity() const { return contents_->identity; }

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
    auto contents = std::make_unique<Contents>(Contents{.path = whole,
                                                        .earlier = earlier,
                                                        .identity = digest_of(manifest_text(manifest)),
                                                        .description = {},
                                                        .weights = {},
                                                        .optimizer = {}});
    for (std::size_t p = 0, parts = manifest.parts.size(); p < parts; ++p) {
      contents->weights.push_back(open_part(path, folder, weights_name(p, parts), manifest.parts[p].weights));
      contents->optimizer.push_back(
          open_part(path, folder, optimizer_name(p, parts), manifest.parts[p].optimizer_state));
    }
    const auto shape_of_weights = [&](const std::string &name, std::uint64_t) -> std::optional<Shape> {
      const Shape *shape = manifest.shape_of(name);
      return shape ? std::optional(*shape) : std::nullopt;
    };
    const auto shape_of_array = [&](const std::string &name, std::uint64_t elements) -> std::optional<Shape> {
      const std::optional<ArrayName> array = array_of(name);
      const Shape *shape = array ? manifest.shape_of(array->parameter) : nullptr;
      return shape ? std::optional(whole_shape(*shape, elements)) : std::nullopt;
    };
    contents->description = {.optimizer = manifest.optimizer,
                             .counters = manifest.counters,
                             .parameters = parameters_of(whole_tensors(contents->weights, shape_of_weights),
                                                         whole_tensors(contents->optimizer, shape_of_array),
                                                         contents->optimizer.front().file.path())};
    return Checkpoint(std::move(contents));
  });
}

void Checkpoint::load(const Description &wanted, const Write &write) const {
  const Contents &c = *contents_;
  require_same(c.path, c.description, wanted);
  const ByName here = index_of(wanted.parameters);
  const auto weights =
      ranges_of(c.weights, [&](const std::string &name) { return std::pair(here.at(name), std::size_t{0}); });
  const auto arrays = ranges_of(c.optimizer, [&](const std::string &name) {
    const ArrayName found = array_of(name).value();
    const std::size_t parameter = here.at(found.parameter);
    const auto &names = wanted.parameters[parameter].arrays;
    const auto array = std::ranges::find(names, found.array, &SavedArray::name) - names.begin();
    return std::pair(parameter, static_cast<std::size_t>(array) + 1);
  });
  std::vector<std::byte> buffer(kBufferBytes);
  naming(c.earlier, [&] {
    for (const auto *parts : {&c.weights, &c.optimizer})
      for (const PartFile &part : *parts) scan(part.file, part.record, part.record.pieces.size(), buffer, nullptr);
  });
  try {
    for (std::size_t p = 0; p < c.weights.size(); ++p) pour(c.weights[p], weights[p], buffer, write);
    for (std::size_t p = 0; p < c.optimizer.size(); ++p) pour(c.optimizer[p], arrays[p], buffer, write);
  } catch (const Error &error) {
    throw Error(error.code, error.subject, error.text, {.state_broken = true});
  }
}

}  // namespace protrain::state
