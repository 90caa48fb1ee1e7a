// The built-in controller: messages between ranks over a collectives::Mesh, shared memory inside a
// host and TCP between hosts. Publishes the mesh, so that the built-in operations use its links.
#include <unistd.h>

#include <array>
#include <string>

#include "base/c_status.h"
#include "base/text.h"
#include "collectives/shared_mesh.h"
#include "horovod/plugin_controller.h"

namespace {

using hvd::Bytes;
using hvd::ByteView;
using hvd::Deadline;
using hvd::Result;
using hvd::Status;
using hvd::collectives::Mesh;
using hvd::collectives::MeshOptions;
using hvd::collectives::SharedMesh;

// The job's store, as the host offers it.
class HostBoard final : public hvd::collectives::Board {
 public:
  explicit HostBoard(const hvd_plugin_host& host) : host_(host) {}

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
    constexpr size_t kNeeded = offsetof(hvd_plugin_host, store_exchange) + sizeof(void*);
    if (host_.struct_size < kNeeded || host_.store_exchange == nullptr) {
      return Board::exchange(name, party, count, record, wanted, deadline);
    }
    std::vector<Bytes> records;
    const auto take = [](void* argument, const void* bytes, size_t size) {
      const auto* first = static_cast<const std::byte*>(bytes);
      static_cast<std::vector<Bytes>*>(argument)->emplace_back(first, first + size);
    };
    const std::string key(name);
    const int code = host_.store_exchange(
        host_.host, key.c_str(), party, count, record.data(), record.size(), wanted.data(),
        static_cast<int32_t>(wanted.size()), deadline.seconds_left(), take, &records);
    HVD_RETURN_IF_ERROR(outcome(code, "exchange", name));
    return records;
  }

 private:
  static Status outcome(int code, std::string_view what, std::string_view key) {
    if (code == HVD_OK) return {};
    if (code == HVD_DEADLINE_EXCEEDED) {
      return hvd::deadline_exceeded(
          hvd::cat("the job's store has no ", key, ": not all ranks started in time"));
    }
    return {static_cast<hvd::Code>(code), hvd::cat("cannot ", what, " ", key,
                                                   " in the job's store (status ", code, ")")};
  }
  const hvd_plugin_host& host_;
};

struct Controller {
  const hvd_plugin_host* host;
  SharedMesh mesh;
  bool watching = false;
};

std::string setting(const hvd_plugin_host& host, const char* name) {
  const char* value = host.setting(host.host, name);
  return value == nullptr ? "" : value;
}

Result<MeshOptions> options_of(const hvd_plugin_host& host, const hvd_plugin_config& config) {
  const std::string hex = setting(host, "HOROVOD_JOB_SECRET");
  if (hex.empty() && config.size > 1) {
    return hvd::failed_precondition(
        "HOROVOD_JOB_SECRET is not set, so ranks cannot prove to each other who they are; "
        "start the job with horovodrun");
  }
  hvd::Secret secret = hvd::Secret::random();
  if (!hex.empty()) {
    HVD_ASSIGN_OR_RETURN(secret, hvd::Secret::from_hex(hex));
  }
  std::string name = setting(host, "HOROVOD_HOSTNAME");
  if (name.empty()) {
    char buffer[256] = "";
    ::gethostname(buffer, sizeof buffer - 1);
    name = buffer;
  }
  const std::string generation = setting(host, "HOROVOD_GENERATION");
  // An agent's store has a random name, which no other machine has.
  const std::string store = setting(host, "HOROVOD_STORE");
  HVD_ASSIGN_OR_RETURN(const auto ports,
                       hvd::net::parse_port_range(setting(host, "HOROVOD_PORT_RANGE")));
  HVD_ASSIGN_OR_RETURN(
      const auto interfaces,
      hvd::net::InterfaceChoice::parse(setting(host, "HOROVOD_NETWORK_INTERFACES")));
  // The last two are no knobs: hosts that play several machines in one test offer them.
  return MeshOptions{
      .rank = config.rank,
      .size = config.size,
      .host = std::move(name),
      .credentials = {.job = setting(host, "HOROVOD_JOB_ID"),
                      .generation =
                          static_cast<int32_t>(hvd::parse_int(generation).value_or(0)),
                      .secret = secret},
      .site = store.starts_with("agent:") ? store : std::string(),
      .ports = ports,
      .interfaces = interfaces,
      .heap = static_cast<hvd::collectives::SharedHeap*>(
          host.lookup(host.host, hvd::collectives::kHeapName)),
      .memory_map = nullptr,
      .machine = setting(host, "HOROVOD_TEST_MACHINE"),
      .with_loopback = setting(host, "HOROVOD_TEST_LOOPBACK") == "1"};
}

