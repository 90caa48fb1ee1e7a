// Finds the identity of this rank (rank, size, host) and the address of the job's store: from
// HOROVOD_* variables, from a foreign launcher, from the rendezvous server, or as a job of one rank.
// The start of the runtime calls it.
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
  // -1: not given; to be found from the machines of the ranks.
  int32_t local_rank = -1;
  int32_t local_size = -1;
  int32_t cross_rank = -1;
  int32_t cross_size = -1;
  int32_t generation = 0;
  // The launcher's number of this rank, if it is not `rank`; -1: equal.
  int32_t job_rank = -1;
  bool is_homogeneous = true;
  bool has_one_host() const { return local_size == size; }
};

struct SavedBootstrap;

struct Bootstrap {
  Identity identity;
  std::shared_ptr<rendezvous::Store> store;  // nullptr in a world of one
  // The job's secret in hexadecimal digits, if no variable gave it: Horovod's own launcher gives
  // none.
  std::string secret;
  // Why this process counts as one of several, for the error if the other ranks do not come; may be empty.
  std::string evidence;
  // A fault of this rank that all ranks must learn of before they start.
  Status trouble;
  // Interfaces that the bootstrap plugin has published for the plugins of the runtime.
  std::map<std::string, void*> published;
  // The handle of this process's session with a foreign launcher, until the runtime's shutdown; may be
  // empty.
  std::shared_ptr<void> session;
  // Whether a rank serves the store, which then ends with it.
  bool rank_serves_store = false;
};

// Which of this process's starts it is.
struct BootstrapStart {
  uint64_t epoch = 0;               // how often these ranks have started before
  std::vector<int32_t> ranks = {};  // that start together; empty: all
};

// The identity from the variables alone; rank -1 when they name a job but no rank. A contradiction
// is an error of one sentence. Pure.
Result<Identity> identity_of(const WorkerSettings& settings);

// The store's address, as in HOROVOD_STORE; empty when none is named. Pure.
Result<std::string> store_address(const WorkerSettings& settings);

// Whether Horovod's own launcher runs this process as a rank of an elastic job. Pure.
bool is_in_foreign_elastic_job(const WorkerSettings& settings);

// Asks that launcher for this process's next rank, and sets it in `settings`. Blocks until all ranks have
// asked or ended, for which the launcher has the deadline. kAborted: the process has lost its rank.
Status take_next_place(WorkerSettings* settings);

// Reaches the store and asks for a place, where needed. Uses no network when no variable is set and
// no foreign launcher started this process. The identity is that among all ranks of the launcher's job.
// `saved`: of all starts of this process.
Result<Bootstrap> bootstrap(const WorkerSettings& settings, Deadline deadline,
                            const BootstrapStart& start, SavedBootstrap* saved);

// The rank's place among `ranks`, which go on as a job of their own in this order; empty: all.
Status restrict_to(std::span<const int32_t> ranks, Identity* identity);

// Fills in what was not given. machines[rank]: as of hvd_controller_v1.
void complete_identity(std::span<const int32_t> machines, Identity* identity);

}  // namespace hvd::runtime
