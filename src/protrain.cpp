// The C door: every function of protrain.h, in its order. Each one checks its pointers, enters the object and calls the
// C++ class behind it. guard() is the one place where exceptions become errors.
#include "protrain.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <initializer_list>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/host_thread.h"
#include "base/sentence.h"
#include "base/text.h"
#include "draft/check.h"
#include "draft/merge.h"
#include "draft/plan_model.h"
#include "session/aftermath.h"
#include "session/session.h"

using protrain::Code;
using protrain::DType;
using protrain::Error;
using protrain::require;
using protrain::Shape;
using protrain::session::Aftermath;

// protrain.h and the C++ enums list the same values. The asserts compare some values of each list, the first and the
// last among them. A value that was inserted in only one of the lists shifts the values after it, so an assert fails.
constexpr bool same(int c, Code code) { return c == static_cast<int>(code); }
static_assert(same(PROTRAIN_OK, Code::ok) && same(PROTRAIN_ERROR_ARG, Code::arg));
static_assert(same(PROTRAIN_ERROR_VERSION, Code::version) && same(PROTRAIN_ERROR_SHAPE, Code::shape));
static_assert(same(PROTRAIN_ERROR_UNSUPPORTED, Code::unsupported) && same(PROTRAIN_ERROR_NOMEM, Code::nomem));
static_assert(same(PROTRAIN_ERROR_INTERNAL, Code::internal) && same(PROTRAIN_ERROR_CANCELLED, Code::cancelled));
static_assert(PROTRAIN_FLOAT32 == static_cast<int>(DType::f32) && PROTRAIN_BFLOAT16 == static_cast<int>(DType::bf16));
static_assert(PROTRAIN_INT64 == static_cast<int>(DType::i64) && PROTRAIN_BOOL == static_cast<int>(DType::boolean));

struct protrain_error {
  protrain_code code;
  std::string subject;
  std::string text;
  bool usable;
  const char *fixed = nullptr;  // used in place of `text` if there was no memory for one
};

struct protrain_options {
  protrain::draft::Options options;
  std::string lent;
  protrain_log_fn log = nullptr;
  void *log_user = nullptr;
};

struct protrain_session {
  std::unique_ptr<protrain::session::Session> session;
  const pid_t owner = getpid();
  std::atomic_flag inside;  // set while a thread is inside a call
  std::string lent;
  std::vector<std::string> early_log;  // lines logged while the session was being created
};

