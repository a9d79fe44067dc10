#include "faults/scenario.h"

#include <dirent.h>
#include <oneapi/dnnl/dnnl.h>
#include <protrain.h>

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <memory>
#include <sstream>
#include <stdexcept>
#include <thread>
#include <utility>

#include "fixtures.h"

namespace protrain::test {

namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kBasis = 0xCBF29CE484222325u;

std::uint64_t hash_of(const void *data, std::size_t bytes, std::uint64_t hash = kBasis) {
  const auto *at = static_cast<const unsigned char *>(data);
  for (std::size_t i = 0; i < bytes; ++i) hash = (hash ^ at[i]) * 0x100000001B3u;
  return hash;
}

std::string content_of(const fs::path &path) {
  std::ostringstream out;
  out << std::ifstream(path, std::ios::binary).rdbuf();
  return out.str();
}

// Hashes names and contents of all files below `root`. Manifests and weight files depend only on the training, so the
// hash is the same for every run.
std::uint64_t hash_of_tree(const std::string &root) {
  std::vector<std::string> files;
  if (fs::exists(root))
    for (const auto &entry : fs::recursive_directory_iterator(root))
      files.push_back(entry.path().string().substr(root.size()) + (entry.is_directory() ? "/" : ""));
  std::ranges::sort(files);
  std::uint64_t hash = kBasis;
  for (const std::string &file : files) {
    hash = hash_of(file.data(), file.size(), hash);
    const std::string text = file.ends_with('/') ? "" : content_of(root + file);
    hash = hash_of(text.data(), text.size(), hash);
  }
  return hash;
}

int entries_of(const char *path) {
  DIR *directory = opendir(path);
  int count = 0;
  while (readdir(directory) != nullptr) ++count;
  closedir(directory);
  return count;
}

bool right(Kind kind, int code) {
  if (kind == Kind::memory || kind == Kind::thread) return code == PROTRAIN_ERROR_NOMEM;
  return code == PROTRAIN_ERROR_IO || code == PROTRAIN_ERROR_NOSPC;
}

// A session's life, with faults in one part of it.
class Life {
 public:
  Life(const Model &model, const Place &place, const Fault &fault, std::uint64_t *sites, Outcome &outcome)
      : model_(model), at_(place.at), fault_(fault), sites_(sites), outcome_(outcome) {}
  ~Life() {
    protrain_session_destroy(session_);
    protrain_options_destroy(options_);
  }

  void live(Part part);
  std::uint64_t result() const { return result_; }
  void furnish();

 private:
  void problem(const char *format, ...) __attribute__((format(printf, 2, 3))) {
    if (*outcome_.problem != 0) return;
    va_list rest;
    va_start(rest, format);
    vsnprintf(outcome_.problem, sizeof outcome_.problem, format, rest);
    va_end(rest);
  }

  // Makes a call. If the call fails, makes the same call again without faults. Returns false if the session is lost.
  template <typename Call>
  bool does(const char *stage, Call &&call) {
    if (outcome_.lost) return false;
    protrain_error *error = call();
    if (error == nullptr) return true;
    if (!note(stage, error)) return false;
    error = call();
    if (error == nullptr) return true;
    problem("%s fails again without a fault: %s", stage, protrain_error_text(error));
    protrain_error_destroy(error);
    outcome_.lost = true;
    return false;
  }

  // Records the error of a call and checks its code. Returns true if the call must be made again.
  bool note(const char *stage, protrain_error *error) {
    const Disarming quiet;
    const int code = protrain_error_code(error);
    const bool fault = fired(), first = outcome_.code == 0, last_wish = fault_.from_then_on && fault_.at % 2 == 1;
    if (!last_wish) stop();
    if (!fault || !first) problem("%s fails without a fault: %s", stage, protrain_error_text(error));
    outcome_.code = code;
    snprintf(outcome_.stage, sizeof outcome_.stage, "%s", stage);
    snprintf(outcome_.text, sizeof outcome_.text, "%s", protrain_error_text(error));
    if (!right(fault_.kind, code)) problem("%s fails with code %d: %s", stage, code, protrain_error_text(error));
    outcome_.lost = protrain_error_usable(error) == 0 || last_wish;  // true: the session can only be destroyed
    outcome_.partly = std::strstr(protrain_error_text(error), "some parameters took the step") != nullptr;
    if (guards_files_) check_files();
    protrain_error_destroy(error);
    return !outcome_.lost;
  }

