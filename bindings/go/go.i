// Conversions between C and Go. SWIG generates bindings/go/internal/lib from this and protrain.i.
%insert(cgo_comment_typedefs) %{
#cgo pkg-config: protrain
%}

// Objects are passed as their pointers, in a uintptr. SWIG's own interface types would cost an allocation each.
%typemap(gotype) protrain_options *, const protrain_options *, protrain_session * "uintptr"
%typemap(goin) protrain_options *, const protrain_options *, protrain_session * "$result = $input"
%typemap(gotype) protrain_options **, protrain_session ** "*uintptr"

// An error is copied into one block of C memory, and destroyed here. Go reads the block and frees it. Success is nil,
// and allocates nothing.
%typemap(gotype) protrain_error * "*Failure"
%typemap(imtype) protrain_error * "[]byte"
%typemap(out, fragment="protrain_failure") protrain_error * "$result = protrain_failure($1);"
%typemap(goout) protrain_error * "$result = takeFailure($1)"
%fragment("protrain_failure", "header") %{
// The bytes of the block: the code, whether the object is usable, the subject, NUL, the text. takeFailure() frees the
// block, unless its capacity is larger than its length: then there was no memory for a block, and this is a fixed one.
static _goslice_ protrain_failure(protrain_error *error) {
  _goslice_ bytes = {nullptr, 0, 0};
  if (error == nullptr) return bytes;
  const char *subject = protrain_error_subject(error), *text = protrain_error_text(error);
  const size_t subject_len = strlen(subject), text_len = strlen(text), len = 2 + subject_len + 1 + text_len;
  const char code = static_cast<char>(protrain_error_code(error)), usable = static_cast<char>(protrain_error_usable(error));
  char *block = static_cast<char *>(malloc(len));
  if (block == nullptr) {
    static char lost[] = "\022\0\0out of memory", unharmed[] = "\022\1\0out of memory";
    static_assert(PROTRAIN_ERROR_NOMEM == 022, "the first byte is the code");
    protrain_error_destroy(error);
    bytes.array = usable ? unharmed : lost;
    bytes.len = sizeof lost - 1;
    bytes.cap = sizeof lost;
    return bytes;
  }
  block[0] = code;
  block[1] = usable;
  memcpy(block + 2, subject, subject_len + 1);
  memcpy(block + 3 + subject_len, text, text_len);
  protrain_error_destroy(error);
  bytes.array = block;
  bytes.len = bytes.cap = static_cast<intgo>(len);
  return bytes;
}
%}

// A Go slice is passed as pointer and length, without a copy.
%define SLICE(POINTER, LENGTH, GO)
%typemap(gotype) (POINTER, LENGTH) "[]" #GO
%typemap(in) (POINTER, LENGTH) %{ $1 = ($1_ltype)$input.array; $2 = ($2_ltype)$input.len; %}
%typemap(argout) (POINTER, LENGTH) ""
%enddef
SLICE(int64_t *dims, size_t dims_len, int64)
SLICE(const int64_t *dims, size_t dims_len, int64)
SLICE(float *values, size_t values_len, float32)
SLICE(const float *values, size_t values_len, float32)
SLICE(void *data, size_t data_len, byte)
SLICE(const void *data, size_t data_len, byte)
SLICE(const void *bytes, size_t bytes_len, byte)

// Go's int has the width of C's size_t. Without these lines SWIG would map int32_t to Go's int too.
%typemap(gotype) size_t "int"
%typemap(gotype) size_t * "*int"
%typemap(gotype) int32_t "int32"
%typemap(gotype) int32_t * "*int32"

// Text that C lends: the Go string points into C's memory. The caller must clone it before the object's next call.
%typemap(gotype) const char ** "*string"
%typemap(in) const char ** (char *lent = nullptr) "$1 = &lent;"
%typemap(argout) const char ** %{
  if (*$1 != nullptr) {
    static_cast<_gostring_ *>($input)->p = *$1;
    static_cast<_gostring_ *>($input)->n = static_cast<intgo>(strlen(*$1));
  }
%}
