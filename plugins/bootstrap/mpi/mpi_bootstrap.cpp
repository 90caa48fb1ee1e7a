// Takes the identity of this rank from MPI_COMM_WORLD, if no other source provides it. Initialises MPI
// only if a setting requests it, or if an MPI launcher has started several processes.
#include <array>
#include <chrono>
#include <cmath>
#include <thread>

#include "base/clock.h"
#include "base/machine_identity.h"
#include "base/text.h"
#include "bootstrap/bootstrap_plugin.h"
#include "mpi/api.h"
#include "mpi/job.h"

namespace hvd::bootstrap {
namespace {

using hvd::mpi::MpiApi;

constexpr double kInitSeconds = 600;  // time limit if HOROVOD_INIT_TIMEOUT is not set
constexpr uint64_t kLongest = 1 << 20;

std::string setting(const hvd_plugin_host& host, const char* variable) {
  const char* value = host.setting(host.host, variable);
  return value == nullptr ? "" : to_lower(trim(value));
}

bool is_named(const hvd_plugin_host& host) { return setting(host, "HOROVOD_BOOTSTRAP") == "mpi"; }

bool is_wanted(const hvd_plugin_host& host) {
  return is_named(host) || setting(host, "HOROVOD_CONTROLLER") == "mpi" ||
         setting(host, "HOROVOD_CPU_OPERATIONS") == "mpi" || hvd::mpi::launcher_has_several();
}

Status check(const MpiApi& api, int code, std::string_view call) {
  if (code == MPI_SUCCESS) return {};
  return unavailable(cat(call, " failed: ", hvd::mpi::describe(api, code)));
}

class Mpi final : public Source {
 public:
  Mpi(MpiApi api, int rank, int size, const hvd_plugin_host& host)
      : api_(std::move(api)), rank_(rank), size_(size), host_(host) {}

  // Creates a separate communicator, so that no message is confused with the program's messages. Once all
  // ranks have created it, MPI_Comm_split_type for this machine returns without a long wait.
  Status begin(Deadline deadline) {
    if (size_ == 1) return {};
    MPI_Request request{};
    HVD_RETURN_IF_ERROR(
        check(api_, api_.comm_idup(api_.handles.world, &all_, &request), "MPI_Comm_idup"));
    HVD_RETURN_IF_ERROR(finish(&request, deadline));
    api_.comm_set_errhandler(all_, api_.handles.errors_return);
    MPI_Comm machine{};
    HVD_RETURN_IF_ERROR(check(
        api_,
        api_.comm_split_type(all_, MPI_COMM_TYPE_SHARED, rank_, api_.handles.no_info, &machine),
        "MPI_Comm_split_type"));
    api_.comm_rank(machine, &local_rank_);
    api_.comm_size(machine, &local_size_);
    api_.comm_free(&machine);
    hvd::mpi::note_machines(local_size_ < size_);
    return {};
  }

  Status identity(hvd_identity* identity) override {
    identity->rank = rank_;
    identity->size = size_;
    identity->local_rank = local_rank_;
    identity->local_size = local_size_;
    return {};
  }

  Status put(std::string_view key, ByteView value) override {
    sent_ = to_bytes(cat(key, "\n"));
    sent_.insert(sent_.end(), value.begin(), value.end());
    return {};
  }

  // Broadcasts rank 0's value to all ranks. Call it once: it frees the communicator.
  Status fence(double timeout_seconds) override {
    if (size_ == 1) return {};
    const Deadline deadline = Deadline::after_seconds(timeout_seconds);
    std::array<uint64_t, 1> length{sent_.size()};
    HVD_RETURN_IF_ERROR(broadcast(length.data(), sizeof length, deadline));
    if (length[0] > kLongest) return internal_error("rank 0 says too much");
    sent_.resize(length[0]);
    HVD_RETURN_IF_ERROR(broadcast(sent_.data(), sent_.size(), deadline));
    return check(api_, api_.comm_free(&all_), "MPI_Comm_free");
  }

