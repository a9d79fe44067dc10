/* protrain.h: training of models from ONNX files, inside your own program.
 *
 * This header is the whole manual and the only public one. It compiles alone as C99, C11 and C++98 to C++20.
 *
 * A complete program, which trains a model whose inputs are `input_ids` and `labels`:
 *
 *     #include <protrain.h>
 *     #include <stdio.h>
 *     #include <stdlib.h>
 *
 *     static void check(protrain_error *error) {
 *       if (error == NULL) return;
 *       fprintf(stderr, "%s\n", protrain_error_text(error));
 *       protrain_error_destroy(error);
 *       exit(1);
 *     }
 *
 *     int main(void) {
 *       static int64_t tokens[8 * 128];                     // your data
 *       const int64_t dims[2] = {8, 128};
 *       protrain_options *options;
 *       protrain_session *session;
 *       check(protrain_options_create(&options));
 *       check(protrain_options_set(options, "dim", "batch=8"));
 *       check(protrain_options_set(options, "dim", "sequence=128"));
 *       check(protrain_options_set(options, "learning_rate", "3e-4"));
 *       check(protrain_session_create(options, "model.onnx", &session));
 *       for (int step = 0; step < 100; ++step) {
 *         float loss;                                       // ... new tokens here ...
 *         check(protrain_session_set_input(session, "input_ids", PROTRAIN_INT64, dims, 2, tokens, sizeof tokens));
 *         check(protrain_session_set_input(session, "labels", PROTRAIN_INT64, dims, 2, tokens, sizeof tokens));
 *         check(protrain_step(session, &loss));
 *         printf("%d %f\n", step + 1, loss);
 *       }
 *       check(protrain_session_export(session, "trained.onnx"));
 *       protrain_session_destroy(session);
 *       protrain_options_destroy(options);
 *       return 0;
 *     }
 *
 * The model
 *   An ONNX file whose graph ends in a scalar float32 loss, or in anything that the options loss, loss_from,
 *   loss_output, loss_labels and loss_shift put a loss behind; the labels are an input of the session then, the last
 *   one, unless the model has one of that name. Nothing else is prepared: the gradient graph is built when the session
 *   is created, and the whole step is laid out in memory then. A step plans, parses and allocates nothing.
 *
 * Errors
 *   Every call that can fail returns a protrain_error: NULL is success, anything else is yours to destroy. An error
 *   carries a code, one sentence, the node, tensor, file or option it is about, and whether the object is still usable.
 *   Unless a function says otherwise, a call that fails has changed nothing, and its output arguments are untouched.
 *   Every pointer argument must be non-NULL unless its function says otherwise; NULL gives PROTRAIN_ERROR_ARG.
 *   The library never aborts, exits, prints, or touches signal handlers. Of the environment it reads XDG_CACHE_HOME and
 *   HOME, where the option profile_dir is not set. The libraries it links read their own (ONEDNN_*, OMP_*, CUDA_*).
 *   Any call may also fail with PROTRAIN_ERROR_NOMEM or PROTRAIN_ERROR_INTERNAL; this is not repeated below.
 *
 * Ownership
 *   What a create function returns, you destroy. What you pass in is copied before the call returns. A returned
 *   `const char *` is lent until the next call on the same object. Destroy functions accept NULL.
 *
 * Threads
 *   An object is used by one thread at a time and may move between threads. Different sessions share nothing.
 *   protrain_session_cancel may be called from any thread or signal handler. A second thread inside a session gets
 *   PROTRAIN_ERROR_BUSY, a process forked from the one that created it PROTRAIN_ERROR_FORKED; the session is unharmed.
 *   Both hold for every function that takes a session and returns an error, and are not repeated below.
 *
 * Text
 *   All text is UTF-8 and ends in NUL. Foreign text in messages (names from a file) is escaped, so that it can be
 *   printed to a terminal. Numbers are read and written with a point, whatever the locale.
 *
 * Numbers
 *   The same model, options, inputs and number of threads give the same loss, gradients and weights, bit for bit.
 *   The memory plan never changes a bit. Another number of threads may: sums are then cut elsewhere. So may another
 *   processor. On the same processor so may ONEDNN_MAX_CPU_ISA and ONEDNN_CPU_ISA_HINTS in the environment: oneDNN then
 *   multiplies matrices with other instructions. Runs that are to agree, and one that goes on from a checkpoint, need
 *   the same of all these.
 *
 * Memory
 *   A session is given bytes: the option memory, or device_memory and host_memory, and offload_dir for a disk. Without
 *   any it may take what the process may, less a reserve. Of all plans that fit it chooses the one that is predicted to
 *   be fastest: what rests on the host or on disk, and what is computed again instead of kept. It allocates what it
 *   needs when it is created, and refuses then a budget that nothing fits, with the smallest that would do. Its peak is
 *   known then: protrain_session_report repeats it after each step. Three copies of each trained parameter are kept for
 *   adamw (the weight and two moments), one or two for sgd (the weight, and the momentum if there is one); a frozen
 *   parameter has one. The predictions rest on times of this machine's kernels, which are measured when a model is
 *   first seen, and kept in profile_dir. docs/memory.md says how to read a plan and what to change in it.
 *
 * Arrays
 *   An array is always (pointer, length), the length in elements; for the untyped `data` of an input, in bytes.
 */
