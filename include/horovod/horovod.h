/* The C ABI of libhorovod, in C11.
 *
 * Rules that hold for every function:
 *  1. A function that can fail returns an hvd_status and, when it fails, writes one sentence into
 *     the caller's `error` buffer (NUL-terminated, cut to `error_size`; NULL or 0 is allowed).
 *  2. The side that allocates memory frees it. Outputs that the runtime owns are valid until
 *     hvd_release.
 *  3. The first field of a struct is its size in the caller's build (sizeof). Structs grow only at
 *     the tail. Fields beyond the caller's size read as zero.
 *  4. Any thread may call any function unless its comment says otherwise. No function calls back,
 *     except for hvd_init_options.joined and share.
 *  5. Strings are NUL-terminated UTF-8. The library uses a pointer argument only during the call
 *     unless the comment says otherwise.
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

/* Returns the version of this library, "MAJOR.MINOR.PATCH". Never NULL; static storage. */
HVD_API const char* hvd_version(void);

/* ---- Start and end ------------------------------------------------------------------------- */

typedef struct hvd_init_options {
  size_t struct_size;
  /* Seconds to wait for the other ranks. With 0, HOROVOD_INIT_TIMEOUT limits the wait until all ranks have
   * called hvd_init, and HOROVOD_START_TIMEOUT the wait until all are connected. */
  double timeout_seconds;
  /* Process sets to add during the start, the same on every rank. Set i has process_set_sizes[i]
   * ranks. process_set_ranks lists the ranks of all sets, one set after another. The ids of the sets
   * are 1, 2, ... in that order. */
  uint32_t process_set_count;
  const uint32_t* process_set_sizes;
  const int32_t* process_set_ranks;
  /* The ranks that form a separate job. Each of these ranks passes an equal list, which contains it.
   * The new job numbers these ranks from 0 in the order of the list. rank_count 0 means all ranks. */
  uint32_t rank_count;
  const int32_t* ranks;
  /* NULL, or a callback. The library calls the callback once, when ranks that were already training have admitted this
   * process (hvd_is_provisional), inside the call that waited for them. The callback may call any function. */
  void (*joined)(void);
  /* NULL, or a broadcast of the caller that replaces the environment: this process is `rank` of `size`.
   * hvd_init calls it once, on the calling thread, to copy a text of at most `room` bytes from rank 0 to all
   * other ranks. *length is the size of the text: rank 0 reads it, the other ranks set it. The callback returns
   * 0, or another value on failure. The text contains the job's secret: only ranks of the job may see it. */
  int32_t rank, size;
  int (*share)(void* context, char* text, size_t* length, size_t room);
  void* context;
} hvd_init_options;

/* Joins the job that the environment describes, or a single-process job if it describes none. `options` may
 * be NULL. Blocks until every rank has joined; but if the ranks of an elastic job are already training,
 * returns with a provisional rank. While initialised, a second call returns HVD_OK and changes nothing.
 * After hvd_shutdown, a call joins again. HVD_LEFT: this process has left the elastic job, and must end. */
HVD_API int hvd_init(const hvd_init_options* options, char* error, size_t error_size);

/* Leaves the job. The process sets with this rank end, including the set of all ranks: their
 * pending work fails with HVD_ABORTED on all ranks. Blocks until all other ranks know that this rank
 * leaves, and until each process set without this rank has ended too, by hvd_shutdown of a member.
 * Without hvd_init, returns HVD_OK and does nothing. */
HVD_API int hvd_shutdown(char* error, size_t error_size);
/* Like hvd_shutdown, at the end of a failed program: process sets without this rank also fail. */
HVD_API int hvd_shutdown_failed(char* error, size_t error_size);

/* Returns 1 between a successful hvd_init and hvd_shutdown, else 0. */
HVD_API int hvd_is_initialized(void);

/* ---- Identity: each function returns -1 if not initialised - -------------------------------- */

HVD_API int32_t hvd_rank(void);       /* number of this process in the job, from 0 */
HVD_API int32_t hvd_size(void);       /* number of ranks of the job */
HVD_API int32_t hvd_local_rank(void); /* number of this rank among the ranks of its host, from 0 */
HVD_API int32_t hvd_local_size(void); /* number of ranks on this host */
HVD_API int32_t hvd_cross_rank(void); /* number of this host among hosts with this local rank */
HVD_API int32_t hvd_cross_size(void); /* number of hosts that have a rank with this local rank */
/* Returns 1 when every host has the same number of ranks, else 0. */
HVD_API int32_t hvd_is_homogeneous(void);

