// Tests the autotuner on recorded cost surfaces, and the autotuner's parts.
#include "runtime/autotune/autotuner.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include "runtime/autotune/tuning_service.h"

using namespace hvd::runtime;

namespace {

// Scores measured on a grid and interpolated: linear between neighbours on the logarithmic scale,
// and constant beyond the border. The file has comments, a line "axes NAME...", and lines of
// values.
class Surface {
 public:
  explicit Surface(const std::filesystem::path& path) {
    std::ifstream file(path);
    for (std::string line; std::getline(file, line);) {
      std::istringstream words(line);
      if (line.empty() || line[0] == '#') continue;
      if (line.starts_with("axes ")) {
        words >> line;
        for (std::string name; words >> name;) axes_.push_back(range(name));
        values_.resize(axes_.size());
        continue;
      }
      std::vector<double> at(axes_.size());
      double score = 0;
      for (size_t i = 0; i < at.size(); ++i) {
        words >> at[i];
        values_[i].insert(at[i]);
      }
      words >> score;
      REQUIRE(words);
      scores_[at] = score;
    }
    size_t whole = 1;
    for (const auto& values : values_) whole *= values.size();
    REQUIRE(!scores_.empty());
    REQUIRE(scores_.size() == whole);
  }

  double at(const TunedParameters& parameters) const {
    const size_t n = axes_.size();
    std::vector<double> low(n), high(n), share(n);
    for (size_t i = 0; i < n; ++i) {
      const double value = parameters.*kTunedRanges[axes_[i]].field;
      const auto above = values_[i].lower_bound(value);
      high[i] = above == values_[i].end() ? *values_[i].rbegin() : *above;
      low[i] = above == values_[i].begin() ? high[i] : *std::prev(above);
      if (low[i] < high[i]) share[i] = std::log(value / low[i]) / std::log(high[i] / low[i]);
    }
    double sum = 0;
    for (size_t corner = 0; corner < size_t{1} << n; ++corner) {
      double weight = 1;
      std::vector<double> key(n);
      for (size_t i = 0; i < n; ++i) {
        const bool is_high = (corner >> i & 1) != 0;
        weight *= is_high ? share[i] : 1 - share[i];
        key[i] = is_high ? high[i] : low[i];
      }
      if (weight > 0) sum += weight * scores_.at(key);
    }
    return sum;
  }
  // The best and the worst score of the grid.
  double best() const { return std::max_element(scores_.begin(), scores_.end(), less)->second; }
  double worst() const { return std::min_element(scores_.begin(), scores_.end(), less)->second; }
  // Returns options that tune the surface's parameters from the defaults.
  AutotunerOptions options() const {
    AutotunerOptions options;
    for (const TunedRange& range : kTunedRanges) options.start.*range.field = range.usual;
    for (const size_t axis : axes_) options.free[axis] = true;
    return options;
  }

 private:
  using Score = std::pair<const std::vector<double>, double>;
  static bool less(const Score& a, const Score& b) { return a.second < b.second; }
  static size_t range(const std::string& name) {
    for (size_t i = 0; i < kTunedRanges.size(); ++i) {
      if (name == kTunedRanges[i].name) return i;
    }
    FAIL("no parameter is called ", name);
    return 0;
  }

