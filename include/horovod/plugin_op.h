/* The ABI of an op plugin, in C11. The plugin runs batches on which all ranks have agreed, and does not
 * negotiate. The runtime calls the plugin on the progress thread. */
#pragma once

#include "horovod/plugin.h"

#ifdef __cplusplus
extern "C" {
#endif

/* One tensor of a batch. Counts are in elements. Some members may use the input as the output
 * while others do not. */
typedef struct hvd_batch_tensor {
  const void* input; /* NULL on a joined rank, which contributes the neutral element */
  void* output;      /* as large as this rank's result */
  int64_t count;
  int64_t row;              /* elements of one row of dimension 0, for operations that split rows */
  const int64_t* rank_rows; /* allgather: rows of each member; alltoall: rows to each; else NULL */
  const int64_t* from_rows; /* alltoall: rows from each; else NULL */
} hvd_batch_tensor;

/* Parameters of a batch, equal on all members of its process set. In every field, 0 means the
 * op's own default. An op ignores unknown fields. The struct grows only at the tail. Limits are
 * bytes of a complete batch on one rank; -1 disables the algorithm that the limit selects. */
typedef struct hvd_tuning {
  size_t struct_size;
  /* For at most direct_hosts hosts: one-shot (each host gets every other host's data) while the
   * size times the number of other hosts is at most this limit. */
  int64_t whole_limit;
  /* Otherwise: recursive doubling across hosts up to this size. */
  int64_t doubling_limit;
  /* For more than direct_hosts hosts: a ring from this size, and halving-doubling below it. */
  int64_t ring_from;
  int64_t chunk;        /* bytes of one message between hosts */
  int32_t direct_hosts; /* maximum number of hosts for one-shot and two-shot */
  int32_t streams;      /* TCP streams between two ranks on two hosts */
  int32_t drivers;      /* ranks of a host that use its streams; 1 means the host's leader */
} hvd_tuning;

/* A batch of tensors that all members of a process set run together. All members run the batches of a
 * set in the same order. Batches on devices have one order over all sets: two ranks start the batches of
 * the sets that they share in the same order. */
typedef struct hvd_batch {
  size_t struct_size;
  uint64_t sequence;
  int32_t op; /* hvd_op_kind */
  int32_t
      reduce_op; /* HVD_AVERAGE arrives as HVD_SUM with the division in postscale, see divisor */
  int32_t dtype;
  /* HVD_CPU, or the ordinal of the device of this rank that has all the tensors. On a joined rank: the
   * device of its earlier tensors, or HVD_UNKNOWN_DEVICE. */
  int32_t device;
  int32_t process_set;
  int32_t root; /* for a broadcast: the root's index among the members */
  double prescale, postscale;
  void* stream; /* the framework's stream of the first tensor; NULL on CPU */
  uint32_t tensor_count;
  const hvd_batch_tensor* tensors;
  const hvd_tuning* tuning; /* NULL: the op's own default in every field */
  /* For a batch on a device, one entry for each tensor: the event after which the op may read its input,
   * or NULL if the op may read it now. */
  void* const* ready_events;
  /* For a batch on a device, and tensors of an allgather, alltoall or reducescatter without an output:
   * the op allocates the outputs and stores them here, one entry for each tensor, before it calls done.
   * The entry of an empty output is NULL. The hvd_framework published by the op releases the outputs. */
  void** made_outputs;
  /* With 1, the tensors exist until the process ends if done gets HVD_TENSORS_IN_USE. With 0, the op
   * must have stopped using their memory when it calls done. Members may have different values. */
  int32_t keeps_tensors;
  /* For an average, the number of members; postscale is then 1 / divisor, rounded. An op that divides the
   * sum by the divisor gives correctly rounded quotients. Otherwise 0, and postscale is a factor. */
  int32_t divisor;
  /* 1 for a trial: a broadcast of bytes on a device, whose tensor lies in host memory. The op does not send
   * the tensor. Together with the other members, the op prepares itself for batches of the process set, in
   * a limited time. If the op cannot, it writes the reason to the output as zero-terminated text. The op
   * calls done with HVD_OK in any case: the job continues. No earlier batch of the set is on a device. */
  int32_t is_trial;
  /* NULL, or a callback for a batch on a device. The op may call on_stream once before done, from run or poll, when
   * the complete batch is on the device's stream and made_outputs is complete. `event` is for make_stream_wait of the
   * op's hvd_framework. The device reaches the event at the end of this batch, or of a later one of the stream. */
  void (*on_stream)(void* argument, void* event);
  /* NULL, or a callback for a batch on a device. The op calls the callback for one of its batches, from run or
   * poll, when its library has failed and kernels may still run. The runtime sends the error to the other
   * ranks before it calls abort, because these ranks would take the data of an aborted kernel for a result. */
  void (*fails)(void* argument, int status, const char* error);
  /* NULL, or a callback for a batch on a device. The op may call it once before done, from run or poll, with the times
   * in which the device executed the batch, in nanoseconds of CLOCK_MONOTONIC. The wait for ready_events is over at
   * `began`; a wait for other members lies between `began` and `ended`. */
  void (*ran)(void* argument, int64_t began, int64_t ended);
} hvd_batch;

/* The device of a batch on a rank without a tensor in this batch or in an earlier batch on a device. */
#define HVD_UNKNOWN_DEVICE (-2)

/* A bit that an op adds to the status of a failed batch if a library may still read and write the
 * tensors. Only for a batch with keeps_tensors. */
#define HVD_TENSORS_IN_USE 0x100

/* Reports the end of a batch. `status` is an hvd_status; `error` may be NULL. */
typedef void (*hvd_batch_done)(void* argument, int status, const char* error);

typedef struct hvd_op_v1 {
  size_t struct_size;
  /* Returns 0 if the op cannot run the batch, else a priority: the op with the highest priority runs
   * the batch. Must return an equal value on all members. */
  int32_t (*supports)(void* context, const hvd_batch* batch);
  /* Starts a batch and returns at once. The op calls done(argument, status, error) once, from run or
   * poll. The batch is valid until then. */
  int (*run)(void* context, const hvd_batch* batch, hvd_batch_done done, void* argument);
  /* Advances the running batches. Never waits. Sets *progressed to 1 if any batch made progress. */
  int (*poll)(void* context, int32_t* progressed);
  /* Adds and removes a process set of this rank. members: ascending ranks of the job, including
   * this rank. Either function may be NULL if the op does not need it. */
  int (*new_set)(void* context, int32_t process_set, const int32_t* members, int32_t count);
  int (*drop_set)(void* context, int32_t process_set);
  /* Fails all batches with `cause`, because the job has failed. */
  void (*abort)(void* context, const char* cause);
  /* Returns the timeline's name of a running batch, for example "NCCL_ALLREDUCE": static storage, an
   * equal pointer for an equal name. NULL (the function or its result): the plugin's name. */
  const char* (*activity)(void* context, const hvd_batch* batch);
  /* The progress thread calls before_sleep before it sleeps. Returns 1 if running batches make a watched
   * descriptor readable, or call post, as soon as poll has work. Returns 0 if the thread must keep
   * polling. NULL (the function) means 1. */
  int (*before_sleep)(void* context);
  /* Runs an allreduce if the inputs of all members are already in this rank's memory. inputs[i] is
   * the input of member i: its tensors one after another, not scaled, aligned to 16 bytes; NULL for
   * this rank, whose tensors are in the batch. Writes the outputs before it returns. The result must
   * be equal on all members. NULL (the function): the runtime passes such batches to run. */
  int (*reduce_wholes)(void* context, const hvd_batch* batch, const void* const* inputs);
} hvd_op_v1;

#ifdef __cplusplus
}
#endif
