#include "runtime/settings/worker_settings.h"

#include <array>
#include <utility>

#include "base/check.h"
#include "base/machine_identity.h"
#include "base/text.h"

namespace hvd::runtime {

WorkerSettings::WorkerSettings(Settings table) : table_(std::move(table)) {
  table_.read("rank", of_job.rank);
  table_.read("size", of_job.size);
  table_.read("local_rank", of_host.rank);
  table_.read("local_size", of_host.size);
  table_.read("cross_rank", across_hosts.rank);
  table_.read("cross_size", across_hosts.size);
  table_.read("generation", generation);
  table_.read("hostname", hostname);
  table_.read("job", job);
  table_.read("launcher_version", launcher_version);
  table_.read("elastic", is_elastic_by_original);
  table_.read("elastic_process", elastic_process);

  table_.read("store", store);
  table_.read("job_secret", job_secret);
  table_.read("store_ca", store_ca);
  table_.read("rendezvous_address", rendezvous_address);
  table_.read("rendezvous_port", rendezvous_port);
  table_.read("bootstrap", bootstrap);
  table_.read("network_interfaces", network_interfaces);
  table_.read("port_range", port_range);
  table_.read("start_timeout", start_seconds);
  init_seconds = hvd::init_seconds(table_);
  table_.read("encrypt", encrypts);

  table_.read("controller", controller);
  table_.read("cpu_operations", cpu_operations);
  table_.read("gpu_operations", gpu_operations);
  table_.read("plugin_path", plugin_path);

  table_.read("fusion_threshold", fusion_threshold);
  table_.read("cycle_time", cycle_time);
  table_.read("whole_limit", whole_limit);
  table_.read("doubling_limit", doubling_limit);
  table_.read("ring_from", ring_from);
  table_.read("hierarchical_allreduce", hierarchical_allreduce);
  table_.read("reproducible", is_reproducible);
  table_.read("disable_group_fusion", groups_alone);
  table_.read("cache_capacity", cache_capacity);
  table_.read("autotune", autotune.is_on);
  table_.read("autotune_warmup_samples", autotune.warmup_samples);
  table_.read("autotune_steps_per_sample", autotune.steps_per_sample);
  table_.read("autotune_points", autotune.points);
  table_.read("autotune_noise", autotune.noise);
  table_.read("autotune_log", autotune.log);

  stall.is_checked = !table_.flag("stall_check_disable");
  table_.read("stall_check_time", stall.warning_seconds);
  table_.read("stall_shutdown_time", stall.shutdown_seconds);
  table_.read("stall_report", stall.report);
  table_.read("metrics_page", metrics_page);
  table_.read("timeline", timeline);
  table_.read("timeline_mark_cycles", timeline_marks_cycles);
  table_.read("log_level", log_level);
  table_.read("log_hide_time", log_hides_time);
}

Result<WorkerSettings> WorkerSettings::from_environment() {
  HVD_ASSIGN_OR_RETURN(Settings table, Settings::from_environment());
  HVD_RETURN_IF_ERROR(table.check_ranges());
  return WorkerSettings(std::move(table));
}

void WorkerSettings::set(const char* key, const std::string& value) {
  HVD_CHECK(table_.set(key, value).ok());
}

void WorkerSettings::set_start_seconds(double seconds) {
  start_seconds = seconds;
  set("start_timeout", cat(seconds));
  init_seconds = hvd::init_seconds(table_);
}

void WorkerSettings::set_init_seconds(double seconds) {
  init_seconds = seconds;
  set("init_timeout", cat(seconds));
}

void WorkerSettings::set_generation(int32_t number) {
  generation = number;
  set("generation", cat(number));
}

void WorkerSettings::set_job_secret(const std::string& secret) {
  job_secret = secret;
  set("job_secret", secret);
}

void WorkerSettings::set_ranks(const std::array<int64_t, 6>& numbers) {
  static constexpr const char* kKeys[] = {"rank",       "size",       "local_rank",
                                          "local_size", "cross_rank", "cross_size"};
  for (size_t i = 0; i < numbers.size(); ++i) set(kKeys[i], cat(numbers[i]));
  of_job = {numbers[0], numbers[1]};
  of_host = {numbers[2], numbers[3]};
  across_hosts = {numbers[4], numbers[5]};
}

std::string host_name(const WorkerSettings& settings) {
  return settings.hostname.empty() ? own_host_name() : settings.hostname;
}

}  // namespace hvd::runtime
