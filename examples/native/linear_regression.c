/* Fits a line to points that are distributed over the ranks, through the C ABI. Each rank
 * computes the gradient of its own points, and the average updates all ranks equally. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "horovod/horovod.h"

#define POINTS 1000

static void check(int status, const char* error) {
  if (status == HVD_OK) return;
  fprintf(stderr, "%s\n", error);
  exit(1);
}

/* Runs a collective on two numbers, in place. Only a broadcast uses `root`. */
static void run(int op, const char* name, int root, double numbers[2]) {
  char error[512] = "";
  const int64_t shape[1] = {2};
  const hvd_tensor tensor = {NULL, HVD_FLOAT64, 1, shape, numbers, numbers};
  hvd_submission submission;
  hvd_handle handle;
  memset(&submission, 0, sizeof submission);
  submission.struct_size = sizeof submission;
  submission.op = op;
  submission.reduce_op = HVD_AVERAGE;
  submission.name = name;
  submission.root_rank = root;
  submission.device = HVD_CPU;
  submission.tensor_count = 1;
  submission.tensors = &tensor;
  check(hvd_submit(&submission, &handle, error, sizeof error), error);
  check(hvd_wait(handle, -1, error, sizeof error), error);
  check(hvd_release(handle, error, sizeof error), error);
}

/* Returns a number from -1 to 1, different on every rank. */
static double draw(unsigned* state) {
  *state = *state * 1664525u + 1013904223u;
  return (double)(*state >> 8) / (1 << 23) - 1;
}

int main(void) {
  char error[512] = "";
  check(hvd_init(NULL, error, sizeof error), error);

  double x[POINTS], y[POINTS];
  unsigned state = (unsigned)hvd_rank() + 1;
  for (int i = 0; i < POINTS; ++i) {
    x[i] = draw(&state);
    y[i] = 3 * x[i] - 2 + 0.1 * draw(&state);
  }

  /* Ranks may begin with any parameters: all ranks receive rank 0's. */
  double line[2] = {hvd_rank(), 0};
  run(HVD_BROADCAST, "line", 0, line);
  for (int step = 0; step < 200; ++step) {
    double gradient[2] = {0, 0};
    for (int i = 0; i < POINTS; ++i) {
      const double off = line[0] * x[i] + line[1] - y[i];
      gradient[0] += 2 * off * x[i] / POINTS;
      gradient[1] += 2 * off / POINTS;
    }
    run(HVD_ALLREDUCE, "gradient", 0, gradient);
    line[0] -= 0.3 * gradient[0];
    line[1] -= 0.3 * gradient[1];
  }

  if (hvd_rank() == 0) printf("%d ranks: y = %.2f x %+.2f\n", hvd_size(), line[0], line[1]);
  check(hvd_shutdown(error, sizeof error), error);
  return fabs(line[0] - 3) < 0.05 && fabs(line[1] + 2) < 0.05 ? 0 : 1;
}
