#include "checkpoints.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <system_error>

#include "input_file.h"

namespace tool {

namespace {

namespace fs = std::filesystem;

constexpr const char *kBest = "best.json";
constexpr const char *kNextBest = "best.json.next";  // becomes best.json once its checkpoint is complete
constexpr const char *kManifest = "manifest.json";   // a folder that has it is a complete checkpoint

std::string name_of(std::uint64_t step) { return fmt::format("step-{:010}", step); }

// Returns the complete checkpoints in the directory, oldest first; none if there is no directory.
std::vector<std::uint64_t> steps_in(const fs::path &directory) {
  std::vector<std::uint64_t> steps;
  std::error_code error, none;
  for (fs::directory_iterator entry(directory, error), end; !error && entry != end; entry.increment(error)) {
    const std::string name = entry->path().filename();
    const std::string digits = name.starts_with("step-") ? name.substr(5) : "";
    if (digits.empty() || digits.size() > 18 || digits.find_first_not_of("0123456789") != std::string::npos) continue;
    if (const std::uint64_t step = std::stoull(digits);
        name == name_of(step) && fs::exists(entry->path() / kManifest, none))
      steps.push_back(step);
  }
  if (error && error != std::errc::no_such_file_or_directory)
    throw Failure(fmt::format("{}: {}", directory.string(), error.message()));
  std::ranges::sort(steps);
  return steps;
}

// Returns the evaluation that the file names. Returns an empty optional if there is no such file, or if the file names
// no evaluation. Throws Failure if the file cannot be read.
std::optional<Best> parse_best(const fs::path &path) {
  std::error_code none;
  if (!fs::exists(path, none)) return std::nullopt;
  const InputFile file(path);
  std::string text(std::min<std::uint64_t>(file.size(), 4096), '\0');  // the command writes fewer than 100 bytes
  file.read(0, text.data(), text.size());
  const nlohmann::json json = nlohmann::json::parse(text, nullptr, false);
  if (!json.is_object() || !json.contains("step") || !json.contains("eval_loss")) return std::nullopt;
  if (!json["step"].is_number_unsigned() || !json["eval_loss"].is_number()) return std::nullopt;
  return Best{.step = json["step"], .loss = json["eval_loss"]};
}

// Like parse_best(), but also throws Failure if there is a file that names no evaluation.
std::optional<Best> read_best(const fs::path &path) {
  const std::optional<Best> best = parse_best(path);
  std::error_code none;
  if (!best && fs::exists(path, none))
    throw Failure(
        fmt::format("{}: not a file that names the best checkpoint; it was damaged or edited; without the file a run "
                    "goes on, and its next evaluation counts as the best",
                    path.string()));
  return best;
}

// Returns the evaluation in best.json.next if its checkpoint was saved. best.json does not name it yet: the run saves
// the checkpoint before it replaces best.json, and may have been killed in between.
std::optional<Best> saved_next(const fs::path &directory) {
  const std::optional<Best> next = parse_best(directory / kNextBest);
  std::error_code none;
  const bool is_saved = next && fs::exists(directory / name_of(next->step) / kManifest, none);
  return is_saved ? next : std::nullopt;
}

[[noreturn]] void fail(const fs::path &path) {
  throw Failure(fmt::format("{}: {}", path.string(), std::strerror(errno)));
}

// Waits until all that was written to a file or a directory is on the disk.
void sync(const fs::path &path) {
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) fail(path);
  const int failed = fsync(file);
  close(file);
  if (failed != 0) fail(path);
}

}  // namespace

void take_best(const Options &options) {
  const fs::path path = value_of(options, "resume");
  if (path.filename() != kBest) return;
  const std::optional<Best> next = saved_next(path.parent_path());
  const std::optional<Best> best = next ? next : read_best(path);
  if (!best) throw Failure(fmt::format("{}: {}", path.string(), std::strerror(ENOENT)));
  check(protrain_options_set(options.get(), "resume", (path.parent_path() / name_of(best->step)).c_str()));
}

void require_checkpoint_place(const std::string &directory, std::uint64_t first) {
  if (directory.empty()) return;
  std::error_code none;
  if (fs::exists(fs::path(directory) / kManifest, none))
    throw Failure(
        fmt::format("{}: is itself a checkpoint; give --save the directory that holds it, or another one", directory));
  const std::vector<std::uint64_t> steps = steps_in(directory);
  if (steps.empty() || steps.back() <= first) return;
  throw Failure(fmt::format(
      "{} holds {} of another run, and this run begins after step {}: go on from it with --resume {}, give --save "
      "another directory, or remove the checkpoints after step {}",
      directory, name_of(steps.back()), first, directory, first));
}

