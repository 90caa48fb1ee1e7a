/* The C ABI of libhorovod. C11.
 *
 * Rules that hold for every function:
 *  1. A function that can fail returns an hvd_status and, when it fails, writes one sentence into
 *     the caller's `error` buffer (NUL-terminated, cut to `error_size`; NULL or 0 is allowed).
 *  2. Nothing allocated on one side is freed on the other. Outputs that belong to the runtime are
 *     lent until hvd_release.
 *  3. Every struct begins with its size as the caller knows it (sizeof). Structs grow at the tail;
 *     fields that the caller's size does not cover take the value zero.
 *  4. Every function may be called from any thread unless it says otherwise. None calls back.
 *  5. Strings are NUL-terminated UTF-8; a pointer is borrowed for the call unless it says otherwise.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "horovod/types.h"

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define HVD_API __attribute__((visibility("default")))
#else
#define HVD_API
#endif

/* Version of this library, "MAJOR.MINOR.PATCH". Never NULL; static storage. */
HVD_API const char* hvd_version(void);

/* ---- Start and end ------------------------------------------------------------------------- */

typedef struct hvd_init_options {
  size_t struct_size;
  /* Seconds to wait for the other ranks; 0 takes HOROVOD_START_TIMEOUT or its default. */
  double timeout_seconds;
  /* Process sets to register at once, the same on every rank: set i has process_set_sizes[i]
   * ranks, which follow each other in process_set_ranks; their ids are 1, 2, ... in that order. */
  uint32_t process_set_count;
  const uint32_t* process_set_sizes;
  const int32_t* process_set_ranks;
  /* Ranks of the job that go on as a job of their own, ascending, the same list on each of them
   * and this one among them: they are numbered anew, from 0. 0: all ranks. */
  uint32_t rank_count;
  const int32_t* ranks;
} hvd_init_options;

/* Joins the job that the environment describes, or a world of one when it describes none.
 * `options` may be NULL. Blocks until every rank is there. Calling it again while initialised is
 * HVD_OK and changes nothing; after hvd_shutdown it starts anew. */
HVD_API int hvd_init(const hvd_init_options* options, char* error, size_t error_size);

/* Leaves the job. Pending work fails with HVD_ABORTED, here and on all ranks. Blocks until the
 * other ranks know. Without hvd_init it is HVD_OK and does nothing. */
HVD_API int hvd_shutdown(char* error, size_t error_size);

/* 1 between a successful hvd_init and hvd_shutdown, else 0. */
HVD_API int hvd_is_initialized(void);

/* ---- Identity: the number, or -1 when not initialised --------------------------------------- */

HVD_API int32_t hvd_rank(void);
HVD_API int32_t hvd_size(void);
HVD_API int32_t hvd_local_rank(void);
HVD_API int32_t hvd_local_size(void);
HVD_API int32_t hvd_cross_rank(void);
HVD_API int32_t hvd_cross_size(void);
/* 1 when every host has the same number of ranks, 0 when not, -1 when not initialised. */
HVD_API int32_t hvd_is_homogeneous(void);

/* The caller's claim on work, until hvd_release. 0 is never a handle. */
typedef uint64_t hvd_handle;

/* ---- Process sets: ranks that work together, beside others -------------------------------------
 * Set 0 is all ranks. Every rank of the job adds and removes sets, in the same order, members or
 * not; what members submit to a set concerns nobody else. Sets may overlap and run side by side.
 * An id that was given back is given again, the oldest first. */

/* Asks for a set of `count` ranks; their order does not matter. Waits for no other rank: the set
 * is there when the handle is complete, and hvd_get_output(handle, 0) has its id. Complete with
 * HVD_INVALID_ARGUMENT on every rank when ranks asked for different sets, and with
 * HVD_ALREADY_EXISTS when a set has these ranks. */
HVD_API int hvd_add_process_set(const int32_t* ranks, uint32_t count, hvd_handle* handle,
                                char* error, size_t error_size);
/* Asks for a set's end, as hvd_add_process_set. Work that not every member had submitted by then
 * fails with HVD_NOT_FOUND; other work is complete before the handle is. */
HVD_API int hvd_remove_process_set(int32_t process_set, hvd_handle* handle, char* error,
                                   size_t error_size);
/* This rank's index in the set: *rank; HVD_INVALID_ARGUMENT when it is no member. */
HVD_API int hvd_process_set_rank(int32_t process_set, int32_t* rank, char* error,
                                 size_t error_size);
/* How many ranks the set has. HVD_NOT_FOUND, here and below: there is no such set. */
HVD_API int hvd_process_set_size(int32_t process_set, int32_t* size, char* error,
                                 size_t error_size);
/* *included becomes 1 when this rank is a member, else 0. */
HVD_API int hvd_process_set_included(int32_t process_set, int32_t* included, char* error,
                                     size_t error_size);
