#include "ops/mpi/world.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "base/text.h"
#include "ops/mpi/communicators.h"
#include "ops/mpi/environment.h"
#include "ops/rounds.h"

namespace hvd::ops::mpi {
namespace {

// MPI is the process's: initialised once in its life.
struct Process {
  decltype(&MPI_Finalize) finalize = nullptr;
  decltype(&MPI_Finalized) finalized = nullptr;
  bool failed = false;
};
Process& process() {
  static Process* const kProcess = new Process;
  return *kProcess;
}

void end_mpi() {
  int ended = 0;
  if (process().failed || process().finalized(&ended) != MPI_SUCCESS || ended != 0) return;
  process().finalize();
}

std::string version_of(const Api& api) {
  char text[MPI_MAX_LIBRARY_VERSION_STRING] = "";
  int length = 0;
  api.get_library_version(text, &length);
  std::string version(text);
  version = version.substr(0, version.find_first_of(",\n"));
  std::replace(version.begin(), version.end(), '\t', ' ');
  return version;
}

bool is_flag(const char* value) { return value != nullptr && *value != '\0' && *value != '0'; }

}  // namespace

Result<std::unique_ptr<World>> World::open(const hvd_plugin_host& host,
                                           const hvd_plugin_config& config) {
  Rounds rounds(host, config);
  // Before MPI starts, since a rank that does not come along would keep the others there.
  auto api = open_api(wanted_library());
  const Status found = api.ok() ? judge_environment() : api.error();
  HVD_ASSIGN_OR_RETURN(const auto versions,
                       rounds.exchange("mpi-library", found, found.ok() ? version_of(*api) : ""));
  for (size_t rank = 0; rank < versions.size(); ++rank) {
    if (versions[rank] == versions[0]) continue;
    return failed_precondition(cat("rank 0 has ", versions[0], " and rank ", rank, " has ",
                                   versions[rank], ": all ranks need one MPI; HOROVOD_MPI_LIBRARY "
                                   "may name its library"));
  }
  std::unique_ptr<World> world(new World(*std::move(api), config.rank));
  HVD_RETURN_IF_ERROR(world->initialise(host));
  HVD_RETURN_IF_ERROR(world->meet(host, config));
  return world;
}

Status World::initialise(const hvd_plugin_host& host) {
  int yes = 0;
  if (api_.finalized(&yes) == MPI_SUCCESS && yes != 0) {
    return failed_precondition("MPI was finalized in this process and cannot be used again");
  }
  api_.initialized(&yes);
  if (yes != 0) return {};
  const bool plain = is_flag(host.setting(host.host, "HOROVOD_MPI_THREADS_DISABLE"));
  int given = 0;
  const int code = api_.init_thread(nullptr, nullptr,
                                    plain ? MPI_THREAD_SERIALIZED : MPI_THREAD_MULTIPLE, &given);
  if (code != MPI_SUCCESS) return unavailable(cat("MPI does not start: ", describe(code)));
  process().finalize = api_.finalize;
  process().finalized = api_.finalized;
  std::atexit(&end_mpi);
  return {};
}

// Who is who, and how many threads all allow.
Status World::meet(const hvd_plugin_host& host, const hvd_plugin_config& config) {
  int world_rank = 0, world_size = 1, threads = 0;
  api_.comm_rank(api_.handles.world, &world_rank);
  api_.comm_size(api_.handles.world, &world_size);
  api_.query_thread(&threads);
  Status status;
  if (world_size < config.size) {
    status = failed_precondition(
        cat("MPI has ", world_size, " ranks where the job has ", config.size,
            ": start it by that MPI's mpirun, or by horovodrun --mpi, or without "
            "HOROVOD_CPU_OPERATIONS=mpi"));
  }
  HVD_ASSIGN_OR_RETURN(const auto records,
                       Rounds(host, config).exchange("mpi-world", status,
                                                     cat(world_rank, " ", threads)));
  has_threads_ = true;
  for (const std::string& record : records) {
    const std::vector<std::string> words = split(record, ' ');
    world_ranks_.push_back(static_cast<int>(parse_int(words[0]).value_or(0)));
    has_threads_ &= words.size() > 1 && parse_int(words[1]) == MPI_THREAD_MULTIPLE;
  }
  std::vector<int> distinct = world_ranks_;
  std::sort(distinct.begin(), distinct.end());
  if (std::adjacent_find(distinct.begin(), distinct.end()) != distinct.end()) {
    return failed_precondition("two ranks of the job are one rank of MPI: they were not started by "
                               "one mpirun");
  }
  if (config.rank == 0) {
    const std::string said = cat("tensor operations go through ", version_of(api_), ", ",
                                 api_.library);
    host.log(host.host, 2, said.c_str());
  }
  if (!has_threads_) {
    host.log(host.host, 2,
             "MPI gives less than MPI_THREAD_MULTIPLE: it runs the set of all ranks, and other "
             "process sets run without it; the program must not call MPI while work is pending");
  }
  HVD_ASSIGN_OR_RETURN(reductions_, Reductions::make(api_));
  everyone_ = std::make_shared<Communicator>();
  std::vector<int32_t> all;
  for (int32_t rank = 0; rank < config.size; ++rank) all.push_back(rank);
  make_communicator(api_, world_ranks_, rank_, all, everyone_.get());
  if (everyone_->state != 1) return internal_error("MPI makes no communicator of all ranks");
  return {};
}

World::~World() {
  if (failed_) {
    process().failed = true;
    if (maker_) maker_->forsake();
    return;
  }
  maker_.reset();  // what sets have given back is given back before the job's
  int ended = 0;
  if (api_.finalized(&ended) != MPI_SUCCESS || ended != 0) return;
  if (everyone_ && everyone_->state == 1) api_.comm_free(&everyone_->comm);
  if (reductions_) reductions_->give_back(api_);
}

std::shared_ptr<Communicator> World::make(const std::vector<int32_t>& members) {
  if (!maker_) maker_ = Maker::start(api_, world_ranks_, rank_);
  auto made = std::make_shared<Communicator>();
  maker_->add({made, members});
  return made;
}

void World::give_back(std::shared_ptr<Communicator> communicator) {
  if (!failed_ && communicator != everyone_ && maker_) maker_->add({std::move(communicator), {}});
}

void World::fail() {
  failed_ = true;
  process().failed = true;
}

std::string World::describe(int code) const {
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  if (api_.error_string(code, text, &length) != MPI_SUCCESS) return cat("error ", code);
  return text;
}

}  // namespace hvd::ops::mpi
