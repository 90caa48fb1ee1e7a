#include "launcher/command.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <filesystem>

#include "base/check.h"
#include "base/cores.h"
#include "base/limits/descriptor_limit.h"
#include "base/log/log.h"
#include "base/process/signals.h"
#include "base/secrets/secret.h"
#include "base/text.h"
#include "horovod/version.h"
#include "launcher/allocation/dry_run.h"
#include "launcher/allocation/host_choice.h"
#include "launcher/check/hosts.h"
#include "launcher/check/interpreter.h"
#include "launcher/cli/commands.h"
#include "launcher/cli/manual.h"
#include "launcher/elastic/elastic_job.h"
#include "launcher/elastic/elastic_settings.h"
#include "launcher/link/join_queue.h"
#include "launcher/output/metrics_port.h"
#include "launcher/output/terminal_text.h"
#include "launcher/protocol/program.h"
#include "launcher/reach/first_hosts.h"
#include "net/asio.h"
#include "net/interfaces.h"
#include "net/tcp_transport.h"
#include "rendezvous/server/monitor.h"
#include "rendezvous/server/server.h"

namespace hvd::launcher {
namespace {

std::string absolute(const std::string& path) {
  std::error_code error;
  const auto found = std::filesystem::absolute(path, error);
  return error ? path : found.lexically_normal().string();
}

// Reads the token. Creates a missing token file: the launcher runs before all processes that join.
Result<Secret> take_token(const LaunchSettings& settings) {
  const std::string path = settings.join.token_file.value_or("");
  const std::optional<int> fd = settings.join.token_fd;
  if (!path.empty() && !fd && ::access(path.c_str(), F_OK) != 0 && errno == ENOENT) {
    HVD_RETURN_IF_ERROR(create_token_file(path));
    print_message(cat("created the token file ", printable(absolute(path)),
                      "; copy it to each host that joins, readable by its owner alone"));
  }
  return read_token(path, fd);
}

// Returns the address of this launcher for agents on other hosts, as --join accepts it.
std::string address_for_others(const LaunchSettings& settings, const net::Endpoint& bound) {
  if (settings.join.tls_cert.has_value()) {  // a certificate is valid for a name
    char name[256] = "";
    ::gethostname(name, sizeof name - 1);
    return cat("https://", name, ":", bound.port);
  }
  const bool is_everywhere = bound.host.empty() || bound.host == "0.0.0.0" || bound.host == "::";
  if (bound.family == net::Endpoint::Family::kUnix || !is_everywhere) return net::to_string(bound);
  const auto choice = net::InterfaceChoice::parse(settings.network.network_interfaces);
  for (const auto& [interface, bytes] : net::interface_addresses().value_or({})) {
    if (!choice.ok() || choice->allows(interface, bytes))
      return net::endpoint_text(bytes, bound.port);
  }
  return cat("127.0.0.1:", bound.port);
}

// Returns the command that a user types on a host to join it to the job.
std::string join_command(const LaunchSettings& settings, const net::Endpoint& bound) {
  const std::string file = settings.join.token_file.value_or("");
  std::error_code ignored;  // a pipe of this shell is not a file on the other host
  const bool is_file = std::filesystem::is_regular_file(file, ignored);
  std::string command = cat("horovod-agent --join ", address_for_others(settings, bound),
                            " --token-file ", is_file ? shell_quote(absolute(file)) : "FILE");
  if (settings.join.insecure_plaintext) command += " --insecure-plaintext";
  return command;
}

// Returns this machine, with a rank for each GPU that a program sees, or with one rank.
std::vector<Host> this_machine() {
  const int gpus = visible_gpus(count_gpus(), environment_variable("CUDA_VISIBLE_DEVICES"));
  print_message(gpus > 1    ? cat(gpus, " ranks, one per GPU; -np 1 for one")
                : gpus == 1 ? "1 rank, as a program sees one GPU; -np N for more"
                            : "1 rank, as a program sees no GPU; -np N for more");
  return {{"localhost", "", std::max(gpus, 1)}};
}

// Returns this machine if neither a number of ranks nor hosts are given and the command is a program. Otherwise an
// error: `status`, or a hint, because the user often means a command of horovodrun, or writes -np after the command.
Result<std::vector<Host>> hosts_without_number(const Options& options, const Status& status) {
  for (const char* key : {"num_proc", "hosts", "hostfile", "slots_per_host", "slots_by"}) {
    if (options.settings.table().is_set(key)) return status;
  }
  if (options.command.empty() || has_allocation(options.settings)) return status;
  const std::string flag = explain_flag_behind(options.command);
  if (!flag.empty()) return invalid_argument(flag);
  const std::string& word = options.command.front();
  const std::string path = environment_variable("PATH").value_or("");
  const bool is_program = word.find('/') != std::string::npos || word.ends_with(".py") ||
                          find_program(word, "/", path).ok();
  const std::string sentence =
      is_program ? explain_program_elsewhere(word) : explain_unknown_command(word);
  if (!sentence.empty()) return invalid_argument(sentence);
  if (!is_program || is_elastic(options.settings)) return status;
  return this_machine();
}

bool names_hosts(const LaunchSettings& settings) {
  return settings.hosts.list.has_value() || settings.hosts.hostfile.has_value();
}

Result<JoinQueue::Wanted> wanted_hosts(const LaunchSettings& settings) {
  JoinQueue::Wanted wanted;
  wanted.stays_open = is_elastic(settings);
  wanted.slots =
      wanted.stays_open ? rank_limits(settings).start : settings.job.num_proc.value_or(0);
  wanted.is_plaintext = settings.join.insecure_plaintext;
  if (names_hosts(settings)) {
    HVD_ASSIGN_OR_RETURN(wanted.hosts, choose_hosts(settings));
  }
  return wanted;
}

Result<std::unique_ptr<rendezvous::Server>> make_server(net::asio::io_context& loop,
                                                        const LaunchSettings& settings,
                                                        const JobIdentity& identity,
                                                        const Secret& token, int slots) {
  rendezvous::ServerOptions of_server{.secret = identity.secret, .size = slots};
  of_server.monitor_secret = token;
  if (settings.launchers.insecure_compat) of_server.insecure_compat.emplace();
  if (!settings.join.insecure_plaintext) {
    HVD_ASSIGN_OR_RETURN(of_server.tls, tls_of_agents(token, settings.join.tls_cert.value_or(""),
                                                      settings.join.tls_key.value_or("")));
  }
  return std::make_unique<rendezvous::Server>(loop.get_executor(), std::move(of_server));
}

// Waits for hosts. Returns the number of the signal that has ended the wait, or 0.
Result<int> wait_for_hosts(net::asio::io_context& loop, JoinQueue& join_queue, double seconds) {
  Status status;
  int signal = 0;
  net::asio::cancellation_signal cancel;
  net::asio::signal_set signals(loop, SIGINT, SIGTERM);
  if (!is_ignored(SIGHUP)) signals.add(SIGHUP);
  signals.async_wait([&](const net::error_code& error, int number) {
    if (error) return;
    signal = number;
    cancel.emit(net::asio::cancellation_type::terminal);
  });
  net::asio::co_spawn(loop, join_queue.wait(seconds),
                      net::asio::bind_cancellation_slot(cancel.slot(), [&](std::exception_ptr error,
                                                                           Status waited) {
                        status = error ? net::status_of(error, "waiting for hosts failed") : waited;
                        loop.stop();
                      }));
  loop.run();
  loop.restart();
  if (signal != 0) return signal;
  if (!status.ok()) return status;
  return 0;
}

int run_on_joined_hosts(const Options& options, JoinQueue& join_queue, const LaunchEvents& events) {
  const LaunchSettings& settings = options.settings;
  const bool changes = is_elastic(settings);
  const std::vector<Host> hosts = join_queue.hosts();
  std::optional<int> num_proc;
  if (settings.job.num_proc.has_value()) num_proc = settings.job.num_proc.value_or(0);
  const auto plan = changes                 ? plan_elastic(settings, hosts)
                    : names_hosts(settings) ? make_plan(options)
                                            : plan_slots(hosts, num_proc);
  if (!plan.ok()) return refuse(plan.status());
  prepare_process(options);
  const auto folder = take_output_folder(settings);
  if (!folder.ok()) return refuse(folder.status());
  std::optional<JobHistory> history;
  if (changes) history.emplace(new_history(settings, hosts, true));
  ResolvedEnvironment environment;
  return run_job(options, *plan, 0, environment, &join_queue, events, history ? &*history : nullptr)
      .exit_code;
}

}  // namespace

int answer(const Options& options) {
  const LaunchSettings& settings = options.settings;
  const size_t width = text_width(STDOUT_FILENO);
  if (settings.questions.help_all) return print_answer(full_help_text(width));
  if (settings.questions.help) {
    return print_answer(options.command.size() == 1
                            ? topic_help_text(options.command.front(), width)
                            : help_text(width));
  }
  if (settings.questions.version) return print_answer(HVD_VERSION "\n");
  if (settings.questions.completion.has_value())
    return print_answer(completion(to_lower(settings.questions.completion.value_or(""))));
  if (settings.questions.manual.has_value())
    return print_answer(manual(to_lower(settings.questions.manual.value_or(""))));
  const Status named = asks_hosts(settings) ? Status() : check_named_program(options);
  if (!named.ok()) return refuse(named.with_context("--check-build"));
  const CheckAnswer checked = asks_hosts(settings) ? check_hosts(options) : check_build(options);
  const int printed = print_answer(checked.text);
  return checked.exit_code != 0 ? checked.exit_code : printed;
}

Result<SlotPlan> make_plan(const Options& options, std::vector<Host>* spares) {
  auto chosen = choose_hosts_with_slots(options);
  if (!chosen.ok()) chosen = hosts_without_number(options, chosen.status());
  if (!chosen.ok()) return chosen.status();
  std::vector<Host>& hosts = *chosen;
  const auto count = static_cast<size_t>(options.settings.job.spares);
  HVD_ASSIGN_OR_RETURN(auto held_back, take_spares(hosts, count));
  if (spares != nullptr) *spares = held_back;
  auto plan = plan_slots(hosts, options.settings.job.num_proc);
  if (plan.ok() || held_back.empty()) return plan;
  std::vector<std::string> names;
  names.reserve(held_back.size());
  for (const Host& host : held_back) names.push_back(host.name);
  return Status(plan.error().code(), cat(plan.error().message(), "\n  (--spares ", count,
                                         " keeps for later: ", join(names, ", "), ")"));
}

bool is_joined(const Options& options) {
  const LaunchSettings& settings = options.settings;
  return settings.join.listen.has_value() || settings.join.token_file.has_value() ||
         settings.join.token_fd.has_value();
}

int run_joined_job(const Options& options, const LaunchEvents& events) {
  const LaunchSettings& settings = options.settings;
  if (settings.job.verbose) log::set_level(log::Level::kInfo);
  auto token = take_token(settings);
  if (!token.ok()) return refuse(token.status());
  auto wanted = wanted_hosts(settings);
  if (!wanted.ok()) return refuse(wanted.status());
  if (events.metrics) events.metrics->set_token(rendezvous::Monitor::token(*token));
  // Any process that reaches the port can use up descriptors before the hosts join.
  raise_descriptor_limit();
  net::asio::io_context loop(1);
  JobIdentity identity = joined_job(*token, 0);
  auto server = make_server(loop, settings, identity, *token, wanted->slots);
  if (!server.ok()) return refuse(server.status());
  const auto bound = rendezvous::listen_at(**server, settings.join.listen.value_or(":0"),
                                           settings.network.port_range.value_or(""));
  if (!bound.ok()) return refuse(bound.status());
  const std::string command = join_command(settings, *bound);
  wanted->join_command = command;
  JoinQueue join_queue(loop, *std::move(server), *token, std::move(identity), *std::move(wanted));
  const double seconds =
      is_elastic(settings) ? elastic_timeout(settings) : settings.job.start_timeout.value;
  print_message(cat("waits up to ", seconds, " s at ", net::to_string(*bound), " for ",
                    join_queue.describe_wanted(), ", to join by: ", command));
  const auto signal = wait_for_hosts(loop, join_queue, seconds);
  if (!signal.ok() || *signal != 0) join_queue.end_waiting();
  if (!signal.ok()) return refuse(signal.status());
  if (*signal != 0) {
    print_message(cat("ended by ", signal_name(*signal), " before anything was started"),
                  Tone::kError);
    return kExitSignal + *signal;
  }
  return run_on_joined_hosts(options, join_queue, events);
}

Result<OutputFolder> take_output_folder(const LaunchSettings& settings) {
  auto folder = OutputFolder::take(settings.output.output_filename.value_or(""));
  if (!folder.ok()) return folder;
  for (const std::string& sentence : {folder->warning(), folder->moved()}) {
    if (!sentence.empty()) print_message(sentence);
  }
  return folder;
}

int show_plan(const Options& options, const SlotPlan& plan) {
  const bool is_json = options.settings.questions.json || ::isatty(STDOUT_FILENO) != 1;
  return print_answer(is_json ? plan_as_json(plan, options.settings)
                              : plan_as_table(plan, options.settings));
}

}  // namespace hvd::launcher