#ifndef PROTRAIN_H
#define PROTRAIN_H

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define PROTRAIN_API __attribute__((visibility("default")))
#define PROTRAIN_CHECKED __attribute__((visibility("default"), warn_unused_result))
#else
#define PROTRAIN_API
#define PROTRAIN_CHECKED
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* What a session is to be made of: text pairs, checked one by one as they are set. Cheap to make. May serve any number
 * of sessions. */
typedef struct protrain_options protrain_options;

/* A model in training: its weights, its optimizer's state, and the memory and threads that a step needs. It belongs to
 * the process that created it. */
typedef struct protrain_session protrain_session;

/* Why a call failed. Immutable; may be read from any thread. */
typedef struct protrain_error protrain_error;

/* What went wrong, for programs; protrain_error_text says it for people. Numbers never change their meaning. */
typedef enum protrain_code {
  PROTRAIN_OK = 0,
  PROTRAIN_ERROR_ARG = 1,          /* an argument or option is wrong */
  PROTRAIN_ERROR_STATE = 2,        /* the call does not fit the object's present state */
  PROTRAIN_ERROR_BUSY = 3,         /* another thread is inside the object */
  PROTRAIN_ERROR_FORKED = 4,       /* the object belongs to the parent process */
  PROTRAIN_ERROR_VERSION = 5,      /* a file of a version that is not known */
  PROTRAIN_ERROR_PATH = 6,         /* a path that may not be followed */
  PROTRAIN_ERROR_IO = 7,           /* the system refused a file operation */
  PROTRAIN_ERROR_NOSPC = 8,        /* no space left where a file should grow */
  PROTRAIN_ERROR_FORMAT = 9,       /* malformed bytes */
  PROTRAIN_ERROR_LIMIT = 10,       /* over a stated cap */
  PROTRAIN_ERROR_SHAPE = 11,       /* shapes or lengths do not fit together */
  PROTRAIN_ERROR_TYPE = 12,        /* element types do not fit together */
  PROTRAIN_ERROR_GRAPH = 13,       /* the graph is not a legal one, or has no loss */
  PROTRAIN_ERROR_UNSUPPORTED = 14, /* legal, but not something this library does (yet) */
  PROTRAIN_ERROR_CORRUPT = 15,     /* a checksum does not match */
  PROTRAIN_ERROR_MISMATCH = 16,    /* belongs to something else */
  PROTRAIN_ERROR_BUDGET = 17,      /* does not fit the stated memory; the text says what would */
  PROTRAIN_ERROR_NOMEM = 18,       /* the system refused memory */
  PROTRAIN_ERROR_NONFINITE = 19,   /* NaN or infinity where numbers must be finite */
  PROTRAIN_ERROR_PEER = 20,        /* another rank failed */
  PROTRAIN_ERROR_TIMEOUT = 21,     /* another rank did not answer in time */
  PROTRAIN_ERROR_DEVICE = 22,      /* the device or its driver failed */
  PROTRAIN_ERROR_INTERNAL = 23,    /* a fault of this library: please report it */
  PROTRAIN_ERROR_CANCELLED = 24    /* protrain_session_cancel was called */
} protrain_code;

/* Element types of inputs. */
typedef enum protrain_dtype {
  PROTRAIN_FLOAT32 = 1,
  PROTRAIN_FLOAT64 = 2,
  PROTRAIN_FLOAT16 = 3,
  PROTRAIN_BFLOAT16 = 4,
  PROTRAIN_INT8 = 5,
  PROTRAIN_INT16 = 6,
  PROTRAIN_INT32 = 7,
  PROTRAIN_INT64 = 8,
  PROTRAIN_UINT8 = 9,
  PROTRAIN_UINT16 = 10,
  PROTRAIN_UINT32 = 11,
  PROTRAIN_UINT64 = 12,
  PROTRAIN_BOOL = 13 /* one byte per element, 0 or 1 */
} protrain_dtype;

/* Receives one JSON object, in one line without a newline, lent for the time of the call: {"event":"step",...}.
 * That of a step has step, loss, grad_norm and seconds, in fp16 loss_scale too; a number that is not finite is null.
 * Called only on a thread that is inside a call on the session. It must not call back into that session (it would
 * get PROTRAIN_ERROR_BUSY), except for protrain_session_cancel. It must not longjmp; a C++ exception that leaves it is
 * dropped. */
typedef void (*protrain_log_fn)(const char *json_line, void *user);

/* The version of the library that is running, such as "0.1.0". Static text. Cannot fail.
 * Threads: any.
 * Since: 0.1 */
PROTRAIN_API const char *protrain_version(void);

/* ---- Errors ------------------------------------------------------------------------------------------------------ */

/* The error's code; PROTRAIN_OK for NULL, so that a switch needs no special case.
 * Threads: any.
 * Since: 0.1 */
PROTRAIN_API protrain_code protrain_error_code(const protrain_error *error);

