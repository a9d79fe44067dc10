// Saving: tensors, manifest, sync, rename, sync, in this order. No earlier checkpoint is touched before the new one is
// whole. No sync is tried twice, because after a failed one a second may succeed although data are lost.
#include <algorithm>

#include "base/error.h"
#include "state/checkpoint.h"
#include "state/folders.h"
#include "state/manifest.h"
#include "state/pieces.h"
#include "state/tensor_file.h"

namespace protrain::state {

namespace {

using Kind = DirectoryEntry::Kind;

// A folder being filled. It is removed with its contents unless release() is called.
class Temporary {
 public:
  Temporary(const std::string &parent, std::uint64_t step) {
    unsigned serial = 0;
    do path_ = parent + "/" + temporary_name(step, serial++);
    while (!create_directory(path_));
  }
  Temporary(const Temporary &) = delete;
  Temporary &operator=(const Temporary &) = delete;
  ~Temporary() {
    if (owned_) remove_directory(path_);
  }
  const std::string &path() const { return path_; }
  void release() { owned_ = false; }

 private:
  std::string path_;
  bool owned_ = true;
};

struct ArrayId {
  std::size_t parameter, array;
};

// Writes the tensors one after the other. `arrays_of_tensors`: the array that each tensor is read from.
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

void fill(const std::string &folder, const Description &description, const Read &read) {
  const std::vector<Parameter> &parameters = description.parameters;
  std::vector<Tensor> weights, arrays;
  std::vector<ArrayId> of_weights, of_arrays;
  std::size_t most = 0;
  for (std::size_t p = 0; p < parameters.size(); ++p) {
    append_tensor(weights, parameters[p].name, parameters[p].shape);
    of_weights.push_back({p, 0});
    most = std::max(most, parameters[p].arrays.size());
  }
  // First one array of all parameters, then the next array: the optimizer state lies in memory in this order.
  for (std::size_t a = 0; a < most; ++a) {
    for (std::size_t p = 0; p < parameters.size(); ++p) {
      if (a >= parameters[p].arrays.size()) continue;
      append_tensor(arrays, parameters[p].name + "/" + parameters[p].arrays[a], parameters[p].shape);
      of_arrays.push_back({p, a + 1});
    }
  }
  std::vector<std::byte> buffer(kBufferBytes);
  Manifest manifest{.optimizer = description.optimizer,
                    .counters = description.counters,
                    .weights = write_tensors(folder + "/" + kWeightsName, weights, of_weights, read, buffer),
                    .optimizer_state = write_tensors(folder + "/" + kOptimizerName, arrays, of_arrays, read, buffer)};
  FileWriter file(folder + "/" + kManifestName);
  file.write(manifest_text(manifest));
  file.commit();
}

// Returns whether a checkpoint called `name` exists. If `alone` (the directory is locked), also removes what killed
// saves left behind.
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

// Gives the new checkpoint its name and returns the folder that is left to remove.
std::string put_in_place(const std::string &fresh, const std::string &target, const std::string &aside, bool replace) {
  if (!replace) {
    rename_directory(fresh, target);
    return aside;  // left by a save that was killed between its two renames
  }
  if (exchange_names(fresh, target)) return fresh;
  rename_directory(target, aside);  // Checkpoint::open() still finds it under this name
  rename_directory(fresh, target);
  return aside;
}

}  // namespace

std::string save(const std::string &parent_dir, const Description &description, const Read &read) {
  std::string parent = parent_dir;
  while (parent.size() > 1 && parent.ends_with('/')) parent.pop_back();
  const std::uint64_t step = description.counters.at(kStep);
  const std::string name = folder_name({step, false}), target = parent + "/" + name;
  create_directory(parent);
  const DirectoryLock lock(parent);
  const bool replace = tidy(parent, name, lock.held());
  Temporary fresh(parent, step);
  fill(fresh.path(), description, read);
  const std::string old = put_in_place(fresh.path(), target, parent + "/" + folder_name({step, true}), replace);
  fresh.release();
  sync_directory(parent);
  remove_directory(old);
  return target;
}

}  // namespace protrain::state
