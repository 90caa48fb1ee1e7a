#include "ops/mpi/library.h"

#include <algorithm>
#include <numeric>

#include "base/text.h"
#include "collectives/kernels/reduce_kernels.h"
#include "ops/common/library_thread.h"

namespace hvd::ops::mpi {

// Creates and frees communicators on a separate thread, because these calls wait for all members.
class CommunicatorThread : public LibraryThread {
 public:
  CommunicatorThread(const MpiApi& api, std::vector<int> world_ranks, int32_t self)
      : LibraryThread("hvd-mpi", "MPI", nullptr),
        api_(api),
        world_ranks_(std::move(world_ranks)),
        self_(self) {}
  std::shared_ptr<MpiComm> make(const std::vector<int32_t>& members) {
    auto made = std::make_shared<MpiComm>();
    call([this, made, members]() -> Status {
      hvd::mpi::make_communicator(api_, world_ranks_, self_, members, made.get());
      return {};
    });
    return made;
  }

  void free(std::shared_ptr<MpiComm> communicator) {
    call([this, communicator = std::move(communicator)]() -> Status {
      if (communicator->state.load() == 1) api_.comm_free(&communicator->comm);
      return {};
    });
  }

 private:
  const MpiApi api_;  // a copy: a thread that hangs in MPI may outlive the backend
  const std::vector<int> world_ranks_;
  const int32_t self_;
};

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
    thread_->drain();  // frees the communicators of removed sets before that of the job
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

namespace {

template <hvd_dtype Type, hvd_reduce_op Op>
void reduce(void* in, void* in_out, int* count, MPI_Datatype*) {
  const void* const inputs[] = {in, in_out};
  collectives::reduce_function(Type, Op)(in_out, inputs, 2, static_cast<size_t>(*count), {}, {});
}

struct OwnOperation {
  hvd_dtype dtype;
  hvd_reduce_op op;
  MPI_User_function* function;
};
template <hvd_dtype Type, hvd_reduce_op Op>
constexpr OwnOperation own() {
  return {Type, Op, &reduce<Type, Op>};
}
constexpr OwnOperation kOwn[] = {
    own<HVD_FLOAT16, HVD_SUM>(),     own<HVD_FLOAT16, HVD_MIN>(),      own<HVD_FLOAT16, HVD_MAX>(),
    own<HVD_FLOAT16, HVD_PRODUCT>(), own<HVD_BFLOAT16, HVD_SUM>(),     own<HVD_BFLOAT16, HVD_MIN>(),
    own<HVD_BFLOAT16, HVD_MAX>(),    own<HVD_BFLOAT16, HVD_PRODUCT>(), own<HVD_FLOAT32, HVD_MIN>(),
    own<HVD_FLOAT32, HVD_MAX>(),     own<HVD_FLOAT64, HVD_MIN>(),      own<HVD_FLOAT64, HVD_MAX>()};

}  // namespace

Result<Reductions> Reductions::make(const MpiApi& api) {
  Reductions made;
  std::copy(std::begin(api.handles.types), std::end(api.handles.types), made.types_);
  int failed = MPI_SUCCESS;
  for (const hvd_dtype dtype : {HVD_FLOAT16, HVD_BFLOAT16}) {
    failed |= api.type_contiguous(2, api.handles.types[HVD_UINT8], &made.types_[dtype]);
    failed |= api.type_commit(&made.types_[dtype]);
  }
  const int commutes = 1;
  for (const OwnOperation& own : kOwn) {
    failed |= api.op_create(own.function, commutes, &made.own_[own.dtype][own.op]);
  }
  if (failed != MPI_SUCCESS) return internal_error("MPI refuses user-defined types and operations");
  made.plain_[HVD_SUM] = api.handles.sum;
  made.plain_[HVD_MIN] = api.handles.min;
  made.plain_[HVD_MAX] = api.handles.max;
  made.plain_[HVD_PRODUCT] = api.handles.product;
  return made;
}

void Reductions::give_back(const MpiApi& api) {
  for (const hvd_dtype dtype : {HVD_FLOAT16, HVD_BFLOAT16}) api.type_free(&types_[dtype]);
  for (const OwnOperation& own : kOwn) api.op_free(&own_[own.dtype][own.op]);
}

MPI_Op Reductions::operation(int32_t dtype, int32_t reduce_op) const {
  for (const OwnOperation& own : kOwn) {
    if (own.dtype == dtype && own.op == reduce_op) return own_[dtype][reduce_op];
  }
  return plain_[reduction_of_numbers(dtype, reduce_op)];
}

}  // namespace hvd::ops::mpi
