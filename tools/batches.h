// The data that a model is fed: arrays of batches or of samples, or windows of token files.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "array_input.h"
#include "data_flags.h"
#include "handles.h"
#include "mixture.h"
#include "model_data.h"
#include "read_ahead.h"
#include "shuffle.h"

namespace tool {

class Batches {
 public:
  enum class Need : std::uint8_t {
    every_input,  // each input of the model needs data
    some_input    // one is enough, as the kept outputs may not depend on the others
  };

  // Opens the files. Binds in `options` those symbolic dims that the data decides and no --dim has bound.
  Batches(const DataFlags &flags, const ModelData &model, const Options &options, Need need = Need::every_input);

  // Opens the files of further data for the same session. If dims have other sizes than in `first`, binds the new sizes
  // in the option `shapes`.
  Batches(const DataFlags &flags, const ModelData &model, const Options &options, const Batches &first);

  Batches(const Batches &) = delete;  // the thread that reads ahead refers to it
  Batches &operator=(const Batches &) = delete;

  // Checks arrays of samples for a loss that compares the samples of a batch with each other, such as dpo. Such samples
  // lie side by side in the arrays and must stay together. Throws UsageError if the data are shuffled, and Failure if a
  // batch would reach from the end of one pass into the next.
  void require_together(const Options &options) const;

  // Adds a smaller last batch to a pass, if samples or windows are left over and the session can take such a batch.
  // Sets the session's option `shapes` so that a batch of that size can be fed. Call it before the session is created,
  // and only for data that are read in single passes, as by an evaluation. Where passes follow each other, no smaller
  // batch is needed: a batch begins with the rest of one pass and goes on with the next pass. Calls require_epochs().
  void take_rest(const ModelData &model, const Options &options);

  // Takes over the size of a batch that the library chose, if the flags and the model left it open.
  void settle(protrain_session *session);

  // Feeds batch number `batch`, and begins to read batch `next`.
  //   An array of batches gives one row of its axis 0, and starts again after its last row. An array of samples gives a
  // row for each sample of the batch. All arrays have the same number of rows, or a single row that every batch uses.
  //   Token files are cut into windows of `sequence` tokens, or their documents are packed into such windows. An array
  // that is given beside token files has a row for each window, or for each batch of windows, or a single row. If a
  // batch has n samples or windows, batch b takes those from b * n to b * n + n - 1. If the data are shuffled, each
  // pass over rows or windows has an order of its own.
  void feed(protrain_session *session, std::uint64_t batch, std::optional<std::uint64_t> next = std::nullopt);

  double waited() const { return ahead_.waited(); }  // seconds for which feed() has waited for data, in all

  // Returns a hint for an error about a value of an input. The hint says why the tokens of the present batch may be the
  // cause. Returns "" for any other error, for an input that an array feeds, and if there are no token files.
  std::string suspicion(const protrain_error *error) const;

  // Returns the number of tokens in a batch, or of samples if the model has no tokens. Call it after settle().
  double tokens_per_batch() const;
  std::string unit() const { return counted_.tokens ? "tokens" : "samples"; }  // what tokens_per_batch() counts
  std::string packing() const;                 // a sentence about documents that were packed; "" without any
  bool complete() const { return complete_; }  // every input of the model has data
  // Throws UsageError if token files have weights. Files are then read at different rates and have no common epoch.
  void require_epochs() const;
  // The number of batches in one pass over the data. Call it after settle(). Calls require_epochs().
  std::uint64_t count() const;
  // The number of samples or windows in batch number `batch`; 0 if the data are arrays of batches. Call it after
  // settle().
  std::int64_t samples_in(std::uint64_t batch) const;
  std::int64_t batch() const { return batch_; }         // samples or windows in a whole batch; 0: arrays of batches
  std::string samples_text(std::int64_t number) const;  // "1 window", "7 samples"
  // The weight of a batch's loss in the mean over a pass: 1 for a whole batch, less for a smaller last batch.
  double weight(std::uint64_t batch) const;
  // A sentence about samples that no batch of a pass takes; "" if there are none. Call it after settle(). Throws
  // Failure if there are too few samples for a single batch. Calls require_epochs().
  std::string left_out() const;
  // The number of steps that take every row or window `epochs` times, if each step takes `batches` batches. Call it
  // after settle(). Calls require_epochs().
  std::uint64_t steps_of(std::uint64_t epochs, std::uint64_t batches) const;

 private:
  void open(const DataFlags &flags, const ModelData &model, const Options &options, Need need);
  std::vector<ModelInput> inputs_without_data(const std::vector<ModelInput> &inputs) const;
  void open_arrays(const DataFlags &flags, const ModelData &model, const Options &options);
  void require_new(const std::string &input) const;  // throws UsageError if an array feeds the input
  void open_array(const ModelInput &input, const std::string &path, const DataFlags &flags, const ModelData &model,
                  const Options &options);
  void require_same_rows() const;
  void open_tokens(const DataFlags &flags, const ModelData &model, const Options &options, Need need);
  // Throws if the rows of the array do not belong to the windows that they would be combined with in a batch. Row i
  // must belong to window i of the token files, or to all windows of batch i.
  void require_rows_of_windows(const ArrayInput &array, const DataFlags &flags) const;
  // Adds the symbolic dims of the input to `dims`, with the sizes that they have in the shape of a batch. Returns why
  // the shape does not fit the input; "" if it does.
  static std::string bind(const ModelInput &input, const std::vector<std::int64_t> &shape, Dims &dims);
  // Returns the dims of a batch of `samples` samples; an empty optional if the model or the data have no such batch.
  std::optional<Dims> dims_with(std::int64_t samples, const ModelData &model) const;
  std::uint64_t rows_of_samples() const;  // of the arrays of samples; 0: there are none
  std::uint64_t rows_of_batches() const;  // of the arrays of batches; 0: there are none
  std::uint64_t samples() const;          // or windows, in one pass; 0: there are none
  BatchData read(std::uint64_t batch);
  void read_tokens(std::uint64_t batch, BatchData &data);

  std::vector<ArrayInput> arrays_;
  std::optional<Mixture> windows_;
  // An input of the model that token files feed. `rows` says which numbers of a window the input gets, such as ids or
  // labels.
  struct TokenInput {
    ModelInput input;
    std::vector<std::int64_t> WindowRows::*rows;
  };
  std::vector<TokenInput> token_inputs_;
  // tokens_per_batch() counts the tokens, or the samples, in the array of this input.
  struct Counted {
    std::string input;
    bool tokens = false;  // true: tokens are counted; false: samples are counted
  };
  std::int64_t batch_ = 0, sequence_ = 0;  // of windows; `batch_` also counts samples
  std::int64_t rest_ = 0;                  // of samples or windows in a smaller last batch; 0: there is none
  BatchData present_;                      // its values have been fed
  Dims dims_;                              // sizes that the data decides
  Counted counted_;
  bool complete_ = true;
  std::optional<Shuffle> shuffle_;
  ReadAhead ahead_{[this](std::uint64_t batch) { return read(batch); }};
};

}  // namespace tool
