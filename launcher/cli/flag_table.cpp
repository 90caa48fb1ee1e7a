#include "launcher/cli/flag_table.h"

#include <algorithm>

#include "base/text.h"

namespace hvd::launcher {
namespace {

constexpr char kRendezvous[] =
    "every host is started by this launcher, and ranks meet through it; "
    "leave the flag out and name the hosts with -H";
constexpr char kGpus[] =
    "write -H HOST:SLOTS,... for the hosts and the ranks on each, and -x CUDA_VISIBLE_DEVICES=LIST "
    "for GPUs other than the first";
constexpr char kMca[] = "mpirun's flags are for --mpi, in --mpi-args; leave it out without --mpi";

constexpr ForeignFlag kForeign[] = {
    {"-q,--quiet,--silent", 0, "",
     "horovodrun prints little of its own; write --only-rank LIST to see the "
     "output of some ranks only"},
    {"--rank-by", 1, "slot",
     "ranks fill the hosts in their order, slot by slot; "
     "leave the flag out"},
    {"-N,-c", 1, "",
     "mpirun and srun mean different things by it; write -np for ranks, --nnodes for "
     "hosts or --slots-per-host for ranks on each"},
    {"-d", 1, "", "write --cpus-per-rank N"},
    {"--display-map,-display-map,--display-allocation,-display-allocation", 0, "",
     "write --dry-run, which prints the host of each rank and starts nothing"},
    {"--display", 1, "", "write --dry-run, which prints the host of each rank and starts nothing"},
    {"--mca,-mca,--prtemca,--pmixmca,--gmca", 2, "", kMca},
    {"-genv,-env", 2, "", "write -x NAME=VALUE"},
    {"-genvlist,-envlist", 1, "", "write -x NAME for each"},
    {"-genvall,-envall", 0, "*", ""},
    {"-iface", 1, "", "write --network-interfaces NAME"},
    {"-launcher,-bootstrap,-launcher-exec,-bootstrap-exec", 1, "ssh",
     "hosts are reached by ssh, or by what --launch-agent names"},
    {"--allow-run-as-root,--tag-output,-l,-prepend-rank,--standalone,--no-python", 0, "*", ""},
    {"--oversubscribe,--use-hwthread-cpus", 0, "",
     "slots are not limited to the cores: write -H HOST:SLOTS"},
    {"-t,--tee", 1, "",
     "output is always printed, with the rank; --output-filename DIR also writes it to files"},
    {"-r,--redirects", 1, "",
     "write --output-filename DIR for files of each rank's output, and --only-rank LIST for the "
     "ranks that the terminal shows"},
    {"--log-dir,--log_dir", 1, "",
     "write --output-filename DIR; rank N writes DIR/rank.N/stdout and DIR/rank.N/stderr"},
    {"--local-ranks-filter,--local_ranks_filter", 1, "",
     "write --only-rank LIST, with the ranks of the whole job"},
    {"--role,--logs-specs,--logs_specs,--event-log-handler,--event_log_handler", 1, "",
     "torchrun's agents need it, and this launcher does not; leave the flag out"},
    {"--monitor-interval,--monitor_interval,--start-method,--start_method", 1, "*", ""},
    {"--local-addr,--local_addr", 1, "",
     "write --network-interfaces NAME, an interface or a network, for all hosts"},
    {"--num-gpus,--num_gpus,--gpus,--gpus-per-node,--tasks-per-node", 1, "",
     "write -np N for ranks on one host, or -H HOST:SLOTS,... for the ranks on each"},
    {"--num-nodes,--num_nodes,--nodes", 1, "", "write --nnodes N"},
    {"-e", 1, "", "write -x NAME=VALUE for a variable, and -H HOST:SLOTS,... for hosts"},
    {"--include,--exclude", 1, "", kGpus},
    {"--num-processes,--num_processes,--ntasks", 1, "", "write -np N"},
    {"--cwd,-cwd", 1, "", "write --wdir DIR"},
    {"--debug", 0, "", "write --verbose, or HOROVOD_LOG_LEVEL=debug for more"},
    {"--log", 1, "", "write --log-level LEVEL"},
    {"--nics", 1, "", "write --network-interfaces NAME,..."},
    {"-u,--unbuffered", 0, "",
     "horovodrun passes output on at once, and Python runs unbuffered; leave the flag out"},
    {"--image", 1, "",
     "horovodrun starts no containers; reach running ones with --launch-agent 'docker exec -i "
     "{host}'"},
    {"--rankfile,-rankfile,--rank-file", 1, "",
     "write -H HOST:SLOTS,... or --hostfile FILE: ranks fill the hosts in their order"},
    {"--num-machines,--num_machines", 1, "", "write --nnodes N, and name the hosts with -H"},
    {"-w,--nodelist", 1, "", "write -H HOST:SLOTS,..., which also takes n[01-16]:8"},
    {"-m,--module", 1, "", "write python3 -m MODULE as the command"},
    {"--rdzv-backend,--rdzv_backend,--rdzv-endpoint,--rdzv_endpoint,--rdzv-id,--rdzv_id,--rdzv-"
     "conf,"
     "--rdzv_conf,--node-rank,--node_rank,--master-addr,--master_addr,--master-port,--master_port",
     1, "", kRendezvous},
};

// The long flags of the original Horovod.
constexpr char kOfOriginal[] =
    "autotune autotune-bayes-opt-max-samples autotune-gaussian-process-noise autotune-log-file "
    "autotune-steps-per-sample autotune-warmup-samples binding-args blacklist-cooldown-range "
    "cache-capacity check-build config-file cycle-time-ms disable-cache elastic-timeout "
    "fusion-threshold-mb gloo gloo-timeout-seconds hierarchical-allgather hierarchical-allreduce "
    "host-discovery-script hostfile hosts jsrun log-hide-timestamp log-level log-with-timestamp "
    "log-without-timestamp max-np max-num-proc min-np min-num-proc mpi mpi-args "
    "mpi-threads-disable "
    "network-interface network-interfaces no-autotune no-hierarchical-allgather "
    "no-hierarchical-allreduce no-log-hide-timestamp no-mpi-threads-disable no-stall-check "
    "no-timeline-mark-cycles no-torus-allreduce num-nccl-streams num-proc output-filename "
    "prefix-output-with-timestamp reset-limit slots-per-host ssh-identity-file ssh-port "
    "stall-check "
    "stall-check-shutdown-time-seconds stall-check-warning-time-seconds start-timeout tcp "
    "thread-affinity timeline-filename timeline-mark-cycles torus-allreduce verbose version";

}  // namespace

size_t Flag::values() const {
  return takes_value() ? std::max<size_t>(1, words_of(setting->value).size()) : 0;
}

std::vector<Flag> all_flags() {
  std::vector<Flag> flags;
  for (const Setting& setting : all_settings()) {
    if (setting.flags[0] == '\0' && setting.aliases[0] == '\0') continue;
    Flag flag{{}, {}, &setting, false};
    if (setting.flags[0] != '\0') flag.spellings = split(setting.flags, ',');
    if (setting.aliases[0] != '\0') flag.aliases = split(setting.aliases, ',');
    flags.push_back(std::move(flag));
    if (setting.off_flag[0] == '\0') continue;
    flags.push_back({split(setting.off_flag, ','), {}, &setting, true});
  }
  return flags;
}

std::vector<std::string> all_topics() {
  std::vector<std::string> topics;
  for (const Setting& setting : all_settings()) {
    if (std::ranges::find(topics, setting.section) == topics.end()) {
      topics.emplace_back(setting.section);
    }
  }
  return topics;
}

std::vector<std::string> choices_of(const Setting& setting) {
  if (std::string_view(setting.choices).empty()) return {};
  return split(setting.choices, ',');
}

Status set_given(const Setting& setting, std::string_view value, Settings& settings) {
  if (std::string_view(setting.key) == "slots_per_host") {
    const std::string device = to_lower(trim(value));
    const bool is_device = device == "gpu" || device == "auto" || device == "cpu";
    if (is_device || settings.is_set("slots_by")) {
      HVD_RETURN_IF_ERROR(settings.set("slots_by", is_device ? device : ""));
    }
    if (is_device) return {};
  }
  if (std::string_view(setting.key) == "nnodes" && value.find(':') != std::string_view::npos) {
    return invalid_argument(cat("'", printable(value),
                                "' is the range of an elastic job of torchrun; write --min-np and "
                                "--max-np, for ranks, in place of it"));
  }
  return settings.set_in_units(setting.key, value);
}

const ForeignFlag* find_foreign_flag(std::string_view name) {
  for (const ForeignFlag& foreign : kForeign) {
    const auto spellings = split(foreign.spellings, ',');
    if (std::find(spellings.begin(), spellings.end(), name) != spellings.end()) return &foreign;
  }
  return nullptr;
}

std::string flag_of_beginning(std::string_view name) {
  if (name.size() < 4 || !name.starts_with("--")) return {};
  std::string found;
  for (const std::string_view flag : words_of(kOfOriginal)) {
    if (!flag.starts_with(name.substr(2))) continue;
    if (!found.empty()) return {};
    found = cat("--", flag);
  }
  return found;
}

std::string nearest_flag(const std::vector<Flag>& flags, std::string_view name) {
  if (name == "-?") return "--help";
  // Omit one-letter flags, which resemble every letter.
  std::vector<std::string> spellings;
  for (const Flag& flag : flags) {
    for (const std::string& spelling : flag.spellings) {
      if (name.size() == 2 && to_lower(spelling) == to_lower(name)) return flag.spellings.back();
      if (spelling.size() == 2) continue;
      // The user may have typed only the beginning of a flag.
      if (name.size() > 2 && spelling.starts_with(name)) return spelling;
      spellings.push_back(spelling);
    }
  }
  return nearest(name, spellings);
}

}  // namespace hvd::launcher