namespace {

using protrain::onnx_import::ModelSource;
using protrain::session::Session;
constexpr std::size_t kTextLimit = 64 << 10;  // a list of everything that is missing can be long
constexpr std::size_t kRankLimit = 64;        // no tensor has more dims; a larger dims_len is a mistake

// The errors to return when memory is short, one for each value of Aftermath, in order. Their std::strings are empty,
// so compilers can initialize them at compile time. Only Clang before version 15 initializes them when the library is
// loaded, because it cannot evaluate libstdc++'s strings.
#if defined(__clang__) && __clang_major__ < 15
#define PROTRAIN_CONSTINIT
#else
#define PROTRAIN_CONSTINIT constinit
#endif
PROTRAIN_CONSTINIT protrain_error out_of_memory[] = {
    {PROTRAIN_ERROR_NOMEM, "", "", true, "out of memory"},
    {PROTRAIN_ERROR_NOMEM, "", "", true,
     "out of memory in the middle of a step: some parameters took the step and others did not; a step of several "
     "batches begins anew with its first"},
    {PROTRAIN_ERROR_NOMEM, "", "", false, "out of memory; the session is lost: go on from a checkpoint"}};

bool is_static(const protrain_error *error) {
  return std::any_of(std::begin(out_of_memory), std::end(out_of_memory),
                     [&](const protrain_error &one) { return &one == error; });
}

// Returns the error for the exception being handled. If memory is short, returns nullptr or throws std::bad_alloc.
protrain_error *capture(Aftermath aftermath) {
  const bool usable = aftermath != Aftermath::lost;
  try {
    throw;
  } catch (const Error &error) {
    // Session normally adds to the error's text what happened to the state. If memory is short, Session may have left
    // that out. So this function returns nullptr, and the caller returns a fixed text that says what happened.
    if (error.code == Code::nomem && aftermath != Aftermath::unchanged) return nullptr;
    std::string subject = protrain::printable(error.subject);
    std::string text = protrain::sentence_about(subject, protrain::printable(error.text, kTextLimit));
    return new (std::nothrow)
        protrain_error{static_cast<protrain_code>(error.code), std::move(subject), std::move(text), usable};
  } catch (const std::bad_alloc &) {
    return nullptr;
  } catch (const std::exception &fault) {
    return new (std::nothrow) protrain_error{PROTRAIN_ERROR_INTERNAL, "", protrain::printable(fault.what()), usable};
  } catch (...) {
    return new (std::nothrow) protrain_error{PROTRAIN_ERROR_INTERNAL, "", "an unknown exception", usable};
  }
}

protrain_error *capture_or_out_of_memory() noexcept {
  const Aftermath aftermath = protrain::session::aftermath_of_exception();
  try {
    if (protrain_error *error = capture(aftermath); error != nullptr) return error;
  } catch (...) {
  }
  return &out_of_memory[static_cast<int>(aftermath)];
}

template <typename Body>
protrain_error *guard(Body &&body) noexcept {
  const protrain::HostThread thread;
  try {
    body();
    return nullptr;
  } catch (...) {
    return capture_or_out_of_memory();
  }
}

void need(const void *argument, const char *name) { require(argument != nullptr, Code::arg, name, "{} is NULL", name); }

const char *given(const char *text, const char *name) {
  need(text, name);
  return text;
}

void need(std::initializer_list<std::pair<const void *, const char *>> arguments) {
  for (const auto &[argument, name] : arguments) need(argument, name);
}

void need(const void *array, std::size_t length, const char *name) {
  require(array != nullptr || length == 0, Code::arg, name, "{} is NULL and {}_len is {}", name, name, length);
}

// Passes a log line to the host program.
void pass_on(protrain_log_fn log, void *user, const std::string &line) {
  try {
    log(line.c_str(), user);
  } catch (...) {  // dropped, as protrain_log_fn says: an exception must not interrupt a call
  }
}

protrain::draft::Log progress_of(const protrain_options &options) {
  if (options.log == nullptr) return {};
  return [&options](const std::string &line) { pass_on(options.log, options.log_user, line); };
}

// A thread's call into a session. It refuses a second thread, and a child process after fork().
class Visit {
 public:
  explicit Visit(protrain_session *session) : session_(session) {
    need(session, "session");
    require(getpid() == session->owner, Code::forked, "session", "the session belongs to process {}, this is a child",
            session->owner);
    require(!session->inside.test_and_set(std::memory_order_acquire), Code::busy, "session",
            "another thread, or the log callback of this one, is inside the session");
  }
  ~Visit() { session_->inside.clear(std::memory_order_release); }
  Visit(const Visit &) = delete;
  Visit &operator=(const Visit &) = delete;

