#include "runtime/settings/worker_settings.h"

#include <utility>

#include "base/check.h"
#include "base/machine_identity.h"
#include "base/text.h"

namespace hvd::runtime {

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
