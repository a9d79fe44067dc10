// What a model is fed: arrays with one slice per step, or windows of a token file.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "handles.h"
#include "npy.h"
#include "tokens.h"

namespace tool {

struct ModelInput {
  std::string name, dtype;
  // A number, the name of a symbolic dimension, or "" for one that follows from others; none: so do all.
  std::optional<std::vector<std::variant<std::int64_t, std::string>>> dims;
};

using Dims = std::map<std::string, std::int64_t>;

// What `check` says of the data that a model takes.
struct ModelData {
  std::vector<ModelInput> inputs;
  Dims bound;               // by the option `dim`
  std::string batch_input;  // whose axis 0 counts samples
  bool has_tokens = false;  // its other elements are counted too
};
ModelData data_of(const Options &options, const std::string &model);

// From the command line.
struct DataFlags {
  std::vector<std::string> arrays;  // NAME=FILE.npy
  std::string tokens;               // a file
  std::string token_type;           // "uint16", "uint32", or "": as the file shows
  std::int64_t batch = 0, sequence = 0;
  std::string labels = "same";  // or "next"
};

class Batches {
 public:
  // Opens the files, and binds in `options` the symbolic dims that the data decides and no --dim has bound.
  Batches(const DataFlags &flags, const ModelData &model, const Options &options);

  // The batch, where the library was left to choose it.
  void settle(protrain_session *session);

  // Step 0, 1, ... Arrays: slice `step` of axis 0, cycled; all have as many, or one, which serves every step. Tokens:
  // the file is cut into windows of `sequence` tokens, one after the other; step t takes windows t * batch to t * batch
  // + batch - 1, cycled.
  void feed(protrain_session *session, std::uint64_t step);

  // For a value of an input that the model does not take: what the tokens of the present batch have to do with it; ""
  // where there are none.
  std::string suspicion() const;

  double tokens_per_step() const { return tokens_per_step_; }

 private:
  struct Array {
    std::string input;
    NpyFile file;
    std::vector<std::byte> slice;
  };

  void open_arrays(const std::vector<std::string> &pairs, const ModelData &model);
  void require_same_steps() const;
  void open_tokens(const DataFlags &flags, const ModelData &model, const Options &options);
  void bind(const ModelInput &input, const std::vector<std::int64_t> &shape, const std::string &from);
  void feed_tokens(protrain_session *session, std::uint64_t step);

  std::vector<Array> arrays_;
  std::optional<TokenFile> tokens_;
  std::vector<ModelInput> token_inputs_;  // input_ids, then the labels unless they are the same
  std::int64_t batch_ = 0, sequence_ = 0;
  std::uint64_t windows_ = 0;
  std::int64_t largest_token_ = 0;  // of the present batch
  bool next_ = false;               // labels are the following token
  Dims dims_;                       // what the data decides
  double tokens_per_step_ = 0;
};

}  // namespace tool
