// The part of protrain.h that SWIG wraps for Go, Java and Rust. This file says what is wrapped and under which name;
// go/go.i and java/java.i say how types are converted. Rust needs no conversions: rust/generate.py reads the C
// declarations from `swig -xml`.
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

// The wrapper of a failed call reads and destroys the error itself (typemaps of `protrain_error *` in go.i and java.i).
// So these five functions need no wrappers.
%ignore protrain_error_code;
%ignore protrain_error_text;
%ignore protrain_error_subject;
%ignore protrain_error_usable;
%ignore protrain_error_destroy;

// In Go and Java, an object of class Log takes the place of a log function and its user pointer. The two functions
// below replace protrain_*_set_log.
%ignore protrain_log_fn;
%ignore protrain_options_set_log;
%ignore protrain_session_set_log;

// Functions keep their C names without the prefix, so one search finds a function in every layer: session_set_input,
// and Session_set_input in Go, where exported names begin with a capital.
%rename("%(strip:[protrain_])s", %$isfunction) "";

#if defined(SWIGGO)
%include "go/go.i"
#else
%include "java/java.i"
#endif

// Receives the log of a session or of options. event() must not throw. The layer above catches a listener's panic or
// exception, and raises it again when the call has returned.
%feature("director") Log;
%inline %{
class Log {
 public:
  virtual ~Log() {}
  virtual void event(const char *json_line) = 0;
};
%}

// `log` may be NULL for none. It must live until another log is set or the object is destroyed.
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
