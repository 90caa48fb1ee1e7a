// Takes the identity of a rank in a step of srun without PMI. Such a step provides no data exchange between tasks. Rank
// 0, or the first rank of a list, listens on its host at a port derived from job and step. Rank 0 is on the step's
// first host, but under srun --distribution=arbitrary it may be on any host. Rank 0 sends its message to every client,
// sealed by MUNGE, so that only processes of this user can read it.
#include <cmath>

#include "base/clock.h"
#include "base/settings.h"
#include "base/text.h"
#include "bootstrap/bootstrap_plugin.h"
#include "bootstrap/message_server.h"
#include "bootstrap/munge.h"
#include "bootstrap/slurm/step.h"
#include "net/resolve.h"

namespace hvd::bootstrap {
namespace {

Result<int64_t> number_of(const char* variable) {
  const auto text = environment_variable(variable);
  if (!text) return failed_precondition(cat(variable, " is not set"));
  const auto number = parse_int(*text);
  if (!number || *number < 0) {
    return failed_precondition(cat(variable, " is '", printable(*text), "', which is no number"));
  }
  return *number;
}

struct Step {
  int64_t job, id;
  int32_t rank, size;
  std::vector<std::string> hosts;
  bool is_sorted;  // rank 0 is on the first host
};

Result<Step> this_step() {
  Step step;
  HVD_ASSIGN_OR_RETURN(step.job, number_of("SLURM_JOB_ID"));
  HVD_ASSIGN_OR_RETURN(step.id, number_of("SLURM_STEP_ID"));
  HVD_ASSIGN_OR_RETURN(const int64_t rank, number_of("SLURM_PROCID"));
  HVD_ASSIGN_OR_RETURN(const int64_t size, number_of("SLURM_STEP_NUM_TASKS"));
  if (size < 1 || size > 1 << 24 || rank >= size) {
    return invalid_argument(cat("SLURM_PROCID is ", rank, " but SLURM_STEP_NUM_TASKS is ", size));
  }
  step.rank = static_cast<int32_t>(rank);
  step.size = static_cast<int32_t>(size);
  const auto nodes = environment_variable("SLURM_STEP_NODELIST");
  if (!nodes) return failed_precondition("SLURM_STEP_NODELIST is not set");
  HVD_ASSIGN_OR_RETURN(step.hosts, hosts_of_step(*nodes));
  // For an arbitrary distribution, Slurm sorts the list of hosts, and no variable has the host of task 0.
  step.is_sorted = environment_variable("SLURM_DISTRIBUTION").value_or("") != "arbitrary";
  return step;
}

class Slurm final : public Source {
 public:
  Slurm(Step step, Munge munge, const hvd_plugin_host& host)
      : step_(std::move(step)), munge_(munge), host_(host) {}

  Status identity(hvd_identity* identity) override {
    identity->rank = step_.rank;
    identity->size = step_.size;
    const auto local_rank = number_of("SLURM_LOCALID");
    const auto node = number_of("SLURM_NODEID");
    const auto tasks = environment_variable("SLURM_STEP_TASKS_PER_NODE");
    if (!local_rank.ok() || !node.ok() || !tasks) return {};
    HVD_ASSIGN_OR_RETURN(identity->local_size, tasks_of_node(*tasks, *node));
    identity->local_rank = static_cast<int32_t>(*local_rank);
    return {};
  }

  Status put(std::string_view key, ByteView value) override {
    Bytes message = to_bytes(heading(step_.rank, key));
    message.insert(message.end(), value.begin(), value.end());
    Status why;
    for (int attempt = 0; attempt < kStepPorts; ++attempt) {
      auto listener = listen_everywhere(port_of_step(step_.job, step_.id, attempt));
      if (listener.ok()) {
        // MUNGE seals the message separately for each client.
        server_ = std::make_unique<MessageServer>(
            *std::move(listener),
            [munge = munge_, message = std::move(message)] { return munge.seal(message); });
        return {};
      }
      why = listener.error();
    }
    return why.with_context(
        cat("none of the ports of step ", step_.job, ".", step_.id, " is free"));
  }