  std::vector<size_t> axes_;  // indices in kTunedRanges
  std::vector<std::set<double>> values_;
  std::map<std::vector<double>, double> scores_;
};

Autotuner tuned(const Surface& surface, AutotunerOptions options) {
  Autotuner tuner(options);
  while (!tuner.done()) tuner.score(surface.at(tuner.current()));
  return tuner;
}

std::vector<std::filesystem::path> surfaces() {
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::directory_iterator(HVD_TEST_DATA)) {
    if (entry.path().extension() == ".surface") paths.push_back(entry.path());
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

}  // namespace

TEST_CASE("on recorded surfaces it ends within 5 % of the best of a grid search") {
  REQUIRE(surfaces().size() >= 2);
  for (const auto& path : surfaces()) {
    const Surface surface(path);
    const Autotuner tuner = tuned(surface, surface.options());
    const double reached = surface.at(tuner.current());
    MESSAGE(path.filename().string(), ": from ", surface.worst(), " to ", surface.best(),
            ", reached ", reached);
    CHECK(reached >= 0.95 * surface.best());
  }
}

TEST_CASE("the same scores lead to the same parameters") {
  const Surface surface(surfaces().front());
  CHECK(tuned(surface, surface.options()).current() == tuned(surface, surface.options()).current());
}

TEST_CASE("a parameter that is not free keeps its value") {
  const Surface surface(surfaces().front());
  AutotunerOptions options = surface.options();
  options.free[0] = false;
  options.start.fusion_threshold = 12345;
  Autotuner tuner(options);
  while (!tuner.done()) {
    CHECK(tuner.current().fusion_threshold == 12345);
    tuner.score(surface.at(tuner.current()));
  }
  CHECK(tuner.current().fusion_threshold == 12345);
  options.free = {};
  CHECK(Autotuner(options).done());
}

TEST_CASE("it tries as many points as it may, the start first, and then stays with the best") {
  AutotunerOptions options;
  options.free = {true};
  options.start.fusion_threshold = 1 << 20;
  options.points = 7;
  Autotuner tuner(options);
  CHECK(tuner.current() == options.start);
  for (int i = 0; i < 7; ++i) {
    REQUIRE(!tuner.done());
    const TunedRange& range = kTunedRanges[0];
    CHECK(tuner.current().fusion_threshold >= range.low);
    CHECK(tuner.current().fusion_threshold <= range.high);
    tuner.score(i == 0 ? 2 : 1);
  }
  CHECK(tuner.done());
  CHECK(tuner.current() == options.start);
}

TEST_CASE("at the end it tries the other way between hosts, and keeps what is better") {
  for (const double other : {0.5, 2.0}) {
    AutotunerOptions options;
    options.hierarchy_is_free = true;
    Autotuner tuner(options);
    tuner.score(1);
    REQUIRE(!tuner.done());
    CHECK(tuner.current().hierarchical);
    tuner.score(other);
    CHECK(tuner.done());
    CHECK(tuner.current().hierarchical == (other > 1));
    CHECK(tuner.best().score == std::max(other, 1.0));
  }
}

TEST_CASE("beliefs are sure where the looks are, and expect most where it may be better") {
  GaussianProcess process(0);
  process.fit({{0.0}, {0.5}, {1.0}}, {1, 3, 2});
  for (const auto& [x, y] : {std::pair{0.0, 1.0}, {0.5, 3.0}, {1.0, 2.0}}) {
    const auto belief = process.at(std::vector{x});
    CHECK(belief.mean == doctest::Approx(y).epsilon(0.01));
    CHECK(belief.deviation < 0.01);
  }
  const auto between = process.at(std::vector{0.75});
  CHECK(between.deviation > 0.01);
  CHECK(expected_improvement(between, 3) > expected_improvement(process.at(std::vector{0.0}), 3));
  CHECK(expected_improvement({5, 0}, 3) == 2);
  CHECK(expected_improvement({1, 0}, 3) == 0);
}

TEST_CASE("equal scores, or a single one, are no trouble") {
  GaussianProcess process(0.8);
  process.fit({{0.5}}, {7});
  CHECK(process.at(std::vector{0.1}).mean == doctest::Approx(7));
  process.fit({{0.5}, {0.5}, {0.2}}, {7, 7, 7});
  CHECK(std::isfinite(process.at(std::vector{0.1}).deviation));
}

// ---- steps ----

namespace {

PlanItem full(const char* name, uint32_t id = 0) {
  PlanItem item;
  item.full = true;
  item.name = name;
  item.id = id;
  return item;
}
PlanItem cached(uint32_t id) {
  PlanItem item;
  item.id = id;
  return item;
}

}  // namespace

TEST_CASE("a score is the median of samples, each bytes over time between returns of a name") {
  using std::chrono::microseconds;
  StepMeter meter({1, 2, 3});
  hvd::Clock::time_point now{};
  std::vector<double> scores;
  int taken = 0;
  const auto step = [&](std::vector<PlanItem> first, int time) {
    for (const auto& items : {std::move(first), std::vector{full("b")}}) {
      if (const auto score = meter.add(items, 50, now)) scores.push_back(*score);
      now += microseconds(time / 2);
    }
    ++taken;
  };
  CHECK(!meter.add({full("start")}, 1, now));
  step({full("a")}, 100);
  step({full("a")}, 100);       // the repeated name marks a step
  meter.learn({full("a", 1)});  // the name has an id from here on
  step({cached(1)}, 100);
  step({cached(1)}, 10);  // ends the warm-up of two steps
  step({cached(1)}, 10);  // score: 10 per microsecond
  step({cached(1)}, 100);
  step({cached(1)}, 100);  // score: 1
  step({cached(1)}, 50);
  step({cached(1)}, 50);  // score: 2
  CHECK(scores.empty());
  step({cached(1)}, 1000);
  REQUIRE(scores.size() == 1);
  CHECK(scores[0] == doctest::Approx(2));
}

TEST_CASE("a name that has stopped coming gives its place to another") {
  StepMeter meter({0, 1, 1});
  hvd::Clock::time_point now{};
  for (int i = 0; i < 2; ++i) CHECK(!meter.add({full("gone")}, 1, now));
  const std::vector<PlanItem> many(1000, cached(5));
  bool scored = false;
  for (int i = 0; i < 200 && !scored; ++i) {
    now += std::chrono::microseconds(10);
    scored = meter.add(many, 100, now).has_value();
  }
  CHECK(scored);
}
