// Conversions between C and Java. SWIG generates bindings/java/jni and the package ai.protrain.internal, except
// Loader.java, from this and protrain.i.
%include <enumsimple.swg>
%javaconst(1);
%pragma(java) jniclassclassmodifiers="public class"
%pragma(java) jniclasscode=%{
  static { Loader.load(); }
%}
%pragma(java) jniclassimports=%{
import java.nio.Buffer;
%}
%pragma(java) moduleimports=%{
import java.nio.Buffer;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
%}
%pragma(java) modulecode=%{
  /** Converts a text to C's form: UTF-8 that ends in NUL. */
  static byte[] utf8(String text) {
    if (text.indexOf('\0') >= 0) throw new IllegalArgumentException("text with a NUL in it");
    byte[] bytes = text.getBytes(StandardCharsets.UTF_8);
    return Arrays.copyOf(bytes, bytes.length + 1);
  }

  /** Converts UTF-8 from C, without its NUL. */
  public static String text(byte[] utf8) {
    return new String(utf8, StandardCharsets.UTF_8);
  }
%}

// Pointers are passed as numbers. The package ai.protrain destroys objects, and keeps memory alive during calls.
%typemap(jstype) protrain_options *, const protrain_options *, protrain_session *, void *, const void *, float *,
  const float * "long"
%typemap(javain) protrain_options *, const protrain_options *, protrain_session *, void *, const void *, float *,
  const float * "$javainput"

// The wrapper of a failed call throws its error and destroys it. The exception's constructor takes UTF-8, because JNI's
// NewStringUTF takes a modified UTF-8 that encodes NUL and characters beyond 16 bits differently.
%fragment("protrain_throw", "header", fragment="protrain_bytes") %{
static void protrain_throw(JNIEnv *jenv, protrain_error *error) {
  const jclass type = jenv->FindClass("ai/protrain/ProtrainException");
  const jmethodID make = type ? jenv->GetMethodID(type, "<init>", "(I[B[BZ)V") : nullptr;
  const jbyteArray text = make ? protrain_bytes(jenv, protrain_error_text(error)) : nullptr;
  const jbyteArray subject = text ? protrain_bytes(jenv, protrain_error_subject(error)) : nullptr;
  const jobject thrown = subject ? jenv->NewObject(type, make, static_cast<jint>(protrain_error_code(error)), text,
                                                   subject, static_cast<jboolean>(protrain_error_usable(error)))
                                 : nullptr;
  if (thrown) jenv->Throw(static_cast<jthrowable>(thrown));  // else a JNI call has thrown an exception of its own
  protrain_error_destroy(error);
}
%}
%fragment("protrain_bytes", "header") %{
static jbyteArray protrain_bytes(JNIEnv *jenv, const char *text) {
  const jsize length = static_cast<jsize>(strlen(text));
  const jbyteArray bytes = jenv->NewByteArray(length);
  if (bytes) jenv->SetByteArrayRegion(bytes, 0, length, reinterpret_cast<const jbyte *>(text));
  return bytes;
}
%}
%typemap(jni) protrain_error * "void"
%typemap(jtype) protrain_error * "void"
%typemap(jstype) protrain_error * "void"
%typemap(javaout) protrain_error * "{ $jnicall; }"
%typemap(out, fragment="protrain_throw", null="") protrain_error * "if ($1) protrain_throw(jenv, $1);"

// A result goes into the first element of an array, unless the call failed.
%define OUT(TYPE, JAVA, ARRAY)
%typemap(jni) TYPE "j" #JAVA "Array"
%typemap(jtype) TYPE #JAVA "[]"
%typemap(jstype) TYPE #JAVA "[]"
%typemap(javain) TYPE "$javainput"
%typemap(in) TYPE ($*1_ltype out = 0) "$1 = &out;"
%typemap(argout) TYPE {
  const j##JAVA value = (j##JAVA)out$argnum;
  if (!result) jenv->Set##ARRAY##ArrayRegion($input, 0, 1, &value);
}
%enddef
OUT(protrain_options **, long, Long)
OUT(protrain_session **, long, Long)
OUT(size_t *, long, Long)
OUT(uint64_t *, long, Long)
OUT(int32_t *, int, Int)
OUT(float *loss, float, Float)
OUT(double *, double, Double)

