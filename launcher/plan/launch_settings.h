// The settings of the launcher, from its command line, config file and environment. Has one field for each setting that
// the launcher reads, in a struct for each topic of --help. src/base/settings_table.cpp defines the meanings of the
// settings.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/settings.h"

namespace hvd::launcher {

struct JobOptions {
  std::optional<int> num_proc;
  std::optional<std::string> wdir;
  std::optional<std::string> stage;
  std::optional<bool> ship;
  std::string stage_env;
  std::string stage_dir;
  bool allow_build = false;
  std::string remote_init;
  Chosen<double> start_timeout;
  std::optional<std::string> preflight;
  std::string preflight_action;
  bool dry_run = false;
  bool verbose = false;
  bool detach = false;
  std::optional<std::string> name;
  Chosen<int> max_restarts;
  int spares = 0;
  std::optional<int> store_fd;
  std::string agent_dir;
};

struct HostOptions {
  std::optional<std::string> list;
  std::optional<std::string> hostfile;
  Chosen<int> slots_per_host;
  std::string slots_by;
  std::optional<int> nnodes;
};

struct ElasticOptions {
  std::optional<int> min_num_proc;
  std::optional<int> max_num_proc;
  std::optional<std::string> host_discovery_script;
  double timeout = 0;
  std::optional<std::string> job_reset_limit;
  std::optional<std::string> cooldown_range;
  bool restart_ranks = false;
  double leave_grace = 0;
};

struct SshOptions {
  std::optional<int> port;
  std::optional<std::string> identity_file;
  std::optional<std::string> command;
  std::optional<std::string> launch_agent;
};

struct NetworkOptions {
  std::string network_interfaces;
  std::optional<std::string> port_range;
  bool encrypt = false;
};

struct JoiningHostOptions {
  std::optional<std::string> listen;
  std::optional<std::string> token_file;
  std::optional<int> token_fd;
  std::optional<std::string> tls_cert;
  std::optional<std::string> tls_key;
  bool insecure_plaintext = false;
};

struct EnvironmentOptions {
  std::vector<std::string> variables;
  std::optional<std::string> env_file;
  bool no_env = false;
  bool independent = false;
  bool no_torch_env = false;
};

struct OutputOptions {
  Chosen<std::string> stdin_ranks;
  std::optional<std::string> output_filename;
  std::string spool_dir;
  std::string state_dir;
  bool prefix_timestamp = false;
  std::string tag;
  std::optional<std::string> only_rank;
  bool fold = false;
  bool no_progress = false;
  std::string color;
  std::string log_format;
  std::string metrics_file, metrics_level;
  std::optional<std::string> metrics_port;
  bool metrics_insecure = false;
};

struct EndOptions {
  std::string on_failure;
  double kill_grace = 0;
  std::string end_signal;
  std::optional<double> timeout;
  Chosen<double> lease;
  Chosen<double> host_timeout;
  double hang_warning = 0;
  std::string on_hang;
  std::string on_straggler;
};

struct LauncherOptions {
  bool gloo = false;
  bool mpi = false;
  bool jsrun = false;
  std::optional<std::string> mpi_args;
  std::optional<std::string> binding_args;
  bool insecure_compat = false;
};

struct LibraryOptions {
  std::string library;
  std::string plugin_path;
  bool tcp = false;
};

struct LoggingOptions {
  std::string log_level;
};

struct QuestionOptions {
  bool help = false;
  bool help_all = false;
  bool version = false;
  bool check_build = false;
  bool json = false;
  std::optional<std::string> require;
  std::optional<std::string> completion;
  std::optional<std::string> manual;
};

struct IdentityOptions {
  std::optional<std::string> job;
};

struct LaunchSettings {
  LaunchSettings() : LaunchSettings(Settings()) {}
  explicit LaunchSettings(Settings table);

  JobOptions job;
  HostOptions hosts;
  ElasticOptions elastic;
  SshOptions ssh;
  NetworkOptions network;
  JoiningHostOptions join;
  EnvironmentOptions environment;
  OutputOptions output;
  EndOptions end;
  LauncherOptions launchers;
  LibraryOptions libraries;
  LoggingOptions logging;
  QuestionOptions questions;
  IdentityOptions identity;

  // For code that iterates over all settings, or that names settings which exclude each other.
  const Settings& table() const { return table_; }
  [[nodiscard]] LaunchSettings with(const char* key, std::string_view value) const;

 private:
  Settings table_;
};

// Returns the ranks of a job of `size` ranks that get the launcher's standard input (--stdin).
std::vector<int> input_readers(const LaunchSettings& settings, int size);

inline bool is_elastic(const LaunchSettings& settings) {
  return settings.elastic.host_discovery_script.has_value() ||
         settings.elastic.min_num_proc.has_value();
}

// A script whose end makes a scheduler or a container end all processes that the script has started, including a
// detached launcher.
struct EndingScript {
  std::string name;  // for example "the script of Slurm"
  int64_t pid = 0;
  int64_t start = 0;  // in clock ticks since the boot
};

// The input of a launch: the settings, the command, and the launcher's knowledge of its own process. Values.
struct Options {
  LaunchSettings settings;
  std::vector<std::string> command;  // all words from the first one that is not a flag
  // The launcher runs in a Slurm step with a part of the job's resources. Read at the start, because the job removes
  // the step's variables from this process.
  bool is_in_slurm_step = false;
  std::vector<std::string> shortened = {};  // sentences about abbreviated flags, for --verbose
  // The script that started a detached job, if a scheduler ends the job at the end of this script.
  std::optional<EndingScript> script = {};
};

// Returns true for --help, --version and other flags that print an answer and start no job.
bool is_question(const Options& options);
// Returns true for --detach, if a job starts.
bool is_detached(const Options& options);

}  // namespace hvd::launcher
