// The settings of a rank, from its environment. Each setting that the runtime reads has a field, filled
// from the table of settings. An unset text is empty.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include "base/result.h"
#include "base/settings.h"

namespace hvd::runtime {

// A rank and a size: in the job, on the host, or across hosts. The values are unchecked.
struct RankPair {
  std::optional<int64_t> rank, size;
};

class WorkerSettings {
  Settings table_;

 public:
  WorkerSettings() = default;
  explicit WorkerSettings(Settings table) : table_(std::move(table)) {}
  // Returns an error for a variable whose value has the wrong type or is out of range.
  static Result<WorkerSettings> from_environment();

  // ---- identity of this process ----
  RankPair of_job = pair("rank", "size");
  RankPair of_host = pair("local_rank", "local_size");
  RankPair across_hosts = pair("cross_rank", "cross_size");
  int32_t generation = table_.get<int32_t>("generation");
  std::string hostname = table_.text("hostname");  // this host's name in the plan
  std::string job = table_.text("job");            // name of the launcher's job
  std::string launcher_version = table_.text("launcher_version");
  bool is_elastic_by_original =
      table_.flag("elastic");  // Horovod's own launcher runs an elastic job
  std::optional<int32_t> elastic_process = table_.get<std::optional<int32_t>>("elastic_process");

  // ---- rendezvous of the ranks ----
  std::string store = table_.text("store");
  std::string job_secret = table_.text("job_secret");
  std::string store_ca = table_.text("store_ca");
  // Address of Horovod's own rendezvous server.
  std::string rendezvous_address = table_.text("rendezvous_address");
  std::optional<int64_t> rendezvous_port = table_.get<std::optional<int64_t>>("rendezvous_port");
  std::string bootstrap = table_.text("bootstrap");
  std::string network_interfaces = table_.text("network_interfaces");
  std::string port_range = table_.text("port_range");
  // Time limit for the ranks to connect, after all have called hvd.init().
  double start_seconds = table_.number("start_timeout");
  // Time limit for all ranks to call hvd.init(), from this rank's call.
  double init_seconds = hvd::init_seconds(table_);
  bool encrypts = table_.flag("encrypt");

  // ---- transport of messages and tensors ----
  std::string controller = table_.text("controller");
  std::string cpu_operations = table_.text("cpu_operations");
  std::string gpu_operations = table_.text("gpu_operations");
  std::string plugin_path = table_.text("plugin_path");  // folders, separated by colons

  // ---- execution of collectives ----
  Chosen<int64_t> fusion_threshold = table_.get<Chosen<int64_t>>("fusion_threshold");  // bytes
  Chosen<double> cycle_time = table_.get<Chosen<double>>("cycle_time");                // ms
  Chosen<int64_t> whole_limit = table_.get<Chosen<int64_t>>("whole_limit");
  Chosen<int64_t> doubling_limit = table_.get<Chosen<int64_t>>("doubling_limit");
  Chosen<int64_t> ring_from = table_.get<Chosen<int64_t>>("ring_from");
  Chosen<bool> hierarchical_allreduce = table_.get<Chosen<bool>>("hierarchical_allreduce");
  bool is_reproducible = table_.flag("reproducible");
  bool groups_alone = table_.flag("disable_group_fusion");
  int64_t cache_capacity = table_.integer("cache_capacity");
  struct Autotune {
    bool is_on = false;
    int64_t warmup_samples = 0, steps_per_sample = 0, points = 0;
    double noise = 0;
    std::string log;
  } autotune = {table_.flag("autotune"),
                table_.integer("autotune_warmup_samples"),
                table_.integer("autotune_steps_per_sample"),
                table_.integer("autotune_points"),
                table_.number("autotune_noise"),
                table_.text("autotune_log")};

  // ---- reports ----
  struct Stall {
    bool is_checked = true;
    double warning_seconds = 0, shutdown_seconds = 0;  // 0: never
    std::string report;                                // a file of JSON lines
  } stall = {!table_.flag("stall_check_disable"), table_.number("stall_check_time"),
             table_.number("stall_shutdown_time"), table_.text("stall_report")};
  std::string metrics_page = table_.text("metrics_page");
  std::string timeline = table_.text("timeline");
  bool timeline_marks_cycles = table_.flag("timeline_mark_cycles");
  std::string log_level = table_.text("log_level");
  bool log_hides_time = table_.flag("log_hide_time");

  // Returns the table of settings, for plugins. The functions below change a field and the table together.
  const Settings& table() const { return table_; }
  void set_start_seconds(double seconds);
  void set_init_seconds(double seconds);
  void set_generation(int32_t number);
  void set_job_secret(const std::string& secret);
  // Sets rank and size of the job, of the host and across hosts.
  void set_ranks(const std::array<int64_t, 6>& numbers);

 private:
  RankPair pair(const char* rank, const char* size) const {
    return {table_.get<std::optional<int64_t>>(rank), table_.get<std::optional<int64_t>>(size)};
  }
  void set(const char* key, const std::string& value);
};

// Returns this host's name in the plan, or else the machine's own name.
std::string host_name(const WorkerSettings& settings);

}  // namespace hvd::runtime
