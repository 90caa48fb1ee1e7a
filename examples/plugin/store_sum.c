/* An op plugin: sums of float32 over all ranks, through the job's store. A slow way that needs
 * nothing but the headers; plugins/ABI.md says what each function owes. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "horovod/plugin_op.h"

typedef void (*Done)(void* argument, int status, const char* error);
typedef struct Job { const hvd_batch* batch; Done done; void* argument; int32_t added; } Job;
typedef struct Sum { const hvd_plugin_host* host; hvd_plugin_config config; Job jobs[2]; } Sum;

static size_t bytes_of(const Job* job) { return 4 * (size_t)job->batch->tensors->count; }
static void key_of(const Job* job, int32_t rank, char key[64]) {
  snprintf(key, 64, "store-sum/%llu/%d", (unsigned long long)job->batch->sequence, (int)rank);
}

static int32_t supports(void* context, const hvd_batch* batch) {
  const int all = batch->process_set == 0 && ((Sum*)context)->config.size > 1;
  return all && batch->op == HVD_ALLREDUCE && batch->reduce_op == HVD_SUM && batch->prescale == 1 &&
         batch->dtype == HVD_FLOAT32 && batch->device == HVD_CPU && batch->tensor_count == 1 &&
         batch->tensors->count <= 1024 ? 150 : 0; /* the built-in operations say 100 */
}
static int run(void* context, const hvd_batch* batch, Done done, void* argument) {
  Sum* sum = context;
  Job* job = &sum->jobs[sum->jobs[0].batch != NULL]; /* of one set two run at most */
  char key[64];
  *job = (Job){batch, done, argument, 0};
  key_of(job, sum->config.rank, key);
  static const float kZeros[1024]; /* a rank that has joined brings no input */
  const void* input = batch->tensors->input != NULL ? batch->tensors->input : kZeros;
  return sum->host->store_set(sum->host->host, key, input, bytes_of(job));
}
static int poll_sum(void* context, int32_t* progressed) {
  Sum* sum = context;
  Job job = sum->jobs[0];
  if (job.batch == NULL) return HVD_OK;
  float shares[1024], *total = job.batch->tensors->output;
  char key[64];
  size_t size = 0;
  key_of(&job, job.added, key);
  if (sum->host->store_get(sum->host->host, key, shares, sizeof shares, &size, 0.05) != HVD_OK)
    return HVD_OK; /* not there yet */
  for (size_t i = 0; total != NULL && i < size / 4; ++i)
    total[i] = (job.added == 0 ? 0 : total[i]) + shares[i] * (float)job.batch->postscale;
  *progressed = 1;
  sum->jobs[0].added = ++job.added;
  if (job.added < sum->config.size) return HVD_OK;
  sum->jobs[0] = sum->jobs[1];
  sum->jobs[1] = (Job){0};
  job.done(job.argument, HVD_OK, NULL);
  return HVD_OK;
}
static int before_sleep(void* context) { return ((Sum*)context)->jobs[0].batch == NULL; }
static int new_set(void* context, int32_t set, const int32_t* members, int32_t count) {
  return (void)context, (void)set, (void)members, (void)count, HVD_OK;
}
static int drop_set(void* context, int32_t set) { return (void)context, (void)set, HVD_OK; }
static void abort_all(void* context, const char* cause) {
  Sum* sum = context;
  for (int i = 0; i < 2; ++i)
    if (sum->jobs[i].batch != NULL) sum->jobs[i].done(sum->jobs[i].argument, HVD_ABORTED, cause);
  memset(sum->jobs, 0, sizeof sum->jobs);
}

static int probe(char* why, size_t size) { return (void)why, (void)size, 1; }
static int open_sum(const hvd_plugin_host* host, const hvd_plugin_config* config, void** context,
                    char* error, size_t error_size) {
  Sum* sum = calloc(1, sizeof *sum);
  if (sum == NULL) return snprintf(error, error_size, "there is no memory"), HVD_INTERNAL;
  sum->host = host;
  sum->config = *config;
  *context = sum;
  host->log(host->host, 2, "small sums go through the store");
  return HVD_OK;
}

static const hvd_op_v1 kOp = {sizeof kOp, supports, run,  poll_sum,    new_set,
                              drop_set,   abort_all, NULL, before_sleep, NULL};
static const hvd_plugin kPlugin = {sizeof kPlugin, HVD_PLUGIN_ABI, HVD_PLUGIN_OP, "store-sum",
                                   10, HVD_THREADS_ONE, 0, probe, open_sum, free, &kOp};
const hvd_plugin* hvd_plugin_entry_v1(void) { return &kPlugin; }