  // Makes a call that is wrong even without a fault. It must fail with its own error or the fault's. The session must
  // stay usable, unless the error is the fault's.
  template <typename Call>
  void refuses(const char *stage, int expected, Call &&call) {
    if (outcome_.lost) return;
    protrain_error *error = call();
    const int code = protrain_error_code(error);
    const bool by_fault = code != expected && fired() && right(fault_.kind, code);
    if (code != expected && !by_fault) problem("%s is refused with code %d", stage, code);
    outcome_.lost = error != nullptr && protrain_error_usable(error) == 0;
    if (outcome_.lost && !by_fault) problem("%s loses the session", stage);
    protrain_error_destroy(error);
  }

  void start() {
    if (!armed_) arm(fault_, sites_);
    armed_ = true;
  }
  void stop() {
    if (armed_ && outcome_.calls == 0) outcome_.calls = counted();
    if (fired()) outcome_.fired = true;
    disarm();
  }

  bool make_options();
  bool create() {
    return does("create", [&] { return protrain_session_create(options_, fixture_.c_str(), &session_); });
  }
  void destroy() {
    protrain_session_destroy(session_);
    session_ = nullptr;
  }
  bool set_inputs();
  bool step();
  void look_around();
  void read_and_write();
  void trace();
  void sum();
  void change_adapters();
  void mix(const void *data, std::size_t bytes) { result_ = hash_of(data, bytes, result_); }
  void check_files();

