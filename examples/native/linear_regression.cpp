// Fits a line to noisy points that are distributed over the ranks. Every rank computes the gradient of
// its own points. The average of the gradients updates the parameters equally on all ranks.
#include <array>
#include <cmath>
#include <cstdio>
#include <random>
#include <vector>

#include "horovod/horovod.hpp"

namespace {

struct Point {
  double x, y;
};

// Returns points on y = 3 x - 2 with some noise, different on every rank.
std::vector<Point> points_of(int rank) {
  std::mt19937 random(static_cast<unsigned>(rank) + 1);
  std::uniform_real_distribution<double> x(-1, 1);
  std::normal_distribution<double> noise(0, 0.1);
  std::vector<Point> points(1000);
  for (Point& point : points) {
    point.x = x(random);
    point.y = 3 * point.x - 2 + noise(random);
  }
  return points;
}

// Returns the gradient of the mean squared error with respect to slope and intercept.
std::array<double, 2> gradient_of(const std::vector<Point>& points,
                                  const std::array<double, 2>& line) {
  std::array<double, 2> gradient{};
  for (const Point& point : points) {
    const double error = line[0] * point.x + line[1] - point.y;
    gradient[0] += 2 * error * point.x / static_cast<double>(points.size());
    gradient[1] += 2 * error / static_cast<double>(points.size());
  }
  return gradient;
}

}  // namespace

int main() try {
  const horovod::Job job;
  const std::vector<Point> points = points_of(horovod::rank());

  // Ranks may begin with any parameters: all ranks receive rank 0's.
  std::array<double, 2> line{static_cast<double>(horovod::rank()), 0};
  horovod::broadcast(line, 0, "line");
  for (int step = 0; step < 200; ++step) {
    std::array<double, 2> gradient = gradient_of(points, line);
    horovod::allreduce(gradient, "gradient");
    for (size_t i = 0; i < line.size(); ++i) line[i] -= 0.3 * gradient[i];
  }

  const auto lines = horovod::allgather(line, "lines");
  bool agree = true;
  for (size_t i = 0; i < lines.data().size(); ++i) agree &= lines.data()[i] == line[i % 2];
  if (horovod::rank() == 0) {
    std::printf("%d ranks: y = %.2f x %+.2f\n", horovod::size(), line[0], line[1]);
  }
  return agree && std::abs(line[0] - 3) < 0.05 && std::abs(line[1] + 2) < 0.05 ? 0 : 1;
} catch (const horovod::Error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