 private:
  protrain_session *session_;
};

// Runs body(Session &) for one thread at a time; refuses if an earlier error has lost the session.
template <typename Body>
protrain_error *inside(protrain_session *session, Body &&body) noexcept {
  return guard([&] {
    const Visit visit(session);
    session->session->require_usable();
    try {
      body(*session->session);
    } catch (...) {
      session->session->judge_exception();
      throw;
    }
  });
}

// Runs body() as inside() does, and stores in `out` the value that it returns.
template <typename T, typename Body>
protrain_error *answer(protrain_session *session, T *out, const char *name, Body &&body) noexcept {
  return inside(session, [&](Session &s) {
    need(out, name);
    *out = body(s);
  });
}

// Calls act(name, values, values_len) with the same checks as inside(). `act` reads or writes the values of the
// parameter `name`.
template <typename Values>
protrain_error *on_values(protrain_session *session, const char *name, Values *values, size_t values_len,
                          void (Session::*act)(const std::string &, Values *, std::size_t)) noexcept {
  return inside(session, [&](Session &s) {
    need(name, "name");
    need(values, values_len, "values");
    (s.*act)(name, values, values_len);
  });
}

// Runs body() as inside() does, and stores in `out` the text that it returns. The session keeps the text until its next
// call.
template <typename Body>
protrain_error *lend(protrain_session *session, const char **out, const char *name, Body &&body) noexcept {
  return inside(session, [&](Session &s) {
    need(out, name);
    session->lent = body(s);
    *out = session->lent.c_str();
  });
}

// Stores in `json` the text that ask(options) returns about the model. The options keep the text until their next call.
template <typename Ask>
protrain_error *lend_about(protrain_options *options, const char *model_path, const char **json, Ask &&ask) noexcept {
  return guard([&] {
    need({{options, "options"}, {model_path, "model_path"}, {json, "json"}});
    *json = (options->lent = ask(options->options)).c_str();
  });
}

std::size_t below(std::size_t index, std::size_t count) {
  require(index < count, Code::arg, "index", "index {} is not below {}", index, count);
  return index;
}

void copy_shape(const Shape &shape, std::int64_t *dims, std::size_t dims_len, std::size_t *rank) {
  need(dims, dims_len, "dims");
  need(rank, "rank");
  std::copy_n(shape.begin(), std::min(dims_len, shape.size()), dims);
  *rank = shape.size();
}

DType dtype_of(std::int32_t dtype) {
  require(dtype >= PROTRAIN_FLOAT32 && dtype <= PROTRAIN_BOOL, Code::arg, "dtype", "there is no dtype {}", dtype);
  return static_cast<DType>(dtype);
}

Shape shape_of(const char *name, std::span<const std::int64_t> dims) {
  require(dims.size() <= kRankLimit, Code::arg, name, "{} dimensions; no tensor has more than {}", dims.size(),
          kRankLimit);
  const bool legal = std::none_of(dims.begin(), dims.end(), [](std::int64_t dim) { return dim < 0; });
  const Shape shape(dims.begin(), dims.end());
  require(legal, Code::shape, name, "{} has a negative dimension: {}", name, protrain::to_text(shape));
  return shape;
}

std::uint64_t bytes_of(const char *name, DType dtype, const Shape &shape) {
  try {
    return byte_count(dtype, shape);
  } catch (Error &error) {  // the size does not fit 64 bits
    error.subject = name;
    throw;
  }
}

void need_bytes(const char *name, DType dtype, const Shape &shape, std::size_t given) {
  const std::uint64_t expected = bytes_of(name, dtype, shape);
  require(given == expected, Code::shape, name, "{} elements {} take {} bytes, and {} were given",
          protrain::name_of(dtype), protrain::to_text(shape), expected, given);
}

// Creates a session. Lines that it logs meanwhile are kept until the host program sets a log function.
void create(const protrain_options *options, protrain_session **session, const ModelSource &source) {
  need({{options, "options"}, {session, "session"}});
  auto made = std::make_unique<protrain_session>();
  const auto keep = [to = made.get()](const std::string &line) { to->early_log.push_back(line); };
  made->session = Session::create(options->options, source, keep, progress_of(*options));
  made->session->set_log(nullptr);
  *session = made.release();
}

}  // namespace

const char *protrain_version(void) { return PROTRAIN_VERSION; }

protrain_code protrain_error_code(const protrain_error *error) { return error == nullptr ? PROTRAIN_OK : error->code; }

const char *protrain_error_text(const protrain_error *error) {
  if (error == nullptr) return "";
  return error->fixed != nullptr ? error->fixed : error->text.c_str();
}

const char *protrain_error_subject(const protrain_error *error) {
  return error == nullptr ? "" : error->subject.c_str();
}