  const Model &model_;
  const std::string at_, fixture_ = fixture(model_.file), run_ = at_ + "/run", export_ = at_ + "/out/model.onnx",
                         adapters_ = at_ + "/adapters";
  const Fault &fault_;
  std::uint64_t *sites_;
  Outcome &outcome_;
  protrain_options *options_ = nullptr;
  protrain_session *session_ = nullptr;
  bool armed_ = false, guards_files_ = false;
  std::uint64_t result_ = kBasis, old_files_ = 0;
  alignas(64) std::byte input_[1 << 16] = {};
  float values_[1 << 18] = {};
};

bool Life::make_options() {
  if (!does("options", [&] { return protrain_options_create(&options_); })) return false;
  const auto set = [&](const char *key, const char *value) {
    return does(key, [&] { return protrain_options_set(options_, key, value); });
  };
  bool made = set("threads", "2");
  for (const auto &[key, value] : model_.options) made = made && set(key.c_str(), value.c_str());
  if (model_.batches > 1) made = made && set("accumulation", std::to_string(model_.batches).c_str());
  char path[300];
  const auto in_place = [&](const char *name) {
    snprintf(path, sizeof path, "%s/%s", at_.c_str(), name);
    return path;
  };
  made = made && set("profile_dir", in_place(model_.cold ? "new" : "times"));
  if (*model_.plan != 0) made = made && set("plan", in_place("plan.json")) && set("offload_dir", in_place("disk"));
  return made;
}

bool Life::set_inputs() {
  std::size_t count = 0;
  if (!does("input_count", [&] { return protrain_session_input_count(session_, &count); })) return false;
  for (std::size_t i = 0; i < count; ++i) {
    const char *lent = "";
    char name[100];
    std::int32_t dtype = 0;
    std::int64_t dims[8];
    std::size_t rank = 0, elements = 1;
    if (!does("input_name", [&] { return protrain_session_input_name(session_, i, &lent); })) return false;
    snprintf(name, sizeof name, "%s", lent);
    if (!does("input_dtype", [&] { return protrain_session_input_dtype(session_, i, &dtype); })) return false;
    if (!does("input_shape", [&] { return protrain_session_input_shape(session_, i, dims, 8, &rank); })) return false;
    for (std::size_t d = 0; d < rank; ++d) elements *= static_cast<std::size_t>(dims[d]);
    const std::size_t size = dtype == PROTRAIN_INT64 ? 8 : 4;
    for (std::size_t e = 0; e < elements; ++e) {
      if (size == 8) reinterpret_cast<std::int64_t *>(input_)[e] = static_cast<std::int64_t>(e * 7 % 5);
      if (size == 4) reinterpret_cast<float *>(input_)[e] = static_cast<float>(e % 11) / 11;
    }
    if (!does("set_input",
              [&] { return protrain_session_set_input(session_, name, dtype, dims, rank, input_, elements * size); }))
      return false;
  }
  return true;
}

bool Life::step() {
  float loss = 0;
  double norm = 0;
  for (int batch = 0; batch < model_.batches; ++batch)
    if (!does("step", [&] { return protrain_step(session_, &loss); })) return false;
  if (!does("grad_norm", [&] { return protrain_session_grad_norm(session_, &norm); })) return false;
  mix(&loss, sizeof loss);
  mix(&norm, sizeof norm);
  return true;
}

void Life::look_around() {
  const char *text = "";
  std::uint64_t steps = 0;
  does("plan", [&] { return protrain_session_plan(session_, &text); });
  does("program", [&] { return protrain_session_program(session_, &text); });
  does("graph", [&] { return protrain_session_graph(session_, &text); });
  does("report", [&] { return protrain_session_report(session_, &text); });
  does("step_count", [&] { return protrain_session_step_count(session_, &steps); });
  mix(&steps, sizeof steps);
  does("rank", [&] { return protrain_session_rank(session_, &steps); });
  does("rank_count", [&] { return protrain_session_rank_count(session_, &steps); });
  refuses("an input that is none", PROTRAIN_ERROR_ARG, [&] {
    const std::int64_t dim = 1;
    return protrain_session_set_input(session_, "no such input", PROTRAIN_INT64, &dim, 1, input_, 8);
  });
  refuses("an input's other shape", PROTRAIN_ERROR_SHAPE, [&] {
    const std::int64_t dim = 1;
    const char *name = "";
    if (protrain_error *error = protrain_session_input_name(session_, 0, &name); error != nullptr) return error;
    char own[100];
    snprintf(own, sizeof own, "%s", name);
    std::int32_t dtype = 0;
    if (protrain_error *error = protrain_session_input_dtype(session_, 0, &dtype); error != nullptr) return error;
    return protrain_session_set_input(session_, own, dtype, &dim, 1, input_, dtype == PROTRAIN_INT64 ? 8 : 4);
  });
  refuses("a rate below 0", PROTRAIN_ERROR_ARG, [&] { return protrain_session_set_learning_rate(session_, -1); });
  does("learning_rate", [&] { return protrain_session_set_learning_rate(session_, 1e-2); });
}

void Life::read_and_write() {
  std::size_t count = 0, elements = 0, all = 0;
  const char *lent = "";
  char name[200];
  if (!does("parameter_count", [&] { return protrain_session_parameter_count(session_, &count); })) return;
  for (std::size_t p = 0; p < std::min<std::size_t>(count, 3); ++p) {
    if (!does("parameter_name", [&] { return protrain_session_parameter_name(session_, p, &lent); })) return;
    snprintf(name, sizeof name, "%s", lent);
    if (!does("elements", [&] { return protrain_session_parameter_elements(session_, p, &elements); })) return;
    if (elements > std::size(values_)) continue;
    if (!does("read", [&] { return protrain_session_parameter_read(session_, name, values_, elements); })) return;
    values_[0] += 0.125f;
    if (!does("write", [&] { return protrain_session_parameter_write(session_, name, values_, elements); })) return;
  }
  refuses("a parameter that is none", PROTRAIN_ERROR_ARG,
          [&] { return protrain_session_parameter_read(session_, "no such parameter", values_, 1); });
  if (!does("all elements", [&] { return protrain_session_flat_parameters_elements(session_, &all); })) return;
  if (all > std::size(values_)) return;
  if (!does("read all", [&] { return protrain_session_flat_parameters_read(session_, values_, all); })) return;
  values_[all / 2] += 0.125f;
  if (!does("write all", [&] { return protrain_session_flat_parameters_write(session_, values_, all); })) return;
  mix(values_, all * sizeof(float));
}

// Runs a step on a NaN, which the session traces by running the step again, and compares gradients with differences of
// the loss. Neither may change a parameter.
void Life::trace() {
  std::size_t all = 0;
  const char *json = "";
  float loss = 0;
  if (!does("all elements", [&] { return protrain_session_flat_parameters_elements(session_, &all); })) return;
  if (!does("read all", [&] { return protrain_session_flat_parameters_read(session_, values_, all); })) return;
  const float first = std::exchange(values_[0], std::numeric_limits<float>::quiet_NaN());
  if (!does("write NaN", [&] { return protrain_session_flat_parameters_write(session_, values_, all); })) return;
  start();
  refuses("a step on a NaN", PROTRAIN_ERROR_NONFINITE, [&] { return protrain_step(session_, &loss); });
  values_[0] = first;
  does("write all", [&] { return protrain_session_flat_parameters_write(session_, values_, all); });
  does("gradients", [&] { return protrain_session_check_gradients(session_, 1, &json); });
  stop();
}

// Runs a step of several batches. If a batch fails, makes its call again, or all calls if the step begins anew.
void Life::sum() {
  float loss = 0;
  start();
  for (int batch = 0; batch < model_.batches; ++batch) {
    protrain_error *error = protrain_step(session_, &loss);
    if (error == nullptr) continue;
    const bool anew = std::strstr(protrain_error_text(error), "begins anew") != nullptr;
    if (!note("a batch", error) || *outcome_.problem != 0) return;
    batch = anew ? -1 : batch - 1;
  }
  stop();
  mix(&loss, sizeof loss);
  does("save", [&] { return protrain_session_save(session_, run_.c_str()); });
}

// Switches the adapters off and on again. Then loads other values into the adapters from a file.
void Life::change_adapters() {
  float loss = 0;
  if (!does("adapters off", [&] { return protrain_session_use_adapters(session_, 0); })) return;
  if (!does("eval", [&] { return protrain_eval(session_, &loss); })) return;
  mix(&loss, sizeof loss);
  if (!does("adapters on", [&] { return protrain_session_use_adapters(session_, 1); })) return;
  if (!does("eval", [&] { return protrain_eval(session_, &loss); })) return;
  mix(&loss, sizeof loss);
  if (!does("load", [&] { return protrain_session_load_adapters(session_, adapters_.c_str()); })) return;
  does("eval", [&] { return protrain_eval(session_, &loss); });
  mix(&loss, sizeof loss);
}

// Checks that a failed save or export destroyed nothing: there must still be a complete checkpoint, and either the old
// export or a new one. Every file of at least 1000 bytes counts as a new export.
void Life::check_files() {
  std::size_t checkpoints = 0;
  for (const auto &entry : fs::directory_iterator(run_)) {
    const std::string name = entry.path().filename().string();
    checkpoints += name.starts_with("step-") && fs::exists(entry.path() / "manifest.json");
  }
  if (checkpoints == 0) problem("the checkpoint that was there is gone");
  const std::string text = content_of(export_);
  if (hash_of(text.data(), text.size()) != old_files_ && text.size() < 1000)
    problem("the export that was there is gone");
}

void Life::furnish() {
  const char *json = "";
  if (!make_options()) return;
  does("check", [&] { return protrain_model_check(options_, fixture_.c_str(), &json); });
  does("plan", [&] { return protrain_model_plan(options_, fixture_.c_str(), &json); });
  if (!create() || !set_inputs()) return;
  does("learning_rate", [&] { return protrain_session_set_learning_rate(session_, 0.5); });
  if (!step()) return;
  does("save", [&] { return protrain_session_save(session_, run_.c_str()); });
  does("export", [&] { return protrain_session_export(session_, export_.c_str()); });
  if (!model_.adapts) return;
  does("export adapters", [&] { return protrain_session_export_adapters(session_, adapters_.c_str()); });
  does("load adapters", [&] { return protrain_session_load_adapters(session_, adapters_.c_str()); });
}

void Life::live(Part part) {
  const char *json = "";
  if (part == Part::check || part == Part::plan || part == Part::create) start();
  if (!make_options()) return stop();
  if (part == Part::check) {
    does("help", [&] { return protrain_options_help(options_, &json); });
    refuses("an option that is none", PROTRAIN_ERROR_ARG,
            [&] { return protrain_options_set(options_, "no such option", "1"); });
    if (does("check", [&] { return protrain_model_check(options_, fixture_.c_str(), &json); })) {
      stop();
      if (fault_.kind != Kind::file) mix(json, strlen(json));  // a file fault may change the text from /proc/cpuinfo
    }
    return stop();
  }
  if (part == Part::plan) {
    does("plan", [&] { return protrain_model_plan(options_, fixture_.c_str(), &json); });
    return stop();
  }
  if (part == Part::resume) {
    if (!does("option", [&] { return protrain_options_set(options_, "resume", run_.c_str()); })) return;
    start();
  }
  if (!create()) return stop();
  if (part == Part::create || part == Part::resume) stop();
  if (part == Part::use) start();
  if (!set_inputs() || (part != Part::sum && !step())) return stop();
  if (part == Part::use) {
    float loss = 0;
    does("eval", [&] { return protrain_eval(session_, &loss); });
    mix(&loss, sizeof loss);
    look_around();
    read_and_write();
  }
  if (part == Part::trace) trace();
  if (part == Part::sum) return sum();
  if (part == Part::adapt) {
    start();
    change_adapters();
    stop();
    read_and_write();
  }
  guards_files_ = part == Part::save || part == Part::export_model;
  if (guards_files_) {
    const std::string old = content_of(export_);
    old_files_ = hash_of(old.data(), old.size());
    start();
  }
  if (part == Part::save) does("save", [&] { return protrain_session_save(session_, run_.c_str()); });
  if (part == Part::export_model) does("export", [&] { return protrain_session_export(session_, export_.c_str()); });
  if (part == Part::use) destroy();  // while faults are still armed
  stop();
  guards_files_ = false;
  if (part == Part::use || outcome_.lost) return;
  // Saves or exports once more. This removes what a failed attempt left behind, so the files must be those of a run
  // without a fault.
  if (part == Part::save) does("save", [&] { return protrain_session_save(session_, run_.c_str()); });
  if (part == Part::export_model) does("export", [&] { return protrain_session_export(session_, export_.c_str()); });
  step();
}

}  // namespace

