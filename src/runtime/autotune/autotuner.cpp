#include "runtime/autotune/autotuner.h"

#include <Eigen/Dense>
#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "base/check.h"

namespace hvd::runtime {
namespace {

constexpr double kLengths[] = {0.15, 0.25, 0.4, 0.6, 1.0, 1.6};
constexpr double kNoiseShares[] = {1, 0.3, 0.1, 0.02};

// Returns the Matern kernel with nu = 5/2: smooth, but able to follow a sudden change.
double kernel(std::span<const double> a, std::span<const double> b, double length) {
  double square = 0;
  for (size_t i = 0; i < a.size(); ++i) square += (a[i] - b[i]) * (a[i] - b[i]);
  const double r = std::sqrt(5 * square) / length;
  return (1 + r + r * r / 3) * std::exp(-r);
}

// Numbers of candidates, anywhere and near the best point; the most promising one is tried next.
constexpr int kAnywhere = 1500;
constexpr int kNearTheBest = 500;
// The largest distance of candidates near the best point, on each axis.
constexpr double kReach = 0.2;

// Returns an element of the van der Corput sequence: the first n elements are evenly spread for any n.
double spread(int index, int base) {
  double value = 0;
  double share = 1.0 / base;
  for (; index > 0; index /= base, share /= base) value += share * (index % base);
  return value;
}

constexpr int kPrimes[] = {2, 3, 5, 7, 11};

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

Autotuner::Autotuner(const AutotunerOptions& options) : options_(options), current_(options.start) {
  for (size_t i = 0; i < kTunedRanges.size(); ++i) {
    if (options.free[i]) axes_.push_back(kTunedRanges[i]);
  }
  if (options_.points < 1 || (axes_.empty() && !options_.hierarchy_is_free)) done_ = true;
}

void Autotuner::score(double value) {
  HVD_CHECK(!done_);
  samples_.push_back({current_, value});
  if (tries_hierarchy_) return finish();
  points_.push_back(point_of(current_));
  scores_.push_back(value);
  if (!axes_.empty() && samples_.size() < static_cast<size_t>(options_.points)) {
    current_ = at(next_point());
    return;
  }
  if (!options_.hierarchy_is_free) return finish();
  tries_hierarchy_ = true;
  current_ = best().parameters;
  current_.hierarchical = !current_.hierarchical;
}

void Autotuner::finish() {
  done_ = true;
  current_ = best().parameters;
}

const Autotuner::Sample& Autotuner::best() const {
  HVD_CHECK(!samples_.empty());
  return *std::max_element(samples_.begin(), samples_.end(),
                           [](const Sample& a, const Sample& b) { return a.score < b.score; });
}

Autotuner::Point Autotuner::next_point() {
  // The first points are far apart; the initial parameters are the first of them.
  const auto tried = static_cast<int>(points_.size());
  if (tried <= static_cast<int>(axes_.size()) + 2) {
    Point point;
    for (size_t i = 0; i < axes_.size(); ++i) point.push_back(spread(tried, kPrimes[i]));
    return point;
  }
  GaussianProcess process(options_.noise);
  process.fit(points_, scores_);
  // Take the best estimated value, since the best measurement may be noise.
  double best_mean = -HUGE_VAL;
  size_t best_index = 0;
  for (size_t i = 0; i < points_.size(); ++i) {
    const double mean = process.at(points_[i]).mean;
    if (mean <= best_mean) continue;
    best_mean = mean;
    best_index = i;
  }
  // The last points lie near the best point: a peak may be narrower than the model assumes.
  const bool last = 4 * tried >= 3 * options_.points;
  if (last) {
    best_index =
        static_cast<size_t>(std::max_element(scores_.begin(), scores_.end()) - scores_.begin());
  }
  Point chosen;
  double most = -1;
  for (int i = last ? kAnywhere : 0; i < kAnywhere + kNearTheBest; ++i) {
    Point candidate = i < kAnywhere ? random_point() : near(points_[best_index], kReach);
    const double gain = expected_improvement(process.at(candidate), best_mean);
    if (gain <= most) continue;
    most = gain;
    chosen = std::move(candidate);
  }
  return chosen;
}

Autotuner::Point Autotuner::random_point() {
  Point point(axes_.size());
  for (double& coordinate : point) coordinate = uniform();
  return point;
}

Autotuner::Point Autotuner::near(const Point& center, double reach) {
  Point point = center;
  for (double& coordinate : point) {
    coordinate = std::clamp(coordinate + reach * (2 * uniform() - 1), 0.0, 1.0);
  }
  return point;
}

// Returns a number in [0, 1) by Marsaglia's xorshift, which gives the same sequence on every machine.
double Autotuner::uniform() {
  random_ ^= random_ << 13;
  random_ ^= random_ >> 7;
  random_ ^= random_ << 17;
  return static_cast<double>(random_ >> 11) / static_cast<double>(uint64_t{1} << 53);
}

Autotuner::Point Autotuner::point_of(const TunedParameters& parameters) const {
  Point point;
  for (const TunedRange& axis : axes_) {
    const double given = parameters.*axis.field;
    const double value = std::clamp(given > 0 ? given : axis.usual, axis.low, axis.high);
    point.push_back(std::log(value / axis.low) / std::log(axis.high / axis.low));
  }
  return point;
}

TunedParameters Autotuner::at(const Point& point) const {
  TunedParameters parameters = options_.start;
  for (size_t i = 0; i < axes_.size(); ++i) {
    const TunedRange& axis = axes_[i];
    parameters.*axis.field = axis.low * std::pow(axis.high / axis.low, point[i]);
  }
  return parameters;
}

}  // namespace hvd::runtime