// A shape is passed as a long[].
%define SHAPE(POINTER, MODE)
%typemap(jni) (POINTER, size_t dims_len) "jlongArray"
%typemap(jtype) (POINTER, size_t dims_len) "long[]"
%typemap(jstype) (POINTER, size_t dims_len) "long[]"
%typemap(javain) (POINTER, size_t dims_len) "$javainput"
%typemap(in) (POINTER, size_t dims_len) {
  $1 = reinterpret_cast<int64_t *>(jenv->GetLongArrayElements($input, nullptr));
  if (!$1) return $null;
  $2 = static_cast<size_t>(jenv->GetArrayLength($input));
}
%typemap(argout) (POINTER, size_t dims_len) ""
%typemap(freearg) (POINTER, size_t dims_len) {
  jenv->ReleaseLongArrayElements($input, reinterpret_cast<jlong *>(const_cast<int64_t *>($1)), MODE);
}
%enddef
SHAPE(int64_t *dims, 0)
SHAPE(const int64_t *dims, JNI_ABORT)

// A text is passed as UTF-8 in a byte[].
%typemap(jni) const char * "jbyteArray"
%typemap(jtype) const char * "byte[]"
%typemap(jstype) const char * "String"
%typemap(javain) const char * "$module.utf8($javainput)"
%typemap(javaout) const char * { return $module.text($jnicall); }
%typemap(in) const char * {
  $1 = reinterpret_cast<char *>(jenv->GetByteArrayElements($input, nullptr));
  if (!$1) return $null;
}
%typemap(freearg) const char * {
  jenv->ReleaseByteArrayElements($input, reinterpret_cast<jbyte *>(const_cast<char *>($1)), JNI_ABORT);
}
%typemap(out, fragment="protrain_bytes") const char * "$result = protrain_bytes(jenv, $1);"
%typemap(directorin, descriptor="Ljava/lang/String;", fragment="protrain_bytes") const char * %{
  $input = protrain_bytes(jenv, $1);
  Swig::LocalRefGuard $1_refguard(jenv, $input);
%}
%typemap(javadirectorin) const char * "$module.text($jniinput)"
%typemap(jni) const char ** "jobjectArray"
%typemap(jtype) const char ** "byte[][]"
%typemap(jstype) const char ** "byte[][]"
%typemap(javain) const char ** "$javainput"
%typemap(in) const char ** ($*1_ltype lent = nullptr) "$1 = &lent;"
%typemap(argout, fragment="protrain_bytes") const char ** {
  const jbyteArray bytes = result ? nullptr : protrain_bytes(jenv, lent$argnum);
  if (bytes) jenv->SetObjectArrayElement($input, 0, bytes);
}

// C holds the address of a Log's native half, so that half lives until delete_Log and not until Java collects the Log.
// It refers to the Java object weakly. So a listener that refers to its own session does not keep the session alive.
%typemap(javafinalize) Log ""
SWIG_JAVABODY_PROXY(protected, public, Log)

// The address of a direct buffer, and memory outside of Java's heap, which arrays are copied to and from.
%typemap(in, numinputs=0) JNIEnv *jenv "$1 = jenv;"
%typemap(jtype) jobject buffer "Buffer"
%typemap(jstype) jobject buffer "Buffer"
%inline %{
static jlong memory_address(JNIEnv *jenv, jobject buffer) {
  return reinterpret_cast<jlong>(jenv->GetDirectBufferAddress(buffer));
}
static jlong memory_allocate(jlong bytes) {
  return reinterpret_cast<jlong>(malloc(static_cast<size_t>(bytes > 0 ? bytes : 1)));
}
static void memory_free(jlong memory) { free(reinterpret_cast<void *>(memory)); }
static void memory_read(JNIEnv *jenv, jlong memory, jobject array, jlong offset, jlong bytes) {
  if (void *elements = jenv->GetPrimitiveArrayCritical(static_cast<jarray>(array), nullptr)) {
    memcpy(static_cast<char *>(elements) + offset, reinterpret_cast<void *>(memory), static_cast<size_t>(bytes));
    jenv->ReleasePrimitiveArrayCritical(static_cast<jarray>(array), elements, 0);
  }
}
static void memory_write(JNIEnv *jenv, jlong memory, jobject array, jlong offset, jlong bytes) {
  if (void *elements = jenv->GetPrimitiveArrayCritical(static_cast<jarray>(array), nullptr)) {
    memcpy(reinterpret_cast<void *>(memory), static_cast<char *>(elements) + offset, static_cast<size_t>(bytes));
    jenv->ReleasePrimitiveArrayCritical(static_cast<jarray>(array), elements, JNI_ABORT);
  }
}
%}
