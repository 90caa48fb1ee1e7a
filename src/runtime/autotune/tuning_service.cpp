#include "runtime/autotune/tuning_service.h"

#include <fcntl.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/files/own_file.h"
#include "base/log/log.h"
#include "base/text.h"

namespace hvd::runtime {
namespace {

// Maximum number of names to remember until a name repeats, and of items without the mark before
// the mark is dropped.
constexpr size_t kMost = 1 << 16;

// With at most this many hosts, the hosts communicate directly for any size.
constexpr int32_t kFewHosts = 4;

void put(const TunedParameters& parameters, ByteWriter& out) {
  for (const TunedRange& range : kTunedRanges) out.put(parameters.*range.field);
  out.put(static_cast<uint8_t>(parameters.hierarchical));
}

Status get(ByteView message, TunedParameters* parameters) {
  ByteReader in(message);
  for (const TunedRange& range : kTunedRanges) {
    const auto value = in.get<double>();
    if (!std::isfinite(value) || value < 0 || value > 1e15) {
      return invalid_argument("a tuned parameter is out of range");
    }
    parameters->*range.field = value;
  }
  parameters->hierarchical = in.get<uint8_t>() != 0;
  return in.finish("a message of parameters");
}

}  // namespace

bool StepMeter::step_begins(const std::vector<PlanItem>& items) {
  bool begins = false;
  for (const PlanItem& item : items) {
    if (mark_.empty() && mark_id_ == 0) {
      // The mark is the first name that repeats: a name used once, for example at the start, does not mark steps. A
      // cached name has occurred before.
      if (item.full && seen_.insert(item.name).second) continue;
      mark_ = item.name;
      mark_id_ = item.id;
      seen_.clear();
      begins = true;
    } else if (item.full ? item.name == mark_ : item.id == mark_id_) {
      if (item.id != 0) mark_id_ = item.id;
      begins = true;
    }
  }
  items_since_mark_ = begins ? 0 : items_since_mark_ + items.size();
  if (items_since_mark_ > kMost) {
    mark_.clear();
    mark_id_ = 0;
    seen_.clear();
    measures_ = false;
    items_since_mark_ = 0;
  }
  return begins;
}

void StepMeter::learn(const std::vector<PlanItem>& items) {
  if (mark_.empty()) return;
  for (const PlanItem& item : items) {
    if (item.full && item.name == mark_) mark_id_ = item.id;
  }
}

std::optional<double> StepMeter::add(const std::vector<PlanItem>& items, uint64_t bytes,
                                     Clock::time_point now) {
  const bool begins = step_begins(items);
  std::optional<double> score;
  if (begins && measures_ && ++steps_ >= options_.steps_per_sample) {
    const double microseconds = std::chrono::duration<double, std::micro>(now - since_).count();
    const double sample = static_cast<double>(bytes_) / std::max(microseconds, 1e-3);
    measures_ = false;
    if (warmed_up_ < options_.warmups)
      ++warmed_up_;
    else
      scores_.push_back(sample);
    if (static_cast<int>(scores_.size()) >= options_.samples) {
      const auto middle = scores_.begin() + static_cast<ptrdiff_t>(scores_.size() / 2);
      std::nth_element(scores_.begin(), middle, scores_.end());
      score = *middle;
      scores_.clear();
    }
  }
  if (begins && !measures_ && !score) {
    measures_ = true;
    since_ = now;
    bytes_ = 0;
    steps_ = 0;
  }
  bytes_ += bytes;
  return score;
}

TunedParameters parameters_of(const WorkerSettings& settings) {
  TunedParameters parameters;
  parameters.fusion_threshold =
      static_cast<double>(std::max<int64_t>(0, settings.fusion_threshold.value));
  parameters.window_ms = std::clamp(settings.cycle_time.value, 0.0, 1000.0);
  parameters.whole_limit = static_cast<double>(settings.whole_limit.value);
  parameters.doubling_limit = static_cast<double>(settings.doubling_limit.value);
  parameters.ring_from = static_cast<double>(settings.ring_from.value);
  parameters.hierarchical = settings.hierarchical_allreduce.value;
  return parameters;
}

hvd_tuning tuning_of(const TunedParameters& parameters, bool reproducible) {
  hvd_tuning tuning{};
  tuning.struct_size = sizeof tuning;
  tuning.whole_limit = std::llround(parameters.whole_limit);
  tuning.doubling_limit = std::llround(parameters.doubling_limit);
  tuning.ring_from = std::llround(parameters.ring_from);
  tuning.drivers = parameters.hierarchical ? 1 : 0;
  if (reproducible) {
    // Allow only one-shot and two-shot: in other algorithms the order of the sum depends on an element's position.
    tuning.direct_hosts = std::numeric_limits<int32_t>::max();
    tuning.doubling_limit = -1;
  }
  return tuning;
}

std::chrono::microseconds window_of(const TunedParameters& parameters) {
  return std::chrono::microseconds(
      std::llround(std::clamp(parameters.window_ms, 0.0, 1000.0) * 1000));
}

std::optional<TuningOptions> tuning_options(const WorkerSettings& settings, int32_t hosts,
                                            int32_t most_ranks) {
  if (!settings.autotune.is_on) return {};
  const auto count = [](int64_t number, int64_t least) {
    return static_cast<int>(std::clamp<int64_t>(number, least, 1 << 20));
  };
  TuningOptions options;
  options.meter.warmups = count(settings.autotune.warmup_samples, 0);
  options.meter.steps_per_sample = count(settings.autotune.steps_per_sample, 1);
  options.tuner.start = parameters_of(settings);
  options.reproducible = settings.is_reproducible;
  const bool has_choice = hosts > kFewHosts && !options.reproducible;
  // Parameters that the user has set are fixed; inter-host algorithms need several hosts.
  options.tuner.free = {!settings.fusion_threshold.is_set, !settings.cycle_time.is_set,
                        hosts > 1 && !settings.whole_limit.is_set,
                        has_choice && !settings.doubling_limit.is_set,
                        has_choice && !settings.ring_from.is_set};
  options.tuner.hierarchy_is_free =
      hosts > 1 && most_ranks > 1 && !settings.hierarchical_allreduce.is_set;
  options.tuner.points = count(settings.autotune.points, 1);
  options.tuner.noise = std::clamp(settings.autotune.noise, 0.0, 1.0);
  options.log_path = settings.autotune.log;
  options.cache_enabled = settings.cache_capacity > 0;
  return options;
}

TuningService::TuningService(RuntimeCore* core, const TuningOptions& options)
    : core_(core), options_(options), meter_(options.meter), tuner_(options.tuner) {
  if (!core_->is_root()) return;
  if (!options_.log_path.empty()) open_log();
  if (!tuner_.done()) core_->set_plan_listener(this);
}

void TuningService::open_log() {
  const auto file = open_own_file(options_.log_path, O_TRUNC);
  if (!file.ok()) return log::warning(cat("autotune log: ", file.status().message()));
  log_.open(cat("/proc/self/fd/", file->get()), std::ios::trunc);
  log_ << "hierarchical_allreduce,hierarchical_allgather,torus_allreduce,cache_enabled,"
          "cycle_time_ms,tensor_fusion_threshold,score,whole_limit,doubling_limit,ring_from"
       << std::endl;
  if (!log_) log::warning(cat("cannot write the autotune log to ", options_.log_path));
}

void TuningService::planning(const std::vector<PlanItem>& items, uint64_t bytes) {
  const auto score = meter_.add(items, bytes, Clock::now());
  if (!score) return;
  const TunedParameters tried = tuner_.current();
  tuner_.score(*score);
  log({tried, *score});
  send_to_all();
  if (!tuner_.done()) return;
  log(tuner_.best());
  log_.close();
  core_->set_plan_listener(nullptr);
}

void TuningService::planned(const std::vector<PlanItem>& items) { meter_.learn(items); }

void TuningService::send_to_all() {
  ByteWriter out;
  put(tuner_.current(), out);
  core_->to_all(ServiceId::kTuning, out.view());
}

void TuningService::receive(int32_t from, ByteView message) {
  TunedParameters parameters;
  if (Status status = get(message, &parameters); !status.ok()) {
    log::warning(status.with_context(cat("rank ", from)).message());
    return;
  }
  core_->tune(window_of(parameters), static_cast<uint64_t>(parameters.fusion_threshold),
              tuning_of(parameters, options_.reproducible));
}

void TuningService::log(const Autotuner::Sample& sample) {
  if (!log_.is_open()) return;
  const TunedParameters& p = sample.parameters;
  log_ << p.hierarchical << ",0,0, " << options_.cache_enabled << "," << p.window_ms << ","
       << std::llround(p.fusion_threshold) << "," << sample.score << ","
       << std::llround(p.whole_limit) << "," << std::llround(p.doubling_limit) << ","
       << std::llround(p.ring_from) << std::endl;
}

}  // namespace hvd::runtime
