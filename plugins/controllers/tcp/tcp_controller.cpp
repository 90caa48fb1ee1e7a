// The built-in controller: messages between ranks over a collectives::Mesh, shared memory inside a
// host and TCP between hosts. Publishes the mesh, so that the built-in operations use its links.
#include <string>

#include "base/machine_identity.h"
#include "base/plugin_record.h"
#include "base/settings.h"
#include "base/text.h"
#include "collectives/mesh/mesh.h"
#include "controllers/controller_plugin.h"

namespace hvd::controllers {
namespace {

using collectives::Mesh;
using collectives::MeshOptions;
using collectives::SharedMesh;

// The job's store, over the functions of the plugin host.
class HostStore final : public collectives::KeyValueStore {
 public:
  explicit HostStore(const hvd_plugin_host& host) : host_(host) {}

  Status set(std::string_view key, ByteView value) override {
    const std::string name(key);
    const int code = host_.store_set(host_.host, name.c_str(), value.data(), value.size());
    return outcome(code, "write", key);
  }
  Result<Bytes> get(std::string_view key, Deadline deadline) override {
    const std::string name(key);
    Bytes value(4096);
    for (;;) {
      size_t size = 0;
      const int code = host_.store_get(host_.host, name.c_str(), value.data(), value.size(), &size,
                                       deadline.seconds_left());
      HVD_RETURN_IF_ERROR(outcome(code, "read", key));
      const bool whole = size <= value.size();
      value.resize(size);
      if (whole) return value;
    }
  }
  Result<std::vector<Bytes>> exchange(std::string_view name, int32_t party, int32_t count,
                                      ByteView record, const std::vector<int32_t>& wanted,
                                      Deadline deadline) override {
    if (field_of(host_, &hvd_plugin_host::store_exchange) == nullptr) {
      return KeyValueStore::exchange(name, party, count, record, wanted, deadline);
    }
    std::vector<Bytes> records;
    const int code = exchange_records(host_, std::string(name), party, count, as_text(record),
                                      wanted, deadline.seconds_left(), &records);
    HVD_RETURN_IF_ERROR(outcome(code, "exchange", name));
    return records;
  }