/* ---- Elastic jobs, whose processes come and go ------------------------------------------------
 * A generation is a period in which the ranks of a job do not change. In an elastic job, hvd_shutdown
 * leaves the current generation, and hvd_init joins the next one. When the launcher finds that a process
 * or host is lost, pending work fails with HVD_ABORTED and that cause. */

/* Returns 1 from hvd_init until the ranks that are training admit this process, else 0. Meanwhile the identity
 * functions and hvd_alloc work. hvd_complete_init, hvd_submit and all other functions that need the job
 * block until the ranks have finished a step and admit all new processes. */
HVD_API int32_t hvd_is_provisional(void);
/* Waits until the ranks that are training admit this process. With takes_any_place 1, the rank and
 * size may change: the caller must read them again. */
HVD_API int hvd_complete_init(int32_t takes_any_place, char* error, size_t error_size);
/* Returns the number of the generation, from 0; -1 if not initialised. */
HVD_API int32_t hvd_generation(void);
/* Returns 1 if a rank of an elastic job was not in the previous generation, else 0. Equal on all ranks. */
HVD_API int32_t hvd_has_new_ranks(void);
/* Returns the changes that the launcher has announced for the next generation: the sum of 1 (hosts
 * removed) and 2 (hosts added), or 0. Ranks may see a change at different times. The first call notifies
 * the launcher that this program handles a change of ranks itself. If no rank has called
 * hvd_host_updates, the launcher restarts all ranks at each change. */
HVD_API int32_t hvd_host_updates(void);
/* Returns the seconds until the host of this process must leave the job, for example after
 * SIGTERM to its agent; -1 if unknown. */
HVD_API int32_t hvd_leave_seconds(void);
/* Reports that the program has saved its state on this rank. If an error ends a process, and the same error
 * ends a second process before any rank calls this function, the launcher of an elastic job ends the job. */
HVD_API void hvd_state_committed(void);
/* Mark the section that the program repeats when the ranks change: its begin, its end, and its end by an
 * exception. A process that ends inside the section has failed, even with exit code 0, and the other ranks
 * continue. A process that ends after an exception has failed unless its exit code is 0. Elastic jobs only. */
HVD_API void hvd_elastic_run_entered(void);
HVD_API void hvd_elastic_run_returned(void);
HVD_API void hvd_elastic_run_raised(void);

/* Identifies submitted work until hvd_release. 0 is never a handle. */
typedef uint64_t hvd_handle;

/* ---- Process sets: groups of ranks with their own collectives ----------------------------------
 * Set 0 is all ranks. Every rank of the job, member or not, adds and removes the same sets in the
 * same order. Only members submit work to a set. Sets may overlap, and their work runs in parallel.
 * The library reuses the ids of removed sets, the oldest first. */

/* Adds a set of `count` ranks, in any order. Waits for no other rank: the set exists when the
 * handle is complete, and hvd_get_output(handle, 0) then has its id. The handle completes with
 * HVD_INVALID_ARGUMENT on every rank if ranks add different sets, and with HVD_ALREADY_EXISTS if
 * a set has these ranks already. */
HVD_API int hvd_add_process_set(const int32_t* ranks, uint32_t count, hvd_handle* handle,
                                char* error, size_t error_size);
/* Like hvd_add_process_set, for a set that only its members add and remove, in any order
 * relative to other sets. Another set may have the same ranks under another name, also all ranks
 * of the job. HVD_INVALID_ARGUMENT: `ranks` does not contain this rank. */
HVD_API int hvd_add_named_process_set(const char* name, const int32_t* ranks, uint32_t count,
                                      hvd_handle* handle, char* error, size_t error_size);
/* Removes a set. Waits for no other rank: the set is removed when the handle is complete. Work that
 * not all members have submitted by then fails with HVD_NOT_FOUND. All other work of the set completes
 * before the handle. */
HVD_API int hvd_remove_process_set(int32_t process_set, hvd_handle* handle, char* error,
                                   size_t error_size);
/* Sets *rank to this rank's index in the set. HVD_INVALID_ARGUMENT: this rank is not a member. */
HVD_API int hvd_process_set_rank(int32_t process_set, int32_t* rank, char* error,
                                 size_t error_size);
