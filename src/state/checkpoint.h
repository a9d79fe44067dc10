// Checkpoints: everything that training goes on from, in a folder of its own. Tensors are streamed through one buffer
// of 4 MiB and may live anywhere.
//
//   PARENT/step-0000000010/weights.safetensors     NAME
//                          optimizer.safetensors   NAME/moment1, NAME/moment2
//                          manifest.json           counters, sizes, checksums; written last
//
// A folder is filled under another name, synced, and renamed once it is whole: what save() has returned from is there
// after a kill at any instant, and so are all earlier ones.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/shape.h"

namespace protrain::state {

struct Parameter {
  std::string name;
  Shape shape;                      // of float32 elements
  std::vector<std::string> arrays;  // the optimizer's, of the same shape: "moment1", "moment2"; none where frozen
};

inline constexpr const char *kStep = "step";  // the counter that every checkpoint has

struct Description {
  std::string optimizer;  // its kind: "adamw"
  std::map<std::string, std::uint64_t> counters;
  std::vector<Parameter> parameters;
};

// Bytes of a tensor: array 0 is the parameter's weights, 1 and up the optimizer's, in the order of Parameter::arrays.
using Read =
    std::function<void(std::size_t parameter, std::size_t array, std::uint64_t offset, std::span<std::byte> out)>;
using Write =
    std::function<void(std::size_t parameter, std::size_t array, std::uint64_t offset, std::span<const std::byte>)>;

// Writes a checkpoint into `parent_dir`, which is made where only its last component is missing, and returns its path.
// One of the same step is replaced, and at every instant one of the two is there. Code::io, nospc, path; busy where
// another session is saving into the directory. After an error the earlier checkpoints are as they were.
std::string save(const std::string &parent_dir, const Description &description, const Read &read);

// A checkpoint whose manifest, sizes and headers are sound. Its files stay open: what replaces them later is not seen.
class Checkpoint {
 public:
  // A checkpoint's folder, or the directory it was saved into: then the one of the largest step that has a manifest.
  // Code::format where there is none or what is there is malformed, corrupt where something was damaged or is missing,
  // version for one of a later library, path for links. A damaged one is never passed over: the error names the one
  // before it.
  static Checkpoint open(const std::string &path);
  Checkpoint(Checkpoint &&) noexcept;
  ~Checkpoint();

  const std::string &path() const;
  const Description &description() const;  // parameters in the order of the file

  // Gives all tensors to `write`. They must be those of `wanted`, whose counters are not looked at: the same optimizer,
  // names, shapes and arrays; Code::mismatch has the first five differences. Code::corrupt where a checksum does not
  // match. Both come before anything is written: the files are read twice. What goes wrong in the second reading
  // leaves Facts::state_broken.
  void load(const Description &wanted, const Write &write) const;

 private:
  struct Contents;
  explicit Checkpoint(std::unique_ptr<Contents> contents);

  std::unique_ptr<Contents> contents_;
};

}  // namespace protrain::state
