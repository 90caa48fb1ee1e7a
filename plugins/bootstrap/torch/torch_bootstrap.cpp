// Takes the identity of a rank from the variables of torchrun, accelerate and DeepSpeed. These launchers
// also set MASTER_ADDR and MASTER_PORT, for a TCPStore of torch.distributed. Rank 0 listens separately:
// on one host at an abstract Unix socket, for processes of this user only; otherwise at a port
// derived from the variables, where its message is unencrypted, like those of torch.distributed.
#include "base/secrets/hmac.h"
#include "base/secrets/secret.h"
#include "base/settings.h"
#include "base/text.h"
#include "bootstrap/bootstrap_plugin.h"
#include "bootstrap/message_server.h"
#include "bootstrap/torch/process_group.h"
#include "net/endpoint.h"
#include "net/resolve.h"

namespace hvd::bootstrap {
namespace {

// Ranks with a loopback master address use no network.
Result<UniqueFd> listen_for(const std::string& master, uint16_t port) {
  const bool is_v6 = master == "::1";
  if (!is_v6 && master != "localhost" && !master.starts_with("127."))
    return listen_everywhere(port);
  const auto address =
      net::numeric_address({net::Endpoint::Family::kTcp, {}, is_v6 ? "::1" : "127.0.0.1", port});
  return net::listen_on(*address);
}

class Torch final : public Source {
 public:
  Torch(ProcessGroup group, net::PortRange ports) : group_(std::move(group)), ports_(ports) {}

  Status identity(hvd_identity* identity) override {
    identity->rank = group_.rank;
    identity->size = group_.size;
    identity->local_rank = group_.local_rank;
    identity->local_size = group_.local_size;
    return {};
  }

  Status put(std::string_view key, ByteView value) override {
    const std::string message = cat(heading(key), as_text(value));
    Status why;
    for (int attempt = 0; attempt < kGroupPorts; ++attempt) {
      auto listener = group_.has_one_host() ? net::listen_on(here(attempt))
                                            : listen_for(group_.address, port(attempt));
      if (listener.ok()) {
        server_ = std::make_unique<MessageServer>(
            *std::move(listener), [message] { return Result<std::string>(message); });
        return {};
      }
      why = listener.error();
    }
    return why.with_context(cat("none of the ", kGroupPorts, " addresses at which rank 0 of the ",
                                group_.size, " ranks of MASTER_ADDR ", printable(group_.address),
                                " may listen is free"));
  }

  Result<Bytes> get(std::string_view key, double timeout_seconds) override {
    auto value = ask_until(Deadline::after_seconds(timeout_seconds), kGroupPorts,
                           [&](int attempt) { return ask(attempt, heading(key)); });
    if (value.ok() || value.error().code() != Code::kDeadlineExceeded) return value;
    return deadline_exceeded(cat("rank ", group_.rank, " of ", group_.size,
                                 " (RANK, WORLD_SIZE) gets no answer from rank 0 on host ",
                                 printable(group_.address),
                                 " (MASTER_ADDR): ", value.error().message()));
  }

  // No fence is needed: get() waits for rank 0.
  Status fence(double) override { return {}; }

 private:
  std::string heading(std::string_view key) const {
    return cat("horovod torch ", group_.name(), " ", key, "\n");
  }
  uint16_t port(int attempt) const {
    return port_of_group(group_, ports_.first, ports_.last, attempt);
  }
  net::SocketAddress here(int attempt) const {
    const std::string name = to_hex(sha256(as_bytes(group_.name()))).substr(0, 32);
    return *net::numeric_address(
        {net::Endpoint::Family::kUnix, cat("@horovod-torch/", name, "/", attempt), {}, 0});
  }

  Result<Bytes> ask(int attempt, const std::string& heading) const {
    std::vector<net::SocketAddress> addresses;
    if (group_.has_one_host()) {
      addresses.push_back(here(attempt));
    } else {
      HVD_ASSIGN_OR_RETURN(
          addresses,
          net::resolve({net::Endpoint::Family::kTcp, {}, group_.address, port(attempt)}));
    }
    HVD_ASSIGN_OR_RETURN(const std::string message, read_message(addresses));
    if (!message.starts_with(heading)) {
      return unavailable("the program that answers is of another job");
    }
    return to_bytes(message.substr(heading.size()));
  }

  const ProcessGroup group_;
  const net::PortRange ports_;
  std::unique_ptr<MessageServer> server_;
};

std::string setting(const hvd_plugin_host& host, const char* variable) {
  const char* value = host.setting(host.host, variable);
  return value != nullptr ? value : "";
}

struct Plugin {
  static constexpr const char* kName = "torch";
  static constexpr int32_t kPriority = 1;
  static Status probe() { return {}; }
  static Result<std::unique_ptr<Source>> open(const hvd_plugin_host& host,
                                              const hvd_plugin_config&) {
    HVD_ASSIGN_OR_RETURN(ProcessGroup group, process_group_of(environment_variable));
    HVD_ASSIGN_OR_RETURN(const net::PortRange ports,
                         net::parse_port_range(setting(host, "HOROVOD_PORT_RANGE")));
    const bool encrypts = parse_flag(setting(host, "HOROVOD_ENCRYPT")).value_or(false);
    if (!group.has_one_host() && encrypts) {
      return invalid_argument(
          "HOROVOD_ENCRYPT is set, but under torchrun on several hosts the secret of the keys "
          "would cross the network in clear; start the job by horovodrun, or unset "
          "HOROVOD_ENCRYPT");
    }
    return std::unique_ptr<Source>(new Torch(std::move(group), ports));
  }
};

}  // namespace
}  // namespace hvd::bootstrap

HVD_PLUGIN_ENTRY(hvd::bootstrap::BootstrapRecord<hvd::bootstrap::Plugin>)
