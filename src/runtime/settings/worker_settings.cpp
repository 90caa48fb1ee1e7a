#include "runtime/settings/worker_settings.h"

#include <unistd.h>

#include <array>
#include <utility>

#include "base/check.h"
#include "base/text.h"

namespace hvd::runtime {
namespace {

std::optional<int64_t> integer_if_set(const Settings& table, const char* key) {
  return table.is_set(key) ? std::optional(table.integer(key)) : std::nullopt;
}

RankPair pair_of(const Settings& table, const char* rank, const char* size) {
  return {integer_if_set(table, rank), integer_if_set(table, size)};
}

Chosen<int64_t> chosen_integer(const Settings& table, const char* key) {
  return {table.integer(key), table.is_set(key)};
}

}  // namespace

WorkerSettings::WorkerSettings(Settings table) : table_(std::move(table)) {
  of_job = pair_of(table_, "rank", "size");
  of_host = pair_of(table_, "local_rank", "local_size");
  across_hosts = pair_of(table_, "cross_rank", "cross_size");
  generation = static_cast<int32_t>(table_.integer("generation"));
  hostname = table_.text("hostname");
  job = table_.text("job");
  launcher_version = table_.text("launcher_version");
  is_elastic_by_original = table_.flag("elastic");
  if (const auto process = integer_if_set(table_, "elastic_process")) {
    elastic_process = static_cast<int32_t>(*process);
  }

  store = table_.text("store");
  job_secret = table_.text("job_secret");
  store_ca = table_.text("store_ca");
  rendezvous_address = table_.text("rendezvous_address");
  rendezvous_port = integer_if_set(table_, "rendezvous_port");
  bootstrap = table_.text("bootstrap");
  network_interfaces = table_.text("network_interfaces");
  port_range = table_.text("port_range");
  start_seconds = table_.number("start_timeout");
  init_seconds = hvd::init_seconds(table_);
  encrypts = table_.flag("encrypt");

  controller = table_.text("controller");
  cpu_operations = table_.text("cpu_operations");
  gpu_operations = table_.text("gpu_operations");
  plugin_path = table_.text("plugin_path");

  fusion_threshold = chosen_integer(table_, "fusion_threshold");
  cycle_time = {table_.number("cycle_time"), table_.is_set("cycle_time")};
  whole_limit = chosen_integer(table_, "whole_limit");
  doubling_limit = chosen_integer(table_, "doubling_limit");
  ring_from = chosen_integer(table_, "ring_from");
  hierarchical_allreduce = {table_.flag("hierarchical_allreduce"),
                            table_.is_set("hierarchical_allreduce")};
  is_reproducible = table_.flag("reproducible");
  groups_alone = table_.flag("disable_group_fusion");
  cache_capacity = table_.integer("cache_capacity");
  autotune = {.is_on = table_.flag("autotune"),
              .warmup_samples = table_.integer("autotune_warmup_samples"),
              .steps_per_sample = table_.integer("autotune_steps_per_sample"),
              .points = table_.integer("autotune_points"),
              .noise = table_.number("autotune_noise"),
              .log = table_.text("autotune_log")};

  stall = {.is_checked = !table_.flag("stall_check_disable"),
           .warning_seconds = table_.number("stall_check_time"),
           .shutdown_seconds = table_.number("stall_shutdown_time"),
           .report = table_.text("stall_report")};
  timeline = table_.text("timeline");
  timeline_marks_cycles = table_.flag("timeline_mark_cycles");
  log_level = table_.text("log_level");
  log_hides_time = table_.flag("log_hide_time");
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
  if (!settings.hostname.empty()) return settings.hostname;
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "";
}

}  // namespace hvd::runtime