int protrain_error_usable(const protrain_error *error) { return error == nullptr || error->usable ? 1 : 0; }

void protrain_error_destroy(protrain_error *error) {
  if (!is_static(error)) delete error;
}

protrain_error *protrain_options_create(protrain_options **options) {
  return guard([&] {
    need(options, "options");
    *options = new protrain_options;
  });
}

void protrain_options_destroy(protrain_options *options) { delete options; }

protrain_error *protrain_options_set(protrain_options *options, const char *key, const char *value) {
  return guard([&] {
    need({{options, "options"}, {key, "key"}, {value, "value"}});
    options->options.set(key, value);
  });
}

protrain_error *protrain_options_get(protrain_options *options, const char *key, const char **value) {
  return guard([&] {
    need({{options, "options"}, {key, "key"}, {value, "value"}});
    *value = (options->lent = options->options.get(key)).c_str();
  });
}

protrain_error *protrain_options_help(protrain_options *options, const char **json) {
  return guard([&] {
    need({{options, "options"}, {json, "json"}});
    *json = (options->lent = protrain::draft::Options::help()).c_str();
  });
}

protrain_error *protrain_model_check(protrain_options *options, const char *model_path, const char **json) {
  return lend_about(options, model_path, json, [&](const auto &all) { return check_model(all, model_path); });
}

protrain_error *protrain_model_merge(const protrain_options *options, const char *model_path,
                                     const char *adapter_directory, const char *path) {
  return guard([&] {
    need({{options, "options"}, {model_path, "model_path"}, {adapter_directory, "adapter_directory"}, {path, "path"}});
    protrain::draft::merge_adapter(options->options, model_path, adapter_directory, path);
  });
}

protrain_error *protrain_options_set_log(protrain_options *options, protrain_log_fn log, void *user) {
  return guard([&] {
    need(options, "options");
    options->log = log;
    options->log_user = user;
  });
}

protrain_error *protrain_model_plan(protrain_options *options, const char *model_path, const char **json) {
  return lend_about(options, model_path, json,
                    [&](const auto &all) { return plan_model(all, model_path, progress_of(*options)); });
}

protrain_error *protrain_model_profile(protrain_options *options, const char *model_path, const char **json) {
  return lend_about(options, model_path, json,
                    [&](const auto &all) { return profile_model(all, model_path, progress_of(*options)); });
}

protrain_error *protrain_session_create(const protrain_options *options, const char *model_path,
                                        protrain_session **session) {
  if (session != nullptr) *session = nullptr;
  return guard([&] {
    need(model_path, "model_path");
    create(options, session, model_path);
  });
}

protrain_error *protrain_session_create_from_bytes(const protrain_options *options, const void *bytes, size_t bytes_len,
                                                   const char *base_directory, protrain_session **session) {
  if (session != nullptr) *session = nullptr;
  return guard([&] {
    need(bytes, bytes_len, "bytes");
    const auto *begin = static_cast<const std::byte *>(bytes);
    auto copy = std::make_shared<const std::vector<std::byte>>(begin, begin + bytes_len);
    create(options, session, {std::move(copy), base_directory == nullptr ? "" : base_directory});
  });
}

void protrain_session_destroy(protrain_session *session) {
  const protrain::HostThread thread;
  if (session != nullptr && session->owner == getpid()) delete session;
}

protrain_error *protrain_session_set_log(protrain_session *session, protrain_log_fn log, void *user) {
  return inside(session, [&](Session &s) {
    s.set_log(log == nullptr ? protrain::draft::Log()
                             : [log, user](const std::string &line) { pass_on(log, user, line); });
    if (log == nullptr) return;
    for (const std::string &line : std::exchange(session->early_log, {})) pass_on(log, user, line);
  });
}

protrain_error *protrain_session_input_count(protrain_session *session, size_t *count) {
  return answer(session, count, "count", [](Session &s) { return s.input_count(); });
}