/* One sentence: what was found, what was expected, what to do; it names the subject. Lent until the error is destroyed;
 * "" for NULL.
 * Threads: any.
 * Since: 0.1 */
PROTRAIN_API const char *protrain_error_text(const protrain_error *error);

/* The node, tensor, file, argument or option that the error is about; "" where there is none, and for NULL.
 * Lent until the error is destroyed.
 * Threads: any.
 * Since: 0.1 */
PROTRAIN_API const char *protrain_error_subject(const protrain_error *error);

/* 1 if the object of the failed call can still be used, 0 if only its destroy makes sense; 1 for NULL.
 * Threads: any.
 * Since: 0.1 */
PROTRAIN_API int protrain_error_usable(const protrain_error *error);

/* Destroys an error. NULL is allowed. The error for exhausted memory is static: destroying it does nothing, so it
 * can always be returned.
 * Since: 0.1 */
PROTRAIN_API void protrain_error_destroy(protrain_error *error);

/* ---- Options ----------------------------------------------------------------------------------------------------- */

/* Makes options in which everything has its default.
 *   options: where the new object goes.
 * Errors: ARG.
 * Since: 0.1 */
PROTRAIN_CHECKED protrain_error *protrain_options_create(protrain_options **options);

/* Destroys options. NULL is allowed. Sessions made from them live on: they took what they needed.
 * Since: 0.1 */
PROTRAIN_API void protrain_options_destroy(protrain_options *options);

/* Sets one option. protrain_options_help lists the keys; the ones most used:
 *   device          cpu, the default; cuda:0, cuda:1, ...: a GPU, where CUDA's driver and the plugin are installed
 *   threads         size of the session's team of threads; 0, the default: as many as the process may use
 *   precision       fp32, or bf16 or fp16: a step's weights, activations and gradients are bfloat16 or float16, and
 *                   master weights, moments and sums float32. Parameters are read, written, saved and exported as
 *                   float32, to the bit; only frozen ones are rounded, and held as that. With adamw a parameter takes
 *                   12 bytes at rest, in fp16 14, and its gradient's 2. In fp16, which the cpu alone computes in, the
 *                   loss is scaled before it is differentiated: by 65536 at first; a step whose gradients overflow
 *                   changes nothing, but counts, with a norm that is not finite, and halves the scale, and every 2000
 *                   steps without one double it. Gradients and norms are given without the scale
 *   memory          one budget where device and host share their memory: 12GiB, 800MB, or plain bytes; without one,
 *                   what the process may take (of the machine, its control group and its limits), less a reserve of a
 *                   twentieth, at least 96 MiB
 *   device_memory, host_memory   two budgets instead, kept apart: what moves between them is copied. Where one is not
 *                   given it is what the other leaves
 *   offload_dir     a directory for the disk tier: a file without a name, gone with the session. Without it nothing
 *                   goes to disk
 *   disk_memory     how much of that disk may be taken; without it, nearly all that is free there
 *   plan            a file that says where parameters rest and what blocks do (docs/plan.md); without one the fastest
 *                   plan that fits the budgets is chosen
 *   hardware        for protrain_model_plan: a machine that is not this one, by name (rtx3090, a100-80gb, h200) or
 *                   as a JSON file that protrain_model_profile made or a person wrote (docs/memory.md)
 *   profile_dir     where measured times are kept between sessions; else protrain/ in $XDG_CACHE_HOME or ~/.cache
 *   dim             NAME=N, binds a symbolic dimension of the model's inputs
 *   shapes          NAME=N,...: further bindings that the session serves over the same weights; a step or evaluation
 *                   takes the one that the shapes of the present inputs fit
 *   loss            cross_entropy, mse, l1 or bce: the loss to put behind a graph that has none
 *   loss_from       what cross_entropy and bce are given: logits, or probabilities. These are limited to 1e-7 and
 *                   1 - 1e-7 and, of classes, divided by their sum, as Keras has it. auto, the default: logits; where
 *                   the graph shows that a Softmax or Sigmoid makes the output, those that it was given
 *   optimizer       adamw or sgd, with learning_rate, beta1, beta2, epsilon, weight_decay, momentum
 *   trainable       patterns with * and ?, over initializers' names: parameters whatever the rules say
 *   frozen          likewise: parameters that are not trained
 *   tie             NAME|NAME, likewise: parameters that are one. The first in the file's order stands for all, with
 *                   its values; they have the same shape, or are a matrix and its transpose. All are exported
 *   keep_gradients  likewise: parameters whose gradients protrain_session_grad_read can read
 *   accumulation    batches that make one step; or tokens_per_step, from which the number of batches follows
 *   clip_norm       largest global L2 norm of the gradients, beyond which all are scaled down
 *   clip_value      largest magnitude of one element of a gradient, after clip_norm
 *   on_nonfinite    what a step does whose loss or gradients are NaN or infinite: stop, skip or rollback; protrain_step
 *                   says more
 *   resume          the checkpoint to go on from, as protrain_session_save left it, or a directory of them: its newest.
 *                   The seed is the checkpoint's; the learning rate is not part of it
 * A list (dim, shapes, trainable, frozen, tie, keep_gradients) gains one item with each call; any other option is
 * replaced.
 * Errors: ARG for a key that does not exist (the text names the nearest), a value of another type or out of range;
 *   UNSUPPORTED for options and values that are known but not available yet: nothing is ever ignored.
 * Since: 0.1 */
