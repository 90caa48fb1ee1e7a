#include "ops/mpi/library.h"

#include <numeric>

#include "base/text.h"
#include "ops/mpi/communicator.h"

namespace hvd::ops::mpi {

Result<std::unique_ptr<World>> World::open(const hvd_plugin_host& host,
                                           const hvd_plugin_config& config) {
  HVD_ASSIGN_OR_RETURN(hvd::mpi::MpiJob job, hvd::mpi::join_job(host, config, "mpi-operations",
                                                                "HOROVOD_CPU_OPERATIONS"));
  std::unique_ptr<World> world(new World(std::move(job)));
  if (config.rank == 0) {
    const std::string text =
        cat("tensor operations go through ", world->job_.version, ", ", world->api().library);
    host.log(host.host, 2, text.c_str());
  }
  if (!world->has_threads()) {
    host.log(host.host, 2,
             "MPI gives less than MPI_THREAD_MULTIPLE: it runs the set of all ranks, and other "
             "process sets run without it; the program must not call MPI while work is pending");
  }
  HVD_ASSIGN_OR_RETURN(world->reductions_, Reductions::make(world->api()));
  world->everyone_ = std::make_shared<MpiComm>();
  std::vector<int32_t> all(static_cast<size_t>(config.size));
  std::iota(all.begin(), all.end(), 0);
  hvd::mpi::make_communicator(world->api(), world->job_.world_ranks, config.rank, all,
                              world->everyone_.get());
  if (world->everyone_->state != 1) {
    return internal_error("MPI makes no communicator of all ranks");
  }
  return world;
}

World::~World() {
  if (failed_) {
    hvd::mpi::abandon_mpi();
    if (thread_) thread_->stop(Deadline::after_seconds(0));  // it may hang in MPI
    return;
  }
  if (thread_) {
    thread_->drain();  // frees the communicators of removed sets before the job's
    thread_->stop(Deadline::never());
  }
  if (hvd::mpi::is_over(api())) return;
  if (everyone_ && everyone_->state == 1) api().comm_free(&everyone_->comm);
  if (reductions_) reductions_->give_back(api());
}

std::shared_ptr<MpiComm> World::make(const std::vector<int32_t>& members) {
  if (!thread_) {
    thread_ = std::make_shared<CommunicatorThread>(api(), job_.world_ranks, job_.rank);
    thread_->start();
  }
  return thread_->make(members);
}

void World::give_back(std::shared_ptr<MpiComm> communicator) {
  if (!failed_ && communicator != everyone_ && thread_) thread_->free(std::move(communicator));
}

void World::fail() {
  failed_ = true;
  hvd::mpi::abandon_mpi();
}

}  // namespace hvd::ops::mpi