/* Sets *size to the number of ranks in the set. Here and below, HVD_NOT_FOUND: the set does not exist. */
HVD_API int hvd_process_set_size(int32_t process_set, int32_t* size, char* error,
                                 size_t error_size);
/* Sets *included to 1 if this rank is a member, else to 0. */
HVD_API int hvd_process_set_included(int32_t process_set, int32_t* included, char* error,
                                     size_t error_size);
/* Sets *count to the number of sets, including set 0. */
HVD_API int hvd_process_set_count(int32_t* count, char* error, size_t error_size);
/* Writes the ids of the sets, ascending, at most `room` of them. Sets *count to their number. */
HVD_API int hvd_process_set_ids(int32_t* ids, uint32_t room, uint32_t* count, char* error,
                                size_t error_size);
/* Writes the set's ranks, ascending, at most `room` of them. Sets *count to their number. */
HVD_API int hvd_process_set_ranks(int32_t process_set, int32_t* ranks, uint32_t room,
                                  uint32_t* count, char* error, size_t error_size);

/* ---- Submitting work ---------------------------------------------------------------------------
 *
 * The input and the result of each operation. A row is one index of dimension 0; n is the size of
 * the process set. All ranks of the set must submit the same dtype, op, device, factors and
 * reduce_op. Otherwise the work fails on each rank with HVD_INVALID_ARGUMENT and a sentence that has
 * both values.
 *
 *   HVD_ALLREDUCE      the same shape on every rank, also scalar or empty -> the reduction over all
 *                      ranks.
 *   HVD_REDUCESCATTER  the same shape, at least one dimension -> this rank's rows of the reduction:
 *                      rows / n, and one more for each of the first (rows mod n) ranks.
 *   HVD_ALLGATHER      at least one dimension, any number of rows, the other dimensions the same ->
 *                      the rows of all ranks, in the order of the ranks.
 *   HVD_ALLTOALL       as allgather; splits[r] rows go to the set's rank r, in order -> the rows
 *                      from each rank, in the order of the ranks, and their numbers
 *                      (received_splits).
 *   HVD_BROADCAST      the same shape -> the root's input; the other ranks' inputs are not read.
 *   HVD_BARRIER        no tensor -> complete when every rank has submitted it.
 *   HVD_JOIN           no tensor -> complete when every rank has submitted it. Until then this rank
 *                      contributes the neutral element to the allreduces of other ranks (an average
 *                      counts it), and other operations fail.
 *
 * Every operation accepts every dtype; types.h defines the reductions of each. Factors apply to
 * allreduce and reducescatter: prescale to each input, postscale to the result. */

/* One tensor of a submission. Row-major and dense. */
typedef struct hvd_tensor {
  const char* name;     /* in a group: the tensor's own name; NULL: the submission's name */
  int32_t dtype;        /* hvd_dtype */
  int32_t ndim;         /* 0 is a scalar */
  const int64_t* shape; /* ndim extents; copied by hvd_submit */
  /* The runtime reads the input until the work is complete. May be NULL when the tensor is empty. */
  const void* input;
  /* The runtime writes the output. allreduce, broadcast: the size of the input; may be the input itself.
   * reducescatter: this rank's rows, apart from the input; NULL: the runtime owns the output (hvd_output).
   * allgather, alltoall: NULL, because the runtime owns the output. */
  void* output;
} hvd_tensor;

/* Bits of hvd_submission.flags.
 * HVD_KEEPS_TENSORS: when the work fails and hvd_release returns HVD_IN_PROGRESS, the caller keeps the
 *   tensors. Without this flag, a backend that cannot abandon an operation (MPI) works on copies.
 * HVD_AWAITS_START: the inputs are still being computed: the work begins with hvd_start.
 * HVD_STAGED: the tensors are copies of tensors on `device`, in host memory that the device can use. The
 *   other ranks may submit copies too, tensors in host memory, or tensors on devices. In the last case the
 *   work runs on devices, with the copies. hvd_output.device has the location of the outputs.
 * HVD_STREAM_ORDERED: the caller waits by hvd_wait_on_stream. The name and the memory of work on a device are in
 *   flight until the work is on the device's stream: later work follows in the order of that stream.
 * HVD_TRIAL: the work is a trial of a backend for device memory (hvd_runs_on_device). Reports of
 *   stalls leave the trial out. */
