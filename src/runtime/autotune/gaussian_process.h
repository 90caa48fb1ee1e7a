// Gaussian process regression of a function over the unit cube from noisy samples. The length scale
// and the share of noise maximise the likelihood of the samples. Autotuner makes a GaussianProcess
// for each choice. Pure: equal samples give equal estimates.
#pragma once

#include <span>
#include <vector>

namespace hvd::runtime {

class GaussianProcess {
 public:
  // `noise`: upper limit of the noise's standard deviation, as a share of the values' standard deviation (0 to 1).
  explicit GaussianProcess(double noise) : noise_(noise) {}

  // Fits the process to points of equal dimension in [0, 1], and a value for each.
  void fit(std::vector<std::vector<double>> points, const std::vector<double>& values);

  struct Belief {
    double mean = 0;
    double deviation = 0;
  };
  Belief at(std::span<const double> point) const;

 private:
  double try_fit(const std::vector<double>& scaled, double length, double noise);

  const double noise_;
  std::vector<std::vector<double>> points_;
  double mean_ = 0;
  double spread_ = 1;
  double length_ = 1;
  // Cholesky factor of the covariance: lower triangle of n by n, by columns.
  std::vector<double> factor_;
  std::vector<double> weights_;  // covariance^-1 * values
};

// Returns the expected improvement over `best` at a point with this belief (Jones 1998).
double expected_improvement(const GaussianProcess::Belief& belief, double best);

}  // namespace hvd::runtime