PROTRAIN_CHECKED protrain_error *protrain_options_set(protrain_options *options, const char *key, const char *value);

/* Tells what holds for an option: what was set, or the default.
 *   value: lent until the next call on the options; "" where nothing was set and there is no default. The items of a
 *          list are separated by newlines.
 * Errors: ARG for a key that does not exist.
 * Since: 0.1 */
PROTRAIN_CHECKED protrain_error *protrain_options_get(protrain_options *options, const char *key, const char **value);

/* Lists all options, as a JSON array of {"key", "type", "default", "range", "sentence", "available"}. Those with
 * "available": false are refused by protrain_options_set for now.
 *   json: lent until the next call on the options.
 * Errors: ARG.
 * Since: 0.1 */
PROTRAIN_CHECKED protrain_error *protrain_options_help(protrain_options *options, const char **json);

/* Sets where it is told how far a long call with these options is. protrain_session_create and protrain_model_plan
 * measure each kernel of the model that no earlier call has measured on this machine, protrain_model_profile all of
 * them, which takes seconds: {"event":"profiling","done":3,"of":41}.
 *   log:  the function to call, on the thread that is inside the call, or NULL for none. It must not use the options.
 *   user: passed to it as it is; may be NULL.
 * Errors: ARG.
 * Since: 0.1 */
PROTRAIN_CHECKED protrain_error *protrain_options_set_log(protrain_options *options, protrain_log_fn log, void *user);

/* ---- Models: what training them would take ----------------------------------------------------------------------- */

/* Says whether a model can be trained, without training it: everything it lacks at once, and what was found in it.
 * A symbolic dimension that no `dim` option binds gets the size that fits the shapes in the model where only one does,
 * else a small default, images 224. No weights are read.
 *   json: one object, lent until the next call on the options:
 *     "trainable"   true or false
 *     "problems"    array of {"code", "subject", "text", "nodes"}; empty where trainable. Causes alone: one for each
 *                   kind of operator that is missing, with the names of all its nodes; "nodes" is empty for others
 *     "unseen_nodes"   how many nodes read what those of "problems" would make, so that nothing is known of them
 *     "inputs"      array of {"name", "dtype", "dims"}; a dimension is a number, or its name where symbolic; of labels
 *                   that an attached loss adds, null where it follows from others, and so "dims" as a whole
 *     "dims"        object: symbolic dimension -> {"value", "default", "inferred", "reason"}. "default": no option
 *                   binds it; "inferred": a shape in the model asks for it; "reason": which, or what is known
 *     "batch"       {"input", "dim", "samples", "tokens_per_sample"}, under these dims: the input whose first axis
 *                   counts samples, the first of integers, else the first with an axis; its symbolic dimension, or "";
 *                   0 tokens where no input holds integers
 *     "operators"   object: operator -> number of nodes, after fusion
 *     "parameters"  array of {"name", "shape", "frozen", "reason", "evidence"}; the evidence is one of option, list,
 *                   training_info, exporter, name and rules, as docs/parameters.md explains
 *     "constants"   array of {"name", "reason", "evidence"}: float initializers that are not parameters
 *     "doubtful"    array of {"name", "verdict", "doubt", "settled_by"}: what may be something else than the verdict,
 *                   which is trained, frozen or constant, and why; settled by "option", trainable or frozen, or by
 *                   "export": a Constant, which no option makes a parameter; export the file again, with initializers
 *     "unmatched"   array of names that a list or the exporter calls parameters, and that no initializer has
 *     "parameter_elements"   of all parameters together
 *     "blocks"      number of repeated layers found
 *     "loss"        name of the loss, or null
 *     "loss_from"   of a loss that options attach, what it is computed from: "the logits before Softmax at /softmax"
 *     "device"      "name" and "description"
 *   All keys are always there; what was not found out is empty, 0 or null.
 * Errors: IO, PATH, FORMAT, LIMIT, VERSION, GRAPH for a file that is no model at all; ARG for options that cannot be.
 *   Missing operators and gradients are no errors of this call: they are in "problems".
 * Since: 0.1 */
PROTRAIN_CHECKED protrain_error *protrain_model_check(protrain_options *options, const char *model_path,
                                                      const char **json);