Status open_controller(Controller& controller, const hvd_plugin_config& config) {
  const hvd_plugin_host& host = *controller.host;
  HVD_ASSIGN_OR_RETURN(MeshOptions options, options_of(host, config));
  const auto seconds = hvd::parse_double(setting(host, "HOROVOD_START_TIMEOUT"));
  HostBoard board(host);
  HVD_ASSIGN_OR_RETURN(
      controller.mesh,
      Mesh::establish(std::move(options), board, Deadline::after_seconds(seconds.value_or(30))));
  // Whoever is late at the first barrier has met all others already.
  if (host.publish(host.host, hvd::collectives::kMeshName, &controller.mesh) != HVD_OK) {
    return hvd::internal_error("the host refuses a name for the links between ranks");
  }
  const auto notice = [](void* argument) { static_cast<Mesh*>(argument)->notice(); };
  if (host.watch(host.host, controller.mesh->fd(), notice, controller.mesh.get()) != HVD_OK) {
    return hvd::internal_error("the host cannot watch the links between ranks");
  }
  controller.watching = true;
  return {};
}

void close_controller(void* context) {
  auto* controller = static_cast<Controller*>(context);
  const hvd_plugin_host& host = *controller->host;
  if (controller->watching) host.unwatch(host.host, controller->mesh->fd());
  if (controller->mesh) host.publish(host.host, hvd::collectives::kMeshName, nullptr);
  delete controller;
}

int open(const hvd_plugin_host* host, const hvd_plugin_config* config, void** context, char* error,
         size_t error_size) {
  auto* controller = new Controller{host, nullptr, false};
  const Status opened = open_controller(*controller, *config);
  if (opened.ok()) {
    *context = controller;
  } else {
    close_controller(controller);
  }
  return hvd::tell(opened, error, error_size);
}

Mesh& mesh_of(void* context) { return *static_cast<Controller*>(context)->mesh; }

int send(void* context, int32_t rank, const void* message, size_t size) {
  const ByteView bytes(static_cast<const std::byte*>(message), size);
  return static_cast<int>(mesh_of(context).send(rank, bytes).code());
}

int send_parts(void* context, int32_t rank, const void* first, size_t first_size,
               const void* second, size_t second_size) {
  return static_cast<int>(mesh_of(context)
                              .send(rank, {static_cast<const std::byte*>(first), first_size},
                                    {static_cast<const std::byte*>(second), second_size})
                              .code());
}

int poll(void* context,
         void (*on_message)(void* argument, int32_t rank, const void* message, size_t size),
         void* argument, int32_t* progressed, char* error, size_t error_size) {
  bool moved = false;
  const Status status = mesh_of(context).poll(
      [on_message, argument](int32_t from, ByteView message) {
        on_message(argument, from, message.data(), message.size());
      },
      moved);
  if (moved && progressed != nullptr) *progressed = 1;
  return hvd::tell(status, error, error_size);
}

void abort_links(void* context, const char* cause) {
  mesh_of(context).fail(hvd::aborted(cause == nullptr ? "" : cause));
}

const int32_t* hosts(void* context) { return mesh_of(context).hosts().data(); }
int before_sleep(void* context) { return mesh_of(context).before_sleep() ? 1 : 0; }
void after_sleep(void* context) { mesh_of(context).after_sleep(); }

int probe(char*, size_t) { return 1; }

const hvd_controller_v1 kVtable = {
    .struct_size = sizeof(hvd_controller_v1),
    .send = send,
    .poll = poll,
    .abort = abort_links,
    .hosts = hosts,
    .before_sleep = before_sleep,
    .after_sleep = after_sleep,
    .send_parts = send_parts,
};

const hvd_plugin kRecord = {
    .struct_size = sizeof(hvd_plugin),
    .abi = HVD_PLUGIN_ABI,
    .kind = HVD_PLUGIN_CONTROLLER,
    .name = "tcp",
    .priority = 100,
    .threads = HVD_THREADS_ONE,
    .run_blocks = 0,
    .probe = probe,
    .open = open,
    .close = close_controller,
    .vtable = &kVtable,
};

}  // namespace

extern "C" const hvd_plugin* hvd_builtin_controller_tcp(void);
extern "C" const hvd_plugin* hvd_builtin_controller_tcp(void) { return &kRecord; }