#define HVD_KEEPS_TENSORS 1
#define HVD_AWAITS_START 2
#define HVD_STAGED 4
#define HVD_TRIAL 8
#define HVD_STREAM_ORDERED 16

typedef struct hvd_submission {
  size_t struct_size;
  int32_t op;            /* hvd_op_kind */
  int32_t reduce_op;     /* hvd_reduce_op, for allreduce and reducescatter */
  const char* name;      /* the same on every rank, and not in flight; NULL for barrier and join */
  int32_t process_set;   /* 0 is all ranks */
  int32_t root_rank;     /* the root of a broadcast, as a rank of the job */
  int32_t device;        /* HVD_CPU, or the ordinal of the device that holds all tensors. A rank
                        * uses one device. Outputs that the runtime owns are on the same device */
  int32_t flags;         /* 0, or the sum of bits above */
  double prescale;       /* factor before the reduction; 0 reads as 1 */
  double postscale;      /* factor after the reduction; 0 reads as 1 */
  void* stream;          /* the framework's current stream, NULL on CPU */
  void* ready_event;     /* on a device: the event after which the inputs may be read and the
                        * outputs written; NULL: now. Must exist until the work is complete */
  uint32_t tensor_count; /* 0 for barrier and join; more than 1: a group that runs as a whole */
  uint32_t split_count;  /* for an alltoall: 0 splits evenly, else the size of the process set */
  const hvd_tensor* tensors; /* copied by hvd_submit with names and shapes, without their data */
  const int32_t* splits;     /* rows for each rank; copied */
  const char* program; /* the compiled program that makes the call, as reports of stalls show it;
                              * NULL: none. The text must exist until hvd_shutdown returns */
  const int64_t* wide_splits; /* instead of `splits`, or NULL: numbers of 64 bits. One above
                               * 2147483647 fails with HVD_INVALID_ARGUMENT on all ranks */
} hvd_submission;

/* Submits work and returns at once. Waits for no other rank, and the work is never complete when
 * hvd_submit returns. The caller must release *handle. HVD_ALREADY_EXISTS: work with this name is in
 * flight, and continues.
 *
 * Memory in flight: until work is complete or has failed, its inputs and outputs belong to it. An output
 * must not overlap memory of other work in flight or of another tensor of its group, and an input must not
 * overlap an output. A tensor may have one address for both. Inputs may overlap, also the memory of a
 * broadcast on its root, which is only read. Otherwise hvd_submit returns HVD_INVALID_ARGUMENT with both
 * names, the work in flight continues, and the refused work fails on all other ranks with that reason. */
HVD_API int hvd_submit(const hvd_submission* submission, hvd_handle* handle, char* error,
                       size_t error_size);

/* Starts work that was submitted with HVD_AWAITS_START: from now on the inputs may be read and
 * the outputs written. Until then other ranks see the work as not submitted. Submit HVD_JOIN,
 * remove a process set and call hvd_shutdown only after this call for all earlier work. Never
 * waits: a CUDA host function may call it. HVD_OK without effect if the work has started or
 * failed; HVD_NOT_FOUND: the handle does not exist. */
HVD_API int hvd_start(hvd_handle handle, char* error, size_t error_size);

/* Sets *runs to 0 if the job has no backend that runs such work on device memory: the caller must copy the
 * tensors to host memory. *runs 1: the job has such a backend. *runs 2: the job has a backend that each process
 * set must try first, because HOROVOD_GPU_OPERATIONS is not set; until then, the caller copies the tensors
 * (HVD_STAGED). The arguments are those of hvd_submission and hvd_tensor. *runs is equal on all ranks.
 *
 * A trial is a broadcast of bytes in host memory with HVD_TRIAL and the rank's device, by all ranks of the set, which
 * opens the backend. Its output is the reason why this rank cannot use the backend, or empty. If this output is empty
 * on all ranks, the ranks may submit work on devices. Ranks may learn this result at different times. */
HVD_API int hvd_runs_on_device(int32_t op, int32_t dtype, int32_t reduce_op, double prescale,
                               double postscale, int32_t* runs, char* error, size_t error_size);

/* Sets *done to 1 when the work is complete or has failed, else to 0. Never waits. */
HVD_API int hvd_poll(hvd_handle handle, int32_t* done, char* error, size_t error_size);

/* Waits until the work is complete and returns its status. timeout_seconds < 0: no limit.
 * HVD_IN_PROGRESS: the time has passed; the caller may call again. While it waits, the calling
 * thread makes progress on all work of this rank. */