/* Says how a model would train, without training it: the plan that would be chosen, what a step would take and hold,
 * and why. For the machine that the option `hardware` names or describes, or for this one, which is then measured.
 * Reads no weights, and takes no memory but what measuring one kernel needs.
 *   json: one object, lent until the next call on the options:
 *     "model", "hardware", "precision"    what was asked for
 *     "feasible"           false: nothing fits; what follows is of the smallest plan
 *     "n_chunk", "n_persist", "n_buffer", "n_host", "n_device_update", "n_block", "n_swap", "n_checkpoint",
 *     "n_selective", "slack", "chunk_bytes", "optimizer_order"    what was chosen; docs/plan.md says what each is.
 *                          chunk_bytes is null for a plan that was read from a file
 *     "step_seconds", "tokens_per_second", "device_peak_bytes", "host_peak_bytes", "disk_bytes"
 *     "accumulation"       batches of a step; step_seconds is of them all, "predicted" and what follows of the last
 *     "predicted"          overlap, busy seconds by queue, stalls by cause, as in protrain_session_report
 *     "budget"             bytes of each memory that it was chosen for
 *     "search_seconds", "points_ranked", "points_laid_out"
 *     "next", "resident"   the next best plan, and the one that keeps everything in memory, with what they take
 *     "would_fit"          where nothing fits: array of {"options": {KEY: VALUE...}, "text"}, each of which would do
 *     "explanation"        array of sentences
 *     "timeline", "queues" memory by owner, and what each queue does, over a step, as in protrain_session_report
 *     "plan"               in full; a file of it is what the option `plan` takes
 * Errors: as protrain_session_create, but that a budget that is too small is none: it is in the answer. ARG, FORMAT for
 *   a description of hardware that is none.
 * Since: 0.1 */
PROTRAIN_CHECKED protrain_error *protrain_model_plan(protrain_options *options, const char *model_path,
                                                     const char **json);

/* Measures this machine on the kernels that a model needs, its optimizer, its copies and, where the option offload_dir
 * names one, its disk; whatever was measured before is measured again, and kept.
 *   json: a description of the machine, lent until the next call on the options; a file of it is what the option
 *     `hardware` takes, on any machine.
 * Errors: as protrain_model_plan; ARG where the option hardware is set: only this machine can be measured.
 * Since: 0.1 */
PROTRAIN_CHECKED protrain_error *protrain_model_profile(protrain_options *options, const char *model_path,
                                                        const char **json);

/* ---- Sessions: life ---------------------------------------------------------------------------------------------- */

/* Reads a model and makes it ready to train: builds the gradient graph, measures the kernels that this machine has not
 * measured before, chooses a plan, lays out all memory, allocates it, reads the weights, starts the threads. Nothing of
 * this is left for a step.
 *   model_path: an ONNX file; weights in files beside it are read as well. The files are not needed afterwards, but by
 *               protrain_session_export.
 *   session:    where the new object goes; NULL is stored there on failure.
 * Errors: IO, PATH, FORMAT, LIMIT, VERSION for files; GRAPH, SHAPE, TYPE for graphs that are not legal, have no loss,
 *   or do not fit the bound dimensions; UNSUPPORTED lists every operator and every gradient that is missing, with the
 *   nodes' names; ARG for options that do not fit the model; BUDGET where no plan fits: the text names the smallest
 *   budget that works and what else would do; NOMEM.
 *   With the option resume: FORMAT where there is no checkpoint or it is malformed, CORRUPT where a byte of it was
 *   damaged or a file is missing, VERSION for one of a later library, PATH for links, MISMATCH where parameters,
 *   optimizer or seed are others. A damaged checkpoint is never passed over: the text names the one before it.
 * On error: nothing is left behind; the options are unchanged.
 * Threads: only reads the options, so that several threads may create sessions from the same ones.
 * Since: 0.1 */
PROTRAIN_CHECKED protrain_error *protrain_session_create(const protrain_options *options, const char *model_path,
                                                         protrain_session **session);

/* As protrain_session_create, from a model in memory: the bytes of an ONNX file. They are copied, and the copy is held
 * as long as the session lives, beside its budget: export writes from it what was not trained.
 *   bytes, bytes_len: the model and its size, at most 2 GiB.
 *   base_directory:   where its external data lie; nothing outside is opened, whatever the model says and wherever
 *                     links lead. NULL or "" for a model that has none.
 * Errors: as protrain_session_create; PATH for external data without a base_directory, or outside of it.
 * Since: 0.1 */
PROTRAIN_CHECKED protrain_error *protrain_session_create_from_bytes(const protrain_options *options, const void *bytes,
                                                                    size_t bytes_len, const char *base_directory,
                                                                    protrain_session **session);

/* Destroys a session, its threads and all its memory. NULL is allowed. No other call may be inside the session.
 * In a forked process it does nothing: the session is the parent's.
 * Since: 0.1 */
PROTRAIN_API void protrain_session_destroy(protrain_session *session);

/* Sets where the session's log goes: one JSON line when it was created (handed over by the first such call), one per
 * step, one per checkpoint, with its path. "warnings" in the first is a list of sentences, mostly an empty one: what
 * makes the session slower than it needs to be, and what to do about it; one that is found out later has a line of its
 * own, {"event":"warning","text":...}. "memory" in the first is as protrain_session_report has it. "doubtful" in the
 * first is an empty object, or {"count", "names", "unmatched", "text"}: initializers of which it was guessed whether
 * they are parameters.
 *   log:  the function to call, or NULL for none.
 *   user: passed to it as it is; may be NULL.
 * Errors: none of its own.
 * Since: 0.1 */
