#include "runtime/autotune/gaussian_process.h"

#include <Eigen/Dense>
#include <cmath>
#include <limits>
#include <numbers>

namespace hvd::runtime {
namespace {

constexpr double kLengths[] = {0.15, 0.25, 0.4, 0.6, 1.0, 1.6};
constexpr double kNoiseShares[] = {1, 0.3, 0.1, 0.02};

// Returns the Matern kernel with nu = 5/2: smooth, but not too smooth to follow a switch point.
double kernel(std::span<const double> a, std::span<const double> b, double length) {
  double square = 0;
  for (size_t i = 0; i < a.size(); ++i) square += (a[i] - b[i]) * (a[i] - b[i]);
  const double r = std::sqrt(5 * square) / length;
  return (1 + r + r * r / 3) * std::exp(-r);
}

}  // namespace

void GaussianProcess::fit(std::vector<std::vector<double>> points,
                          const std::vector<double>& values) {
  points_ = std::move(points);
  const auto count = static_cast<double>(values.size());
  mean_ = 0;
  for (const double value : values) mean_ += value / count;
  double variance = 0;
  for (const double value : values) variance += (value - mean_) * (value - mean_) / count;
  spread_ = variance > 0 ? std::sqrt(variance) : 1;
  std::vector<double> scaled;
  scaled.reserve(values.size());
  for (const double value : values) scaled.push_back((value - mean_) / spread_);

  double best = -std::numeric_limits<double>::infinity();
  double best_length = kLengths[0], best_noise = noise_;
  for (const double length : kLengths) {
    for (const double share : kNoiseShares) {
      const double likelihood = try_fit(scaled, length, noise_ * share);
      if (likelihood <= best) continue;
      best = likelihood;
      best_length = length;
      best_noise = noise_ * share;
    }
  }
  try_fit(scaled, best_length, best_noise);
}

// Returns the logarithm of the likelihood of the values, up to a constant.
double GaussianProcess::try_fit(const std::vector<double>& scaled, double length, double noise) {
  const auto n = static_cast<Eigen::Index>(points_.size());
  Eigen::MatrixXd covariance(n, n);
  for (Eigen::Index i = 0; i < n; ++i) {
    for (Eigen::Index j = 0; j < n; ++j) {
      covariance(i, j) =
          kernel(points_[static_cast<size_t>(i)], points_[static_cast<size_t>(j)], length);
    }
    covariance(i, i) += noise * noise + 1e-6;
  }
  const Eigen::LLT<Eigen::MatrixXd> cholesky(covariance);
  if (cholesky.info() != Eigen::Success) return -std::numeric_limits<double>::infinity();
  const Eigen::Map<const Eigen::VectorXd> values(scaled.data(), n);
  const Eigen::VectorXd weights = cholesky.solve(values);
  const Eigen::MatrixXd factor = cholesky.matrixL();
  length_ = length;
  factor_.assign(factor.data(), factor.data() + factor.size());
  weights_.assign(weights.data(), weights.data() + weights.size());
  return -0.5 * values.dot(weights) - factor.diagonal().array().log().sum();
}

GaussianProcess::Belief GaussianProcess::at(std::span<const double> point) const {
  const auto n = static_cast<Eigen::Index>(points_.size());
  Eigen::VectorXd near(n);
  for (Eigen::Index i = 0; i < n; ++i) {
    near(i) = kernel(points_[static_cast<size_t>(i)], point, length_);
  }
  const Eigen::Map<const Eigen::MatrixXd> factor(factor_.data(), n, n);
  const Eigen::Map<const Eigen::VectorXd> weights(weights_.data(), n);
  const double mean = near.dot(weights);
  factor.triangularView<Eigen::Lower>().solveInPlace(near);
  const double variance = std::max(1 - near.squaredNorm(), 0.0);
  return {mean_ + spread_ * mean, spread_ * std::sqrt(variance)};
}

double expected_improvement(const GaussianProcess::Belief& belief, double best) {
  const double gain = belief.mean - best;
  if (belief.deviation <= 0) return std::max(gain, 0.0);
  const double z = gain / belief.deviation;
  const double density = std::exp(-0.5 * z * z) / std::sqrt(2 * std::numbers::pi);
  const double below = 0.5 * std::erfc(-z / std::numbers::sqrt2);
  return gain * below + belief.deviation * density;
}

}  // namespace hvd::runtime
