#include "launcher/settings/launch_settings.h"

#include <utility>

#include "base/check.h"

namespace hvd::launcher {
namespace {

std::optional<int64_t> integer_if_set(const Settings& table, const char* key) {
  return table.is_set(key) ? std::optional(table.integer(key)) : std::nullopt;
}

Chosen<int64_t> chosen_integer(const Settings& table, const char* key) {
  return {table.integer(key), table.is_set(key)};
}

std::optional<double> number_if_set(const Settings& table, const char* key) {
  return table.is_set(key) ? std::optional(table.number(key)) : std::nullopt;
}

Chosen<double> chosen_number(const Settings& table, const char* key) {
  return {table.number(key), table.is_set(key)};
}

std::optional<std::string> text_if_set(const Settings& table, const char* key) {
  return table.is_set(key) ? std::optional(table.text(key)) : std::nullopt;
}

Chosen<std::string> chosen_text(const Settings& table, const char* key) {
  return {table.text(key), table.is_set(key)};
}

}  // namespace

LaunchSettings::LaunchSettings(Settings table) : table_(std::move(table)) {
  job.num_proc = integer_if_set(table_, "num_proc");
  job.wdir = text_if_set(table_, "wdir");
  job.stage = text_if_set(table_, "stage");
  job.remote_init = table_.text("remote_init");
  job.start_timeout = chosen_number(table_, "start_timeout");
  job.dry_run = table_.flag("dry_run");
  job.verbose = table_.flag("verbose");
  job.detach = table_.flag("detach");
  job.max_restarts = chosen_integer(table_, "max_restarts");
  job.spares = table_.integer("spares");
  job.store_fd = integer_if_set(table_, "store_fd");
  job.agent_dir = table_.text("agent_dir");
  hosts.list = text_if_set(table_, "hosts");
  hosts.hostfile = text_if_set(table_, "hostfile");
  hosts.slots_per_host = chosen_integer(table_, "slots_per_host");
  hosts.slots_by = table_.text("slots_by");
  hosts.nnodes = integer_if_set(table_, "nnodes");
  elastic.min_num_proc = integer_if_set(table_, "min_num_proc");
  elastic.max_num_proc = integer_if_set(table_, "max_num_proc");
  elastic.host_discovery_script = text_if_set(table_, "host_discovery_script");
  elastic.timeout = table_.number("elastic_timeout");
  elastic.job_reset_limit = text_if_set(table_, "job_reset_limit");
  elastic.cooldown_range = text_if_set(table_, "cooldown_range");
  elastic.restart_ranks = table_.flag("restart_ranks");
  elastic.leave_grace = table_.number("leave_grace");
  ssh.port = integer_if_set(table_, "ssh_port");
  ssh.identity_file = text_if_set(table_, "ssh_identity_file");
  ssh.command = text_if_set(table_, "ssh_command");
  ssh.launch_agent = text_if_set(table_, "launch_agent");
  network.network_interfaces = table_.text("network_interfaces");
  network.port_range = text_if_set(table_, "port_range");
  network.encrypt = table_.flag("encrypt");
  join.listen = text_if_set(table_, "listen");
  join.token_file = text_if_set(table_, "token_file");
  join.token_fd = integer_if_set(table_, "token_fd");
  join.tls_cert = text_if_set(table_, "tls_cert");
  join.tls_key = text_if_set(table_, "tls_key");
  join.insecure_plaintext = table_.flag("insecure_plaintext");
  environment.variables = table_.list("env");
  environment.env_file = text_if_set(table_, "env_file");
  environment.no_env = table_.flag("no_env");
  environment.independent = table_.flag("independent");
  environment.no_torch_env = table_.flag("no_torch_env");
  output.stdin_ranks = chosen_text(table_, "stdin");
  output.output_filename = text_if_set(table_, "output_filename");
  output.spool_dir = table_.text("spool_dir");
  output.prefix_timestamp = table_.flag("prefix_timestamp");
  output.tag = table_.text("tag");
  output.only_rank = text_if_set(table_, "only_rank");
  output.fold = table_.flag("fold");
  output.log_format = table_.text("log_format");
  end.on_failure = table_.text("on_failure");
  end.kill_grace = table_.number("kill_grace");
  end.end_signal = table_.text("end_signal");
  end.timeout = number_if_set(table_, "timeout");
  end.lease = chosen_number(table_, "lease");
  end.host_timeout = chosen_number(table_, "host_timeout");
  launchers.gloo = table_.flag("gloo");
  launchers.mpi = table_.flag("mpi");
  launchers.jsrun = table_.flag("jsrun");
  launchers.mpi_args = text_if_set(table_, "mpi_args");
  launchers.binding_args = text_if_set(table_, "binding_args");
  launchers.insecure_compat = table_.flag("insecure_compat");
  libraries.library = table_.text("library");
  libraries.plugin_path = table_.text("plugin_path");
  libraries.tcp = table_.flag("tcp");
  logging.log_level = table_.text("log_level");
  questions.help = table_.flag("help");
  questions.help_all = table_.flag("help_all");
  questions.version = table_.flag("version");
  questions.check_build = table_.flag("check_build");
  questions.json = table_.flag("json");
  questions.require = text_if_set(table_, "require");
  questions.completion = text_if_set(table_, "completion");
  questions.manual = text_if_set(table_, "manual");
  identity.job = text_if_set(table_, "job");
}

LaunchSettings LaunchSettings::with(const char* key, std::string_view value) const {
  Settings changed = table_;
  HVD_CHECK(changed.set(key, value).ok());
  return LaunchSettings(std::move(changed));
}

}  // namespace hvd::launcher
