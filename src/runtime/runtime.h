// The runtime of one rank. Owns its identity, plugins, runtime core, services and helper thread.
// The C ABI calls the runtime on any thread. Several independent runtimes may exist in one process. Only create(),
// shutdown(), wait() and wait_on_stream() block for other ranks.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "base/clock.h"
#include "base/result.h"
#include "base/secrets/hmac.h"
#include "base/wait/interruption.h"
#include "horovod/horovod.h"
#include "runtime/autotune/tuning_service.h"
#include "runtime/bootstrap/identity.h"
#include "runtime/core/runtime_core.h"
#include "runtime/observation.h"
#include "runtime/plugins/op_selector.h"
#include "runtime/settings/worker_settings.h"
#include "runtime/stall/stall_inspector.h"

namespace hvd::collectives {
class SharedHeap;
}

namespace hvd::runtime {

struct RuntimeOptions {
  WorkerSettings settings;
  // Plugins, in order of preference. The runtime opens the first controller and all ops.
  std::vector<const hvd_plugin*> controllers;
  std::vector<const hvd_plugin*> ops;
  // A second controller for the data of the built-in operations, if the first controller carries only
  // messages; may be nullptr.
  const hvd_plugin* data_links = nullptr;
  // Description of the selected backends, which the ranks compare, or the error if the backends cannot load.
  // If the description is empty, the ranks compare nothing.
  Result<std::string> backends = std::string();
  // See BackendSelection::devices_by_trial.
  std::string devices_by_trial;
  // Descriptions of selected plugins with their own connections, which are refused if links between
  // hosts must be encrypted.
  std::vector<std::string> own_links;
  // Interfaces to publish for plugins, by name.
  std::map<std::string, void*> published;
  // Memory that this process shares with the ranks of its host; may be nullptr.
  collectives::SharedHeap* heap = nullptr;
  // The rank's counters, initially zero. They outlive the runtime. If nullptr, the runtime owns the counters.
  RankCounters* counters = nullptr;
  // The number of earlier starts of these ranks, which makes the keys of each start unique.
  uint32_t epoch = 0;
  uint32_t first_handle = 0;  // HandleTable's `first`
  // True in an elastic job: the launcher removes the start's records from the store, and the
  // connection to the store stays for the next start.
  bool is_elastic = false;
  StackChannel stack;
  // The launcher's numbers of the ranks of this world; empty: all ranks of the job.
  std::vector<int32_t> ranks;
  // True if a launcher reads from the store which peer made this rank's work fail.
  bool reports_lost_peers = true;
  // True if rank 0 serves the store, which then ends with rank 0.
  bool rank_serves_store = false;
  // Process sets that every rank registers when it starts.
  std::vector<std::vector<int32_t>> process_sets;
  // Time limits: for all ranks to call hvd.init, and then, in seconds, to connect (0: the first limit holds).
  Deadline start_deadline = Deadline::never();
  double connect_seconds = 0;
  Interruption* interruption = nullptr;  // interrupts the start; may be nullptr
};

// Returns the name of one start of a job, equal on all ranks that start together.
std::string start_name(int32_t generation, uint32_t epoch);

class Runtime {
 public:
  // Blocks until every rank has connected. `store` may be nullptr for a single-process job.
  static Result<std::unique_ptr<Runtime>> create(Identity identity,
                                                 std::shared_ptr<rendezvous::Store> store,
                                                 RuntimeOptions options);
  // If shutdown() was not called before, peers detect this rank as lost.
  ~Runtime();

  const Identity& identity() const { return identity_; }
  // Returns whether a plugin of this runtime has published an interface with this name. Any thread.
  bool uses(const char* name) const {
    return host_->vtable()->lookup(host_.get(), name) != nullptr;
  }

