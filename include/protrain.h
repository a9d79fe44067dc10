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
 *   An ONNX file whose graph ends in a scalar float32 loss. If the graph ends in something else, the options loss,
 *   loss_from, loss_output, loss_labels and loss_shift add a loss. The labels are then the session's last input, unless
 *   the model already has an input of that name. The option also_loss adds further losses. You prepare nothing else:
 *   when the session is created, it builds the gradient graph and gives everything in a step its place in memory. A
 *   step plans, parses and allocates nothing.
 *
 * Errors
 *   Every call that can fail returns a protrain_error. NULL is success; anything else is yours to destroy. An error has
 *   a code, one sentence, the node, tensor, file or option it is about, and says whether the object is still usable.
 *   Unless a function says otherwise, a failed call has changed nothing and left its output arguments untouched.
 *   Every pointer argument must be non-NULL unless its function says otherwise; NULL gives PROTRAIN_ERROR_ARG.
 *   Any call may also fail with PROTRAIN_ERROR_NOMEM or PROTRAIN_ERROR_INTERNAL; this is not repeated below.
 *   The library never aborts, exits, prints, or touches signal handlers. It reads XDG_CACHE_HOME and HOME from the
 *   environment if the option profile_dir is not set. Unless the option comm is none, creating a session reads what a
 *   launcher of ranks sets: OMPI_COMM_WORLD_RANK, OMPI_COMM_WORLD_SIZE, PMIX_RANK, PMI_RANK, PMI_SIZE, SLURM_STEP_ID,
 *   SLURM_PROCID and SLURM_NTASKS. Ranks that meet over Gloo read GLOO_SOCKET_IFNAME too. The libraries it links or
 *   loads read their own (ONEDNN_*, OMP_*, CUDA_*, NCCL_*, those of MPI).
 *
 * Ownership
 *   You destroy what a create function returns. What you pass in is copied before the call returns. A returned
 *   `const char *` is lent until the next call on the same object. Destroy functions accept NULL.
 *
 * Threads
 *   One thread at a time uses an object. Objects may move between threads, and different sessions may be used at the
 *   same time. (Sessions that adapt one frozen base share its memory, which nothing writes.) Any thread or signal
 *   handler may call protrain_session_cancel. A second thread inside a session gets PROTRAIN_ERROR_BUSY, and a forked
 *   process that uses its parent's session gets PROTRAIN_ERROR_FORKED; the session is unharmed. Both hold for every
 *   function that takes a session and returns an error, and are not repeated below.
 *   A thread that calls the library needs 256 KiB of stack. Its floating-point environment does not matter: a call
 *   computes in the usual one, which rounds to nearest, keeps small numbers and does not trap, and leaves it as it was.
 *   pthread_cancel takes effect at the first cancellation point after the call.
 *
 * Text
 *   All text is UTF-8 and ends in NUL. Foreign text in messages (names from a file) is escaped, so it is safe to print
 *   to a terminal. Numbers are read and written with a decimal point, whatever the locale.
 *
 * Numbers
 *   The same model, options, inputs and number of threads give the same loss, gradients and weights, bit for bit. The
 *   memory plan never changes a bit. Another number of threads may change bits, because sums are then cut elsewhere. So
 *   may another processor. On the same processor so may ONEDNN_MAX_CPU_ISA and ONEDNN_CPU_ISA_HINTS in the environment,
 *   because oneDNN then uses other instructions for matrix products. Keep all of these the same for runs that must
 *   agree, and for a run that resumes from a checkpoint.
 *
 * Memory
 *   You give a session bytes: the option memory, or device_memory and host_memory, and offload_dir for a disk. Without
 *   any of them it may take what the process may, less a reserve. The session chooses the plan that is predicted to be
 *   fastest among those that fit: what rests on the host or on disk, and what is recomputed instead of kept. It
 *   allocates everything when it is created. If nothing fits, protrain_session_create fails and names the smallest
 *   budget that works. The session's peak is known from the start; protrain_session_report repeats it after each step.
 *   With adamw and adam a trained parameter is kept three times (the weight and two moments), with adamw8bit one and a
 *   half times in fp32, with lion and adagrad twice. With sgd it is kept once, or twice with momentum. A moving average
 *   (ema) is one more. A frozen parameter is kept once.
 *   Predictions rest on measured times of this machine's kernels. A kernel is measured when a model first needs it, and
 *   its time is kept in profile_dir. docs/memory.md says how to read a plan and what to change in it.
 *
 * Ranks
 *   Several processes, called ranks, can train one model together on one machine or on several. Each creates a session
 *   with the same model and options. Under mpirun or srun they find each other by MPI, without any option; otherwise
 *   Gloo connects them by the options ranks, rank and rendezvous. With N ranks a step has N batches (with accumulation
 *   = K, N * K), and batch i is set on rank i mod N. Losses, norms and weights have the same bits as on one rank with
 *   accumulation = N * K and the same number of threads, and all ranks get the same; the option rank_sums can trade
 *   this for less traffic. An evaluation has N batches, and all ranks get their mean.
 *   Creating a session, protrain_step, protrain_eval, protrain_predict, protrain_session_save, protrain_session_export,
 *   protrain_session_export_adapters, protrain_session_use_adapters, and all that reads or writes parameters, adapters
 *   or gradients are collective: every rank must make these calls, in the same order. They wait for the other ranks.
 *   All other calls are a rank's own. A collective call can fail in these ways:
 *   - A rank that cannot begin its call (a shape, a name, a token beyond the vocabulary) gets its error, the others get
 *     PROTRAIN_ERROR_PEER, and nothing has changed. A call refused for NULL, BUSY or FORKED was not made at all: the
 *     other ranks still wait.
 *   - Ranks that make different calls get PROTRAIN_ERROR_STATE. Ranks whose step, learning rate, shapes or parameter
 *     differ get PROTRAIN_ERROR_MISMATCH. Nothing has changed.
 *   - After a cancel on one rank its next step, evaluation or prediction gives PROTRAIN_ERROR_CANCELLED on all. One
 *     that has begun runs to its end.
 *   - If a rank fails within a call, dies or is not reached, its session is lost, and the others' with it: they get
 *     PROTRAIN_ERROR_PEER with its reason, or PROTRAIN_ERROR_TIMEOUT after comm_timeout seconds. Destroy the sessions
 *     and go on from a checkpoint, with any number of ranks.
 *   Only rank 0 writes exports. Each rank writes its part of a checkpoint if all see the same directory; else rank 0
 *   writes it. Every rank reads the model and the checkpoint that it resumes from.
 *   docs/ranks.md shows how ranks are started.
 *
 * Arrays
 *   An array is always (pointer, length). The length counts elements; for the untyped `data` of an input it counts
 *   bytes.
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

/* The options of a session: pairs of text, each checked when it is set. Cheap to create. One object may serve any
 * number of sessions. */
typedef struct protrain_options protrain_options;

/* A model in training: its weights, its optimizer state, and the memory and threads that a step needs. It belongs to
 * the process that created it. */
typedef struct protrain_session protrain_session;

/* The reason why a call failed. Immutable; any thread may read it. */
typedef struct protrain_error protrain_error;

/* The kind of failure, for programs; protrain_error_text describes it for people. A number never changes its
 * meaning. */
