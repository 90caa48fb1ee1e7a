/* Fits a line to points by gradient descent, in one process. */
#include <stdio.h>

#define POINTS 1000

/* Returns a number from -1 to 1. */
static double draw(unsigned* state) {
  *state = *state * 1664525u + 1013904223u;
  return (double)(*state >> 8) / (1 << 23) - 1;
}

int main(void) {
  double x[POINTS], y[POINTS];
  unsigned state = 1;
  for (int i = 0; i < POINTS; ++i) {
    x[i] = draw(&state);
    y[i] = 3 * x[i] - 2 + 0.1 * draw(&state);
  }

  double line[2] = {0, 0};
  for (int step = 0; step < 200; ++step) {
    double gradient[2] = {0, 0};
    for (int i = 0; i < POINTS; ++i) {
      const double off = line[0] * x[i] + line[1] - y[i];
      gradient[0] += 2 * off * x[i] / POINTS;
      gradient[1] += 2 * off / POINTS;
    }
    line[0] -= 0.3 * gradient[0];
    line[1] -= 0.3 * gradient[1];
  }

  printf("y = %.2f x %+.2f\n", line[0], line[1]);
  return 0;
}