PROTRAIN_CHECKED protrain_error *protrain_session_set_log(protrain_session *session, protrain_log_fn log, void *user);

/* ---- Sessions: inputs -------------------------------------------------------------------------------------------- */

/* Tells how many inputs the model has. All of them must be set before the first step.
 * Errors: none of its own.
 * Since: 0.1 */
PROTRAIN_CHECKED protrain_error *protrain_session_input_count(protrain_session *session, size_t *count);

/* Tells the name of an input, in the file's order.
 *   index: below protrain_session_input_count.
 *   name:  lent until the next call on the session.
 * Errors: ARG for an index that is too large.
 * Since: 0.1 */
PROTRAIN_CHECKED protrain_error *protrain_session_input_name(protrain_session *session, size_t index,
                                                             const char **name);

/* Tells the element type of an input, one of PROTRAIN_FLOAT32 and its like.
 * Errors: ARG for an index that is too large.
 * Since: 0.1 */
PROTRAIN_CHECKED protrain_error *protrain_session_input_dtype(protrain_session *session, size_t index, int32_t *dtype);

/* Tells the shape of an input, all dimensions bound.
 *   dims, dims_len: where the first dims_len dimensions go; what does not fit is left out. dims may be NULL if
 *                   dims_len is 0.
 *   rank:           the number of dimensions, whatever dims_len is.
 * Errors: ARG for an index that is too large.
 * Since: 0.1 */
PROTRAIN_CHECKED protrain_error *protrain_session_input_shape(protrain_session *session, size_t index, int64_t *dims,
                                                              size_t dims_len, size_t *rank);

/* Copies the values of one input. They are used by every following step and evaluation, until set again.
 *   dtype:          one of PROTRAIN_FLOAT32 and its like; the model's own, nothing is converted.
 *   dims, dims_len: the shape of `data`, one of those that the session serves. dims may be NULL if dims_len is 0.
 *   data, data_len: the elements in row-major order, and their size in bytes; any alignment. data may be NULL if
 *                   data_len is 0.
 * Errors: ARG for a name that is no input (the text lists the inputs) or a dtype that does not exist; TYPE for another
 *   dtype than the model's; SHAPE for a shape that is not served (the text lists those that are), or a data_len that is
 *   not that of the shape.
 * Since: 0.1 */
PROTRAIN_CHECKED protrain_error *protrain_session_set_input(protrain_session *session, const char *name, int32_t dtype,
                                                            const int64_t *dims, size_t dims_len, const void *data,
                                                            size_t data_len);

/* ---- Sessions: training ------------------------------------------------------------------------------------------ */

/* Trains on the present inputs: forward, backward, update of every trained parameter.
 * With the option accumulation = K, K calls make one step: each adds its gradients, the K-th updates. The gradient is
 * the one that all batches in one would have: each counts for its targets where the loss is a mean over those that are
 * not ignored, else all count alike. protrain_session_step_count tells complete steps.
 *   loss: the loss before the update; of the K-th call, the mean over the step's batches.
 * Random numbers (dropout) depend on the seed, the step and an element's place in its sample: not on the plan, and not
 * on how a step is cut into batches.
 * Errors: STATE if an input was never set; SHAPE if the inputs' shapes fit no one binding that is served; ARG if a
 *   value of an input is out of range (a token beyond the vocabulary); NONFINITE for a loss or gradient that is NaN or
 *   infinite, unless on_nonfinite is skip: then the step counts, changes nothing, and its loss or norm is what it is
 *   (so it is whatever on_nonfinite says where fp16 scales its loss and a smaller scale may cure the gradients);
 *   CANCELLED; DEVICE; IO, NOSPC or CORRUPT where offload_dir failed.
 * On error: the call did not take place and may be repeated; the batches before it stand. But the text says so where
 *   the step begins anew with its first batch, or was taken in part: with on_nonfinite = stop a gradient that is not
 *   finite is noticed when some parameters have been updated; with rollback nothing has been. CANCELLED may come too
 *   late to stop the call, which then stands. A disk that fails amid updates loses the session: protrain_error_usable
 *   is 0 then.
 * Since: 0.1 */
PROTRAIN_CHECKED protrain_error *protrain_step(protrain_session *session, float *loss);

/* Computes the loss on the present inputs and changes nothing. Dropout drops nothing.
 *   loss: the loss of the present weights, as the next protrain_step would tell it for a model without dropout.
 * Errors: STATE, ARG, NONFINITE, CANCELLED, DEVICE, as protrain_step.
 * Since: 0.1 */
PROTRAIN_CHECKED protrain_error *protrain_eval(protrain_session *session, float *loss);

/* Tells the L2 norm of all trained parameters' gradients in the last complete step, before any clipping.
 * Errors: STATE before the first step.
 * Since: 0.1 */
PROTRAIN_CHECKED protrain_error *protrain_session_grad_norm(protrain_session *session, double *norm);

/* Tells how many steps were taken, those before the checkpoint that the session went on from included.
 * Errors: none of its own.
 * Since: 0.1 */
PROTRAIN_CHECKED protrain_error *protrain_session_step_count(protrain_session *session, uint64_t *count);