typedef enum protrain_code {
  PROTRAIN_OK = 0,
  PROTRAIN_ERROR_ARG = 1,          /* an argument or option is wrong */
  PROTRAIN_ERROR_STATE = 2,        /* the call does not fit the present state of the object */
  PROTRAIN_ERROR_BUSY = 3,         /* another thread is inside the object */
  PROTRAIN_ERROR_FORKED = 4,       /* the object belongs to the parent process */
  PROTRAIN_ERROR_VERSION = 5,      /* a file has an unknown version */
  PROTRAIN_ERROR_PATH = 6,         /* a path that may not be followed */
  PROTRAIN_ERROR_IO = 7,           /* the system refused a file operation */
  PROTRAIN_ERROR_NOSPC = 8,        /* no space is left for a file */
  PROTRAIN_ERROR_FORMAT = 9,       /* the bytes of a file are malformed */
  PROTRAIN_ERROR_LIMIT = 10,       /* something exceeds a stated limit */
  PROTRAIN_ERROR_SHAPE = 11,       /* shapes or lengths do not fit together */
  PROTRAIN_ERROR_TYPE = 12,        /* element types do not fit together */
  PROTRAIN_ERROR_GRAPH = 13,       /* the graph is not legal, or has no loss */
  PROTRAIN_ERROR_UNSUPPORTED = 14, /* legal, but not supported by this library (yet) */
  PROTRAIN_ERROR_CORRUPT = 15,     /* a checksum does not match */
  PROTRAIN_ERROR_MISMATCH = 16,    /* two things do not belong together, such as a checkpoint and a model */
  PROTRAIN_ERROR_BUDGET = 17,      /* nothing fits the stated memory; the text says what would */
  PROTRAIN_ERROR_NOMEM = 18,       /* the system refused memory */
  PROTRAIN_ERROR_NONFINITE = 19,   /* NaN or infinity where numbers must be finite */
  PROTRAIN_ERROR_PEER = 20,        /* another rank failed */
  PROTRAIN_ERROR_TIMEOUT = 21,     /* another rank did not answer in time */
  PROTRAIN_ERROR_DEVICE = 22,      /* the device or its driver failed */
  PROTRAIN_ERROR_INTERNAL = 23,    /* a bug of this library; please report it */
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

/* Receives one event as a JSON object such as {"event":"step",...}: one line without a newline, lent during the call.
 * A step's event has step, loss, grad_norm, learning_rate and seconds, in fp16 loss_scale, and grad_norms of
 * protrain_session_report if they were read in this step; a number that is not finite is null. The function is called
 * only on a thread that is inside a call on the session. It must not call back into that session (it would get
 * PROTRAIN_ERROR_BUSY), except for protrain_session_cancel. It must neither longjmp nor end its thread. A C++
 * exception that leaves it is dropped. */
typedef void (*protrain_log_fn)(const char *json_line, void *user);

/* Returns the version of the running library, such as "0.1.0". Static text. Cannot fail.
 * Threads: any.
 * Since: 0.1 */
PROTRAIN_API const char *protrain_version(void);

/* ---- Errors ------------------------------------------------------------------------------------------------------ */

/* Returns the error's code. Returns PROTRAIN_OK for NULL, so a switch needs no special case.
 * Threads: any.
 * Since: 0.1 */
PROTRAIN_API protrain_code protrain_error_code(const protrain_error *error);

/* Returns one sentence: what was found, what was expected, what to do. It names the subject. Lent until the error is
 * destroyed; "" for NULL.
 * Threads: any.
 * Since: 0.1 */
PROTRAIN_API const char *protrain_error_text(const protrain_error *error);

/* Returns the node, tensor, file, argument or option that the error is about; "" if there is none, and for NULL.
 * Lent until the error is destroyed.
 * Threads: any.
 * Since: 0.1 */
PROTRAIN_API const char *protrain_error_subject(const protrain_error *error);

/* Returns 1 if the object of the failed call can still be used, 0 if you can only destroy it; 1 for NULL.
 * Threads: any.
 * Since: 0.1 */
PROTRAIN_API int protrain_error_usable(const protrain_error *error);

/* Destroys an error. NULL is allowed. The error for exhausted memory is static, so the library can always return it;
 * destroying it does nothing.
 * Since: 0.1 */
PROTRAIN_API void protrain_error_destroy(protrain_error *error);

/* ---- Options ----------------------------------------------------------------------------------------------------- */

/* Creates options in which everything has its default.
 *   options: where the new object goes.
 * Errors: ARG.
 * Since: 0.1 */
PROTRAIN_CHECKED protrain_error *protrain_options_create(protrain_options **options);

/* Destroys options. NULL is allowed. Sessions made from them live on.
 * Since: 0.1 */
PROTRAIN_API void protrain_options_destroy(protrain_options *options);

/* Sets one option. protrain_options_help lists all keys. The most used are:
 *   device          cpu, the default; or cuda:0, cuda:1, ... for a GPU, if CUDA's driver and the plugin are installed.
 *                   cuda gives each rank of a machine a GPU of its own; with one rank it is cuda:0
 *   threads         number of threads of the session's team; 0, the default: as many as the process may use. If there
 *                   are as many as processors, each runs on one of its own. The caller's threads are never bound
 *   precision       fp32, bf16 or fp16. In bf16 and fp16 a step's weights, activations and gradients are bfloat16 or
 *                   float16; master weights, moments and sums are float32. Parameters are read, written, saved and
 *                   exported as exact float32, except frozen ones, which are rounded and held so. With adamw a
 *                   parameter takes 12 bytes at rest; in fp16 it takes 14, and 2 more for its gradient. Only the cpu
 *                   computes in fp16. There the loss is scaled before it is differentiated, by 65536 at first. A step
 *                   whose gradients overflow changes nothing, but counts, with a norm that is not finite, and halves
 *                   the scale. Every 2000 steps without overflow double it. Gradients and norms are given without the
 *                   scale
 *   memory          one budget, where device and host share their memory: 12GiB, 800MB, or plain bytes. Without it,
 *                   what the process may take (of the machine, its control group and its limits), less a reserve of a
 *                   twentieth, at least 96 MiB. A budget of more than the process may take counts as that
 *   device_memory, host_memory   two separate budgets instead; data that moves between them is copied. If only one is
 *                   given, the other is what the first leaves
 *   offload_dir     a directory for the disk tier, which is a file without a name, gone with the session. Without it
 *                   nothing goes to disk
 *   disk_memory     how much of that disk may be taken; without it, nearly all that is free there. An error without
 *                   offload_dir or hardware
 *   plan            a file that says where parameters rest and what blocks do (docs/plan.md); without it, the fastest
 *                   plan that fits the budgets is chosen
 *   hardware        for protrain_model_plan: another machine, by name (rtx3090, a100-80gb, h100-80gb, h200) or as a
 *                   JSON file that protrain_model_profile made or a person wrote (docs/memory.md)
 *   profile_dir     where measured times are kept between sessions; else protrain/ in $XDG_CACHE_HOME or ~/.cache
 *   dim             NAME=N: binds a symbolic dimension of the model's inputs
 *   shapes          NAME=N,...: further bindings that the session serves over the same weights. A step or evaluation
 *                   uses the binding that fits the shapes of the present inputs
 *   constant        NAME=VALUE,...: binds an input to a value for all its elements, or to a list for its last axis or
 *                   for all elements. It is no input of the session any more. A condition of an If, such as
 *                   use_cache_branch, must be bound unless both branches give results of the same types and shapes
 *   past            none: inputs for keys and values of earlier tokens (past_key_values and the like) have length 0,
 *                   and are no inputs of the session
 *   packed          NAME: a window of tokens holds several documents. NAME is an int64 input (batch, sequence) of the
 *                   session, the model's or a new one, with the position of each token in its document, from 0.
 *                   Attention does not leave a document (docs/training.md)
 *   loss            cross_entropy, mse, l1, bce, ctc, kl, cosine, triplet, infonce, dpo or mean: the loss to add to a
 *                   graph that has none (docs/training.md). mean is for an output that holds losses
 *   also_loss       OUTPUT,loss=KIND,KEY=VALUE,...: a further loss, which is added times its factor. The keys are
 *                   factor, labels, from, axis, shift, weights, label_smoothing, z_loss, focal, temperature, margin,
 *                   blank, lengths, label_length and time_first. loss_factor is the factor of the first loss
 *   loss_from       what cross_entropy, ctc and bce receive: logits or probabilities. auto, the default, means logits;
 *                   if the graph shows that a Softmax or Sigmoid makes the output, its input is taken. Probabilities
 *                   are limited to 1e-7 and 1 - 1e-7; those of classes are divided by their sum, as in Keras
 *   loss_weights    NAME: a new float32 input with a factor for each label of cross_entropy, which is then a weighted
 *                   mean; 0 leaves a label out. loss_axis, class_weights, label_smoothing, z_loss and focal say more
 *                   about that loss (docs/training.md)
 *   loss_lengths    NAME: an int64 input of the number of times that each sample of ctc has in the output. loss_blank,
 *                   loss_label_length and loss_time_first say more about that loss (docs/training.md)
 *   optimizer       adamw, adam, sgd, adagrad or lion, with learning_rate, beta1, beta2, epsilon, weight_decay,
 *                   momentum, dampening, nesterov, rate_decay. Each but lion, which PyTorch lacks, computes what
 *                   PyTorch's optimizer of that name does. adamw8bit is adamw with moments of 8 bits, in blocks of 256
 *                   elements with scales of their own; a parameter then takes 6.03 bytes at rest. For adamw, adamw8bit
 *                   and adam, correction and decay_order say where other frameworks differ. If the model's file
 *                   describes an optimizer (training_info, or artifacts of onnxruntime-training), the session begins
 *                   with its settings, learning rate and state, and each option that you set replaces one setting.
 *                   The option optimizer replaces them all
 *   ema             decay of a moving average of the trained weights, such as 0.999, which every step takes in. It is
 *                   saved in checkpoints. With export_weights=ema an export has the averages as weights, and with
 *                   eval_weights=ema a session of mode=eval takes them from a checkpoint (docs/training.md)
 *   schedule        constant, the default, linear, cosine, step or inverse_sqrt: how the learning rate changes, with
 *                   warmup_steps, total_steps, final_learning_rate, step_interval and step_factor. It depends on the
 *                   number of steps taken, so a session that resumes goes on with it (docs/training.md)
 *   group           GLOB,KEY=VALUE,...: parameters with a learning_rate_scale or a weight_decay of their own. Of
 *                   several groups that match, the first holds
 *   no_decay        norms, biases or norms,biases: parameters that do not decay
 *   layer_decay     factor of the learning rate from each repeated layer to the one before it
 *   trainable       patterns with * and ? over initializers' names: these are trained, whatever the rules say
 *   frozen          patterns likewise: parameters that are not trained
 *   tie             NAME|NAME, patterns likewise: parameters that are trained as one, with the values of the first in
 *                   the file's order. They have the same shape, or are a matrix and its transpose. All are exported
 *   lora            GLOB[,rank=R][,alpha=A]: trains low-rank adapters of the parameters that match, and freezes all
 *                   other parameters but those that trainable names (docs/adapters.md). lora_rank and lora_alpha, 8
 *                   each, hold for patterns that give none. lora_dropout and lora_scaling hold for all
 *   adapter         a directory with an adapter of PEFT, or of protrain_session_export_adapters, to go on with, or an
 *                   .onnx_adapter file; instead of lora. adapter_names: a file of lines INITIALIZER MODULE, if the
 *                   model has lost the names
 *   batch_norm      train: every BatchNormalization takes the mean and variance of its batch, and each step updates the
 *                   running ones, as in PyTorch's train mode; frozen: it uses the running ones, which stay. Without
 *                   the option each one does what it was exported for (docs/files.md)
 *   keep_gradients  patterns likewise: parameters whose gradients protrain_session_grad_read can read
 *   keep_outputs    patterns likewise over the names of the graph's outputs: protrain_predict computes them, within the
 *                   memory budget. With loss = dpo there is one more, log_probabilities, of each sample
 *   accumulation    number of batches that make one step; or set tokens_per_step, from which the number follows
 *   clip_norm       largest global L2 norm of the gradients; above it all are scaled down
 *   clip_value      largest magnitude of one element of a gradient, applied after clip_norm
 *   on_nonfinite    what a step does if its loss or gradients are NaN or infinite: stop, skip or rollback; see
 *                   protrain_step
 *   ranks, rank, rendezvous   for several ranks that no launcher of MPI starts: their number, which one this is, and
 *                   where they meet. That is a directory that all see, new for each session, or HOST:PORT, where rank 0
 *                   listens
 *   rank_sums       ordered, the default: losses, norms and weights have the same bits on any number of ranks. local:
 *                   each rank adds the gradients of its own batches of a step before they are exchanged, once a step.
 *                   Bits then depend on the number of ranks, and each has sums of all gradients in device_memory
 *   comm_timeout    seconds after which a rank no longer waits for another; 300, the default
 *   resume          the checkpoint to resume from, as protrain_session_save left it, or a directory of them, of which
 *                   the newest is taken. A checkpoint holds the seed, but not the learning rate
 *   mode            train, or eval for a session that only computes losses and outputs (protrain_eval and
 *                   protrain_predict): it has no memory for gradients and optimizer state. With resume it takes the
 *                   weights of a checkpoint of any optimizer
 * A list (dim, shapes, constant, also_loss, group, no_decay, trainable, frozen, tie, lora, keep_gradients,
 * keep_outputs) gains one item with each call; any other option is replaced.
 * Errors: ARG for a key that does not exist (the text names the nearest), a value of another type or out of range.
 *   An unknown key is never ignored. Options of an optimizer that is not chosen, such as beta1 with sgd, have no
 *   effect.
 * Since: 0.1 */
PROTRAIN_CHECKED protrain_error *protrain_options_set(protrain_options *options, const char *key, const char *value);

/* Gets the value of an option: what was set, or the default.
 *   value: lent until the next call on the options; "" if nothing was set and there is no default. The items of a list
 *          are separated by newlines.
 * Errors: ARG for a key that does not exist.
 * Since: 0.1 */
PROTRAIN_CHECKED protrain_error *protrain_options_get(protrain_options *options, const char *key, const char **value);

/* Lists all options as a JSON array of {"key", "type", "default", "range", "sentence"}.
 *   json: lent until the next call on the options.
 * Errors: ARG.
 * Since: 0.1 */
PROTRAIN_CHECKED protrain_error *protrain_options_help(protrain_options *options, const char **json);

/* Sets the function that receives progress of long calls with these options: {"event":"profiling","done":3,"of":41}
 * before the fourth of 41 measurements. protrain_session_create and protrain_model_plan measure each kernel of the
 * model that no earlier call has measured on this machine; protrain_model_profile measures all of them. That takes
 * seconds.
 *   log:  the function to call, on the thread that is inside the call, or NULL for none. It must not use the options.
 *   user: passed to it unchanged; may be NULL.
 * Errors: ARG.
 * Since: 0.1 */
PROTRAIN_CHECKED protrain_error *protrain_options_set_log(protrain_options *options, protrain_log_fn log, void *user);

/* ---- Models: what training them would take ----------------------------------------------------------------------- */

/* Says whether a model can be trained, without training it. It reports everything that is missing at once, and what it
 * found in the model. It reads no weights. A symbolic dimension that no `dim` option binds gets the size that fits the
 * shapes in the model; if there is not exactly one, it gets a small default, 224 for images and 0 for a past.
 *   json: one object, lent until the next call on the options:
 *     "model"       what was asked for
 *     "files"       array of paths: the files that the model is read from, with those of external data, which may be
 *                   missing, and those of artifacts. Empty if "problems" says that the file cannot be read
 *     "trainable"   true or false; with mode=eval, whether it can be evaluated
 *     "problems"    array of {"code", "subject", "text", "nodes"}; empty if trainable. A missing operator has one
 *                   entry, with the names of all its nodes. "nodes" is empty for problems of any other kind
 *     "unseen_nodes"   number of nodes that read results of those in "problems", so nothing is known about them
 *     "inputs"      array of {"name", "dtype", "dims"}. A dimension is a number, or a name if it is symbolic. For
 *                   labels that an added loss reads, a dimension or all of "dims" is null if it follows from others
 *     "replaced_floats"   array of types of floats in the file: float64, which is computed in float32, and float16 and
 *                   bfloat16, which are computed in the session's precision
 *     "dims"        object: symbolic dimension -> {"value", "default", "inferred", "reason"}. "default": no option
 *                   binds it; "inferred": a shape in the model asks for this value; "reason": which shape, or what is
 *                   known
 *     "batch"       {"input", "dim", "samples", "tokens_per_sample"} under these dims. "input" is the input whose first
 *                   axis counts samples: the first of integers, else the first with an axis. "dim" is its symbolic
 *                   dimension, or "". "tokens_per_sample" is 0 if no input holds integers
 *     "operators"   object: operator -> number of nodes, after fusion
 *     "parameters"  array of {"name", "shape", "dtype", "frozen", "reason", "evidence"}. "dtype" is the element type at
 *                   rest. The evidence is option, list, training_info, exporter, name or rules, as docs/parameters.md
 *                   explains
 *     "states"      array of {"name", "shape", "reason", "evidence"}: parameters that each step's forward changes,
 *                   neither trained nor frozen: running statistics of BatchNormalization
 *     "constants"   array of {"name", "reason", "evidence"}: float initializers that are not parameters
 *     "doubtful"    array of {"name", "verdict", "doubt", "settled_by"}. The verdict is trained, frozen or constant;
 *                   the doubt is why it may be wrong. "settled_by" is "option" (trainable or frozen), or "export" for a
 *                   Constant, which no option can make a parameter: export the file again, with initializers
 *     "unmatched"   array of names that a list or the exporter calls parameters, and that no initializer has
 *     "training"    null, or what the file says about its training: {"source", "loss", "options", "steps"}. "options"
 *                   are the optimizer's settings, which hold where no option is set; "steps" are those it has made
 *     "parameter_elements", "trained_elements"   number of elements of all parameters, and of the trained ones
 *     "adapters"    array of {"parameter", "module", "rank", "scale", "places"}, for the option lora. "module" is the
 *                   framework's module that has the parameter; "places" is the number of nodes that read it
 *     "blocks"      number of repeated layers found
 *     "loss"        name of the loss, or null
 *     "loss_is_cross_entropy"   true if the loss is the mean cross entropy of labels, with no weights and no further
 *                   terms, so that exp(loss) is the perplexity
 *     "loss_from"   for an added loss, what it is computed from: "the logits before Softmax at /softmax". For several
 *                   losses, "start: logits; end: logits"
 *     "alarms"      array of {"code", "subject", "text"}: what would make a run fail without an error, as far as it
 *                   shows before the first step; docs/training.md lists the codes
 *     "device"      "name" and "description"
 *   All keys are always there. The value is empty, 0 or null for what is not known.
 * Errors: IO, PATH, FORMAT, LIMIT, VERSION, GRAPH for a file that is no model at all; ARG for options that cannot be.
 *   Missing operators and gradients are no errors of this call; "problems" lists them.
 * Since: 0.1 */
PROTRAIN_CHECKED protrain_error *protrain_model_check(protrain_options *options, const char *model_path,
                                                      const char **json);

/* Writes a model with an adapter merged into its weights, without training it.
 *   options:           those that say how to read the model, such as dim, past, adapter_names, tie, export_precision.
 *                      Symbolic dimensions that they do not bind get sizes as in protrain_model_check.
 *   adapter_directory: as for the option adapter.
 *   path:              the new model, as protrain_session_export writes it.
 * Errors: those of protrain_session_create about the model and the options lora and adapter, and those of
 *   protrain_session_export.
 * Since: 0.1 */
PROTRAIN_CHECKED protrain_error *protrain_model_merge(const protrain_options *options, const char *model_path,
                                                      const char *adapter_directory, const char *path);

/* Says how a model would train, without training it: the plan that would be chosen, what a step would take and hold,
 * and why. It plans for the machine that the option `hardware` names, or else for this one, which it measures. It reads
 * no weights, and allocates only what measuring one kernel needs.
 *   json: one object, lent until the next call on the options. Times are in seconds, memory in bytes:
 *     "model", "hardware", "precision"    what was asked for
 *     "feasible"           false if nothing fits; the rest then describes the smallest plan
 *     "n_chunk", "n_persist", "n_whole", "n_buffer", "n_host", "n_device_update", "n_deferred", "n_block", "n_swap",
 *     "n_checkpoint", "n_selective", "slack", "chunk_bytes", "optimizer_order"    the choice, as docs/plan.md explains
 *                          it. chunk_bytes is null for a plan that was read from a file
 *     "step_seconds", "samples_per_second", "device_peak_bytes", "host_peak_bytes", "disk_bytes"
 *     "tokens_per_second"  0 for a model without tokens
 *     "accumulation"       batches of a step. step_seconds is the time of all of them; "predicted", "timeline" and
 *                          "queues" describe the last one
 *     "micro_batch"        only if the library chose the batch (tokens_per_step): its samples
 *     "predicted"          overlap, busy seconds by queue, stalls by cause, as in protrain_session_report
 *     "budget"             bytes of each memory that the plan was chosen for
 *     "search_seconds", "points_ranked", "points_laid_out"
 *     "next", "resident"   only where a plan was searched for: the next best one, if there is one, and the one that
 *                          keeps everything in memory, with what they take
 *     "would_fit"          if nothing fits: array of {"options": {KEY: VALUE...}, "text"}, each a change that would fit
 *     "explanation"        array of sentences
 *     "timeline", "queues", "traceEvents"    memory by owner, and what each queue does, over a step, as in
 *                          protrain_session_report
 *     "plan"               the plan in full. Written to a file, it is what the option `plan` takes
 * Errors: as protrain_session_create, except that a budget that is too small is no error: the answer reports it. ARG,
 *   FORMAT for a file that does not describe hardware.
 * Since: 0.1 */
PROTRAIN_CHECKED protrain_error *protrain_model_plan(protrain_options *options, const char *model_path,
                                                     const char **json);

/* Measures this machine: the kernels that a model needs, its optimizer, its copies and, if the option offload_dir names
 * one, its disk. Earlier measurements are made again, and the new ones are kept.
 *   json: a description of the machine, lent until the next call on the options. Written to a file, it is what the
 *     option `hardware` takes, on any machine.
 * Errors: as protrain_model_plan; ARG if the option hardware is set, because only this machine can be measured.
 * Since: 0.1 */
PROTRAIN_CHECKED protrain_error *protrain_model_profile(protrain_options *options, const char *model_path,
                                                        const char **json);

/* ---- Sessions: life ---------------------------------------------------------------------------------------------- */

/* Reads a model and makes it ready to train. It builds the gradient graph, measures the kernels that this machine has
 * not measured before, chooses a plan, lays out and allocates all memory, reads the weights, and starts the threads. A
 * step does none of this.
 *   model_path: an ONNX file, or a folder of onnxruntime-training's artifacts (docs/from-onnxruntime.md). Weights in
 *               files beside it are read as well. Afterwards only protrain_session_export needs these files.
 *   session:    where the new object goes; NULL is stored there on failure.
 * Errors: IO, PATH, FORMAT, LIMIT, VERSION for files; GRAPH, SHAPE, TYPE for graphs that are not legal, have no loss,
 *   or do not fit the bound dimensions; UNSUPPORTED lists every operator and every gradient that is missing, with the
 *   nodes' names; ARG for options that do not fit the model; BUDGET if no plan fits: the text names the smallest
 *   budget that works and other changes that would fit; NOMEM.
 *   With the option resume: IO if nothing is at its path, FORMAT if there is no checkpoint or it is malformed, CORRUPT
 *   if a byte of it was damaged or a file is missing, VERSION for a checkpoint of a later library, PATH for links,
 *   MISMATCH if parameters, optimizer or seed differ. A damaged checkpoint is never skipped: the text names the one
 *   before it.
 * On error: nothing is left behind, and the options are unchanged.
 * Threads: only reads the options, so several threads may create sessions from the same ones.
 * Since: 0.1 */
PROTRAIN_CHECKED protrain_error *protrain_session_create(const protrain_options *options, const char *model_path,
                                                         protrain_session **session);

/* As protrain_session_create, but from a model in memory: the bytes of an ONNX file. The session keeps a copy of the
 * bytes as long as it lives, because an export copies from them everything that was not trained. This copy comes on top
 * of the budget.
 *   bytes, bytes_len: the model and its size in bytes, at most 2 GiB.
 *   base_directory:   where its external data lie. Nothing outside is opened, whatever the model says and wherever
 *                     links lead. NULL or "" for a model without external data.
 * Errors: as protrain_session_create; PATH for external data without a base_directory, or outside of it.
 * Since: 0.1 */
PROTRAIN_CHECKED protrain_error *protrain_session_create_from_bytes(const protrain_options *options, const void *bytes,
                                                                    size_t bytes_len, const char *base_directory,
                                                                    protrain_session **session);

/* Destroys a session, its threads and all its memory. NULL is allowed. No other call may be inside the session.
 * In a forked process it does nothing, because the session is the parent's.
 * Since: 0.1 */
PROTRAIN_API void protrain_session_destroy(protrain_session *session);

/* Sets the function that receives the session's log: one JSON line about its creation (delivered by the first such
 * call), one per step, one per checkpoint, with its path, and one per alarm,
 * {"event":"alarm","step","code","subject","text"}: something that makes a run fail without an error, said once, as
 * docs/training.md explains. The line about the creation has, besides others:
 *   "memory"    as in protrain_session_report
 *   "alarms"    array of {"code", "subject", "text"}: those that are known before the first step
 *   "warnings"  array of sentences, mostly empty: what makes the session slower than it needs to be, and what to do
 *               about it. A warning that is found later has a line of its own, {"event":"warning","text":...}
 *   "doubtful"  an empty object, or {"count", "names", "unmatched", "text"} about initializers for which the session
 *               had to guess whether they are parameters
 *   log:  the function to call, or NULL for none.
 *   user: passed to it unchanged; may be NULL.
 * Errors: none of its own.
 * Since: 0.1 */
PROTRAIN_CHECKED protrain_error *protrain_session_set_log(protrain_session *session, protrain_log_fn log, void *user);

/* ---- Sessions: inputs -------------------------------------------------------------------------------------------- */

/* Gets the number of inputs of the model, without those that are bound to a value or have no elements. All of them must
 * be set before the first step.
 * Errors: none of its own.
 * Since: 0.1 */
PROTRAIN_CHECKED protrain_error *protrain_session_input_count(protrain_session *session, size_t *count);

/* Gets the name of an input, in the file's order.
 *   index: below protrain_session_input_count.
 *   name:  lent until the next call on the session.
 * Errors: ARG for an index that is too large.
 * Since: 0.1 */
PROTRAIN_CHECKED protrain_error *protrain_session_input_name(protrain_session *session, size_t index,
                                                             const char **name);

/* Gets the element type of an input, one of PROTRAIN_FLOAT32 and its like.
 * Errors: ARG for an index that is too large.
 * Since: 0.1 */
PROTRAIN_CHECKED protrain_error *protrain_session_input_dtype(protrain_session *session, size_t index, int32_t *dtype);

/* Gets the shape of an input, with all dimensions bound.
 *   dims, dims_len: where the first dims_len dimensions go. dims may be NULL if dims_len is 0.
 *   rank:           the number of dimensions, whatever dims_len is.
 * Errors: ARG for an index that is too large.
 * Since: 0.1 */
PROTRAIN_CHECKED protrain_error *protrain_session_input_shape(protrain_session *session, size_t index, int64_t *dims,
                                                              size_t dims_len, size_t *rank);

/* Copies the values of one input. Every following step and evaluation uses them, until they are set again.
 *   dtype:          one of PROTRAIN_FLOAT32 and its like. It must be the model's own type, or float32 where that is
 *                   another type of floats.
 *   dims, dims_len: the shape of `data`, one of those that the session serves. dims may be NULL if dims_len is 0.
 *   data, data_len: the elements in row-major order, and their size in bytes; any alignment. data may be NULL if
 *                   data_len is 0.
 * Errors: ARG for a name that is no input (the text lists the inputs) or a dtype that does not exist; TYPE for a dtype
 *   that is neither of the two above; SHAPE for a shape that the session does not serve (the text lists those that it
 *   does), or a data_len that does not fit the shape.
 * Since: 0.1 */
PROTRAIN_CHECKED protrain_error *protrain_session_set_input(protrain_session *session, const char *name, int32_t dtype,
                                                            const int64_t *dims, size_t dims_len, const void *data,
                                                            size_t data_len);

/* ---- Sessions: training ------------------------------------------------------------------------------------------ */

/* Trains on the present inputs: forward, backward, update of every trained parameter.
 * With the option accumulation = K, K calls make one step: each adds its gradients, and the K-th updates. The gradient
 * is the one that a single batch of all samples would have. If the loss is a mean over targets that are not ignored,
 * each batch counts by its number of such targets; otherwise all batches count alike. protrain_session_step_count
 * counts complete steps.
 *   loss: the loss before the update; in the K-th call, the mean over the step's batches.
 * Running statistics take up each call's batch in turn, and change with the update: a step that fails, is skipped or is
 * cancelled leaves them as they were.
 * Random numbers (dropout) depend on the seed, the step and an element's place in its sample. They do not depend on the
 * plan, or on how a step is cut into batches. A tensor whose first axis has no samples has other numbers in each batch.
 * Errors: STATE if an input was never set, and with mode=eval; SHAPE if the inputs' shapes fit no single binding that
 *   is served; ARG if a value of an input is out of range (a token beyond the vocabulary); NONFINITE for a loss or
 *   gradient that is NaN or infinite; CANCELLED; DEVICE; IO, NOSPC or CORRUPT if offload_dir failed.
 *   With on_nonfinite = skip there is no NONFINITE: the step counts, changes nothing, and gives its loss and norm as
 *   they are. In fp16 this holds for every on_nonfinite as long as a smaller loss scale may cure the gradients.
 * On error: the call did not take place and may be repeated, and earlier batches of the step stand. There are four
 *   exceptions, and the text says which one holds:
 *   - The step begins again with its first batch.
 *   - The step was taken in part: with on_nonfinite = stop, a gradient that is not finite is noticed after some
 *     parameters were updated. With rollback nothing has been updated.
 *   - CANCELLED came too late to stop the call, which then stands.
 *   - A disk failed amid updates, or in writing a sum of gradients: the session is lost, and protrain_error_usable is
 *     0.
 * Since: 0.1 */
PROTRAIN_CHECKED protrain_error *protrain_step(protrain_session *session, float *loss);

/* Computes the loss on the present inputs and changes nothing. Dropout drops nothing, and BatchNormalization uses its
 * running statistics. A session that needs only this call and protrain_predict takes the least memory with the option
 * mode=eval.
 *   loss: the loss of the present weights; for a model without either the next protrain_step would give the same. With
 *         several ranks it is the mean over their batches, each weighted as in a step: by its targets that count.
 * Errors: STATE, ARG, NONFINITE, CANCELLED, DEVICE, as protrain_step. NONFINITE has the subject "targets" if no target
 *   of the batch counts, so that there is no mean.
 * Since: 0.1 */
PROTRAIN_CHECKED protrain_error *protrain_eval(protrain_session *session, float *loss);

/* Computes the outputs that the option keep_outputs names, on the present inputs, and changes nothing. Dropout and
 * BatchNormalization do what they do in protrain_eval. Only inputs that these outputs depend on must be set: outputs
 * before the loss need no labels. The outputs can be read until the next step, evaluation or prediction.
 * With several ranks each rank computes the outputs of its own inputs.
 * Errors: STATE without keep_outputs, and for an input that was never set; SHAPE, ARG, CANCELLED, DEVICE, IO, CORRUPT
 *   as protrain_step. Outputs may hold NaN and infinity.
 * Since: 0.1 */
PROTRAIN_CHECKED protrain_error *protrain_predict(protrain_session *session);

/* Gets the number of outputs that the option keep_outputs names.
 * Errors: none of its own.
 * Since: 0.1 */
PROTRAIN_CHECKED protrain_error *protrain_session_output_count(protrain_session *session, size_t *count);

/* Gets the name of a kept output, in the file's order.
 *   index: below protrain_session_output_count.
 *   name:  lent until the next call on the session.
 * Errors: ARG for an index that is too large.
 * Since: 0.1 */
PROTRAIN_CHECKED protrain_error *protrain_session_output_name(protrain_session *session, size_t index,
                                                              const char **name);

/* Gets the element type of a kept output, one of PROTRAIN_FLOAT32 and its like: that of the file, whatever the option
 * precision is.
 * Errors: ARG for an index that is too large.
 * Since: 0.1 */
PROTRAIN_CHECKED protrain_error *protrain_session_output_dtype(protrain_session *session, size_t index, int32_t *dtype);

/* Gets the shape of a kept output in the last prediction, or before the first one under the session's first binding of
 * dimensions; arguments as in protrain_session_input_shape.
 * Errors: ARG for an index that is too large.
 * Since: 0.1 */
PROTRAIN_CHECKED protrain_error *protrain_session_output_shape(protrain_session *session, size_t index, int64_t *dims,
                                                               size_t dims_len, size_t *rank);

/* Reads an output of the last prediction, in row-major order.
 *   dtype:          the type of protrain_session_output_dtype, or float32 where that is another type of floats.
 *   data, data_len: where it goes, and its size in bytes; any alignment. data may be NULL if data_len is 0.
 * Errors: ARG for an output that is not kept, or a dtype that does not exist; STATE if there is no prediction, or a
 *   later step or evaluation has reused its memory; TYPE for another dtype; SHAPE for another data_len, with the one
 *   expected.
 * Since: 0.1 */
PROTRAIN_CHECKED protrain_error *protrain_session_output_read(protrain_session *session, const char *name,
                                                              int32_t dtype, void *data, size_t data_len);

/* Gets the L2 norm of all trained parameters' gradients in the last complete step, before any clipping.
 * Errors: STATE before the first step.
 * Since: 0.1 */
PROTRAIN_CHECKED protrain_error *protrain_session_grad_norm(protrain_session *session, double *norm);

/* Gets the number of steps taken, including those before the checkpoint that the session resumed from.
 * Errors: none of its own.
 * Since: 0.1 */
PROTRAIN_CHECKED protrain_error *protrain_session_step_count(protrain_session *session, uint64_t *count);

/* Gets the number of this rank among those that train together: 0 for the first, and for a session alone.
 * Errors: none of its own.
 * Since: 0.1 */
PROTRAIN_CHECKED protrain_error *protrain_session_rank(protrain_session *session, uint64_t *rank);

/* Gets the number of ranks that train together: 1 for a session alone.
 * Errors: none of its own.
 * Since: 0.1 */
PROTRAIN_CHECKED protrain_error *protrain_session_rank_count(protrain_session *session, uint64_t *count);

/* Gets the learning rate of the next step: that of the options or of protrain_session_set_learning_rate, as the option
 * schedule has it at this step. Parameters of a group have it times their learning_rate_scale.
 * Errors: none of its own.
 * Since: 0.1 */
PROTRAIN_CHECKED protrain_error *protrain_session_learning_rate(protrain_session *session, double *rate);

/* Sets the learning rate of all following steps, in place of the option learning_rate. The option schedule still
 * applies to it. It costs nothing: for a schedule of your own, call it before each step. A checkpoint does not hold the
 * rate.
 * Errors: ARG for a rate that is negative or not finite.
 * Since: 0.1 */
PROTRAIN_CHECKED protrain_error *protrain_session_set_learning_rate(protrain_session *session, double rate);

/* Asks the step, evaluation, prediction or check of gradients that is inside the session, or else the next one, to
 * stop. A step that has updated no parameter yet stops and changes nothing. Any other step runs to its end, and so does
 * one that was handed to a GPU as a whole, because the GPU cannot be stopped on its way. Either way the call returns
 * PROTRAIN_ERROR_CANCELLED, once, unless it fails for another reason, and the session stays usable. Calls of any other
 * kind neither stop nor use up the cancel. NULL is allowed. Cannot fail.
 * Threads: any, and signal handlers; not at the same time as protrain_session_destroy.
 * Since: 0.1 */
PROTRAIN_API void protrain_session_cancel(protrain_session *session);

/* ---- Sessions: parameters ---------------------------------------------------------------------------------------- */

/* Gets the number of parameters (tensors) of the model, including frozen ones and, after all others, running statistics
 * that steps update. Weights that the file holds as integers (quantised ones) are not among them. Neither are frozen
 * ones in float64 of a model that computes in float32, nor the frozen ones of a session with adapters. They never
 * change. No function reads or writes them, and no checkpoint has them.
 * Errors: none of its own.
 * Since: 0.1 */
PROTRAIN_CHECKED protrain_error *protrain_session_parameter_count(protrain_session *session, size_t *count);

/* Gets the name of a parameter, which is that of its initializer in the file.
 *   index: below protrain_session_parameter_count.
 *   name:  lent until the next call on the session.
 * Errors: ARG for an index that is too large.
 * Since: 0.1 */
PROTRAIN_CHECKED protrain_error *protrain_session_parameter_name(protrain_session *session, size_t index,
                                                                 const char **name);

/* Gets the shape of a parameter, as the file has it; arguments as in protrain_session_input_shape.
 * Errors: ARG for an index that is too large.
 * Since: 0.1 */
PROTRAIN_CHECKED protrain_error *protrain_session_parameter_shape(protrain_session *session, size_t index,
                                                                  int64_t *dims, size_t dims_len, size_t *rank);

/* Gets the number of elements of a parameter: the product of its shape.
 * Errors: ARG for an index that is too large.
 * Since: 0.1 */
PROTRAIN_CHECKED protrain_error *protrain_session_parameter_elements(protrain_session *session, size_t index,
                                                                     size_t *elements);

/* Reads a parameter as float32, in row-major order of the shape that the file has.
 *   values, values_len: where it goes; values_len must be the number of elements.
 * Errors: ARG for a name that is no parameter; SHAPE for another length, with the one expected; IO, CORRUPT if
 *   offload_dir failed.
 * Since: 0.1 */
PROTRAIN_CHECKED protrain_error *protrain_session_parameter_read(protrain_session *session, const char *name,
                                                                 float *values, size_t values_len);

/* Overwrites a parameter. The optimizer state stays as it is. A step overwrites running statistics that are written
 * between its batches.
 *   values, values_len: as in protrain_session_parameter_read; any value is accepted, even NaN.
 * Errors: ARG for a name that is no parameter; SHAPE for another length, with the one expected.
 *   IO, NOSPC, CORRUPT if offload_dir failed: the session is lost then.
 * Since: 0.1 */
PROTRAIN_CHECKED protrain_error *protrain_session_parameter_write(protrain_session *session, const char *name,
                                                                  const float *values, size_t values_len);

/* Gets the number of elements of all parameters together, including frozen ones and running statistics. This is the
 * length of the flat buffer that holds them one after the other, in the order of protrain_session_parameter_name, each
 * as protrain_session_parameter_read gives it. The order is that of first use in the graph. It is the same for every
 * session of one model with the same options trainable, frozen and batch_norm, whatever its plan.
 * Errors: none of its own.
 * Since: 0.1 */
PROTRAIN_CHECKED protrain_error *protrain_session_flat_parameters_elements(protrain_session *session, size_t *elements);

/* Reads all parameters into one flat buffer, for example to average those of several sessions.
 *   values, values_len: where they go; values_len must be protrain_session_flat_parameters_elements.
 * Errors: SHAPE for another length, with the one expected; IO, CORRUPT if offload_dir failed.
 * Since: 0.1 */
PROTRAIN_CHECKED protrain_error *protrain_session_flat_parameters_read(protrain_session *session, float *values,
                                                                       size_t values_len);

/* Overwrites all parameters from one flat buffer. The optimizer state stays as it is.
 *   values, values_len: as in protrain_session_flat_parameters_read; any value is accepted, even NaN.
 * Errors: SHAPE for another length, with the one expected.
 *   IO, NOSPC, CORRUPT if offload_dir failed: the session is lost then, because some parameters may be new, others not.
 * Since: 0.1 */
PROTRAIN_CHECKED protrain_error *protrain_session_flat_parameters_write(protrain_session *session, const float *values,
                                                                        size_t values_len);

/* Reads the gradient that a parameter had in the last step. Only gradients that the option keep_gradients names are
 * kept; the memory of all others is reused at once.
 *   values, values_len: as in protrain_session_parameter_read.
 * Errors: ARG for a name that is no parameter, or whose gradient is not kept; SHAPE for another length; STATE before
 *   the first step, between the batches of a step, and after a later call that failed or checked gradients.
 * Since: 0.1 */
PROTRAIN_CHECKED protrain_error *protrain_session_grad_read(protrain_session *session, const char *name, float *values,
                                                            size_t values_len);

/* Writes the model with its present weights: the graph of the original file, unchanged, with new values in its
 * initializers. An adapted parameter becomes the sum of itself and its adapter's change; with export_adapters=inputs
 * it stays, and the adapter's matrices become inputs. Of onnxruntime-training's artifacts it is the eval model. The
 * file at `path` is replaced only when the new one is complete.
 * Errors: STATE with mode=eval; IO, NOSPC, PATH; LIMIT for what the format cannot hold in one file; UNSUPPORTED for
 *   adapters of quantised weights, which cannot hold such a sum, and for adapters that cannot become inputs; MISMATCH
 *   if a file of the model was changed after the session read it, and weights that were not trained would come from it.
 * Since: 0.1 */
PROTRAIN_CHECKED protrain_error *protrain_session_export(protrain_session *session, const char *path);

/* Writes the adapters (option lora or adapter) in the form of Hugging Face's PEFT: adapter_model.safetensors and
 * adapter_config.json, with the names of the modules that the parameters belong to. The option adapter and PEFT read
 * them.
 *   directory: created if only its last component is missing. Each of the two files is replaced only when the new one
 *              is complete. A path that ends in .onnx_adapter becomes one file in ONNX Runtime's form instead.
 * Errors: STATE if the session has no adapters, or with mode=eval; UNSUPPORTED, with its name, if another parameter is
 *   trained too; IO, NOSPC, PATH.
 * Since: 0.1 */
PROTRAIN_CHECKED protrain_error *protrain_session_export_adapters(protrain_session *session, const char *directory);

/* Gives the session's adapters the values of other ones, such as those of another task. The optimizer's moments stay as
 * they are, and the moving average (option ema) begins anew at these values. If the file's scale (alpha / rank) is
 * another one, the values of B make up for it. All values are read, as float32, before the first one is changed; this
 * memory is not counted in the budgets.
 *   directory: as for the option adapter. It has adapters of the same modules, of the same ranks.
 * Errors: STATE if the session has no adapters, or they are switched off; MISMATCH for other modules, SHAPE for other
 *   ranks; those of the option adapter. After any of these the adapters are as before, unless the session is lost
 *   (protrain_error_usable).
 * Since: 0.1 */
PROTRAIN_CHECKED protrain_error *protrain_session_load_adapters(protrain_session *session, const char *directory);

/* Switches the session's adapters off or on. While they are off, protrain_eval and protrain_predict compute with the
 * base alone, bit for bit, and calls that train, save or export, or read or write parameters are refused. So one
 * session gives the results of the adapted model and of its base, as objectives about preferences need.
 *   on: 0 switches them off, any other number on. It costs a copy of the B matrices, which are kept as float32
 *       meanwhile; this memory is not counted in the budgets.
 * Errors: STATE if the session has no adapters. After an error they are as before, unless the session is lost
 *   (protrain_error_usable).
 * Since: 0.1 */
PROTRAIN_CHECKED protrain_error *protrain_session_use_adapters(protrain_session *session, int32_t on);

/* Saves a checkpoint: weights, optimizer state, step, seed, and in fp16 the loss scale. A session that resumes from it
 * (option resume) continues bit for bit as this one would, under any plan. You give inputs, learning rate and all other
 * options again; a batch may have another size. Another base of adapters, another base_precision or another scale
 * (alpha / rank) is refused.
 *   directory: created if only its last component is missing. The checkpoint becomes a folder in it, for example
 *              step-0000000010 after ten steps, with two .safetensors files (of each rank) and a manifest with
 *              checksums. One of the same step is replaced.
 * Once this call returns, the checkpoint survives a kill or a power failure at any instant, and so do all earlier ones.
 * The library never removes a checkpoint; that is for you to do.
 * Errors: STATE between the batches of one step (option accumulation), and with mode=eval; IO, NOSPC, PATH; BUSY also
 *   while another session saves into the directory; UNSUPPORTED for a parameter named __metadata__, LIMIT for names
 *   beyond 100 MB, which the format cannot hold.
 * On error: all checkpoints are as they were, and the session goes on.
 * Since: 0.1 */
PROTRAIN_CHECKED protrain_error *protrain_session_save(protrain_session *session, const char *directory);

/* ---- Sessions: what was chosen, what is done, what happened ------------------------------------------------------ */

/* Gets the plan: where each chunk of parameters rests, and what each block does with its activations. Written to a
 * file, it is what the option plan takes.
 *   json: lent until the next call on the session.
 * Errors: none of its own.
 * Since: 0.1 */
PROTRAIN_CHECKED protrain_error *protrain_session_plan(protrain_session *session, const char **json);

/* Gets the program: every instruction of a step, one a line, with its queue, what it waits for, its bytes and offsets.
 *   text: lent until the next call on the session.
 * Errors: none of its own.
 * Since: 0.1 */
PROTRAIN_CHECKED protrain_error *protrain_session_program(protrain_session *session, const char **text);

/* Gets the training graph: every node of forward and backward, one a line, after all fusion.
 *   text: lent until the next call on the session.
 * Errors: none of its own.
 * Since: 0.1 */
PROTRAIN_CHECKED protrain_error *protrain_session_graph(protrain_session *session, const char **text);

/* Gets what a step did with its time and its memory, as a JSON object. In a session of mode=eval it is about the last
 * evaluation. Times are in seconds, memory in bytes:
 *   "seconds", "learning_rate"    of the whole last step. Everything else describes the last of the step's batches
 *   "device_peak_bytes", "host_peak_bytes", "disk_bytes"    the most that the step touches of each
 *   "state_bytes"          how much of device, host and disk is held from step to step
 *   "instructions"         number of a step's instructions
 *   "replayed"             whether a GPU repeated what it had recorded of an earlier step, in a single call
 *   "not_recorded"         why the GPU refused to record the step; "" if it did not
 *   "timed_step"           the step that "measured", "operators", "timeline" and "queues" describe. On a CPU it is the
 *                          last one. Timing each instruction slows a GPU down, so only few steps are timed there: among
 *                          those with the same shapes the 1st, 2nd, 4th, 8th, 16th, 32nd and every 64th, and the one
 *                          after each call of this function
 *   "memory"               all 0 unless device and host have separate memory. "device_free_before_bytes" and
 *                          "device_free_bytes": free on the device when the session opened it, and now. "pinned_bytes":
 *                          host memory that copies reach at full speed; "unpinned_bytes": host memory that the system
 *                          refused to pin
 *   "measured", "predicted"    what the step cost, and, if the session predicted it, what it was expected to cost:
 *       "seconds", "device_peak_bytes", "host_peak_bytes", "disk_bytes"
 *       "overlap"          the share (0 to 1) of the other queues' busy time in which compute was busy too; 0 if no
 *                          other queue was ever busy
 *       "busy_seconds"     by queue: "compute", "upload", "download", "host", "disk_read", "disk_write", "comm"
 *       "stall_seconds"    time in which compute stood still, by cause. Compute's busy seconds and all stalls add up to
 *                          the step.
 *                          Waits for "update" (optimizer), "fetch" (host to device), "offload" (device to host),
 *                          "swap_out", "swap_in" (activations), "read", "write" (disk), "all_to_all", "all_gather"
 *                          (gradients and weights of other ranks); "inline": other queues' work ran in compute's
 *                          place; "start", "end": before its first instruction and after its last; "issue": none of
 *                          these
 *   "grad_norms"           by group of parameters: the norm of their gradients before clipping, of all ranks together.
 *                          The groups are the patterns of the option group and "*" for the rest. Without that option
 *                          they are "before", "layer 0" and so on, and "after"; in a model without repeated layers "*".
 *                          Groups in which nothing has a gradient are left out
 *   "grad_norms_step"      the step that "grad_norms" are of, 0 before the first. On a CPU it is the last one. On a
 *                          device with memory of its own they are read in the first four steps and in two of every 64
 *   "alarms"               array of {"step", "code", "subject", "text"}: all alarms so far, as in the log; step 0 for
 *                          those that were known before the first step
 *   "operators"            by name: "seconds" and "launches"
 *   "timeline"             memory by owner over the step. "owners" is a list of names. "device", "host" and "disk" are
 *                          rows of [seconds, bytes of each owner...], each valid until the next. There are at most 400
 *                          rows, the peak among them
 *   "queues"               by queue: [start, end] of each time in which it was busy; short gaps are left out
 *   "traceEvents"          only with trace=step: each instruction with its queue and time, and "timeline", in the form
 *                          of Chrome's traces. A file with the report then opens in Perfetto (ui.perfetto.dev)
 *   json: lent until the next call on the session.
 * Errors: none of its own. Before the first step all times are 0.
 * Since: 0.1 */
PROTRAIN_CHECKED protrain_error *protrain_session_report(protrain_session *session, const char **json);

/* Compares the gradients of a step on the present inputs with slopes of the loss, which come from differences that the
 * operators' reference arithmetic computes in float64. Changes no parameter and counts no step. It takes memory beyond
 * the budget for all values of the model in float64. For each element that it compares, it computes four times, on one
 * core, what depends on the parameter: use a small model or a small batch.
 *   samples: number of elements of each parameter to compare: the largest of its gradient and some others; of a
 *            parameter that has no more, all.
 *   json:    one object, lent until the next call on the session:
 *     "passed"                  whether all parameters passed
 *     "loss", "loss_float64"    of the session, and of the reference arithmetic
 *     "tolerance"               the largest error that passes: 0.001 in fp32, 0.1 in bf16 and fp16
 *     "parameters"              array, one object for each trained parameter: "name", "norm" of the gradient, "passed",
 *                               "elements" that were compared, "kinks" (elements left out because the loss is not
 *                               smooth around them), "element_error", the largest error of these elements, as a share
 *                               of the slope or of the gradient's root mean square, whichever is larger, and
 *                               "direction_error", that along one direction in which all elements change. For a
 *                               gradient that may be zero up to rounding, both are shares of a larger number, so that
 *                               rounding of the model's largest gradient passes
 * Errors: ARG if samples is 0; STATE within a step, if an input was never set, or with mode=eval; UNSUPPORTED with
 *   several ranks, for quantised weights, and for operators without arithmetic in float64, such as Dropout; CANCELLED;
 *   IO, NOSPC or CORRUPT if offload_dir failed. If weights could not be written there, the session is lost.
 * Since: 0.1 */
PROTRAIN_CHECKED protrain_error *protrain_session_check_gradients(protrain_session *session, size_t samples,
                                                                  const char **json);

#ifdef __cplusplus
}
#endif

#endif /* PROTRAIN_H */