 private:
  static Status outcome(int code, std::string_view what, std::string_view key) {
    if (code == HVD_OK) return {};
    if (code == HVD_DEADLINE_EXCEEDED) {
      return deadline_exceeded(
          cat("the job's store has no ", key, ": not all ranks started in time"));
    }
    return {static_cast<Code>(code),
            cat("cannot ", what, " ", key, " in the job's store (status ", code, ")")};
  }
  const hvd_plugin_host& host_;
};

std::string setting(const hvd_plugin_host& host, const char* name) {
  const char* value = host.setting(host.host, name);
  return value == nullptr ? "" : value;
}

Result<double> link_seconds_of(const hvd_plugin_host& host) {
  const std::string text = setting(host, "HOROVOD_LINK_TIMEOUT");
  const double seconds =
      text.empty() ? Settings().number("link_timeout") : parse_double(text).value_or(0);
  if (seconds >= 1) return seconds;
  return invalid_argument(cat("HOROVOD_LINK_TIMEOUT is '", printable(text),
                              "'; set it to a number of seconds, at least 1"));
}

Result<MeshOptions> options_of(const hvd_plugin_host& host, const hvd_plugin_config& config) {
  const std::string hex = setting(host, "HOROVOD_JOB_SECRET");
  if (hex.empty() && config.size > 1) {
    return failed_precondition(
        "HOROVOD_JOB_SECRET is not set, so ranks cannot prove to each other who they are; "
        "start the job with horovodrun");
  }
  Secret secret = Secret::random();
  if (!hex.empty()) {
    HVD_ASSIGN_OR_RETURN(secret, Secret::from_hex(hex));
  }
  std::string name = setting(host, "HOROVOD_HOSTNAME");
  if (name.empty()) name = own_host_name();
  const std::string generation = setting(host, "HOROVOD_GENERATION");
  // The address of an agent's store contains a random name, which differs between machines.
  const std::string store = setting(host, "HOROVOD_STORE");
  HVD_ASSIGN_OR_RETURN(const auto ports,
                       net::parse_port_range(setting(host, "HOROVOD_PORT_RANGE")));
  HVD_ASSIGN_OR_RETURN(const auto interfaces,
                       net::InterfaceChoice::parse(setting(host, "HOROVOD_NETWORK_INTERFACES")));
  HVD_ASSIGN_OR_RETURN(const double link_seconds, link_seconds_of(host));
  // No user sets the last two variables: tests that simulate several machines on one host set them.
  return MeshOptions{
      .rank = config.rank,
      .size = config.size,
      .host = std::move(name),
      .credentials = {.job = setting(host, "HOROVOD_JOB_ID"),
                      .generation = static_cast<int32_t>(parse_int(generation).value_or(0)),
                      .secret = secret,
                      .encrypts = parse_flag(setting(host, "HOROVOD_ENCRYPT")).value_or(false)},
      .site = store.starts_with("agent:") ? store : std::string(),
      .ports = ports,
      .interfaces = interfaces,
      .times = {.link = link_seconds},
      .heap = static_cast<collectives::SharedHeap*>(host.lookup(host.host, collectives::kHeapName)),
      .interruption =
          static_cast<Interruption*>(host.lookup(host.host, collectives::kInterruptionName)),
      .memory_map = nullptr,
      .machine = setting(host, "HOROVOD_TEST_MACHINE"),
      .with_loopback = setting(host, "HOROVOD_TEST_LOOPBACK") == "1"};
}

class TcpController {
 public:
  static constexpr const char* kName = "tcp";
  static constexpr int32_t kPriority = 100;
  static Status probe() { return {}; }
  static Result<std::unique_ptr<TcpController>> open(const hvd_plugin_host& host,
                                                     const hvd_plugin_config& config) {
    HVD_ASSIGN_OR_RETURN(MeshOptions options, options_of(host, config));
    const auto seconds = parse_double(setting(host, "HOROVOD_START_TIMEOUT"));
    HostStore store(host);
    HVD_ASSIGN_OR_RETURN(
        SharedMesh mesh,
        Mesh::establish(std::move(options), store, Deadline::after_seconds(seconds.value_or(30))));
    std::unique_ptr<TcpController> controller(new TcpController(host, std::move(mesh)));
    if (host.publish(host.host, collectives::kMeshName, &controller->mesh_) != HVD_OK) {
      return internal_error("the host refuses a name for the links between ranks");
    }
    Mesh& links = *controller->mesh_;
    const auto notice = [](void* argument) { static_cast<Mesh*>(argument)->notice(); };
    if (host.watch(host.host, links.fd(), notice, &links) != HVD_OK) {
      return internal_error("the host cannot watch the links between ranks");
    }
    controller->is_watched_ = true;
    return controller;
  }
  ~TcpController() {
    if (is_watched_) host_.unwatch(host_.host, mesh_->fd());
    host_.publish(host_.host, collectives::kMeshName, nullptr);
  }
  TcpController(const TcpController&) = delete;

  Status send(int32_t rank, ByteView message) { return mesh_->send(rank, message); }
  Status send_parts(int32_t rank, ByteView first, ByteView second) {
    return mesh_->send(rank, first, second);
  }
  Status poll(const Mesh::Receiver& receiver, bool& progressed) {
    return mesh_->poll(receiver, progressed);
  }
  int32_t lost_rank() const { return mesh_->failure().lost_rank(); }
  void abort(const Status& cause) { mesh_->fail(cause); }
  const std::vector<int32_t>& hosts() const { return mesh_->hosts(); }
  bool before_sleep() { return mesh_->before_sleep(); }
  void after_sleep() { mesh_->after_sleep(); }

 private:
  TcpController(const hvd_plugin_host& host, SharedMesh mesh)
      : host_(host), mesh_(std::move(mesh)) {}

  const hvd_plugin_host& host_;
  SharedMesh mesh_;
  bool is_watched_ = false;
};

}  // namespace
}  // namespace hvd::controllers

extern "C" const hvd_plugin* hvd_builtin_controller_tcp(void);
extern "C" const hvd_plugin* hvd_builtin_controller_tcp(void) {
  return &hvd::controllers::ControllerRecord<hvd::controllers::TcpController>::kRecord;
}