HVD_API int hvd_wait(hvd_handle handle, double timeout_seconds, char* error, size_t error_size);

/* Like hvd_wait, but returns HVD_OK when work with HVD_STREAM_ORDERED is on its device's stream, and makes the
 * caller's `stream` of the current device wait for the work's end: outputs, and results of hvd_get_output, may
 * then be used in the order of `stream`. The inputs and outputs must exist, and the handle must not be released,
 * until hvd_poll reports completion; hvd_wait then returns a later error. `ends_process`: 1 if such an error
 * ends the process, with a line in its log, because the program has used the result. */
HVD_API int hvd_wait_on_stream(hvd_handle handle, void* stream, int32_t ends_process,
                               double timeout_seconds, char* error, size_t error_size);

/* An output that the runtime owns, valid until hvd_release. */
typedef struct hvd_output {
  size_t struct_size;
  const void* data; /* NULL when empty */
  int32_t dtype;
  int32_t ndim;
  const int64_t* shape;
  const int32_t* received_splits; /* alltoall: rows from each rank, else NULL */
  uint32_t received_split_count;
  int32_t last_joined_rank; /* join: the last rank that joined; else -1 */
  int32_t process_set;      /* id of an added or removed process set, else -1 */
  int32_t device;           /* device of an output that the runtime owns; else HVD_CPU */
  int32_t source_rank;      /* hvd_recv: the sender's rank of the job, else -1 */
} hvd_output;

/* Describes an output of complete work. `index` is below tensor_count, or 0 for join and for
 * adding or removing a process set. For allreduce, broadcast, and a reducescatter with an
 * output, it is the caller's own memory. */
HVD_API int hvd_get_output(hvd_handle handle, uint32_t index, hvd_output* output, char* error,
                           size_t error_size);

/* Releases a handle. Frees complete work and the outputs that the runtime owns; no device may still
 * use these outputs. Unfinished work continues, and its buffers must exist until it is complete:
 * call hvd_wait first. HVD_IN_PROGRESS, only with HVD_KEEPS_TENSORS: the handle is released, and
 * the work has failed, but a library that cannot be stopped still runs it. Inputs and outputs must
 * then exist, unused, until the process ends. */
HVD_API int hvd_release(hvd_handle handle, char* error, size_t error_size);

/* ---- Messages between two ranks ----------------------------------------------------------------
 *
 * A message goes from hvd_send of one rank to hvd_recv of another one, without any other rank. Messages
 * with one tag, from one rank to another in one process set, are received in the order in which they were
 * sent; a receive takes the oldest matching message, and a message goes to the oldest matching receive.
 * Handles are those of hvd_submit, also for hvd_poll, hvd_wait and hvd_release.
 *
 * A send is complete when its memory may be used again; the message may then still be in flight. The send of a
 * small message is complete at once, the send of a larger message when it was received. Two ranks that both wait for a
 * send before they receive may therefore deadlock. Sender and receiver must pass the same dtype and count;
 * otherwise the receive fails with HVD_INVALID_ARGUMENT, and so does the send, unless it is complete.
 *
 * hvd_shutdown delivers what was sent, and withdraws sends and receives without a match. A message that has
 * arrived can be received after its sender has left. */

typedef struct hvd_message {
  size_t struct_size;
  int32_t
      rank; /* hvd_send: the receiver; hvd_recv: the sender, or HVD_ANY_RANK. A rank of the job */
  int32_t tag;         /* 0 or more; a receive takes messages with its tag only */
  int32_t process_set; /* 0 is all ranks; both ranks are members */
  int32_t dtype;       /* hvd_dtype */
  int64_t count;       /* elements */
  /* Host memory, in flight as for hvd_submit. hvd_send only reads it. May be NULL if count is 0. */
  void* data;
  /* Seconds until the work fails with HVD_DEADLINE_EXCEEDED and releases its memory, unless the
   * other rank has submitted its counterpart by then; 0 means no limit. The failure does not end the job. */
  double timeout_seconds;
  const char* program; /* as in hvd_submission */
} hvd_message;

/* Sends a message. Waits for no other rank. The send may be complete when hvd_send returns.
 * HVD_ALREADY_EXISTS (also from hvd_recv): other work in flight uses the memory. */
