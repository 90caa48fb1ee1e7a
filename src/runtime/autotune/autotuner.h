// Searches for good parameters: takes the score of the current parameters and returns the next parameters to try.
// Parameters are points of a unit cube with one axis for each free parameter, chosen by expected improvement under a
// Gaussian process. If `hierarchical` is free, the last trial runs the best parameters with the other value of
// `hierarchical`. TuningService owns the Autotuner. Pure: equal scores give equal choices.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

namespace hvd::runtime {

// Gaussian process regression of a function over the unit cube from noisy samples. The length scale and the share of
// noise maximise the likelihood of the samples. Pure: equal samples give equal estimates.
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
  // Cholesky factor of the covariance: the lower triangle of an n by n matrix, in column-major order.
  std::vector<double> factor_;
  std::vector<double> weights_;  // covariance^-1 * values
};

// Returns the expected improvement over `best` at a point with this belief (Jones 1998).
double expected_improvement(const GaussianProcess::Belief& belief, double best);

struct TunedParameters {
  double fusion_threshold = 0;  // bytes
  double window_ms = 0;
  // In bytes, as in hvd_tuning; 0 means the op's default.
  double whole_limit = 0;
  double doubling_limit = 0;
  double ring_from = 0;
  bool hierarchical = false;  // only one rank of each host communicates with other hosts
  bool operator==(const TunedParameters&) const = default;
};

// The limits of a parameter, on a logarithmic scale.
struct TunedRange {
  const char* name;
  double TunedParameters::*field;
  double low, high;
  double usual;  // close to the op's default
};
inline constexpr std::array<TunedRange, 5> kTunedRanges = {{
    {"fusion_threshold", &TunedParameters::fusion_threshold, 65536, 134217728, 134217728},
    {"window_ms", &TunedParameters::window_ms, 0.05, 10, 1},
    {"whole_limit", &TunedParameters::whole_limit, 1024, 4194304, 65536},
    {"doubling_limit", &TunedParameters::doubling_limit, 1024, 4194304, 16384},
    {"ring_from", &TunedParameters::ring_from, 65536, 268435456, 4194304},
}};

struct AutotunerOptions {
  TunedParameters start;
  std::array<bool, kTunedRanges.size()> free{};  // in the order of kTunedRanges
  bool hierarchy_is_free = false;
  int points = 20;     // maximum number of points to try
  double noise = 0.8;  // see GaussianProcess
};

class Autotuner {
 public:
  explicit Autotuner(const AutotunerOptions& options);

  // Returns the parameters to try now; after the search, the best parameters.
  const TunedParameters& current() const { return current_; }
  bool done() const { return done_; }
  // Records the score of the current parameters; higher is better.
  void score(double value);

  struct Sample {
    TunedParameters parameters;
    double score = 0;
  };
  // Returns the best tried parameters. Call it only after score().
  const Sample& best() const;

 private:
  using Point = std::vector<double>;
  Point next_point();
  Point random_point();
  Point near(const Point& center, double reach);
  double uniform();
  Point point_of(const TunedParameters& parameters) const;
  TunedParameters at(const Point& point) const;
  void finish();

  const AutotunerOptions options_;
  std::vector<TunedRange> axes_;
  std::vector<Sample> samples_;
  std::vector<Point> points_;  // parameters of each trial, except trials of `hierarchical`
  std::vector<double> scores_;
  TunedParameters current_;
  bool tries_hierarchy_ = false;
  bool done_ = false;
  uint64_t random_ = 0x9e3779b97f4a7c15U;
};

}  // namespace hvd::runtime
