/* Op plugins run agreed batches; they never negotiate. C11. */
#pragma once

#include "horovod/plugin.h"

#ifdef __cplusplus
extern "C" {
#endif

/* One tensor of a batch. Counts are elements. */
typedef struct hvd_batch_tensor {
  const void* input; /* NULL on a joined rank: contributes the operation's zero */
  void* output;      /* as large as this rank's result */
  int64_t count;
  int64_t row;              /* elements of one row of dimension 0, for operations that split rows */
  const int64_t* rank_rows; /* allgather: rows of each member; alltoall: rows to each; else NULL */
  const int64_t* from_rows; /* alltoall: rows from each; else NULL */
} hvd_batch_tensor;

/* How a batch is to be run, the same on all members of its process set. In every field 0 is the
 * op's own choice, and what an op does not know it ignores. Grows at the tail only. Limits are bytes
 * of a whole batch on one rank; -1 turns a limit's way off. */
typedef struct hvd_tuning {
  size_t struct_size;
  int64_t whole_limit; /* up to here each host gets every other host's part whole; times the other
                           * hosts */
  int64_t doubling_limit; /* up to here hosts double what they know in each hop */
  int64_t ring_from;      /* from here a ring of hosts; between the two, slices */
  int64_t chunk;          /* bytes that travel between hosts as one piece */
  int32_t direct_hosts;   /* slices go to each host directly up to so many hosts, else by halving */
  int32_t streams;        /* TCP streams between two ranks on two hosts */
  int32_t drivers;        /* ranks of a host that drive its streams: 1 is its leader alone */
} hvd_tuning;

/* Work that all members of a process set run together, in the same order everywhere. */
typedef struct hvd_batch {
  size_t struct_size;
  uint64_t sequence;
  int32_t op;        /* hvd_op_kind */
  int32_t reduce_op; /* HVD_AVERAGE arrives as HVD_SUM with the division in postscale */
  int32_t dtype;
  int32_t device; /* HVD_CPU, or the ordinal on this rank, of all its tensors */
  int32_t process_set;
  int32_t root; /* of a broadcast: index among the members */
  double prescale, postscale;
  void* stream; /* the framework's, of the first tensor; NULL on CPU */
  uint32_t tensor_count;
  const hvd_batch_tensor* tensors;
  const hvd_tuning* tuning; /* NULL: the op's own choice in everything */
  /* Where device is not HVD_CPU, one entry for each tensor: the event after which its input may be
   * read, or NULL when that is so already. */
  void* const* ready_events;
  /* Where device is not HVD_CPU, and the tensors of an allgather, alltoall or reducescatter have no
   * output: the op stores what it made here, one entry for each tensor, before it calls done; NULL
   * for what is empty. The framework that it has published releases them. */
  void** made_outputs;
} hvd_batch;

/* How a batch ends: `status` is an hvd_status; `error` may be NULL. */
typedef void (*hvd_batch_done)(void* argument, int status, const char* error);

typedef struct hvd_op_v1 {
  size_t struct_size;
  /* 0: cannot run it; else the higher the better. Must give the same answer on all members. */
  int32_t (*supports)(void* context, const hvd_batch* batch);
  /* Starts a batch, which stays alive until done(argument, status, error) was called, once, from
   * run or poll. Returns at once; poll goes on. */
  int (*run)(void* context, const hvd_batch* batch, hvd_batch_done done, void* argument);
  /* Advances what is running without waiting; *progressed becomes 1 when anything moved. */
  int (*poll)(void* context, int32_t* progressed);
  /* members: ascending global ranks, this one among them. NULL (either function): an op that need
   * not know. */
  int (*new_set)(void* context, int32_t process_set, const int32_t* members, int32_t count);
  int (*drop_set)(void* context, int32_t process_set);
  void (*abort)(void* context, const char* cause);
  /* What the timeline calls the running of a batch, such as "NCCL_ALLREDUCE"; static storage, the
   * same pointer for the same word. NULL (the function or what it returns): the plugin's name. */
  const char* (*activity)(void* context, const hvd_batch* batch);
  /* Asked before the progress thread sleeps. 1: what runs makes a watched descriptor readable, or
   * posts, when poll has something to do. 0: poll goes on. NULL: 1. */
  int (*before_sleep)(void* context);
  /* Runs an allreduce of which everything is here, so that nothing travels: inputs[i] is what member i
   * brings, its tensors behind each other as they were submitted (not scaled), aligned to 16 bytes;
   * NULL for this rank, whose tensors the batch has. Fills the outputs before it returns; the same
   * result on all members. NULL (the function): this op gets no such batch. */
  int (*reduce_wholes)(void* context, const hvd_batch* batch, const void* const* inputs);
} hvd_op_v1;

#ifdef __cplusplus
}
#endif