/* Sets the learning rate of all following steps. Costs nothing: call it before each step for a schedule.
 * Errors: ARG for a rate that is negative or not finite.
 * Since: 0.1 */
PROTRAIN_CHECKED protrain_error *protrain_session_set_learning_rate(protrain_session *session, double rate);

/* Asks the call that is inside the session, or else the next step or evaluation, to stop. A step in which no parameter
 * has been updated stops and changes nothing; any other runs to its end, and so does one that a GPU has been given
 * whole: it asks for nothing on its way. Either way the call returns PROTRAIN_ERROR_CANCELLED, once, and the session
 * stays usable. NULL is allowed. Cannot fail.
 * Threads: any, and signal handlers; not at the same time as protrain_session_destroy.
 * Since: 0.1 */
PROTRAIN_API void protrain_session_cancel(protrain_session *session);

/* ---- Sessions: parameters ---------------------------------------------------------------------------------------- */

/* Tells how many parameters (tensors) the model has, frozen ones included.
 * Errors: none of its own.
 * Since: 0.1 */
PROTRAIN_CHECKED protrain_error *protrain_session_parameter_count(protrain_session *session, size_t *count);

/* Tells the name of a parameter: that of its initializer in the file.
 *   index: below protrain_session_parameter_count.
 *   name:  lent until the next call on the session.
 * Errors: ARG for an index that is too large.
 * Since: 0.1 */
PROTRAIN_CHECKED protrain_error *protrain_session_parameter_name(protrain_session *session, size_t index,
                                                                 const char **name);

/* Tells the shape of a parameter, as the file has it; arguments as protrain_session_input_shape.
 * Errors: ARG for an index that is too large.
 * Since: 0.1 */
PROTRAIN_CHECKED protrain_error *protrain_session_parameter_shape(protrain_session *session, size_t index,
                                                                  int64_t *dims, size_t dims_len, size_t *rank);

/* Tells the number of elements of a parameter: the product of its shape.
 * Errors: ARG for an index that is too large.
 * Since: 0.1 */
PROTRAIN_CHECKED protrain_error *protrain_session_parameter_elements(protrain_session *session, size_t index,
                                                                     size_t *elements);

/* Reads a parameter as float32, in row-major order of the shape that the file has.
 *   values, values_len: where it goes; values_len must be the number of elements.
 * Errors: ARG for a name that is no parameter; SHAPE for another length, with the one expected.
 * Since: 0.1 */
PROTRAIN_CHECKED protrain_error *protrain_session_parameter_read(protrain_session *session, const char *name,
                                                                 float *values, size_t values_len);

/* Overwrites a parameter. The optimizer's state stays as it is.
 *   values, values_len: as protrain_session_parameter_read has them; any value is taken, NaN too.
 * Errors: ARG for a name that is no parameter; SHAPE for another length, with the one expected.
 *   IO, NOSPC where offload_dir failed: the session is lost then.
 * Since: 0.1 */
PROTRAIN_CHECKED protrain_error *protrain_session_parameter_write(protrain_session *session, const char *name,
                                                                  const float *values, size_t values_len);

/* Tells the number of elements of all parameters together, frozen ones included: the length of the one flat buffer that
 * holds them one after the other, in the order of protrain_session_parameter_name, each as
 * protrain_session_parameter_read gives it. The order is that of first use in the graph: the same for every session of
 * one model with the same options trainable and frozen, whatever its plan.
 * Errors: none of its own.
 * Since: 0.1 */
PROTRAIN_CHECKED protrain_error *protrain_session_flat_parameters_elements(protrain_session *session, size_t *elements);

/* Reads all parameters into one flat buffer: to average those of several sessions, for example.
 *   values, values_len: where they go; values_len must be protrain_session_flat_parameters_elements.
 * Errors: SHAPE for another length, with the one expected; IO, CORRUPT where offload_dir failed.
 * Since: 0.1 */
PROTRAIN_CHECKED protrain_error *protrain_session_flat_parameters_read(protrain_session *session, float *values,
                                                                       size_t values_len);

/* Overwrites all parameters from one flat buffer. The optimizer's state stays as it is.
 *   values, values_len: as protrain_session_flat_parameters_read has them; any value is taken, NaN too.
 * Errors: SHAPE for another length, with the one expected.
 *   IO, NOSPC where offload_dir failed: the session is lost then, since some parameters may be new and others not.
 * Since: 0.1 */
PROTRAIN_CHECKED protrain_error *protrain_session_flat_parameters_write(protrain_session *session, const float *values,
                                                                        size_t values_len);

/* Reads the gradient that a parameter had in the last step. Gradients pass through memory that is used again at once:
 * only those that the option keep_gradients names are kept.
 *   values, values_len: as protrain_session_parameter_read.
 * Errors: ARG for a name that is no parameter, or whose gradient is not kept; SHAPE for another length; STATE before
 *   the first step, between the batches of a step, and after a call that failed since.
 * Since: 0.1 */
PROTRAIN_CHECKED protrain_error *protrain_session_grad_read(protrain_session *session, const char *name, float *values,
                                                            size_t values_len);