void furnish(const Model &model, const std::string &origin) {
  for (const char *name : {"run", "out", "times", "disk"}) fs::create_directories(origin + "/" + name);
  std::ofstream(origin + "/plan.json") << model.plan;
  Outcome outcome;
  const Fault none;
  std::make_unique<Life>(model, Place{.origin = "", .at = origin}, none, nullptr, outcome)->furnish();
  if (*outcome.problem != 0) throw std::runtime_error(outcome.problem);
}

void run(const Model &model, Part part, const Place &place, const Fault &fault, std::uint64_t *sites,
         Outcome &outcome) {
  fs::copy(place.origin, place.at, fs::copy_options::recursive);
  int capacity = 0;
  dnnl_get_primitive_cache_capacity(&capacity);
  dnnl_set_primitive_cache_capacity(model.cold ? 0 : capacity);  // oneDNN 3 allocates here what it keeps
  const int descriptors = entries_of("/proc/self/fd"), threads = entries_of("/proc/self/task");
  auto life = std::make_unique<Life>(model, place, fault, sites, outcome);
  spare_onednn(part != Part::use);
  begin_tracking();
  life->live(part);
  {
    const Disarming quiet;
    outcome.result = hash_of_tree(place.at + "/run") ^ hash_of_tree(place.at + "/out") * 3 ^
                     hash_of_tree(place.at + "/disk") * 5 ^ life->result();
  }
  life.reset();
  dnnl_set_primitive_cache_capacity(0);  // makes oneDNN free its cache, which is no leak
  outcome.blocks = static_cast<int>(blocks_left());
  const Disarming quiet;
  outcome.descriptors = entries_of("/proc/self/fd") - descriptors;
  for (int tries = 0; tries < 1000; ++tries) {  // a joined thread disappears a moment later
    outcome.threads = entries_of("/proc/self/task") - threads;
    if (outcome.threads == 0) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  outcome.over = true;
}

}  // namespace protrain::test
