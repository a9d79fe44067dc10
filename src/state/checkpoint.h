// Checkpoints: everything that training needs to continue, in a folder of its own. Tensors are streamed through one
// buffer of 4 MiB, so they may lie in any tier.
//
//   PARENT/step-0000000010/weights.safetensors     NAME
//                          optimizer.safetensors   NAME/moment1, NAME/moment2, or what else the optimizer keeps
//                          manifest.json           counters, sizes, checksums; written last
//
// With several ranks, each rank writes a part: one file of each kind, such as weights-00001-of-00004.safetensors. A
// part holds a contiguous range of the elements of every array, as a tensor of one dimension. The ranges of all parts,
// in order, join into the whole array.
//
// A folder is filled under another name, synced, and renamed once it is complete. So a process that is killed at any
// moment leaves every checkpoint whose save() returned.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "base/shape.h"

namespace protrain::state {

// An array that the optimizer keeps for a parameter, such as "moment1". An array with as many elements as the parameter
// is saved in the parameter's shape. Any other array is saved in one dimension.
struct SavedArray {
  std::string name;
  DType dtype = DType::f32;
  std::uint64_t elements = 0;
  bool operator==(const SavedArray &) const = default;
};

struct Parameter {
  std::string name;
  Shape shape;                     // of float32 elements
  std::vector<SavedArray> arrays;  // none if frozen
};

inline constexpr const char *kStep = "step";  // the counter that every checkpoint has

struct Description {
  std::string optimizer;  // the kind of optimizer: "adamw"
  std::map<std::string, std::uint64_t> counters;
  std::vector<Parameter> parameters;
};

// Functions that read and write bytes of a tensor. Array 0 is the parameter's weights; 1 and up are the optimizer's, in
// the order of Parameter::arrays.
using Read =
    std::function<void(std::size_t parameter, std::size_t array, std::uint64_t offset, std::span<std::byte> out)>;
using Write =
    std::function<void(std::size_t parameter, std::size_t array, std::uint64_t offset, std::span<const std::byte>)>;

// Writes a checkpoint into `parent_dir` and returns its path. The directory is created if only its last component is
// missing. A checkpoint of the same step is replaced; at every moment one of the two exists. Throws Code::io,
// Code::nospc or Code::path, or Code::busy if another session is saving into the directory. After an error the earlier
// checkpoints are unchanged.
std::string save(const std::string &parent_dir, const Description &description, const Read &read);

// Saves a checkpoint of several ranks. Rank 0 makes a Saving. Every rank then calls save_part() with the Saving's
// folder, and rank 0 calls finish() when all parts are written. The errors are those of save().
class Saving {
 public:
  Saving(const std::string &parent_dir, std::uint64_t step);
  ~Saving();  // removes the folder unless finished; no rank may be writing into it

  const std::string &folder() const;
  // Completes the checkpoint and returns its path. `parts` holds the texts that save_part() returned, in the order of
  // ranks. Throws Code::io if a part is not in the folder.
  std::string finish(const Description &description, const std::vector<std::string> &parts);

 private:
  struct Place;
  std::unique_ptr<Place> place_;
};

// A rank's part of a checkpoint.
struct Part {
  std::size_t number = 0, count = 1;
  // elements[p][a] is the number of elements that this part has of array `a` of parameter `p`. Array 0 is the weights.
  // Not used if the checkpoint has one part.
  std::vector<std::vector<std::uint64_t>> elements = {};
};
inline constexpr std::size_t kMostParts = 400;  // each keeps two files open, and many systems allow only 1,024

// Writes a part into the folder of a Saving, and returns the text that finish() needs. The offsets that `read` gets
// count from the beginning of the part's range.
std::string save_part(const std::string &folder, const Description &description, const Part &part, const Read &read);

// True if this process can see the folder of a Saving.
bool sees(const std::string &folder) noexcept;

// An open checkpoint, whose manifest, file sizes and headers have been checked. Its files stay open, so it is not
// affected if they are replaced later.
class Checkpoint {
 public:
  // Opens a checkpoint. `path` is the checkpoint's folder, or the directory that save() was given. In a directory,
  // opens the newest checkpoint (of the largest step) that has a manifest. If this checkpoint is damaged, the call
  // fails, and the error names the next older checkpoint.
  //   Throws Code::format if there is no checkpoint or it is malformed, Code::corrupt if something was damaged or is
  // missing, Code::version if a later library wrote it, and Code::path for links.
  static Checkpoint open(const std::string &path);
  Checkpoint(Checkpoint &&) noexcept;
  ~Checkpoint();

  const std::string &path() const;
  const Description &description() const;  // parameters in the order of the file
  // Returns a text that differs between checkpoints: the checksum of the manifest, which holds the checksums of all
  // files.
  const std::string &identity() const;

  // Gives all tensors to `write`. The checkpoint must match `wanted` in optimizer, names, shapes and arrays; counters
  // are ignored. Throws Code::mismatch, which lists the first five differences, or Code::corrupt if a checksum does not
  // match. Both errors are found before anything is written, because the files are read twice. A failure in the second
  // reading sets Facts::state_broken.
  void load(const Description &wanted, const Write &write) const;

 private:
  struct Contents;
  explicit Checkpoint(std::unique_ptr<Contents> contents);

  std::unique_ptr<Contents> contents_;
};

}  // namespace protrain::state
