/* Enumerations of the C ABI, the plugin ABI and the wire format, in C11. The values never change. */
#pragma once

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Element types. 0-9 keep Horovod's numbers. */
typedef enum hvd_dtype {
  HVD_UINT8 = 0,
  HVD_INT8 = 1,
  HVD_UINT16 = 2,
  HVD_INT16 = 3,
  HVD_INT32 = 4,
  HVD_INT64 = 5,
  HVD_FLOAT16 = 6,
  HVD_FLOAT32 = 7,
  HVD_FLOAT64 = 8,
  HVD_BOOL = 9,
  HVD_BFLOAT16 = 10,
  HVD_UINT32 = 11,
  HVD_UINT64 = 12
} hvd_dtype;

/* Reduce operations; numbers as in hvd.Average, hvd.Sum, ... of the Python package.
 *
 *              integers              float16, bfloat16,      bool
 *                                    float32, float64
 *   average    sum divided, cut      sum divided             refused
 *              towards zero
 *   sum        wraps around          sum                     any is true (or)
 *   min, max   yes                   NaN if any is NaN       all (and), any (or)
 *   product    wraps around          yes                     all are true (and)
 *   adasum     refused               allreduce only          refused
 *
 * float16 and bfloat16 add and multiply in float32 and are rounded once. Between hosts only an average may send 16
 * bits, and is then also rounded once per host. A NaN of any rank is the result, with the same bits on all ranks.
 * The sum for an average of integers has 32 bits for types of 8 bits, else 64: only int64 and uint64 wrap around.
 * Adasum computes in float64, for each tensor of a group, and combines vectors a and b to (1 - a.b / 2|a|^2) a +
 * (1 - a.b / 2|b|^2) b, which adds orthogonal vectors and averages equal ones: ranks 2i, 2i+1, then pairs of results.
 * Factors (prescale, postscale) multiply in float32 for float16, bfloat16 and float32, in float64 for others. Integers
 * are cut towards zero; bool does not change. An average without a postscale factor is divided with correct rounding,
 * by the number of all ranks, including joined ranks. Other backends differ: docs/schedulers.md. */
typedef enum hvd_reduce_op {
  HVD_AVERAGE = 0,
  HVD_SUM = 1,
  HVD_ADASUM = 2,
  HVD_MIN = 3,
  HVD_MAX = 4,
  HVD_PRODUCT = 5
} hvd_reduce_op;

typedef enum hvd_op_kind {
  HVD_ALLREDUCE = 0,
  HVD_ALLGATHER = 1,
  HVD_BROADCAST = 2,
  HVD_JOIN = 3,
  HVD_ALLTOALL = 5,
  HVD_BARRIER = 6,
  HVD_REDUCESCATTER = 7,
  HVD_SEND = 8, /* 8 and 9: only for hvd_send and hvd_recv, never for hvd_submit or plugins */
  HVD_RECV = 9
} hvd_op_kind;

/* Devices: HVD_CPU, or the ordinal of an accelerator. */
#define HVD_CPU (-1)

/* The sender of a message that hvd_recv accepts from any rank of the process set. */
#define HVD_ANY_RANK (-1)

/* The result codes of the functions in horovod.h. */
typedef enum hvd_status {
  HVD_OK = 0,
  HVD_INVALID_ARGUMENT = 1,    /* a bad value from the caller, or ranks that disagree */
  HVD_FAILED_PRECONDITION = 2, /* not initialised, already initialised, after shutdown */
  HVD_NOT_FOUND = 3,           /* no such handle, process set, key */
  HVD_DEADLINE_EXCEEDED = 4,   /* the deadline of the call passed */
  HVD_UNAVAILABLE = 5,         /* a peer or server cannot be reached */
  HVD_ABORTED = 6,             /* a peer died or shut down: all pending work fails */
  HVD_PERMISSION_DENIED = 7,   /* a signature, token or file mode was refused */
  HVD_ALREADY_EXISTS = 8,      /* the name or memory is in flight already */
  HVD_UNIMPLEMENTED = 9,       /* not in this build; the message names an alternative */
  HVD_INTERNAL = 10,           /* a defect of this library, or no memory or thread left */
  HVD_IN_PROGRESS = 11,        /* hvd_wait: not complete yet; hvd_release: still in use */
  HVD_LEFT = 12                /* hvd_init: this process has left the job, and must end */
} hvd_status;

#ifdef __cplusplus
}
#endif
