// What Go, Java and Rust see of protrain.h. One interface for all: what is wrapped and under which name stands here,
// how a type crosses stands in go/go.i and java/java.i. Rust reads C's declarations as they are, from `swig -xml`.
#if defined(SWIGGO) || defined(SWIGJAVA)
%module(directors="1") protrain
#else
%module protrain
#endif
#define SWIGWORDSIZE64  // int64_t is a long, as on all 64-bit Linux
%include <stdint.i>

#if defined(SWIGGO) || defined(SWIGJAVA)
%{
#include <protrain.h>
%}

// An error is read and destroyed by the wrapper of the call that failed (the typemaps of `protrain_error *` below), so
// these five functions are used there and nowhere else.
%ignore protrain_error_code;
%ignore protrain_error_text;
%ignore protrain_error_subject;
%ignore protrain_error_usable;
%ignore protrain_error_destroy;

// A C function and its user pointer are an object with a method in other languages: Log, and the two functions below.
%ignore protrain_log_fn;
%ignore protrain_options_set_log;
%ignore protrain_session_set_log;

// Names stay C's, less the prefix, so that one search finds a function in every layer: session_set_input, and
// Session_set_input in Go, which must begin with a capital.
%rename("%(strip:[protrain_])s", %$isfunction) "";

#if defined(SWIGGO)
%include "go/go.i"
#else
%include "java/java.i"
#endif

// Receives the log of a session or of options. It must not throw: what a listener throws is kept by the layer above,
// and thrown again when the call has returned.
%feature("director") Log;
%inline %{
class Log {
 public:
  virtual ~Log() {}
  virtual void event(const char *json_line) = 0;
};
%}

// `log` may be NULL, for none. It must live until another is set or the object is destroyed.
%{
static void protrain_log_event(const char *json_line, void *log) { static_cast<Log *>(log)->event(json_line); }
%}
%inline %{
static protrain_error *protrain_options_log(protrain_options *options, Log *log) {
  return protrain_options_set_log(options, log ? protrain_log_event : nullptr, log);
}
static protrain_error *protrain_session_log(protrain_session *session, Log *log) {
  return protrain_session_set_log(session, log ? protrain_log_event : nullptr, log);
}
%}
#endif

%include <protrain.h>
