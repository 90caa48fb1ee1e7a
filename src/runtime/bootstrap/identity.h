// Finds the identity of this rank (rank, size, host) and the address of the job's store: from HOROVOD_* variables,
// from a foreign launcher, from the rendezvous server, or as a job of one rank.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "rendezvous/store/store.h"
#include "runtime/settings/worker_settings.h"

namespace hvd::runtime {

struct Identity {
  int32_t rank = 0;
  int32_t size = 1;
  // A field is -1 if no source provides it; complete_identity() then computes it from the machines of the ranks.
  int32_t local_rank = -1;
  int32_t local_size = -1;
  int32_t cross_rank = -1;
  int32_t cross_size = -1;
  int32_t generation = 0;
  // This rank's number in the launcher's job; -1 if it equals `rank`.
  int32_t job_rank = -1;
  bool is_homogeneous = true;
  bool has_one_host() const { return local_size == size; }
};

struct SavedBootstrap;

struct Bootstrap {
  Identity identity;
  std::shared_ptr<rendezvous::Store> store;  // nullptr in a single-process job
  // The job's secret in hexadecimal digits, if no variable has it, as under Horovod's own
  // launcher.
  std::string secret;
  // A sentence with the reason why this process expects other ranks, for the error about missing ranks; may be empty.
  std::string evidence;
  // An error of this rank that all ranks must receive before they start.
  Status trouble;
  // Interfaces that the bootstrap plugin published for the runtime's plugins.
  std::map<std::string, void*> published;
  // This process's session with a foreign launcher, or the store that it serves. Must exist until the runtime's
  // shutdown; may be empty.
  std::shared_ptr<void> session;
  // True if a rank serves the store, which then ends with that rank.
  bool rank_serves_store = false;
};

// Identifies one of this process's starts.
struct BootstrapStart {
  uint64_t epoch = 0;               // the number of earlier starts of these ranks
  std::vector<int32_t> ranks = {};  // the ranks that start together; empty: all
};

// Returns the identity from the variables only, with rank -1 if they name no rank. Returns an error
// if variables contradict each other. Pure.
Result<Identity> identity_of(const WorkerSettings& settings);

// Returns the store's address from HOROVOD_STORE, or else from HOROVOD_GLOO_RENDEZVOUS_ADDR and
// HOROVOD_GLOO_RENDEZVOUS_PORT; empty if none is set. Pure.
Result<std::string> store_address(const WorkerSettings& settings);

// Returns whether Horovod's own launcher runs this process as a rank of an elastic job. Pure.
bool is_in_foreign_elastic_job(const WorkerSettings& settings);

// Requests this process's next rank from Horovod's own launcher, and sets it in `settings`. Blocks until all
// ranks have requested one or ended; the launcher has the deadline. kAborted: the process has lost its rank.
Status take_next_place(WorkerSettings* settings);

// Connects to the store and requests a rank, if needed. Uses no network if no variable is set and no
// foreign launcher started this process. The identity is relative to all ranks of the launcher's job.
// All starts of this process share `saved`.
Result<Bootstrap> bootstrap(const WorkerSettings& settings, Deadline deadline,
                            const BootstrapStart& start, SavedBootstrap* saved);

// Sets the rank's identity among `ranks`, which form a separate job in this order; empty: all ranks. Returns an error
// if the list is wrong or lacks this rank.
Status restrict_to(std::span<const int32_t> ranks, Identity* identity);

// Computes is_homogeneous, and the fields that are -1. `machines`: the machine of each rank, from
// hvd_controller_v1.hosts.
void complete_identity(std::span<const int32_t> machines, Identity* identity);

}  // namespace hvd::runtime