HVD_API int hvd_send(const hvd_message* message, hvd_handle* handle, char* error,
                     size_t error_size);
/* Receives a message into the caller's memory. hvd_get_output(handle, 0) returns the sender's rank. */
HVD_API int hvd_recv(const hvd_message* message, hvd_handle* handle, char* error,
                     size_t error_size);

/* ---- Groups: collectives without names ----------------------------------------------------------
 *
 * The n-th call of a group is one operation on all its members. Nothing is negotiated, and a group needs no
 * name or process set: a framework that calls its collectives in the same order on all ranks uses groups.
 * Members compare each call before they write into any memory: number, operation, dtype, count, root,
 * reduction and factors. If two members differ, the call fails on all members with HVD_INVALID_ARGUMENT and a
 * sentence with both values, and the next call is in step. Calls of one group run one after another. Calls of
 * different groups, also of the same ranks, and work of hvd_submit run concurrently, in any order. */

/* Creates a group of `count` ranks of the job, ascending, which contains this rank. Waits for no
 * other rank. All members must create groups of equal ranks in the same order. `name`, for
 * messages, may be NULL. HVD_UNIMPLEMENTED: a job without the built-in links. */
HVD_API int hvd_group_create(const int32_t* ranks, uint32_t count, const char* name, int32_t* group,
                             char* error, size_t error_size);
/* Ends a group on this rank. Its incomplete calls fail with HVD_ABORTED at once, and so do the
 * calls of the other members. Calls that are complete here become complete on all members. */
HVD_API int hvd_group_destroy(int32_t group, char* error, size_t error_size);

/* Operations that only groups have, in addition to hvd_op_kind. */
typedef enum hvd_group_op {
  HVD_GROUP_REDUCE = 64, /* an allreduce whose output only the root gets */
  HVD_GROUP_GATHER = 65,
  HVD_GROUP_SCATTER = 66
} hvd_group_op;

typedef struct hvd_group_call {
  size_t struct_size;
  int32_t group;
  int32_t op;        /* hvd_op_kind without HVD_JOIN, or hvd_group_op */
  int32_t reduce_op; /* for a reduction: average (not for bool), sum, min, max, product */
  int32_t dtype;
  int32_t root_rank; /* broadcast, reduce, gather, scatter: a rank of the job */
  int32_t tag;       /* a number of the caller, which the members compare; 0: none */
  /* Number of elements. allreduce, reduce, broadcast: in the input and in the output; allgather, gather: in
   * the input (the output has as many for each member); reducescatter, scatter: in the output (the input has
   * as many for each member); alltoall, barrier: 0. */
  int64_t count;
  /* Host memory. allreduce, reduce, broadcast: may be the output; allgather, gather: may be this member's part of the
   * output. On a member that is not the root, the output of a reduce or gather and the input of a scatter are NULL. */
  const void* input;
  void* output;
  double prescale, postscale; /* as in hvd_submission */
  const int64_t* send_counts; /* alltoall: elements to each member, in order; copied */
  const int64_t* recv_counts; /* alltoall: elements that each member sends to this member */
  const char* program;        /* as in hvd_submission */
  /* 1 if a training step begins with this call, which counts the previous step; else 0. For
   * frameworks whose tensors have no recurring names. */
  int32_t begins_step;
} hvd_group_call;

/* Calls a collective of a group. Handles are those of hvd_submit; the call may be complete at
 * once. HVD_ALREADY_EXISTS: other work in flight uses the memory. The group does not count such
 * a call: wait, and call again. */
HVD_API int hvd_group_submit(const hvd_group_call* call, hvd_handle* handle, char* error,
                             size_t error_size);

/* ---- Stacks of the main thread ---------------------------------------------------------------- */

/* For interpreters: lets a stall report show the main thread's stack of a missing rank. The
 * process has a handler for `signal_number` that writes the receiving thread's stack, without
 * waiting, into a pipe. `fd` is the read end of the pipe. The stack is text with a header line
 * that ends in "(most recent call first):", as written by Python's faulthandler. Handler and
 * pipe must exist until the process ends; signal 0 withdraws the offer. The runtime sends the
 * signal to the main thread, never while another handler is installed. The offer takes effect at the
 * next hvd_init. */
HVD_API int hvd_offer_stack(int32_t signal_number, int32_t fd, char* error, size_t error_size);

/* ---- Observation ---------------------------------------------------------------------------- */