protrain_error *protrain_session_input_name(protrain_session *session, size_t index, const char **name) {
  return lend(session, name, "name", [&](Session &s) { return s.input_name(below(index, s.input_count())); });
}

protrain_error *protrain_session_input_dtype(protrain_session *session, size_t index, int32_t *dtype) {
  return answer(session, dtype, "dtype",
                [&](Session &s) { return static_cast<int32_t>(s.input_dtype(below(index, s.input_count()))); });
}

protrain_error *protrain_session_input_shape(protrain_session *session, size_t index, int64_t *dims, size_t dims_len,
                                             size_t *rank) {
  return inside(session,
                [&](Session &s) { copy_shape(s.input_shape(below(index, s.input_count())), dims, dims_len, rank); });
}

protrain_error *protrain_session_set_input(protrain_session *session, const char *name, int32_t dtype,
                                           const int64_t *dims, size_t dims_len, const void *data, size_t data_len) {
  return inside(session, [&](Session &s) {
    need(name, "name");
    need(dims, dims_len, "dims");
    need(data, data_len, "data");
    const Shape shape = shape_of(name, {dims, dims_len});
    need_bytes(name, dtype_of(dtype), shape, data_len);
    s.set_input(name, dtype_of(dtype), shape, data);
  });
}

protrain_error *protrain_step(protrain_session *session, float *loss) {
  return answer(session, loss, "loss", [](Session &s) { return s.step().loss; });
}

protrain_error *protrain_eval(protrain_session *session, float *loss) {
  return answer(session, loss, "loss", [](Session &s) { return s.evaluate(); });
}

protrain_error *protrain_predict(protrain_session *session) {
  return inside(session, [](Session &s) { s.predict(); });
}

protrain_error *protrain_session_output_count(protrain_session *session, size_t *count) {
  return answer(session, count, "count", [](Session &s) { return s.output_count(); });
}

protrain_error *protrain_session_output_name(protrain_session *session, size_t index, const char **name) {
  return lend(session, name, "name", [&](Session &s) { return s.output_name(below(index, s.output_count())); });
}

protrain_error *protrain_session_output_dtype(protrain_session *session, size_t index, int32_t *dtype) {
  return answer(session, dtype, "dtype",
                [&](Session &s) { return static_cast<int32_t>(s.output_dtype(below(index, s.output_count()))); });
}

protrain_error *protrain_session_output_shape(protrain_session *session, size_t index, int64_t *dims, size_t dims_len,
                                              size_t *rank) {
  return inside(session,
                [&](Session &s) { copy_shape(s.output_shape(below(index, s.output_count())), dims, dims_len, rank); });
}

protrain_error *protrain_session_output_read(protrain_session *session, const char *name, int32_t dtype, void *data,
                                             size_t data_len) {
  return inside(session, [&](Session &s) {
    need(name, "name");
    need(data, data_len, "data");
    s.read_output(name, dtype_of(dtype), data, data_len);
  });
}

protrain_error *protrain_session_grad_norm(protrain_session *session, double *norm) {
  return answer(session, norm, "norm", [](Session &s) { return s.grad_norm(); });
}

protrain_error *protrain_session_step_count(protrain_session *session, uint64_t *count) {
  return answer(session, count, "count", [](Session &s) { return s.step_count(); });
}

protrain_error *protrain_session_rank(protrain_session *session, uint64_t *rank) {
  return answer(session, rank, "rank", [](Session &s) { return s.rank(); });
}

protrain_error *protrain_session_rank_count(protrain_session *session, uint64_t *count) {
  return answer(session, count, "count", [](Session &s) { return s.rank_count(); });
}

protrain_error *protrain_session_learning_rate(protrain_session *session, double *rate) {
  return answer(session, rate, "rate", [](Session &s) { return s.learning_rate(); });
}

protrain_error *protrain_session_set_learning_rate(protrain_session *session, double rate) {
  return inside(session, [&](Session &s) { s.set_learning_rate(rate); });
}

void protrain_session_cancel(protrain_session *session) {
  if (session != nullptr) session->session->cancel();
}

