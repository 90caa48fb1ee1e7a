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

// A rank and a size: in the job, on the host, or across hosts. Unchecked values.
struct RankPair {
  std::optional<int64_t> rank, size;
};

struct WorkerSettings {
  WorkerSettings() : WorkerSettings(Settings()) {}
  explicit WorkerSettings(Settings table);
  // Returns an error for a variable whose value has the wrong type or is out of range.
  static Result<WorkerSettings> from_environment();

  // ---- identity of this process ----
  RankPair of_job, of_host, across_hosts;
  int32_t generation = 0;
  std::string hostname;  // this host's name in the plan
  std::string job;       // name of the launcher's job
  std::string launcher_version;
  bool is_elastic_by_original = false;  // Horovod's own launcher runs an elastic job
  std::optional<int32_t> elastic_process;

  // ---- rendezvous of the ranks ----
  std::string store, job_secret, store_ca;
  std::string rendezvous_address;  // address of Horovod's own rendezvous server
  std::optional<int64_t> rendezvous_port;
  std::string bootstrap, network_interfaces, port_range;
  double start_seconds = 0;  // limit to connect ranks that have all called hvd.init()
  double init_seconds = 0;   // limit for a rank to call hvd.init() after another rank waits there
  bool encrypts = false;

  // ---- transport of messages and tensors ----
  std::string controller, cpu_operations, gpu_operations;
  std::string plugin_path;  // folders, separated by colons

  // ---- execution of collectives ----
  Chosen<int64_t> fusion_threshold;  // bytes
  Chosen<double> cycle_time;         // ms
  Chosen<int64_t> whole_limit, doubling_limit, ring_from;
  Chosen<bool> hierarchical_allreduce;
  bool is_reproducible = false;
  bool groups_alone = false;
  int64_t cache_capacity = 0;
  struct Autotune {
    bool is_on = false;
    int64_t warmup_samples = 0, steps_per_sample = 0, points = 0;
    double noise = 0;
    std::string log;
  } autotune;

  // ---- reports ----
  struct Stall {
    bool is_checked = true;
    double warning_seconds = 0, shutdown_seconds = 0;  // 0: never
    std::string report;                                // a file of JSON lines
  } stall;
  std::string metrics_page;
  std::string timeline;
  bool timeline_marks_cycles = false;
  std::string log_level;
  bool log_hides_time = false;

  // Returns the table of settings, for plugins. The functions below change a field and the table together.
  const Settings& table() const { return table_; }
  void set_start_seconds(double seconds);
  void set_init_seconds(double seconds);
  void set_generation(int32_t number);
  void set_job_secret(const std::string& secret);
  // Sets rank and size of the job, of the host and across hosts.
  void set_ranks(const std::array<int64_t, 6>& numbers);

 private:
  void set(const char* key, const std::string& value);

  Settings table_;
};

// Returns this host's name in the plan, or else the machine's own name.
std::string host_name(const WorkerSettings& settings);

}  // namespace hvd::runtime