  Status submit(const hvd_submission& submission, hvd_handle* handle);
  // Starts work that was submitted with HVD_AWAITS_START. Never waits.
  Status start(hvd_handle handle);
  // Starts a send (HVD_SEND) or a receive (HVD_RECV).
  Status submit_message(int32_t op, const hvd_message& message, hvd_handle* handle);
  const DeviceSupport& device_support() const { return device_support_; }
  // Returns whether a trial in each process set decides on the device operations.
  bool tries_devices() const { return tries_devices_; }
  // Creates a group, for collectives without names and negotiation.
  Status create_group(std::vector<int32_t> ranks, std::string name, int32_t* id);
  Status destroy_group(int32_t id);
  Status submit_group_call(const hvd_group_call& call, hvd_handle* handle);
  Status poll(hvd_handle handle, bool* done);
  // Blocks until the work is complete. Returns nullopt after the deadline.
  std::optional<Status> wait(hvd_handle handle, Deadline deadline);
  // Blocks until the work is complete, or is on its device's stream and `stream` waits for it. Returns nullopt after
  // the deadline. `ends_process`: if the work then fails, the process ends.
  std::optional<Status> wait_on_stream(hvd_handle handle, void* stream, bool ends_process,
                                       Deadline deadline);
  Status output(hvd_handle handle, uint32_t index, hvd_output* output);
  // Releases the handle. `in_use`: see HandleTable::release.
  Status release(hvd_handle handle, bool* in_use = nullptr);

  // Adds a process set. The handle is complete when every rank has made the same call; output() then has the set's id.
  Status add_process_set(std::vector<int32_t> ranks, hvd_handle* handle);
  Status add_named_set(std::string_view name, std::vector<int32_t> ranks, hvd_handle* handle);
  Status remove_process_set(int32_t id, hvd_handle* handle);
  const SetTable& process_sets() const { return sets_; }

  // Leaves the job: the process sets with this rank end, and when the call returns, no peer needs this rank.
  // Waits for the sets without this rank; with `ends_other_sets`, these sets fail. The object stays for
  // threads that still query their handles.
  Status shutdown(Deadline deadline, bool ends_other_sets = false);

  // Fails the job with a cause that every rank receives.
  void fail(const Status& cause);

  // Returns the key for `purpose`: equal on all ranks, and different after each start. Any thread.
  Digest derive_key(std::string_view purpose) const { return key_->sign({purpose}); }

  CoreCounts counts();
  // Returns the number of stalls that this rank, the root, has reported.
  uint64_t stall_reports();
  Observation& observation() { return *observation_; }

 private:
  Runtime(Identity identity, const RuntimeOptions& options);
  Status open(std::shared_ptr<rendezvous::Store> store, const RuntimeOptions& options);
  Result<OpenedPlugin> open_controller(const RuntimeOptions& options);
  Status open_ops(const RuntimeOptions& options, const hvd_plugin_config& config,
                  std::vector<OpenedPlugin>* ops);
  Status meet(const RuntimeOptions& options);
  void close();
  void report_lost_peer();
  void end_process(const Status& late);
  void report_failed_start(const Status& why);
  void report_left_by(int32_t peer, const std::string& cause);
  Status submit_direct(Submission* submission, bool has_time_limit);
  Status submit_named(std::string_view name, bool shared, Submission* submission);
  Status submit_registration(std::string_view name, bool shared, Request request,
                             hvd_handle* handle);

  Identity identity_;
  DeviceSupport device_support_;
  bool has_devices_ = false;    // set by open(), since a query of host_ takes a lock
  bool tries_devices_ = false;  // trials select the device operations
  std::atomic<int32_t> device_{
      HVD_CPU};  // device of this rank's tensors; HVD_CPU before the first device tensor
  const std::vector<int32_t>
      job_ranks_;  // the launcher's number of each rank; empty: the same numbers
  SetTable sets_;
  TensorTable names_;
  HandleTable handles_;
  // Key of this start, after open(); derive_key() makes other keys from it.
  std::optional<HmacKey> key_;
  std::shared_ptr<rendezvous::Store> store_;
  std::optional<net::EventLoop> events_;
  std::unique_ptr<PluginHost> host_;
  std::unique_ptr<OpSelector> ops_;
  RankCounters own_counters_;
  std::unique_ptr<StallInspector> stall_;  // may be null
  std::unique_ptr<TuningService> tuning_;  // may be null
  std::unique_ptr<RuntimeCore> core_;
  std::unique_ptr<Progress> progress_;
  std::unique_ptr<Observation> observation_;
  Deadline meet_by_ = Deadline::never();  // time limit for all ranks to connect; set by open()
  Mutex groups_mutex_;
  std::map<int32_t, std::shared_ptr<const GroupMembers>> groups_ HVD_GUARDED_BY(groups_mutex_);
  const bool is_elastic_;
  std::atomic<bool> has_reported_lost_peer_;  // also true if no launcher reads the report
  std::atomic<bool> is_leaving_{false};       // shutdown() has been called
  bool closed_ HVD_GUARDED_BY(progress_->progress_lock()) = false;
};

}  // namespace hvd::runtime