/* How many sets there are, set 0 included. */
HVD_API int hvd_process_set_count(int32_t* count, char* error, size_t error_size);
/* Writes the ids, ascending, as far as `room` goes; *count becomes how many there are. */
HVD_API int hvd_process_set_ids(int32_t* ids, uint32_t room, uint32_t* count, char* error,
                                size_t error_size);
/* Writes the set's ranks, ascending, as far as `room` goes; *count becomes how many it has. */
HVD_API int hvd_process_set_ranks(int32_t process_set, int32_t* ranks, uint32_t room,
                                  uint32_t* count, char* error, size_t error_size);

/* ---- Submitting work ---------------------------------------------------------------------------
 *
 * What the operations want and give. Rows are what dimension 0 counts; n is the size of the process
 * set. All its ranks agree on dtype, op, device, factors and reduce_op; where they do not, the work
 * of each ends with HVD_INVALID_ARGUMENT and a sentence with both values.
 *
 *   HVD_ALLREDUCE      the same shape on every rank, a scalar or empty too -> the reduction of all.
 *   HVD_REDUCESCATTER  the same shape, at least one dimension -> this rank's rows of the reduction
 *                      of all: rows / n, and one more for each of the first (rows mod n) ranks.
 *   HVD_ALLGATHER      at least one dimension, any number of rows, the rest the same -> all ranks'
 *                      rows, in the order of the ranks.
 *   HVD_ALLTOALL       as allgather; splits[r] rows go to the set's rank r, in order -> the rows
 *                      from each rank, in their order, and how many (received_splits).
 *   HVD_BROADCAST      the same shape -> what the root had; the others' inputs are not read.
 *   HVD_BARRIER        no tensor -> complete when every rank has submitted it.
 *   HVD_JOIN           no tensor -> complete when every rank has; until then this one takes part in
 *                      the others' allreduces with what changes nothing (averages count it), and
 *                      other operations fail.
 *
 * Every dtype goes with every operation; what reductions mean for each: types.h. Factors are for
 * allreduce and reducescatter: prescale for each input, postscale for the outcome. */

/* One tensor of a submission. Row-major and dense. */
typedef struct hvd_tensor {
  const char* name;     /* of a grouped submission's member; NULL: the submission's name */
  int32_t dtype;        /* hvd_dtype */
  int32_t ndim;         /* 0 is a scalar */
  const int64_t* shape; /* ndim extents; copied by hvd_submit */
  /* Read by the runtime until the work is complete. May be NULL when the tensor is empty. */
  const void* input;
  /* Written by the runtime. allreduce, broadcast: as large as the input, and may be the input
   * itself. allgather, alltoall, reducescatter: NULL, the runtime owns the output (hvd_output). */
  void* output;
} hvd_tensor;

typedef struct hvd_submission {
  size_t struct_size;
  int32_t op;            /* hvd_op_kind */
  int32_t reduce_op;     /* hvd_reduce_op, for allreduce and reducescatter */
  const char* name;      /* the same on every rank, and not in flight; NULL for barrier and join */
  int32_t process_set;   /* 0 is all ranks */
  int32_t root_rank;     /* of a broadcast: a global rank */
  int32_t device;        /* HVD_CPU, or the ordinal of the device where all its tensors are; a rank
                        * uses one. The outputs that the runtime owns are there too */
  int32_t flags;         /* 0 */
  double prescale;       /* factor before the reduction; 0 reads as 1 */
  double postscale;      /* factor after it; 0 reads as 1 */
  void* stream;          /* the framework's current stream, NULL on CPU */
  void* ready_event;     /* of a device: completes when the inputs may be read and the outputs be
                        * written; NULL: now. It stays until the work is complete */
  uint32_t tensor_count; /* 0 for barrier and join; more than 1 makes a group: all or none run */
  uint32_t split_count;  /* of an alltoall: 0 splits evenly, else the size of the process set */
  const hvd_tensor* tensors; /* copied by hvd_submit; what they point to is not, but for shapes */
  const int32_t* splits;     /* rows for each rank; copied */
} hvd_submission;

/* Hands work to the runtime and returns at once: it waits for no other rank, and the work is never
 * complete when it returns. *handle must be released. HVD_ALREADY_EXISTS: the name is in flight,
 * and the earlier work goes on unharmed. */
HVD_API int hvd_submit(const hvd_submission* submission, hvd_handle* handle, char* error,
                       size_t error_size);

/* *runs becomes 1 when the job has a backend that runs such work on the memory of devices
 * (HOROVOD_GPU_OPERATIONS), else 0: then bring the tensors to host memory. The arguments are as in
 * hvd_submission and hvd_tensor. The same answer on every rank. */
HVD_API int hvd_runs_on_device(int32_t op, int32_t dtype, int32_t reduce_op, double prescale,
                               double postscale, int32_t* runs, char* error, size_t error_size);

/* *done becomes 1 when the work is complete, failed or not, else 0. Never waits. */
HVD_API int hvd_poll(hvd_handle handle, int32_t* done, char* error, size_t error_size);

/* Waits until the work is complete and returns its status. timeout_seconds < 0 waits for ever;
 * HVD_IN_PROGRESS when the time passed first: call again. The waiting thread drives the
 * runtime. */
