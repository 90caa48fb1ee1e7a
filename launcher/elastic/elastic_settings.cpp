#include "launcher/elastic/elastic_settings.h"

#include <algorithm>

#include "base/check.h"
#include "base/text.h"

namespace hvd::launcher {
namespace {

constexpr int64_t kMaxResets = 1'000'000;
constexpr double kMaxWindow = 1e8;

using Names = std::function<std::string(std::string_view key)>;

Status check_without_elastic(const LaunchSettings& settings, const Names& name_of) {
  for (const char* key : {"max_num_proc", "job_reset_limit", "cooldown_range", "elastic_timeout",
                          "restart_ranks", "leave_grace"}) {
    if (!settings.table().is_set(key)) continue;
    const std::string name = name_of(key);
    // Accept a variable: a user may have set it for all jobs.
    if (name == setting(key).variable) continue;
    return invalid_argument(
        cat(name,
            " is for elastic jobs; add --host-discovery-script COMMAND or --min-np N, or "
            "leave it out"));
  }
  return {};
}

Status check_numbers(const LaunchSettings& settings, const Names& name_of) {
  const bool has_start = settings.job.num_proc.has_value();
  const bool has_min = settings.elastic.min_num_proc.has_value();
  if (!has_start && !has_min) {
    return invalid_argument(
        cat("an elastic job needs the number of ranks to start with; add -np N to ",
            name_of("host_discovery_script")));
  }
  const RankLimits limits = rank_limits(settings);
  if (limits.min > limits.start) {
    return invalid_argument(cat(name_of("min_num_proc"), " ", limits.min, " is greater than ",
                                name_of("num_proc"), " ", limits.start,
                                ", the number of ranks to start with; lower it, or raise ",
                                name_of("num_proc")));
  }
  if (limits.max && *limits.max < limits.start) {
    const std::string start = name_of(has_start ? "num_proc" : "min_num_proc");
    return invalid_argument(cat(name_of("max_num_proc"), " ", *limits.max, " is less than ", start,
                                " ", limits.start,
                                ", the number of ranks to start with; raise it, or lower ", start));
  }
  return {};
}

Status check_joined(const LaunchSettings& settings, const Names& name_of) {
  const char* joined = nullptr;
  for (const char* key : {"listen", "token_fd", "token_file"}) {
    if (settings.table().is_set(key)) joined = key;
  }
  if (joined == nullptr) return {};
  for (const char* key : {"hosts", "hostfile", "host_discovery_script"}) {
    if (!settings.table().is_set(key)) continue;
    return invalid_argument(cat(name_of(joined),
                                " lets hosts join an elastic job by themselves, and ", name_of(key),
                                " names them; use only one of them"));
  }
  const char* again = settings.elastic.restart_ranks         ? "restart_ranks"
                      : settings.job.max_restarts.value != 0 ? "max_restarts"
                                                             : nullptr;
  if (again != nullptr) {
    return invalid_argument(cat(name_of(again), " cannot be combined with ", name_of(joined),
                                ": an agent that joins starts its ranks only once; leave it out"));
  }
  return {};
}

Status check_hosts(const LaunchSettings& settings, const Names& name_of) {
  if (!settings.elastic.host_discovery_script.has_value()) return {};
  for (const char* key : {"hosts", "hostfile"}) {
    if (!settings.table().is_set(key)) continue;
    return invalid_argument(cat(name_of("host_discovery_script"), " and ", name_of(key),
                                " both name the hosts; use only one of them"));
  }
  return {};
}

// Returns the name of the flag that makes the job elastic.
std::string cause_of(const LaunchSettings& settings, const Names& name_of) {
  return name_of(settings.elastic.host_discovery_script.has_value() ? "host_discovery_script"
                                                                    : "min_num_proc");
}

Status check_starter(const LaunchSettings& settings, const Names& name_of) {
  for (const char* key : {"mpi", "jsrun"}) {
    if (!settings.table().flag(key)) continue;
    return invalid_argument(cat(name_of(key), " starts jobs of constant size only; omit it or ",
                                cause_of(settings, name_of)));
  }
  return {};
}

// Refuses settings that an elastic job does not use.
Status check_others(const LaunchSettings& settings, const Names& name_of) {
  if (settings.job.spares != 0) {
    return invalid_argument(cat(name_of("spares"),
                                " is for jobs of constant size: an elastic job continues with the "
                                "remaining hosts, and takes new ones; leave it out"));
  }
  if (to_lower(settings.end.on_failure) == "wait") {
    return invalid_argument(cat(name_of("on_failure"),
                                " wait is for jobs of constant size: the ranks of an elastic job "
                                "continue without the failed one; leave it out"));
  }
  if (settings.launchers.insecure_compat) {
    return invalid_argument(cat(name_of("insecure_compat"),
                                " is for jobs of constant size: the launcher of an elastic job "
                                "does not serve Horovod's own workers; leave out ",
                                name_of("insecure_compat"), " or ", cause_of(settings, name_of)));
  }
  return {};
}

}  // namespace

RankLimits rank_limits(const LaunchSettings& settings) {
  RankLimits limits;
  const std::optional<int>& start = settings.job.num_proc;
  const std::optional<int>& min = settings.elastic.min_num_proc;
  limits.start = start.value_or(min.value_or(1));
  limits.min = min.value_or(start.value_or(1));
  limits.max = settings.elastic.max_num_proc;
  return limits;
}

double elastic_timeout(const LaunchSettings& settings) {
  const double seconds = settings.elastic.timeout;
  return seconds > 0 ? seconds : *parse_double(setting("elastic_timeout").default_value);
}

Result<ResetLimit> parse_reset_limit(std::string_view text) {
  const std::string_view number = trim(text).substr(0, trim(text).find('/'));
  const auto resets = parse_int(trim(number));
  ResetLimit limit;
  bool is_valid = resets && *resets >= 0 && *resets <= kMaxResets;
  if (is_valid) limit.resets = *resets;
  if (number.size() < trim(text).size()) {
    limit.seconds = parse_double(trim(trim(text).substr(number.size() + 1)));
    is_valid = is_valid && limit.seconds && *limit.seconds > 0 && *limit.seconds <= kMaxWindow;
  }
  if (is_valid) return limit;
  return invalid_argument(cat("'", printable(text), "' is not a limit; write N, from 0 to ",
                              kMaxResets, ", or N/SECONDS, such as 3/60"));
}

std::optional<ResetLimit> reset_limit(const LaunchSettings& settings) {
  if (!settings.elastic.job_reset_limit.has_value()) return {};
  const auto limit = parse_reset_limit(settings.elastic.job_reset_limit.value_or(""));
  HVD_CHECK(limit.ok());  // check_elastic has checked it
  return *limit;
}

Result<CooldownRange> parse_cooldown_range(std::string_view text) {
  constexpr double kLow = 1, kHigh = 3600;
  std::string words(text);
  std::ranges::replace(words, ',', ' ');
  const auto parts = words_of(words);
  const auto low = parts.size() == 2 ? parse_double(parts[0]) : std::nullopt;
  const auto high = parts.size() == 2 ? parse_double(parts[1]) : std::nullopt;
  if (!low || !high) {
    return invalid_argument(cat("'", printable(text),
                                "' is not a range; write two numbers of seconds, such as 10 100"));
  }
  // The negated condition also refuses NaN.
  if (!(*low >= kLow && *high <= kHigh && *low <= *high)) {
    return invalid_argument(cat("'", printable(text), "' is out of range; LO must be at least ",
                                kLow, " second, HI at most ", kHigh,
                                " seconds, and LO not more than HI"));
  }
  return CooldownRange{*low, *high};
}

std::optional<int> most_restarts(const LaunchSettings& settings) {
  if (!settings.job.max_restarts.is_set) return {};
  return settings.job.max_restarts.value;
}

std::optional<CooldownRange> cooldown_range(const LaunchSettings& settings) {
  if (!settings.elastic.cooldown_range.has_value()) return {};
  const auto range = parse_cooldown_range(settings.elastic.cooldown_range.value_or(""));
  HVD_CHECK(range.ok());  // check_elastic has checked it
  return *range;
}

Status check_elastic(const LaunchSettings& settings, const Names& name_of) {
  if (settings.elastic.job_reset_limit.has_value()) {
    const Status status = parse_reset_limit(settings.elastic.job_reset_limit.value_or("")).status();
    HVD_RETURN_IF_ERROR(status.with_context(name_of("job_reset_limit")));
  }
  if (settings.elastic.cooldown_range.has_value()) {
    const Status status =
        parse_cooldown_range(settings.elastic.cooldown_range.value_or("")).status();
    HVD_RETURN_IF_ERROR(status.with_context(name_of("cooldown_range")));
  }
  if (!is_elastic(settings)) return check_without_elastic(settings, name_of);
  HVD_RETURN_IF_ERROR(check_joined(settings, name_of));
  HVD_RETURN_IF_ERROR(check_hosts(settings, name_of));
  HVD_RETURN_IF_ERROR(check_starter(settings, name_of));
  HVD_RETURN_IF_ERROR(check_others(settings, name_of));
  return check_numbers(settings, name_of);
}

}  // namespace hvd::launcher
