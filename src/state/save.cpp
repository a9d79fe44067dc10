// Saving writes the tensors and the manifest, syncs them, renames the folder and syncs its parent, in this order. No
// earlier checkpoint is touched before the new one is whole. A failed sync is not tried again, because the second one
// may succeed although data are lost.
#include <algorithm>

#include "base/error.h"
#include "state/checkpoint.h"
#include "state/folders.h"
#include "state/manifest.h"
#include "state/part_file.h"
#include "state/pieces.h"
#include "state/tensor_file.h"

namespace protrain::state {

// A new folder into which a checkpoint is written. It is removed with its contents unless release() is called.
class TemporaryFolder {
 public:
  TemporaryFolder(const std::string &parent, std::uint64_t step) {
    unsigned serial = 0;
    do path_ = parent + "/" + temporary_name(step, serial++);
    while (!create_directory(path_));
  }
  TemporaryFolder(const TemporaryFolder &) = delete;
  TemporaryFolder &operator=(const TemporaryFolder &) = delete;
  ~TemporaryFolder() {
    if (owned_) remove_directory(path_);
  }
  const std::string &path() const { return path_; }
  void release() { owned_ = false; }

 private:
  std::string path_;
  bool owned_ = true;
};

namespace {

using Kind = DirectoryEntry::Kind;

struct ArrayId {
  std::size_t parameter, array;
};

// Writes a file with the tensors, one after the other. arrays_of_tensors[i] is the array from which tensor i is read.
FileRecord write_tensors(const std::string &path, const std::vector<Tensor> &tensors,
                         const std::vector<ArrayId> &arrays_of_tensors, const Read &read, std::span<std::byte> buffer) {
  PieceWriter writer(path, buffer);
  writer.write(header_of(tensors));
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const std::uint64_t bytes = tensors[i].end - tensors[i].begin;
    for (std::uint64_t offset = 0; offset < bytes;) {
      const std::span<std::byte> free = writer.room();
      const std::span<std::byte> part = free.first(std::min<std::uint64_t>(free.size(), bytes - offset));
      read(arrays_of_tensors[i].parameter, arrays_of_tensors[i].array, offset, part);
      writer.advance(part.size());
      offset += part.size();
    }
  }
  return writer.commit();
}

// Returns true if a checkpoint called `name` exists. `alone` is true if this save has locked the directory. In this
// case tidy() first removes the folders that killed saves left behind.
bool tidy(const std::string &parent, const std::string &name, bool alone) {
  const std::vector<DirectoryEntry> entries = list_directory(parent);
  const auto find = [&](const std::string &wanted) {
    return std::ranges::find(entries, wanted, &DirectoryEntry::name);
  };
  for (const DirectoryEntry &entry : entries) {
    const auto folder = parse_folder(entry.name);
    const bool superseded = folder && folder->aside && find(folder_name({folder->step, false})) != entries.end();
    if (alone && entry.kind == Kind::directory && (superseded || is_temporary(entry.name)))
      remove_directory(parent + "/" + entry.name);
  }
  const auto there = find(name);
  require(there == entries.end() || there->kind == Kind::directory, Code::path, parent + "/" + name,
          "in the way of a checkpoint: not a directory");
  return there != entries.end();
}

// Renames the folder `fresh` to `target`, the name of the complete checkpoint. `replace` is true if an earlier
// checkpoint has this name; the earlier one is then renamed, to `fresh` or `aside`. Returns the folder that the caller
// has to remove: the replaced checkpoint, or what a killed save may have left at `aside`.
std::string put_in_place(const std::string &fresh, const std::string &target, const std::string &aside, bool replace) {
  if (!replace) {
    rename_directory(fresh, target);
    return aside;  // exists only if a save was killed between its two renames
  }
  if (exchange_names(fresh, target)) return fresh;
  rename_directory(target, aside);  // Checkpoint::open() still finds it under this name
  rename_directory(fresh, target);
  return aside;
}

void require_seen(const std::string &path, const FileRecord &record, std::size_t part) {
  const bool seen = identity_of(path).has_value();
  require(seen && File::open(path).size() == record.bytes, Code::io, path,
          "rank {} has written {} bytes of it, but rank 0 does not find them; all ranks must see the same folder", part,
          record.bytes);
}

std::string without_slashes(std::string path) {
  while (path.size() > 1 && path.ends_with('/')) path.pop_back();
  return path;
}

}  // namespace