/* Starts a timeline of all ranks: a Chrome trace in one file, which rank 0 writes. A relative
 * path is relative to rank 0's working directory. `mark_cycles`: 1 marks each batching window,
 * else 0. Returns when this rank records. All other ranks record before the next negotiation
 * ends. Any rank may call this function, also several ranks with an equal path. Only one timeline runs at a
 * time. HVD_UNAVAILABLE: a timeline with another path runs, or the file cannot be written; the
 * job continues. */
HVD_API int hvd_start_timeline(const char* path, int32_t mark_cycles, char* error,
                               size_t error_size);

/* Stops the timeline, if one runs. Returns when its file is complete. Any rank may call this function.
 * hvd_shutdown stops the timeline too. */
HVD_API int hvd_stop_timeline(char* error, size_t error_size);

typedef enum hvd_metrics_scope {
  HVD_METRICS_RANK = 0, /* metrics of this rank */
  HVD_METRICS_JOB = 1,  /* metrics of the ranks whose helper threads answer within 0.4 s */
  HVD_METRICS_STEP = 2  /* gauges of the last training steps of this rank */
} hvd_metrics_scope;

/* Writes counters and histograms since hvd_init in Prometheus's text format (docs/metrics.md).
 * Sets *needed to the size of the text including the NUL. Leaves `buffer` unchanged if the text
 * does not fit into `size` bytes. The text may grow between two calls: add some spare bytes. */
HVD_API int hvd_metrics(int32_t scope, char* buffer, size_t size, size_t* needed, char* error,
                        size_t error_size);

/* ---- Shared memory for tensors --------------------------------------------------------------- */

/* Allocates memory that the other ranks of this host can map. An in-place allreduce makes no copies if its
 * tensors lie in such memory on every rank. An allgather and a reduce-scatter of a group on one host read
 * inputs in place. A tensor may be any part of the memory, which is page-aligned, zeroed and fully reserved.
 * HVD_UNAVAILABLE, HVD_INTERNAL: the host has too little memory. The memory belongs to the process and not to a
 * job: the program may allocate it before hvd_init, and it stays valid after hvd_shutdown and another hvd_init.
 * A forked child shares the memory with its parent, and cannot allocate or free any (HVD_FAILED_PRECONDITION). The
 * memory has no name in the file system, and the kernel frees it with the last process. After an allreduce in this
 * memory has failed, a rank of the host that has not seen the failure yet may still write to the tensors: write new
 * values only after every other rank of the host has left hvd_shutdown or has ended, for example
 * after the next hvd_init on all these ranks. */
HVD_API int hvd_alloc(size_t size, void** memory, char* error, size_t error_size);

/* Frees memory of hvd_alloc. NULL is HVD_OK. No unfinished work may use the memory. */
HVD_API int hvd_free(void* memory, char* error, size_t error_size);

/* Returns a digest for comparing copies of data. Different data (a byte, the order or the size) has an equal digest
 * once in 2^64. `seed`: the digest of preceding data, or 0. Any thread may call this function, also before hvd_init. */
HVD_API uint64_t hvd_digest(const void* data, size_t size, uint64_t seed);

/* ---- Keys that the ranks share --------------------------------------------------------------- */

/* Writes the key for `purpose` to `key`, whose `size` must be 32 bytes. All ranks get the same key until
 * hvd_shutdown. Keys differ between purposes, between calls of hvd_init, and between jobs. A key is made
 * from the job's secret by HMAC-SHA256: it does not reveal the secret, and only a process that has the
 * secret can compute it. HVD_FAILED_PRECONDITION before hvd_init and after hvd_shutdown. */
HVD_API int hvd_derive_key(const char* purpose, void* key, size_t size, char* error,
                           size_t error_size);

/* ---- Capabilities of this build and machine -------------------------------------------------- */

/* Returns 1 when the capability works on this machine, else 0 with the reason in `why`, which may be
 * NULL. Names: "shared-memory", "tcp", "mpi", "gloo", "nccl", "ddl", "ccl", "cuda", "rocm", "mpi-threads".
 * The last works between hvd_init and hvd_shutdown if the job uses MPI (HOROVOD_CONTROLLER or
 * HOROVOD_CPU_OPERATIONS) and the MPI of all ranks has MPI_THREAD_MULTIPLE. */
HVD_API int32_t hvd_capability(const char* name, char* why, size_t why_size);

#ifdef __cplusplus
}
#endif