  Result<Bytes> get(std::string_view key, double) override {
    const std::string heading = cat(key, "\n");
    if (!as_text(sent_).starts_with(heading)) return not_found(cat("rank 0 has said no ", key));
    return Bytes(sent_.begin() + static_cast<std::ptrdiff_t>(heading.size()), sent_.end());
  }

 private:
  // Polls, since MPI does not wake the thread.
  Status finish(MPI_Request* request, Deadline deadline) const {
    const double seconds = quiet_seconds(deadline.seconds_left());
    Deadline quiet = Deadline::after_seconds(seconds);
    std::chrono::microseconds pause{50};
    for (;;) {
      int done = 0;
      HVD_RETURN_IF_ERROR(
          check(api_, api_.testall(1, request, &done, MPI_STATUSES_IGNORE), "MPI_Testall"));
      if (done != 0) return {};
      if (quiet.passed()) {
        warn(host_,
             cat("rank ", rank_, " on host ", own_host_name(), " has waited in hvd.init() for ",
                 std::lround(seconds), " s, and not all ", size_,
                 " ranks of MPI_COMM_WORLD have called it: those without this line are missing"));
        quiet = Deadline::never();
      }
      if (deadline.passed()) {
        return deadline_exceeded(
            "not all ranks of MPI_COMM_WORLD have called hvd.init() in time "
            "(HOROVOD_INIT_TIMEOUT)");
      }
      std::this_thread::sleep_for(pause);
      pause = std::min(2 * pause, std::chrono::microseconds(5000));
    }
  }

  Status broadcast(void* data, size_t size, Deadline deadline) const {
    MPI_Request request{};
    HVD_RETURN_IF_ERROR(check(
        api_,
        api_.ibcast(data, static_cast<int>(size), api_.handles.types[HVD_UINT8], 0, all_, &request),
        "MPI_Ibcast"));
    return finish(&request, deadline);
  }

  const MpiApi api_;
  const int rank_, size_;
  const hvd_plugin_host host_;
  int local_rank_ = 0, local_size_ = 1;
  MPI_Comm all_{};
  Bytes sent_;
};

struct Plugin {
  static constexpr const char* kName = "mpi";
  static constexpr int32_t kPriority = 5;
  static Status probe() { return hvd::mpi::judge_environment(); }
  static Result<std::unique_ptr<Source>> open(const hvd_plugin_host& host,
                                              const hvd_plugin_config&) {
    // Another MPI may have been opened since the earlier check.
    HVD_RETURN_IF_ERROR(hvd::mpi::judge_environment());
    HVD_ASSIGN_OR_RETURN(MpiApi api, hvd::mpi::open_api(hvd::mpi::wanted_library()));
    int is_up = 0;
    api.initialized(&is_up);
    if (is_up == 0 && !is_wanted(host)) {
      return failed_precondition("MPI is not initialised in this process");
    }
    HVD_RETURN_IF_ERROR(hvd::mpi::initialise(api, host));
    int rank = 0, size = 1;
    api.comm_rank(api.handles.world, &rank);
    api.comm_size(api.handles.world, &size);
    if (size == 1 && !is_named(host)) {
      return failed_precondition("MPI_COMM_WORLD is this process alone");
    }
    auto mpi = std::make_unique<Mpi>(std::move(api), rank, size, host);
    const double seconds =
        parse_double(setting(host, "HOROVOD_INIT_TIMEOUT")).value_or(kInitSeconds);
    HVD_RETURN_IF_ERROR(mpi->begin(Deadline::after_seconds(seconds)));
    return std::unique_ptr<Source>(std::move(mpi));
  }
};

}  // namespace
}  // namespace hvd::bootstrap

HVD_PLUGIN_ENTRY(hvd::bootstrap::BootstrapRecord<hvd::bootstrap::Plugin>)