Checkpoints::Checkpoints(const CheckpointFlags &flags, std::uint64_t first, const Rank &rank)
    : flags_(flags), rank_(rank), last_(first) {
  require_checkpoint_place(flags.directory, first);
  if (flags.directory.empty()) return;
  // Reads best.json.next before best.json. In the other order this rank could miss the newest evaluation, because rank
  // 0 may rename best.json.next to best.json between the two reads.
  const fs::path directory = flags.directory;
  const std::optional<Best> next = saved_next(directory);
  const bool is_saved = next && next->step <= first;
  best_ = is_saved ? next : read_best(directory / kBest);
  // Forgets the best evaluation if this run takes the evaluated step again. A run from the beginning takes all steps
  // again. A run that resumes takes the steps after its checkpoint again.
  if (best_ && (first == 0 || best_->step > first)) best_.reset();
  if (!rank.leads()) return;
  std::error_code none;
  if (is_saved) put_best();
  if (!is_saved) fs::remove(directory / kNextBest, none);
}

void Checkpoints::after(protrain_session *session, std::uint64_t step) {
  if (flags_.every > 0 && step % flags_.every == 0) save(session, step);
}

void Checkpoints::at_end(protrain_session *session, std::uint64_t step) {
  if (!flags_.directory.empty()) save(session, step);
}

bool Checkpoints::evaluated(protrain_session *session, std::uint64_t step, double loss) {
  if (lacks_best()) best_.reset();
  if (!std::isfinite(loss) || (best_ && loss >= best_->loss)) return false;
  const Best best = {.step = step, .loss = loss};
  const bool writes = !flags_.directory.empty() && rank_.leads();
  if (writes) write_next_best(best);
  if (!flags_.directory.empty()) save(session, step);
  best_ = best;
  if (writes) put_best();
  return true;
}

void Checkpoints::require_own_directory() const {
  if (const std::vector<std::uint64_t> steps = steps_in(flags_.directory); !steps.empty() && steps.back() > last_)
    throw Failure(
        fmt::format("{} now holds {} of another run, which has begun meanwhile; give --save a directory of its "
                    "own to each run",
                    flags_.directory, name_of(steps.back())));
}

void Checkpoints::save(protrain_session *session, std::uint64_t step) {
  if (step == last_) return;
  require_own_directory();
  check(protrain_session_save(session, flags_.directory.c_str()));
  last_ = step;
  if (flags_.keep > 0 && rank_.leads()) remove_old();
}

// Removes all complete checkpoints except the best one and the `keep` newest ones. The newest ones are already safe on
// the disk. Renames each checkpoint to the name of an unfinished one before it removes the files. So if the process is
// killed during the removal, no run takes the remaining files for a complete checkpoint.
void Checkpoints::remove_old() const {
  const fs::path directory = flags_.directory;
  std::vector<std::uint64_t> steps = steps_in(directory);
  std::erase_if(steps, [&](std::uint64_t step) { return best_ && step == best_->step; });
  for (std::size_t i = 0; i + flags_.keep < steps.size(); ++i) {
    const fs::path old = directory / name_of(steps[i]),
                   aside = directory / fmt::format(".{}-{}-{}.tmp", name_of(steps[i]), getpid(), 999999);
    std::error_code error;
    fs::rename(old, aside, error);
    if (!error) fs::remove_all(aside, error);
    if (error) throw Failure(fmt::format("{}: {}", old.string(), error.message()));
  }
}

// True if somebody has removed the best checkpoint. Always false with several ranks: all ranks must get the same
// answer, but may see different directories.
bool Checkpoints::lacks_best() const {
  std::error_code none;
  return best_ && rank_.alone() && !flags_.directory.empty() &&
         !fs::exists(fs::path(flags_.directory) / name_of(best_->step) / kManifest, none);
}

// Writes to best.json.next which checkpoint will be the best one, before that checkpoint is saved. So the evaluation is
// not lost if the run is killed after it saves the checkpoint and before it replaces best.json.
void Checkpoints::write_next_best(const Best &best) const {
  require_own_directory();
  std::error_code none;
  fs::create_directory(flags_.directory, none);  // as the library does; if it cannot, the file cannot be written either
  const fs::path next = fs::path(flags_.directory) / kNextBest;
  const nlohmann::ordered_json json = {
      {"checkpoint", name_of(best.step)}, {"step", best.step}, {"eval_loss", best.loss}};
  if (!(std::ofstream(next) << json.dump() << "\n").flush()) fail(next);
  sync(next);
}

// Replaces best.json as a whole, so that it is never half written.
void Checkpoints::put_best() const {
  const fs::path directory = flags_.directory;
  if (std::rename((directory / kNextBest).c_str(), (directory / kBest).c_str()) != 0) fail(directory / kBest);
  sync(directory);
}

}  // namespace tool
