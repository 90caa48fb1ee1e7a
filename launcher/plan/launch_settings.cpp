#include "launcher/plan/launch_settings.h"

#include <utility>

#include "base/check.h"
#include "base/text.h"
#include "launcher/plan/rank_set.h"

namespace hvd::launcher {

LaunchSettings::LaunchSettings(Settings table) : table_(std::move(table)) {
  table_.read("num_proc", job.num_proc);
  table_.read("wdir", job.wdir);
  table_.read("stage", job.stage);
  table_.read("ship", job.ship);
  table_.read("stage_env", job.stage_env);
  table_.read("stage_dir", job.stage_dir);
  table_.read("allow_build", job.allow_build);
  table_.read("remote_init", job.remote_init);
  table_.read("start_timeout", job.start_timeout);
  table_.read("preflight", job.preflight);
  table_.read("preflight_action", job.preflight_action);
  table_.read("dry_run", job.dry_run);
  table_.read("verbose", job.verbose);
  table_.read("detach", job.detach);
  table_.read("name", job.name);
  table_.read("max_restarts", job.max_restarts);
  table_.read("spares", job.spares);
  table_.read("store_fd", job.store_fd);
  table_.read("agent_dir", job.agent_dir);
  table_.read("hosts", hosts.list);
  table_.read("hostfile", hosts.hostfile);
  table_.read("slots_per_host", hosts.slots_per_host);
  table_.read("slots_by", hosts.slots_by);
  table_.read("nnodes", hosts.nnodes);
  table_.read("min_num_proc", elastic.min_num_proc);
  table_.read("max_num_proc", elastic.max_num_proc);
  table_.read("host_discovery_script", elastic.host_discovery_script);
  table_.read("elastic_timeout", elastic.timeout);
  table_.read("job_reset_limit", elastic.job_reset_limit);
  table_.read("cooldown_range", elastic.cooldown_range);
  table_.read("restart_ranks", elastic.restart_ranks);
  table_.read("leave_grace", elastic.leave_grace);
  table_.read("ssh_port", ssh.port);
  table_.read("ssh_identity_file", ssh.identity_file);
  table_.read("ssh_command", ssh.command);
  table_.read("launch_agent", ssh.launch_agent);
  table_.read("network_interfaces", network.network_interfaces);
  table_.read("port_range", network.port_range);
  table_.read("encrypt", network.encrypt);
  table_.read("listen", join.listen);
  table_.read("token_file", join.token_file);
  table_.read("token_fd", join.token_fd);
  table_.read("tls_cert", join.tls_cert);
  table_.read("tls_key", join.tls_key);
  table_.read("insecure_plaintext", join.insecure_plaintext);
  table_.read("env", environment.variables);
  table_.read("env_file", environment.env_file);
  table_.read("no_env", environment.no_env);
  table_.read("independent", environment.independent);
  table_.read("no_torch_env", environment.no_torch_env);
  table_.read("stdin", output.stdin_ranks);
  table_.read("output_filename", output.output_filename);
  table_.read("spool_dir", output.spool_dir);
  table_.read("state_dir", output.state_dir);
  table_.read("prefix_timestamp", output.prefix_timestamp);
  table_.read("tag", output.tag);
  table_.read("only_rank", output.only_rank);
  table_.read("fold", output.fold);
  table_.read("no_progress", output.no_progress);
  table_.read("color", output.color);
  table_.read("log_format", output.log_format);
  table_.read("metrics_file", output.metrics_file);
  table_.read("metrics_level", output.metrics_level);
  table_.read("metrics_port", output.metrics_port);
  table_.read("metrics_insecure", output.metrics_insecure);
  table_.read("on_failure", end.on_failure);
  table_.read("kill_grace", end.kill_grace);
  table_.read("end_signal", end.end_signal);
  table_.read("timeout", end.timeout);
  table_.read("lease", end.lease);
  table_.read("host_timeout", end.host_timeout);
  table_.read("hang_warning", end.hang_warning);
  table_.read("on_hang", end.on_hang);
  table_.read("on_straggler", end.on_straggler);
  table_.read("gloo", launchers.gloo);
  table_.read("mpi", launchers.mpi);
  table_.read("jsrun", launchers.jsrun);
  table_.read("mpi_args", launchers.mpi_args);
  table_.read("binding_args", launchers.binding_args);
  table_.read("insecure_compat", launchers.insecure_compat);
  table_.read("library", libraries.library);
  table_.read("plugin_path", libraries.plugin_path);
  table_.read("tcp", libraries.tcp);
  table_.read("log_level", logging.log_level);
  table_.read("help", questions.help);
  table_.read("help_all", questions.help_all);
  table_.read("version", questions.version);
  table_.read("check_build", questions.check_build);
  table_.read("json", questions.json);
  table_.read("require", questions.require);
  table_.read("completion", questions.completion);
  table_.read("manual", questions.manual);
  table_.read("job", identity.job);
}

LaunchSettings LaunchSettings::with(const char* key, std::string_view value) const {
  Settings changed = table_;
  HVD_CHECK(changed.set(key, value).ok());
  return LaunchSettings(std::move(changed));
}

std::vector<int> input_readers(const LaunchSettings& settings, int size) {
  std::vector<int> readers;
  const std::string wanted = to_lower(settings.output.stdin_ranks.value);
  // No rank reads standard input if the launcher has read the host list from it.
  if (wanted == "none" || settings.hosts.hostfile.value_or("") == "-") return readers;
  const auto ranks = parse_ranks(wanted, size);
  for (int rank = 0; rank < size; ++rank) {
    if (wanted == "all" || (ranks.ok() && (*ranks)[static_cast<size_t>(rank)]))
      readers.push_back(rank);
  }
  return readers;
}

bool is_question(const Options& options) {
  const LaunchSettings& settings = options.settings;
  return settings.questions.help || settings.questions.help_all || settings.questions.version ||
         settings.questions.check_build || settings.questions.require.has_value() ||
         settings.questions.completion.has_value() || settings.questions.manual.has_value();
}

bool is_detached(const Options& options) {
  return options.settings.job.detach && !options.settings.job.dry_run;
}

}  // namespace hvd::launcher