protrain_error *protrain_session_parameter_count(protrain_session *session, size_t *count) {
  return answer(session, count, "count", [](Session &s) { return s.parameter_count(); });
}

protrain_error *protrain_session_parameter_name(protrain_session *session, size_t index, const char **name) {
  return lend(session, name, "name", [&](Session &s) { return s.parameter_name(below(index, s.parameter_count())); });
}

protrain_error *protrain_session_parameter_shape(protrain_session *session, size_t index, int64_t *dims,
                                                 size_t dims_len, size_t *rank) {
  return inside(session, [&](Session &s) {
    copy_shape(s.parameter_shape(below(index, s.parameter_count())), dims, dims_len, rank);
  });
}

protrain_error *protrain_session_parameter_elements(protrain_session *session, size_t index, size_t *elements) {
  return answer(session, elements, "elements", [&](Session &s) {
    return static_cast<size_t>(protrain::element_count(s.parameter_shape(below(index, s.parameter_count()))));
  });
}

protrain_error *protrain_session_parameter_read(protrain_session *session, const char *name, float *values,
                                                size_t values_len) {
  return on_values(session, name, values, values_len, &Session::read_parameter);
}

protrain_error *protrain_session_parameter_write(protrain_session *session, const char *name, const float *values,
                                                 size_t values_len) {
  return on_values(session, name, values, values_len, &Session::write_parameter);
}

protrain_error *protrain_session_flat_parameters_elements(protrain_session *session, size_t *elements) {
  return answer(session, elements, "elements", [](Session &s) { return s.flat_parameters_elements(); });
}

protrain_error *protrain_session_flat_parameters_read(protrain_session *session, float *values, size_t values_len) {
  return inside(session, [&](Session &s) {
    need(values, values_len, "values");
    s.read_flat_parameters(values, values_len);
  });
}

protrain_error *protrain_session_flat_parameters_write(protrain_session *session, const float *values,
                                                       size_t values_len) {
  return inside(session, [&](Session &s) {
    need(values, values_len, "values");
    s.write_flat_parameters(values, values_len);
  });
}

protrain_error *protrain_session_grad_read(protrain_session *session, const char *name, float *values,
                                           size_t values_len) {
  return on_values(session, name, values, values_len, &Session::read_grad);
}

protrain_error *protrain_session_export(protrain_session *session, const char *path) {
  return inside(session, [&](Session &s) { s.export_model(given(path, "path")); });
}

protrain_error *protrain_session_export_adapters(protrain_session *session, const char *directory) {
  return inside(session, [&](Session &s) { s.export_adapters(given(directory, "directory")); });
}

protrain_error *protrain_session_load_adapters(protrain_session *session, const char *directory) {
  return inside(session, [&](Session &s) { s.load_adapters(given(directory, "directory")); });
}

protrain_error *protrain_session_use_adapters(protrain_session *session, int32_t on) {
  return inside(session, [&](Session &s) { s.use_adapters(on != 0); });
}

protrain_error *protrain_session_save(protrain_session *session, const char *directory) {
  return inside(session, [&](Session &s) { s.save(given(directory, "directory")); });
}

protrain_error *protrain_session_plan(protrain_session *session, const char **json) {
  return lend(session, json, "json", [](Session &s) { return s.plan_json(); });
}

protrain_error *protrain_session_program(protrain_session *session, const char **text) {
  return lend(session, text, "text", [](Session &s) { return s.program_text(); });
}

protrain_error *protrain_session_graph(protrain_session *session, const char **text) {
  return lend(session, text, "text", [](Session &s) { return s.graph_text(); });
}

protrain_error *protrain_session_report(protrain_session *session, const char **json) {
  return lend(session, json, "json", [](Session &s) { return s.report_json(); });
}

protrain_error *protrain_session_check_gradients(protrain_session *session, size_t samples, const char **json) {
  return lend(session, json, "json", [&](Session &s) { return s.check_gradients(samples); });
}
