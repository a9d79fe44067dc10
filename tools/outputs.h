// The files that a command writes. The command checks that it can write them before it begins its work, so that no
// result is lost to a wrong path.
#pragma once

#include <protrain.h>

#include <string>
#include <vector>

#include "model_data.h"
#include "rank.h"

namespace tool {

// A path on the command line.
struct Input {
  std::string flag;  // the word that names the path, such as "--tokens"
  std::string path;
};

struct Output {
  enum class Kind {
    file,      // is written under another name and renamed
    model,     // as a file; large weights go to a second one, PATH.data
    stream,    // is opened and written, so a device will do
    directory  // is created if only its last component is missing
  };
  Kind kind = Kind::file;
  std::string flag;  // the word that names the path
  std::string path;  // empty: the output is not wanted
};

// Return the files that a command reads. model_files() returns the model with its `parts`, and the files that options
// name. adapter_files() returns the files of an adapter, array_files() and token_files() those of data. `flag` is the
// word of the command line that names the adapter, the arrays or the tokens.
std::vector<Input> model_files(const std::string &model, const std::vector<std::string> &parts, const Options &options);
std::vector<Input> adapter_files(const std::string &flag, const std::string &path);
std::vector<Input> array_files(const std::string &flag, const std::vector<std::string> &words, const ModelData &model);
std::vector<Input> token_files(const std::string &flag, const std::vector<std::string> &words);

// Throws Failure if an output cannot be written to its place, or would replace another output or an input.
void require_writable(const std::vector<Output> &outputs, const std::vector<Input> &inputs);

// Throws Failure if an export would have to merge adapters into weights that the model's file holds as integers.
void require_mergeable(const std::string &model, const Options &options);

// Throws Failure unless the session's adapters can be written to `path`. Only the library can find that out. So this
// function has the library write the adapters once beside `path`, and then removes the files. Every rank must call it.
void require_adapters_writable(protrain_session *session, const std::string &path, const Rank &rank);

}  // namespace tool