HVD_API int hvd_wait(hvd_handle handle, double timeout_seconds, char* error, size_t error_size);

/* An output that the runtime owns, valid until hvd_release. */
typedef struct hvd_output {
  size_t struct_size;
  const void* data; /* NULL when empty */
  int32_t dtype;
  int32_t ndim;
  const int64_t* shape;
  const int32_t* received_splits; /* alltoall: rows from each rank, else NULL */
  uint32_t received_split_count;
  int32_t last_joined_rank; /* join, else -1 */
  int32_t process_set;      /* hvd_add_process_set, hvd_remove_process_set: its id, else -1 */
} hvd_output;

/* Describes output `index` (0-based, below tensor_count; 0 for join, and for what adds or removes
 * a process set) of complete work. For allreduce and broadcast it is the caller's own memory. */
HVD_API int hvd_get_output(hvd_handle handle, uint32_t index, hvd_output* output, char* error,
                           size_t error_size);

/* Ends the caller's claim. Complete work is freed with its outputs, which nothing on a device may
 * use any more; unfinished work goes on, and
 * its buffers must stay alive until it is complete: so wait first. */
HVD_API int hvd_release(hvd_handle handle, char* error, size_t error_size);

/* ---- Being asked where a thread is ------------------------------------------------------------ */

/* For interpreters: offers the stack that the report of a stall shows when this rank is the one that
 * is missing. `signal_number` is handled in this process by writing the stack of the thread that
 * gets it, as text with a header line that ends in "(most recent call first):", into a pipe whose
 * end to read is `fd`, without waiting (Python's faulthandler does so). Both stay as they are while
 * the process lives; signal 0 takes the offer back. The runtime sends that signal to the main
 * thread, never while another handler is installed. Used from the next hvd_init on. */
HVD_API int hvd_offer_stack(int32_t signal_number, int32_t fd, char* error, size_t error_size);

/* ---- Watching ------------------------------------------------------------------------------- */

/* Begins a timeline of all ranks: a Chrome trace in one file, which rank 0 writes; a relative path
 * is relative to its working directory. `mark_cycles` is 1 to mark each batching window, else 0.
 * Returns when this rank takes part; the others do before any work is agreed on after that. Any
 * rank may call, and several with the same path; one timeline runs at a time. HVD_UNAVAILABLE: one
 * with another path runs, or the file cannot be written (the job goes on). */
HVD_API int hvd_start_timeline(const char* path, int32_t mark_cycles, char* error,
                               size_t error_size);

/* Ends the timeline, if there is one: returns when its file is complete. Any rank may call.
 * hvd_shutdown does it too. */
HVD_API int hvd_stop_timeline(char* error, size_t error_size);

typedef enum hvd_metrics_scope {
  HVD_METRICS_RANK = 0, /* of this rank */
  HVD_METRICS_JOB = 1   /* of all ranks, whose helper threads answer */
} hvd_metrics_scope;

/* Counters and histograms since hvd_init as text in Prometheus's format (docs/metrics.md). *needed
 * gets its size with the closing NUL. It is copied when it fits into `size` bytes, else `buffer`
 * is left as it was; each call counts anew, so leave room for some digits more. */
HVD_API int hvd_metrics(int32_t scope, char* buffer, size_t size, size_t* needed, char* error,
                        size_t error_size);

/* ---- Memory that the ranks of a host share --------------------------------------------------- */

/* Memory that the other ranks of this host can reach: an allreduce in place whose tensors lie in
 * such memory on every rank is reduced where it lies, without copies. A tensor may be any part of
 * it; elsewhere it is memory like any other. Page-aligned, zeroed, and all there: HVD_UNAVAILABLE
 * or HVD_INTERNAL when the host has not that much. It belongs to the process and not to a job, so
 * this works before hvd_init, after hvd_shutdown and after another hvd_init. A forked child sees
 * its parent's memory and shares what either writes; it cannot allocate or free
 * (HVD_FAILED_PRECONDITION). Nothing has a name, so nothing is left behind. */
HVD_API int hvd_alloc(size_t size, void** memory, char* error, size_t error_size);

/* Gives memory from hvd_alloc back. NULL is HVD_OK. Not while work that uses it is unfinished. */
HVD_API int hvd_free(void* memory, char* error, size_t error_size);

/* ---- What this build and machine can do ------------------------------------------------------ */

/* Names: "shared-memory", "tcp", "mpi", "gloo", "nccl", "ddl", "ccl", "cuda", "rocm"; and
 * "mpi-threads": between hvd_init and hvd_shutdown, whether the job uses MPI (HOROVOD_CONTROLLER or
 * HOROVOD_CPU_OPERATIONS) and all ranks' MPI has MPI_THREAD_MULTIPLE.
 * 1 when it works here, 0 when not (the reason goes to `why`, which may be NULL). */
HVD_API int32_t hvd_capability(const char* name, char* why, size_t why_size);

#ifdef __cplusplus
}
#endif
