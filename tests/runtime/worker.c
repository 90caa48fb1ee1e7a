/* One rank of process_test: does what its first argument says, by the C ABI alone. Exit codes:
 * 0 as expected, 1 not (with a line on standard error), 7 a failure that it reports by a line on
 * standard output. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "horovod/horovod.h"

static char error[1024];

static int wrong(const char* what) {
  fprintf(stderr, "rank %d: %s: %s\n", hvd_rank(), what, error);
  return 1;
}

static int sum(const char* name, float* value) {
  hvd_tensor tensor = {NULL, HVD_FLOAT32, 0, NULL, value, value};
  hvd_submission submission;
  hvd_handle handle = 0;
  memset(&submission, 0, sizeof submission);
  submission.struct_size = sizeof submission;
  submission.op = HVD_ALLREDUCE;
  submission.reduce_op = HVD_SUM;
  submission.name = name;
  submission.device = HVD_CPU;
  submission.tensor_count = 1;
  submission.tensors = &tensor;
  int code = hvd_submit(&submission, &handle, error, sizeof error);
  if (code != HVD_OK) return code;
  code = hvd_wait(handle, 30, error, sizeof error);
  hvd_release(handle, error, 0);
  return code;
}

static int add_up(void) {
  for (int step = 0; step < 100; ++step) {
    float value = (float)(hvd_rank() + 1);
    if (sum("value", &value) != HVD_OK) return wrong("allreduce");
    const int size = hvd_size();
    if (value != (float)(size * (size + 1) / 2)) return wrong("the sum is wrong");
  }
  printf("%d of %d, %d of %d here\n", hvd_rank(), hvd_size(), hvd_local_rank(),
         hvd_local_size());
  return 0;
}

static int start(void) {
  return hvd_init(NULL, error, sizeof error) == HVD_OK ? 0 : wrong("init");
}

static int finish(int result) {
  if (result != 0) return result;
  return hvd_shutdown(error, sizeof error) == HVD_OK ? 0 : wrong("shutdown");
}

static int again_and_again(void) {
  for (int i = 0; i < 20; ++i) {
    if (start() != 0 || add_up() != 0 || finish(0) != 0) return 1;
  }
  return 0;
}

/* Rank 1 dies; the others wait for it and say what they were told. */
static int lose_a_rank(int by_signal) {
  float value = 1;
  if (sum("first", &value) != HVD_OK) return wrong("allreduce");
  if (hvd_rank() == 1) {
    if (by_signal) raise(SIGKILL);
    _exit(3);
  }
  if (sum("second", &value) == HVD_OK) return wrong("the sum without rank 1 came out");
  printf("%s\n", error);
  return 7;
}

/* A forked child must be told that it cannot use the runtime, and must not disturb it. */
static int use_in_child(void) {
  fflush(stdout);
  const pid_t child = fork();
  if (child == 0) {
    float value = 1;
    const int code = sum("child", &value);
    const int told = code == HVD_FAILED_PRECONDITION && strstr(error, "fork") != NULL;
    if (hvd_shutdown(error, sizeof error) != HVD_OK) _exit(1);
    _exit(told && hvd_is_initialized() == 0 ? 0 : 1);
  }
  int status = 1;
  if (waitpid(child, &status, 0) != child || status != 0) return wrong("the child");
  return add_up();
}

int main(int argc, char** argv) {
  const char* what = argc > 1 ? argv[1] : "";
  if (strcmp(what, "again-and-again") == 0) return again_and_again();
  if (start() != 0) return 1;
  if (strcmp(what, "sum") == 0) return finish(add_up());
  if (strcmp(what, "sum-and-exit") == 0) return add_up();
  if (strcmp(what, "lose-by-exit") == 0) return lose_a_rank(0);
  if (strcmp(what, "lose-by-signal") == 0) return lose_a_rank(1);
  if (strcmp(what, "fork") == 0) return finish(use_in_child());
  return wrong("what?");
}
