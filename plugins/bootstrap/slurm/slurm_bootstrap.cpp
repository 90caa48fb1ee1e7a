// Takes the identity of a rank in a plain step of srun, which offers its tasks no exchange of data.
// Rank 0 listens on the step's first host, at a port derived from job and step. It sends its
// message to every client, sealed by MUNGE: only processes of this user can read it.
#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <mutex>
#include <thread>

#include "base/clock.h"
#include "base/settings.h"
#include "base/text.h"
#include "base/unique_fd.h"
#include "bootstrap/bootstrap_plugin.h"
#include "bootstrap/munge.h"
#include "bootstrap/slurm/step.h"
#include "net/blocking_stream.h"
#include "net/resolve.h"
#include "net/socket_address.h"

namespace hvd::bootstrap {
namespace {

constexpr double kConnectSeconds = 2;
constexpr double kReadSeconds = 10;
constexpr size_t kLongestCredential = 256 * 1024;

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
  std::string first_host;
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
  HVD_ASSIGN_OR_RETURN(step.first_host, first_host(*nodes));
  return step;
}

// Sends its message to each client that connects, sealed anew by munge. Its thread sleeps in poll() until a
// client connects.
class CredentialServer {
 public:
  CredentialServer(Munge munge, UniqueFd listener, Bytes message)
      : munge_(munge),
        listener_(std::move(listener)),
        message_(std::move(message)),
        end_(::eventfd(0, EFD_CLOEXEC)) {
    sigset_t all, before;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_BLOCK, &all, &before);
    thread_ = std::thread([this] { serve(); });
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }
  ~CredentialServer() {
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t size = ::write(end_.get(), &one, sizeof one);
    thread_.join();
  }

 private:
  void serve() {
    ::pthread_setname_np(::pthread_self(), "hvd-credential");
    while (true) {
      pollfd events[] = {{listener_.get(), POLLIN, 0}, {end_.get(), POLLIN, 0}};
      if (::poll(events, 2, -1) < 0) continue;
      if (events[1].revents != 0) return;
      const UniqueFd client(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
      if (client) send_to(client.get());
    }
  }
  // A credential fits into a new socket's buffer.
  void send_to(int client) const {
    const auto credential = munge_.seal(message_);
    if (!credential.ok()) return;
    ::send(client, credential->data(), credential->size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  }

  const Munge munge_;
  const UniqueFd listener_;
  const Bytes message_;
  const UniqueFd end_;
  std::thread thread_;
};

class Slurm final : public Source {
 public:
  Slurm(Step step, Munge munge) : step_(std::move(step)), munge_(munge) {}

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
    Bytes message = to_bytes(heading(key));
    message.insert(message.end(), value.begin(), value.end());
    Status why;
    for (int attempt = 0; attempt < kStepPorts; ++attempt) {
      const net::Endpoint all{
          net::Endpoint::Family::kTcp, {}, "::", port_of_step(step_.job, step_.id, attempt)};
      auto listener = listen(all);
      if (listener.ok()) {
        credential_server_ =
            std::make_unique<CredentialServer>(munge_, *std::move(listener), std::move(message));
        return {};
      }
      why = listener.error();
    }
    return why.with_context(
        cat("none of the ports of step ", step_.job, ".", step_.id, " is free"));
  }

  Result<Bytes> get(std::string_view key, double timeout_seconds) override {
    const Deadline deadline = Deadline::after_seconds(timeout_seconds);
    Status why = unavailable("it was not tried");
    std::chrono::milliseconds pause{20};
    while (!deadline.passed()) {
      for (int attempt = 0; attempt < kStepPorts; ++attempt) {
        auto value = ask(port_of_step(step_.job, step_.id, attempt), heading(key));
        if (value.ok()) return value;
        why = value.error();
        if (why.code() == Code::kPermissionDenied) return why;
      }
      std::this_thread::sleep_for(pause);
      pause = std::min(pause * 2, std::chrono::milliseconds(1000));
    }
    return deadline_exceeded(cat("rank 0 of step ", step_.job, ".", step_.id,
                                 " did not answer on host ", step_.first_host, " (", why.message(),
                                 ")"));
  }

  // No fence is needed: get() waits for rank 0.
  Status fence(double) override { return {}; }

 private:
  std::string heading(std::string_view key) const {
    return cat("horovod ", step_.job, ".", step_.id, " ", key, "\n");
  }

  static Result<UniqueFd> listen(const net::Endpoint& endpoint) {
    auto address = net::numeric_address(endpoint);
    auto listener = net::listen_on(*address);
    if (listener.ok()) return listener;
    // A host without IPv6.
    address = net::numeric_address({net::Endpoint::Family::kTcp, {}, "0.0.0.0", endpoint.port});
    return net::listen_on(*address);
  }

  Result<Bytes> ask(uint16_t port, const std::string& heading) const {
    HVD_ASSIGN_OR_RETURN(const auto addresses,
                         net::resolve({net::Endpoint::Family::kTcp, {}, step_.first_host, port}));
    HVD_ASSIGN_OR_RETURN(
        net::BlockingStream stream,
        net::BlockingStream::connect(addresses, Deadline::after_seconds(kConnectSeconds)));
    std::string credential;
    const Deadline deadline = Deadline::after_seconds(kReadSeconds);
    std::byte buffer[4096];
    while (credential.size() < kLongestCredential) {
      HVD_ASSIGN_OR_RETURN(const size_t size, stream.read_some(buffer, deadline));
      if (size == 0) break;
      credential += as_text({buffer, size});
    }
    HVD_ASSIGN_OR_RETURN(const Bytes message, munge_.unseal(credential));
    if (!as_text(message).starts_with(heading)) {
      return unavailable(cat("the program that answers at port ", port, " is of another step"));
    }
    return Bytes(message.begin() + static_cast<std::ptrdiff_t>(heading.size()), message.end());
  }

  const Step step_;
  const Munge munge_;
  std::unique_ptr<CredentialServer> credential_server_;
};

struct Plugin {
  static constexpr const char* kName = "slurm";
  static constexpr int32_t kPriority = 10;
  static Status probe() { return Munge::open().status(); }
  static Result<std::unique_ptr<Source>> open(const hvd_plugin_host&, const hvd_plugin_config&) {
    HVD_ASSIGN_OR_RETURN(Step step, this_step());
    HVD_ASSIGN_OR_RETURN(Munge munge, Munge::open());
    // Every rank tests MUNGE itself: all report a fault, and none waits for rank 0.
    if (const Status sealed = munge.seal(as_bytes("horovod")).status(); !sealed.ok()) {
      return sealed.with_context(
          "a plain step of srun is authenticated by MUNGE; srun --mpi=pmix, with Slurm's mpi/pmix "
          "plugin (Debian: slurm-wlm-basic-plugins), needs none");
    }
    return std::unique_ptr<Source>(new Slurm(std::move(step), munge));
  }
};

}  // namespace
}  // namespace hvd::bootstrap

HVD_BOOTSTRAP_PLUGIN(hvd::bootstrap::Plugin)
