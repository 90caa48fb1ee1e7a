/* A complete but slow op plugin: sums over all ranks by the job's store (plugins/ABI.md). */
#include <stdio.h>
#include <stdlib.h>

#include "horovod/plugin_op.h"

typedef struct QueuedSum {
  const hvd_batch* batch;
  hvd_batch_done done;
  void* argument;
  int added;
} QueuedSum;
typedef struct Sum {
  const hvd_plugin_host* host;
  int rank, size;
  QueuedSum jobs[2];
  char key[64];
} Sum;

static int32_t supports(void* sum, const hvd_batch* batch) { /* the built-in ops return 100 */
  return batch->op == HVD_ALLREDUCE && batch->reduce_op == HVD_SUM && batch->prescale == 1 &&
                 batch->dtype == HVD_FLOAT32 && batch->device == HVD_CPU &&
                 batch->process_set == 0 && batch->tensor_count == 1 &&
                 batch->tensors->count < 512 && ((Sum*)sum)->size > 1
             ? 150
             : 0;
}
static const char* key_of(Sum* sum, const hvd_batch* batch, int rank) {
  return snprintf(sum->key, 64, "sum/%llu/%d", (unsigned long long)batch->sequence, rank), sum->key;
}
static int run(void* context, const hvd_batch* batch, hvd_batch_done done, void* argument) {
  Sum* sum = context;
  sum->jobs[sum->jobs[0].batch != NULL] = (QueuedSum){batch, done, argument, 0}; /* two at most */
  const float* input = batch->tensors->input; /* a rank that has joined has no input: zeros */
  return sum->host->store_set(sum->host->host, key_of(sum, batch, sum->rank), input,
                              input != NULL ? sizeof *input * (size_t)batch->tensors->count : 0);
}
static void end_first(Sum* sum, int status, const char* cause) {
  const QueuedSum job = sum->jobs[0];
  sum->jobs[0] = sum->jobs[1];
  sum->jobs[1].batch = NULL;
  job.done(job.argument, status, cause);
}
static int poll_sum(void* context, int32_t* progressed) { /* adds one share, once it is stored */
  Sum* sum = context;
  QueuedSum* job = sum->jobs;
  if (job->batch == NULL) return HVD_OK;
  float share[512] = {0}, *total = job->batch->tensors->output;
  if (sum->host->store_get(sum->host->host, key_of(sum, job->batch, job->added), share,
                           sizeof share, NULL, 0.05) != HVD_OK)
    return HVD_OK;
  for (int64_t i = 0; total != NULL && i < job->batch->tensors->count; ++i)
    total[i] = (job->added == 0 ? 0 : total[i]) + share[i] * (float)job->batch->postscale;
  *progressed = 1;
  if (++job->added == sum->size) end_first(sum, HVD_OK, NULL);
  return HVD_OK;
}
static int may_sleep(void* context) { return ((Sum*)context)->jobs[0].batch == NULL; }
static void abort_all(void* context, const char* cause) {
  while (!may_sleep(context)) end_first(context, HVD_ABORTED, cause);
}
static int open_sum(const hvd_plugin_host* host, const hvd_plugin_config* config, void** context,
                    char* error, size_t error_size) {
  Sum* sum = *context = calloc(1, sizeof *sum);
  if (sum == NULL) return snprintf(error, error_size, "there is no memory"), HVD_INTERNAL;
  *sum = (Sum){.host = host, .rank = config->rank, .size = config->size};
  host->log(host->host, 2, "small sums go through the store");
  return HVD_OK;
}
static const hvd_op_v1 kOp = {sizeof kOp, supports,           run,
                              poll_sum,   .abort = abort_all, .before_sleep = may_sleep};
static const hvd_plugin kPlugin = {
    sizeof kPlugin,  HVD_PLUGIN_ABI,   HVD_PLUGIN_OP, "store-sum",   10,
    HVD_THREADS_ONE, .open = open_sum, .close = free, .vtable = &kOp};
const hvd_plugin* hvd_plugin_entry_v1(void) { return &kPlugin; }
