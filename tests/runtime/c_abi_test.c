/* A single-process job through the C ABI, from C. Prints each failure and returns 1. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "horovod/horovod.h"
#include "horovod/plugin_controller.h"
#include "horovod/plugin_framework.h"
#include "horovod/plugin_op.h"
#include "horovod/version.h"

/* Names of the original's library, which no header declares. */
extern int horovod_rank(void);
extern int horovod_size(void);
extern int horovod_local_rank(void);
extern int horovod_local_size(void);
extern void horovod_shutdown(void);

static char error[512];

#define EXPECT(condition)                                                                       \
  do {                                                                                          \
    if (!(condition)) {                                                                         \
      fprintf(stderr, "%s:%d: %s does not hold (%s)\n", __FILE__, __LINE__, #condition, error); \
      return 1;                                                                                 \
    }                                                                                           \
  } while (0)

static int run(hvd_submission* submission, hvd_handle* handle) {
  const int code = hvd_submit(submission, handle, error, sizeof error);
  return code != HVD_OK ? code : hvd_wait(*handle, 10, error, sizeof error);
}

static hvd_submission make(int32_t op, const char* name, const hvd_tensor* tensor) {
  hvd_submission submission;
  memset(&submission, 0, sizeof submission);
  submission.struct_size = sizeof submission;
  submission.op = op;
  submission.name = name;
  submission.device = HVD_CPU;
  submission.tensor_count = tensor != NULL ? 1 : 0;
  submission.tensors = tensor;
  return submission;
}

static int before_init(void) {
  hvd_handle handle = 0;
  hvd_submission barrier = make(HVD_BARRIER, NULL, NULL);
  EXPECT(strcmp(hvd_version(), HVD_VERSION) == 0);
  EXPECT(hvd_is_initialized() == 0);
  EXPECT(hvd_rank() == -1 && hvd_size() == -1 && hvd_is_homogeneous() == -1);
  EXPECT(horovod_rank() == -1 && horovod_local_size() == -1);
  EXPECT(hvd_submit(&barrier, &handle, error, sizeof error) == HVD_FAILED_PRECONDITION);
  EXPECT(strstr(error, "has not been initialized") != NULL);
  EXPECT(hvd_start(1, error, sizeof error) == HVD_NOT_FOUND);
  EXPECT(hvd_shutdown(error, sizeof error) == HVD_OK);
  EXPECT(hvd_capability("shared-memory", NULL, 0) == 1);
  EXPECT(hvd_capability("no-such-thing", error, sizeof error) == 0 && error[0] != '\0');
  return 0;
}

/* Call while initialised. `first` gets the key; another start must give a different key. */
static int keys(char* first) {
  char key[32];
  EXPECT(hvd_derive_key("objects", first, 32, error, sizeof error) == HVD_OK);
  EXPECT(hvd_derive_key("objects", key, 32, error, sizeof error) == HVD_OK);
  EXPECT(memcmp(key, first, 32) == 0);
  EXPECT(hvd_derive_key("others", key, 32, error, sizeof error) == HVD_OK);
  EXPECT(memcmp(key, first, 32) != 0);
  EXPECT(hvd_derive_key("objects", key, 31, error, sizeof error) == HVD_INVALID_ARGUMENT);
  EXPECT(hvd_derive_key("objects", NULL, 32, error, sizeof error) == HVD_INVALID_ARGUMENT);
  EXPECT(hvd_derive_key(NULL, key, 32, error, sizeof error) == HVD_INVALID_ARGUMENT);
  return 0;
}

static int no_keys(void) {
  char key[32];
  EXPECT(hvd_derive_key("objects", key, 32, error, sizeof error) == HVD_FAILED_PRECONDITION);
  return 0;
}

/* Called before the first hvd_init, while initialised and after hvd_shutdown. */
static int shared_memory(void) {
  void* memory = NULL;
  EXPECT(hvd_alloc(100, NULL, error, sizeof error) == HVD_INVALID_ARGUMENT);
  EXPECT(hvd_alloc(0, &memory, error, sizeof error) == HVD_INVALID_ARGUMENT);
  EXPECT(hvd_alloc(100000, &memory, error, sizeof error) == HVD_OK);
  EXPECT(((char*)memory)[99999] == 0);
  memset(memory, 1, 100000);
  EXPECT(hvd_free(memory, error, sizeof error) == HVD_OK);
  EXPECT(hvd_free(memory, error, sizeof error) == HVD_NOT_FOUND);
  EXPECT(hvd_free(NULL, error, sizeof error) == HVD_OK);
  return 0;
}

static int operations(void) {
  const int64_t shape[2] = {2, 3};
  float input[6] = {1, 2, 3, 4, 5, 6};
  float output[6] = {0};
  hvd_tensor tensor = {NULL, HVD_FLOAT32, 2, shape, input, output};
  hvd_handle handle = 0;
  int32_t done = 0;
  hvd_output result;

  hvd_submission sum = make(HVD_ALLREDUCE, "x", &tensor);
  sum.reduce_op = HVD_SUM;
  sum.prescale = 3;
  EXPECT(run(&sum, &handle) == HVD_OK);
  EXPECT(output[0] == 3 && output[5] == 18);
  EXPECT(hvd_poll(handle, &done, error, sizeof error) == HVD_OK && done == 1);
  memset(&result, 0, sizeof result);
  result.struct_size = sizeof result;
  EXPECT(hvd_get_output(handle, 0, &result, error, sizeof error) == HVD_OK);
  EXPECT(result.data == output && result.ndim == 2 && result.shape[1] == 3);
  EXPECT(hvd_release(handle, error, sizeof error) == HVD_OK);
  EXPECT(hvd_release(handle, error, sizeof error) == HVD_NOT_FOUND);

  hvd_submission broadcast = make(HVD_BROADCAST, "b", &tensor);
  EXPECT(run(&broadcast, &handle) == HVD_OK);
  EXPECT(memcmp(input, output, sizeof input) == 0);
  EXPECT(hvd_release(handle, error, sizeof error) == HVD_OK);

  tensor.output = NULL;
  hvd_submission gather = make(HVD_ALLGATHER, "g", &tensor);
  EXPECT(run(&gather, &handle) == HVD_OK);
  EXPECT(hvd_get_output(handle, 0, &result, error, sizeof error) == HVD_OK);
  EXPECT(result.ndim == 2 && result.shape[0] == 2 && memcmp(result.data, input, 24) == 0);
  EXPECT(hvd_release(handle, error, sizeof error) == HVD_OK);

  gather.flags = HVD_AWAITS_START;
  EXPECT(hvd_submit(&gather, &handle, error, sizeof error) == HVD_OK);
  EXPECT(hvd_wait(handle, 0.01, error, sizeof error) == HVD_IN_PROGRESS);
  EXPECT(hvd_start(handle, error, sizeof error) == HVD_OK);
  EXPECT(hvd_wait(handle, 10, error, sizeof error) == HVD_OK);
  EXPECT(hvd_release(handle, error, sizeof error) == HVD_OK);
  gather.flags = 64;
  EXPECT(hvd_submit(&gather, &handle, error, sizeof error) == HVD_INVALID_ARGUMENT);

  hvd_submission barrier = make(HVD_BARRIER, NULL, NULL);
  EXPECT(run(&barrier, &handle) == HVD_OK);
  EXPECT(hvd_release(handle, error, sizeof error) == HVD_OK);
  return 0;
}

static int refusals(void) {
  const int64_t shape[1] = {2};
  float data[2] = {1, 2};
  hvd_tensor tensor = {NULL, HVD_FLOAT32, 1, shape, data, NULL};
  hvd_handle handle = 0;
  hvd_submission reduce = make(HVD_ALLREDUCE, "r", &tensor);
  EXPECT(hvd_submit(&reduce, &handle, error, sizeof error) == HVD_INVALID_ARGUMENT);
  EXPECT(strstr(error, "allreduce 'r'") != NULL);
  tensor.output = data;
  tensor.dtype = 77;
  EXPECT(hvd_submit(&reduce, &handle, error, sizeof error) == HVD_INVALID_ARGUMENT);
  tensor.dtype = HVD_FLOAT32;
  reduce.name = NULL;
  EXPECT(hvd_submit(&reduce, &handle, error, sizeof error) == HVD_INVALID_ARGUMENT);
  reduce.name = "r";
  reduce.process_set = 4;
  EXPECT(hvd_submit(&reduce, &handle, error, sizeof error) == HVD_NOT_FOUND);
  EXPECT(hvd_submit(NULL, &handle, error, sizeof error) == HVD_INVALID_ARGUMENT);
  EXPECT(hvd_wait(0, 1, error, sizeof error) == HVD_NOT_FOUND);
  /* A small buffer gets a truncated text. */
  char small[4] = "zzz";
  EXPECT(hvd_wait(0, 1, small, sizeof small) == HVD_NOT_FOUND && small[3] == '\0');
  return 0;
}

int main(void) {
  char key[3][32];
  if (before_init() != 0 || shared_memory() != 0 || no_keys() != 0) return 1;
  for (int i = 0; i < 3; ++i) {
    EXPECT(hvd_init(NULL, error, sizeof error) == HVD_OK);
    EXPECT(hvd_init(NULL, error, sizeof error) == HVD_OK);
    EXPECT(hvd_is_initialized() == 1);
    EXPECT(hvd_rank() == 0 && hvd_size() == 1);
    EXPECT(hvd_local_rank() == 0 && hvd_local_size() == 1);
    EXPECT(hvd_cross_rank() == 0 && hvd_cross_size() == 1);
    EXPECT(hvd_is_homogeneous() == 1);
    EXPECT(horovod_rank() == 0 && horovod_size() == 1);
    EXPECT(horovod_local_rank() == 0 && horovod_local_size() == 1);
    if (operations() != 0 || refusals() != 0 || shared_memory() != 0 || keys(key[i]) != 0) return 1;
    EXPECT(i == 0 || memcmp(key[i], key[i - 1], 32) != 0);
    EXPECT(hvd_shutdown(error, sizeof error) == HVD_OK);
    EXPECT(hvd_is_initialized() == 0 && hvd_rank() == -1);
    if (shared_memory() != 0 || no_keys() != 0) return 1;
  }
  EXPECT(hvd_init(NULL, error, sizeof error) == HVD_OK);
  horovod_shutdown();
  EXPECT(hvd_is_initialized() == 0 && horovod_size() == -1);
  return 0;
}