/* Writes the model with its present weights: the graph of the original file, untouched, with new values in its
 * initializers. The file at `path` is replaced only once the new one is complete.
 * Errors: IO, NOSPC, PATH; LIMIT for what the format cannot hold in one file.
 * Since: 0.1 */
PROTRAIN_CHECKED protrain_error *protrain_session_export(protrain_session *session, const char *path);

/* Saves a checkpoint: weights, the optimizer's state, the step, the seed, in fp16 the loss scale. A session that the
 * option resume makes from it goes on bit for bit as this one would, under any plan. Inputs, learning rate and all
 * other options are for the caller to give again; a batch may have another size.
 *   directory: made if only its last component is missing. The checkpoint becomes a folder in it, step-0000000010 after
 *              ten steps, of two .safetensors files and a manifest with checksums; one of the same step is replaced.
 * What is there when this call returns survives a kill or a power failure at any instant, and so do all earlier
 * checkpoints. None is ever removed: that is for the caller.
 * Errors: STATE between the batches of one step (option accumulation); IO, NOSPC, PATH; BUSY also while another session
 *   is saving into the directory; UNSUPPORTED for a parameter named __metadata__, LIMIT for names beyond 100 MB, which
 *   the format cannot hold.
 * On error: all checkpoints are as they were, and the session goes on.
 * Since: 0.1 */
PROTRAIN_CHECKED protrain_error *protrain_session_save(protrain_session *session, const char *directory);

/* ---- Sessions: what was chosen, what is done, what happened ------------------------------------------------------ */

/* Tells the plan: where each chunk of parameters rests, what each block does with its activations. A file of it is what
 * the option plan takes.
 *   json: lent until the next call on the session.
 * Errors: none of its own.
 * Since: 0.1 */
PROTRAIN_CHECKED protrain_error *protrain_session_plan(protrain_session *session, const char **json);

/* Tells the program: every instruction of a step, one a line, with its queue, what it waits for, its bytes and offsets.
 *   text: lent until the next call on the session.
 * Errors: none of its own.
 * Since: 0.1 */
PROTRAIN_CHECKED protrain_error *protrain_session_program(protrain_session *session, const char **text);

/* Tells the training graph: every node of forward and backward, one a line, after all fusion.
 *   text: lent until the next call on the session.
 * Errors: none of its own.
 * Since: 0.1 */
PROTRAIN_CHECKED protrain_error *protrain_session_graph(protrain_session *session, const char **text);

/* Tells what a step did with its time and its memory. Times are in seconds, memory in bytes. A JSON object:
 *   "seconds"              of the whole last step; all else is of the last of a step's batches
 *   "device_peak_bytes", "host_peak_bytes", "disk_bytes"    the most that the step touches of each
 *   "state_bytes"          what of device, host and disk holds from step to step
 *   "instructions"         how many there are
 *   "replayed"             whether a GPU did them from what it had recorded of an earlier step, all at one word
 *   "not_recorded"         why the GPU refused to record the step; "" where it did not
 *   "timed_step"           the step that "measured", "operators", "timeline" and "queues" are of. To a CPU the last
 * one. To a GPU being asked for the time of each instruction costs time, so it is in a few steps only: of those with
 * the same shapes the 1st, 2nd, 4th, 8th, 16th, 32nd and every 64th, and the one after each call of this function
 *   "memory"               where device and host have memory of their own, else all 0: "device_free_before_bytes" and
 *                          "device_free_bytes", of the device, when the session opened it and now; "pinned_bytes" and
 *                          "unpinned_bytes", of the host's, what copies reach at full speed and what the system refused
 *   "measured", "predicted"    what it cost, and, where the session predicted it, what it was expected to:
 *       "seconds", "device_peak_bytes", "host_peak_bytes", "disk_bytes"
 *       "overlap"          of the time in which copies, disk or optimizer beside compute were at work, the share (0
 *                          to 1) in which compute was too; 0 if they never were
 *       "busy_seconds"     by queue: "compute", "upload", "download", "host", "disk", "comm"
 *       "stall_seconds"    in which compute stood still, by cause; with compute's busy seconds they are all:
 *                          waiting for "update" (optimizer), "fetch" (host to device), "offload" (device to host),
 *                          "swap_out", "swap_in" (activations), "read", "write" (disk); "inline": other queues' work
 *                          ran in compute's place; "start", "end": before its first instruction and after its last;
 *                          "issue": none of these
 *   "operators"            by name: "seconds" and "launches"
 *   "timeline"             who holds memory when: "owners", a list of names; for "device", "host" and "disk" rows of
 *                          [seconds, bytes of each owner...], each valid until the next; at most 400, with the peak
 *   "queues"               by queue: [start, end] of each time in which it was busy; short gaps are left out
 *   json: lent until the next call on the session.
 * Errors: none of its own. Before the first step all times are 0.
 * Since: 0.1 */
PROTRAIN_CHECKED protrain_error *protrain_session_report(protrain_session *session, const char **json);

#ifdef __cplusplus
}
#endif

#endif /* PROTRAIN_H */