  Result<Bytes> get(std::string_view key, double timeout_seconds) override {
    return get_from(0, key, timeout_seconds);
  }

  Result<Bytes> get_from(int32_t rank, std::string_view key, double timeout_seconds) override {
    const bool is_on_first = rank == 0 && step_.is_sorted;
    const int hosts = is_on_first ? 1 : static_cast<int>(step_.hosts.size());
    const int attempts = kStepPorts * hosts;
    const auto ask_for = [&](double seconds) {
      return ask_until(Deadline::after_seconds(seconds), attempts, [&](int attempt) {
        return ask(step_.hosts[static_cast<size_t>(attempt / kStepPorts)],
                   port_of_step(step_.job, step_.id, attempt % kStepPorts), heading(rank, key));
      });
    };
    const auto is_late = [](const Result<Bytes>& value) {
      return !value.ok() && value.error().code() == Code::kDeadlineExceeded;
    };
    const std::string where =
        hosts == 1 ? cat("host ", step_.hosts.front()) : cat("any of the step's ", hosts, " hosts");
    const double quiet = quiet_seconds(timeout_seconds);
    auto value = ask_for(quiet);
    if (is_late(value)) {
      // The warning cannot name other missing ranks: only rank `rank` would know them.
      warn(host_, cat("rank ", rank, " on ", where, " has not called hvd.init() for ",
                      std::lround(quiet), " s, and rank ", step_.rank, " waits there"));
      value = ask_for(timeout_seconds - quiet);
    }
    if (!is_late(value)) return value;
    return deadline_exceeded(cat("rank ", rank, " of step ", step_.job, ".", step_.id,
                                 " did not answer on ", where, " (", value.error().message(), ")"));
  }

  // No fence is needed: get() waits for rank 0.
  Status fence(double) override { return {}; }

 private:
  std::string heading(int32_t rank, std::string_view key) const {
    return cat("horovod ", step_.job, ".", step_.id, " ", rank, " ", key, "\n");
  }

  Result<Bytes> ask(const std::string& host, uint16_t port, const std::string& heading) const {
    HVD_ASSIGN_OR_RETURN(const auto addresses,
                         net::resolve({net::Endpoint::Family::kTcp, {}, host, port}));
    HVD_ASSIGN_OR_RETURN(const std::string credential, read_message(addresses));
    HVD_ASSIGN_OR_RETURN(const Bytes message, munge_.unseal(credential));
    if (!as_text(message).starts_with(heading)) {
      return unavailable(cat("port ", port, " belongs to another step or rank of Slurm"));
    }
    return Bytes(message.begin() + static_cast<std::ptrdiff_t>(heading.size()), message.end());
  }

  const Step step_;
  const Munge munge_;
  const hvd_plugin_host host_;
  std::unique_ptr<MessageServer> server_;
};

struct Plugin {
  static constexpr const char* kName = "slurm";
  static constexpr int32_t kPriority = 10;
  static constexpr bool kGetsFromRanks = true;
  static Status probe() { return Munge::open().status(); }
  static Result<std::unique_ptr<Source>> open(const hvd_plugin_host& host,
                                              const hvd_plugin_config&) {
    HVD_ASSIGN_OR_RETURN(Step step, this_step());
    HVD_ASSIGN_OR_RETURN(Munge munge, Munge::open());
    // Every rank tests MUNGE itself: all report an error, and none waits for rank 0.
    if (const Status sealed = munge.seal(as_bytes("horovod")).status(); !sealed.ok()) {
      return sealed.with_context(
          "a plain step of srun is authenticated by MUNGE; srun --mpi=pmix, with Slurm's mpi/pmix "
          "plugin (Debian: slurm-wlm-basic-plugins), needs none");
    }
    return std::unique_ptr<Source>(new Slurm(std::move(step), munge, host));
  }
};

}  // namespace
}  // namespace hvd::bootstrap

HVD_PLUGIN_ENTRY(hvd::bootstrap::BootstrapRecord<hvd::bootstrap::Plugin>)
