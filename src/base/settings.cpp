#include "base/settings.h"

#include <unistd.h>

#include <cstdlib>

#include "base/check.h"
#include "base/text.h"

namespace hvd {
namespace {

using enum SettingType;

constexpr char kGeneral[] = "general";
constexpr char kSsh[] = "SSH arguments";
constexpr char kHost[] = "host arguments";
constexpr char kIdentity[] = "identity of a worker (set by the launcher)";
constexpr char kTune[] = "tuneable parameter arguments";
constexpr char kAutotune[] = "autotune arguments";
constexpr char kStall[] = "stall check arguments";
constexpr char kTimeline[] = "timeline arguments";
constexpr char kLogging[] = "logging arguments";

constexpr Setting kTable[] = {
    {"num_proc", "-np,--num-proc", "", "", kInt, "", kGeneral,
     "number of ranks to start; at most the slots of the hosts"},
    {"check_build", "-cb,--check-build", "", "", kFlag, "0", kGeneral,
     "show which frameworks, controllers and tensor operations work here, and exit"},
    {"version", "-v,--version", "", "", kFlag, "0", kGeneral, "show the version and exit"},
    {"verbose", "--verbose", "", "", kFlag, "0", kGeneral, "say what is done, and why"},
    {"dry_run", "--dry-run", "", "", kFlag, "0", kGeneral,
     "show the plan as JSON and start nothing"},
    {"start_timeout", "--start-timeout", "", "HOROVOD_START_TIMEOUT", kDouble, "30", kGeneral,
     "seconds that hosts and ranks have to come up"},
    {"lease", "--lease", "", "HOROVOD_LEASE", kDouble, "60", kGeneral,
     "seconds after which a host that lost its link to the launcher ends its ranks"},
    {"output_filename", "--output-filename", "", "", kText, "", kGeneral,
     "directory that also gets the output, as rank.N/stdout and rank.N/stderr"},

    {"ssh_port", "-p,--ssh-port", "", "", kInt, "", kSsh, "port of the hosts' sshd"},
    {"ssh_identity_file", "-i,--ssh-identity-file", "", "", kText, "", kSsh,
     "private key to authenticate with"},

    {"hosts", "-H,--hosts", "", "", kText, "", kHost,
     "hosts and slots, such as a:4,b:4; default localhost with one slot a rank"},
    {"hostfile", "-hostfile,--hostfile", "", "", kText, "", kHost,
     "file with a host on each line, such as 'a slots=4'"},

    {"agent_dir", "", "", "HOROVOD_AGENT_DIR", kText, "", kGeneral,
     "directory on the hosts that keeps the agent"},
    {"library", "", "", "HOROVOD_LIBRARY", kText, "", kGeneral,
     "path of libhorovod.so that the Python package loads"},
    {"plugin_path", "", "", "HOROVOD_PLUGIN_PATH", kText, "", kGeneral,
     "folders of plugins, separated by colons, before those that came with the library"},

    {"rank", "", "", "HOROVOD_RANK", kInt, "", kIdentity, "global rank"},
    {"size", "", "", "HOROVOD_SIZE", kInt, "", kIdentity, "number of ranks"},
    {"local_rank", "", "", "HOROVOD_LOCAL_RANK", kInt, "", kIdentity, "rank on its host"},
    {"local_size", "", "", "HOROVOD_LOCAL_SIZE", kInt, "", kIdentity, "ranks on its host"},
    {"cross_rank", "", "", "HOROVOD_CROSS_RANK", kInt, "", kIdentity,
     "index of its host among those that have its local rank"},
    {"cross_size", "", "", "HOROVOD_CROSS_SIZE", kInt, "", kIdentity,
     "number of hosts that have its local rank"},
    {"hostname", "", "", "HOROVOD_HOSTNAME", kText, "", kIdentity, "host, as the plan names it"},
    {"job", "", "", "HOROVOD_JOB_ID", kText, "", kIdentity, "job, as 16 hexadecimal digits"},
    {"generation", "", "", "HOROVOD_GENERATION", kInt, "0", kIdentity, "membership epoch"},
    {"store", "", "", "HOROVOD_STORE", kText, "", kIdentity,
     "where the store is: unix:/path, unix:@name or tcp:host:port"},
    {"job_secret", "", "", "HOROVOD_JOB_SECRET", kText, "", kIdentity,
     "secret of the job, in hexadecimal digits"},
    {"rendezvous_address", "", "", "HOROVOD_GLOO_RENDEZVOUS_ADDR", kText, "", kIdentity,
     "address of the rendezvous server when HOROVOD_STORE is unset"},
    {"rendezvous_port", "", "", "HOROVOD_GLOO_RENDEZVOUS_PORT", kInt, "", kIdentity,
     "its port"},

    {"fusion_threshold", "", "", "HOROVOD_FUSION_THRESHOLD", kInt, "134217728", kTune,
     "bytes that are packed into one batch at most; 0 packs nothing"},
    {"cycle_time", "--cycle-time-ms", "params.cycle_time_ms", "HOROVOD_CYCLE_TIME", kDouble, "1", kTune,
     "milliseconds that the batching window stays open at most"},
    {"disable_group_fusion", "", "", "HOROVOD_DISABLE_GROUP_FUSION", kFlag, "0", kTune,
     "a grouped operation shares its batch with nothing else"},
    {"cache_capacity", "--cache-capacity", "params.cache_capacity", "HOROVOD_CACHE_CAPACITY", kInt, "1024", kTune,
     "entries of the response cache; 0 switches it off"},

    {"hierarchical_allreduce", "--hierarchical-allreduce", "params.hierarchical_allreduce",
     "HOROVOD_HIERARCHICAL_ALLREDUCE", kFlag, "0", kTune,
     "of each host only one rank exchanges with other hosts", "--no-hierarchical-allreduce"},
    {"whole_limit", "", "", "HOROVOD_ALLREDUCE_WHOLE_LIMIT", kInt, "0", kTune,
     "bytes up to which a few hosts exchange whole allreduces in one hop; 0: as measured best"},
    {"doubling_limit", "", "", "HOROVOD_ALLREDUCE_DOUBLING_LIMIT", kInt, "0", kTune,
     "bytes up to which hosts double what they know of an allreduce in each hop; 0: as measured "
     "best"},
    {"ring_from", "", "", "HOROVOD_ALLREDUCE_RING_FROM", kInt, "0", kTune,
     "bytes from which many hosts allreduce around a ring; 0: as measured best"},

    {"autotune", "--autotune", "autotune.enabled", "HOROVOD_AUTOTUNE", kFlag, "0", kAutotune,
     "find good parameters while the job runs; those that are set stay", "--no-autotune"},
    {"autotune_log", "--autotune-log-file", "autotune.log_file", "HOROVOD_AUTOTUNE_LOG", kText, "",
     kAutotune, "file of rank 0 that lists what was tried, with its score, the best at its end"},
    {"autotune_warmup_samples", "--autotune-warmup-samples", "autotune.warmup_samples",
     "HOROVOD_AUTOTUNE_WARMUP_SAMPLES", kInt, "3", kAutotune, "samples that are thrown away first"},
    {"autotune_steps_per_sample", "--autotune-steps-per-sample", "autotune.steps_per_sample",
     "HOROVOD_AUTOTUNE_STEPS_PER_SAMPLE", kInt, "10", kAutotune,
     "steps of the training that a sample takes"},
    {"autotune_points", "--autotune-bayes-opt-max-samples", "autotune.bayes_opt_max_samples",
     "HOROVOD_AUTOTUNE_BAYES_OPT_MAX_SAMPLES", kInt, "20", kAutotune,
     "sets of parameters that are tried at most"},
    {"autotune_noise", "--autotune-gaussian-process-noise", "autotune.gaussian_process_noise",
     "HOROVOD_AUTOTUNE_GAUSSIAN_PROCESS_NOISE", kDouble, "0.8", kAutotune,
     "share of the scores' spread that may be chance, from 0 to 1"},

    {"stall_check_disable", "--no-stall-check", "", "HOROVOD_STALL_CHECK_DISABLE", kFlag, "0",
     kStall, "do not look for work that some ranks wait for and others never submit",
     "--stall-check"},
    {"stall_check_time", "--stall-check-warning-time-seconds", "stall_check.warning_time_seconds",
     "HOROVOD_STALL_CHECK_TIME_SECONDS", kDouble, "60", kStall,
     "seconds after which waiting work is reported with the ranks that are missing; 0: never"},
    {"stall_shutdown_time", "--stall-check-shutdown-time-seconds",
     "stall_check.shutdown_time_seconds", "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS", kDouble, "0",
     kStall, "seconds after which waiting work ends the job; 0: never"},
    {"stall_report", "--stall-report", "stall_check.report", "HOROVOD_STALL_REPORT", kText, "",
     kStall, "file that also gets each report of waiting work, as a line of JSON"},

    {"timeline", "--timeline-filename", "timeline.filename", "HOROVOD_TIMELINE", kText, "",
     kTimeline, "file at rank 0 that gets a Chrome trace of all ranks; DYNAMIC: none yet"},
    {"timeline_mark_cycles", "--timeline-mark-cycles", "timeline.mark_cycles",
     "HOROVOD_TIMELINE_MARK_CYCLES", kFlag, "0", kTimeline, "mark each batching window in it",
     "--no-timeline-mark-cycles"},

    {"log_level", "", "", "HOROVOD_LOG_LEVEL", kText, "warning", kLogging,
     "trace, debug, info, warning, error or fatal"},
    {"log_hide_time", "", "", "HOROVOD_LOG_HIDE_TIME", kFlag, "0", kLogging,
     "log lines without time"},
};

Status check_value(const Setting& setting, std::string_view value) {
  const std::string_view text = trim(value);
  const char* wanted = nullptr;
  switch (setting.type) {
    case kText: break;
    case kInt: if (!parse_int(text)) wanted = "a whole number"; break;
    case kDouble: if (!parse_double(text)) wanted = "a number"; break;
    case kFlag: if (!parse_flag(text)) wanted = "1 or 0"; break;
  }
  if (!wanted) return {};
  return invalid_argument(cat("'", printable(value), "' is not ", wanted));
}

}  // namespace

std::span<const Setting> all_settings() { return kTable; }

const Setting& setting(std::string_view key) {
  for (const Setting& entry : kTable) {
    if (key == entry.key) return entry;
  }
  check_failed(__FILE__, __LINE__, cat("setting ", key, " is in the table").c_str());
}

Result<Settings> Settings::from_environment() {
  Settings settings;
  for (const Setting& entry : kTable) {
    if (entry.variable[0] == '\0') continue;
    const char* value = std::getenv(entry.variable);
    if (value == nullptr || (value[0] == '\0' && entry.type != kFlag)) continue;
    if (Status status = settings.set(entry.key, value); !status.ok()) {
      return status.with_context(entry.variable);
    }
  }
  return settings;
}

Status Settings::set(std::string_view key, std::string_view value) {
  HVD_RETURN_IF_ERROR(check_value(setting(key), value));
  values_.insert_or_assign(std::string(key), std::string(value));
  return {};
}

bool Settings::is_set(std::string_view key) const {
  setting(key);
  return values_.contains(key);
}

std::string Settings::text(std::string_view key) const {
  const Setting& entry = setting(key);
  const auto found = values_.find(key);
  return found != values_.end() ? found->second : entry.default_value;
}

int64_t Settings::integer(std::string_view key) const {
  return parse_int(trim(text(key))).value_or(0);
}

double Settings::number(std::string_view key) const {
  return parse_double(trim(text(key))).value_or(0);
}

bool Settings::flag(std::string_view key) const {
  return parse_flag(trim(text(key))).value_or(false);
}

std::optional<bool> parse_flag(std::string_view text) {
  const std::string word = to_lower(trim(text));
  if (word == "1" || word == "true" || word == "yes" || word == "on") return true;
  if (word.empty() || word == "0" || word == "false" || word == "no" || word == "off") {
    return false;
  }
  if (const auto number = parse_int(word)) return *number > 0;
  return {};
}

std::optional<std::string> environment_variable(std::string_view name) {
  const char* value = std::getenv(std::string(name).c_str());
  if (value == nullptr) return {};
  return value;
}

void forget_environment_variable(std::string_view name) {
  ::unsetenv(std::string(name).c_str());
}

std::vector<std::pair<std::string, std::string>> environment() {
  std::vector<std::pair<std::string, std::string>> variables;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const size_t equals = text.find('=');
    if (equals == std::string_view::npos) continue;
    variables.emplace_back(text.substr(0, equals), text.substr(equals + 1));
  }
  return variables;
}

}  // namespace hvd