struct Saving::Place {
  // `directory` must exist.
  Place(const std::string &directory, std::uint64_t counter)
      : parent(directory),
        step(counter),
        lock(parent),
        replace(tidy(parent, folder_name({step, false}), lock.held())),
        fresh(parent, step) {}

  std::string parent;
  std::uint64_t step;
  DirectoryLock lock;
  bool replace;
  TemporaryFolder fresh;
};

Saving::Saving(const std::string &parent_dir, std::uint64_t step) {
  const std::string directory = without_slashes(parent_dir);
  create_directory(directory);
  place_ = std::make_unique<Place>(directory, step);
}
Saving::~Saving() = default;

const std::string &Saving::folder() const { return place_->fresh.path(); }

std::string Saving::finish(const Description &description, const std::vector<std::string> &parts) {
  Manifest manifest{.optimizer = description.optimizer, .counters = description.counters, .parts = {}, .shapes = {}};
  for (const std::string &part : parts) manifest.parts.push_back(parse_part(part));
  for (std::size_t p = 1; p < parts.size(); ++p) {
    require_seen(folder() + "/" + weights_name(p, parts.size()), manifest.parts[p].weights, p);
    require_seen(folder() + "/" + optimizer_name(p, parts.size()), manifest.parts[p].optimizer_state, p);
  }
  if (parts.size() > 1)
    for (const Parameter &parameter : description.parameters) manifest.shapes[parameter.name] = parameter.shape;
  FileWriter file(folder() + "/" + kManifestName);
  file.write(manifest_text(manifest));
  file.commit();
  const auto named = [&](bool aside) { return place_->parent + "/" + folder_name({place_->step, aside}); };
  const std::string target = named(false), old = put_in_place(folder(), target, named(true), place_->replace);
  place_->fresh.release();
  sync_directory(place_->parent);
  remove_directory(old);
  return target;
}

std::string save_part(const std::string &folder, const Description &description, const Part &part, const Read &read) {
  const std::vector<Parameter> &parameters = description.parameters;
  std::vector<Tensor> weights, arrays;
  std::vector<ArrayId> of_weights, of_arrays;
  std::size_t most = 0;
  const auto shape_of = [&](std::size_t p, std::size_t array) {
    if (part.count > 1) return Shape{static_cast<std::int64_t>(part.elements[p][array])};
    return array == 0 ? parameters[p].shape
                      : whole_shape(parameters[p].shape, parameters[p].arrays[array - 1].elements);
  };
  for (std::size_t p = 0; p < parameters.size(); ++p) {
    append_tensor(weights, parameters[p].name, shape_of(p, 0));
    of_weights.push_back({p, 0});
    most = std::max(most, parameters[p].arrays.size());
  }
  // Lists one optimizer array of all parameters, then the next array, because the optimizer state lies in memory in
  // this order.
  for (std::size_t a = 0; a < most; ++a) {
    for (std::size_t p = 0; p < parameters.size(); ++p) {
      if (a >= parameters[p].arrays.size()) continue;
      const SavedArray &array = parameters[p].arrays[a];
      append_tensor(arrays, parameters[p].name + "/" + array.name, shape_of(p, a + 1), array.dtype);
      of_arrays.push_back({p, a + 1});
    }
  }
  std::vector<std::byte> buffer(kBufferBytes);
  const std::string weights_path = folder + "/" + weights_name(part.number, part.count);
  const std::string arrays_path = folder + "/" + optimizer_name(part.number, part.count);
  return part_text({.weights = write_tensors(weights_path, weights, of_weights, read, buffer),
                    .optimizer_state = write_tensors(arrays_path, arrays, of_arrays, read, buffer)});
}

bool sees(const std::string &folder) noexcept {
  try {
    return identity_of(folder).has_value();
  } catch (const std::exception &) {
    return false;
  }
}

std::string save(const std::string &parent_dir, const Description &description, const Read &read) {
  Saving saving(parent_dir, description.counters.at(kStep));
  return saving.finish(description, {save_part(saving.folder(), description, {}, read)});
}

}  // namespace protrain::state
