// horovod-pmix FOLDER: an agent's helper, a PMIx server for the ranks of one host. Reads the order on standard input.
// Writes messages for the agent to standard output: its addresses for PMIx and PMI-1, which are the port and the
// abstract name; {rank, count} when a rank has connected; {} when all ranks have entered a fence; {sentence} when a
// fence, a barrier or a connection has failed. Serves until its standard input ends.
//
// Only this file includes PMIx. The server's callbacks run on PMIx's own thread and never block: each fence waits on a
// separate thread.
#include <pmix.h>
#include <pmix_server.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <future>
#include <map>
#include <system_error>
#include <thread>

#include "base/mutex.h"
#include "base/secrets/secret.h"
#include "base/text.h"
#include "launcher/pmix/conversation.h"
#include "launcher/pmix/fences.h"
#include "launcher/pmix/pmi_server.h"
#include "rendezvous/client/http_store.h"

namespace hvd::launcher {
namespace {

// State for the callbacks: PMIx passes them no user pointer. Created before the first callback and never destroyed.
struct ServedJob {
  Mutex mutex;
  std::unique_ptr<PmixFences> fences HVD_GUARDED_BY(mutex);        // set once
  std::unique_ptr<rendezvous::Store> store HVD_GUARDED_BY(mutex);  // set once
  std::unique_ptr<PmiServer> pmi HVD_GUARDED_BY(mutex);            // set once
  std::map<int, int> connections HVD_GUARDED_BY(mutex);  // number of connections of each rank
  pmix_server_module_t callbacks{};
};
ServedJob& job() {
  static ServedJob* const only = new ServedJob;
  return *only;
}

Status failed(const char* what, pmix_status_t status) {
  if (status == PMIX_SUCCESS || status == PMIX_OPERATION_SUCCEEDED) return {};
  return unavailable(cat(what, ": ", PMIx_Error_string(status)));
}

// Any thread may call it, because the kernel writes a text of this size atomically.
void send(const PmixTexts& texts) {
  const std::string bytes = pack_texts(texts);
  (void)!::write(STDOUT_FILENO, bytes.data(), bytes.size());
}

void send_failure(const std::string& sentence) { send({sentence.substr(0, 1000)}); }

// Counts a connection of this rank, by PMIx or PMI-1, and reports the count to the agent.
int count_connection(int rank) {
  const MutexLock lock(job().mutex);
  const int count = ++job().connections[rank];
  send({cat(rank), cat(count)});
  return count;
}

pmix_status_t on_connected(const pmix_proc_t* proc, void*, pmix_info_t*, size_t, pmix_op_cbfunc_t,
                           void*) {
  count_connection(static_cast<int>(proc->rank));
  return PMIX_OPERATION_SUCCEEDED;
}

pmix_status_t on_finalized(const pmix_proc_t*, void*, pmix_op_cbfunc_t, void*) {
  return PMIX_OPERATION_SUCCEEDED;
}

// Accepts the abort: the rank then ends itself, and thereby the job.
pmix_status_t on_abort(const pmix_proc_t*, void*, int, const char[], pmix_proc_t*, size_t,
                       pmix_op_cbfunc_t, void*) {
  return PMIX_OPERATION_SUCCEEDED;
}

void drop_text(void* text) { delete static_cast<std::string*>(text); }

Deadline deadline_of(const pmix_info_t info[], size_t count) {
  for (size_t i = 0; i < count; ++i) {
    if (PMIX_CHECK_KEY(&info[i], PMIX_TIMEOUT) && info[i].value.type == PMIX_INT &&
        info[i].value.data.integer > 0) {
      return Deadline::after_seconds(info[i].value.data.integer);
    }
  }
  return Deadline::never();
}

pmix_status_t on_fence(const pmix_proc_t procs[], size_t count, const pmix_info_t info[],
                       size_t info_count, char* data, size_t size, pmix_modex_cbfunc_t done,
                       void* cookie) {
  std::vector<int> ranks;
  for (size_t i = 0; i < count; ++i) {
    if (procs[i].rank == PMIX_RANK_WILDCARD) {
      ranks.clear();
      break;
    }
    ranks.push_back(static_cast<int>(procs[i].rank));
  }
  const MutexLock lock(job().mutex);
  if (!job().fences) return PMIX_ERR_NOT_SUPPORTED;
  std::string own(data != nullptr ? data : "", data != nullptr ? size : 0);
  try {
    std::thread([fences = job().fences.get(), store = job().store.get(),
                 fence = job().fences->next(std::move(ranks)), own = std::move(own), done, cookie,
                 deadline = deadline_of(info, info_count)] {
      auto all = fences->run(fence, own, store, deadline);
      const pmix_status_t status =
          all.ok() ? PMIX_SUCCESS
                   : (all.status().code() == Code::kDeadlineExceeded ? PMIX_ERR_TIMEOUT
                                                                     : PMIX_ERR_UNREACH);
      if (all.ok())
        send({});
      else
        send_failure(cat("a fence of PMIx fails, as in MPI_Init: ", all.status().message()));
      auto* text = new std::string(all.ok() ? *std::move(all) : std::string());
      done(status, text->data(), text->size(), cookie, drop_text, text);
    }).detach();
  } catch (const std::system_error&) {
    send_failure(
        "a fence of PMIx fails, as in MPI_Init: this host has no thread left; raise the limit of "
        "processes");
    return PMIX_ERR_OUT_OF_RESOURCE;
  }
  std::free(data);
  return PMIX_SUCCESS;
}

// Reports that a value does not exist, because fences have collected all values of the ranks.
pmix_status_t on_direct_modex(const pmix_proc_t*, const pmix_info_t[], size_t, pmix_modex_cbfunc_t,
                              void*) {
  return PMIX_ERR_NOT_FOUND;
}

void on_done(pmix_status_t status, void* promise) {
  static_cast<std::promise<pmix_status_t>*>(promise)->set_value(status);
}

// Information for PMIx, which keeps copies of it.
class Infos {
 public:
  ~Infos() {
    for (pmix_info_t& info : infos_) PMIX_INFO_DESTRUCT(&info);
  }
  void add(const char* key, const void* value, pmix_data_type_t type) {
    infos_.emplace_back();
    PMIX_INFO_LOAD(&infos_.back(), key, const_cast<void*>(value), type);
  }
  void add(const char* key, const std::string& text) { add(key, text.c_str(), PMIX_STRING); }
  void add(const char* key, uint32_t number) { add(key, &number, PMIX_UINT32); }
  void add_rank(const char* key, int number) {
    const auto rank = static_cast<pmix_rank_t>(number);
    add(key, &rank, PMIX_PROC_RANK);
  }
  void add_flag(const char* key, bool flag) { add(key, &flag, PMIX_BOOL); }
  void add_short(const char* key, size_t number) {
    const auto small = static_cast<uint16_t>(number);
    add(key, &small, PMIX_UINT16);
  }
  // Adds an array, and takes over the information in `others`.
  void add_array(const char* key, Infos& others) {
    pmix_data_array_t* array = nullptr;
    PMIX_DATA_ARRAY_CREATE(array, others.infos_.size(), PMIX_INFO);
    auto* to = static_cast<pmix_info_t*>(array->array);
    for (pmix_info_t& info : others.infos_) *to++ = info;
    others.infos_.clear();
    infos_.emplace_back();
    PMIX_LOAD_KEY(infos_.back().key, key);
    infos_.back().flags = 0;
    infos_.back().value.type = PMIX_DATA_ARRAY;
    infos_.back().value.data.darray = array;
  }
  pmix_info_t* data() { return infos_.data(); }
  size_t size() const { return infos_.size(); }

 private:
  std::vector<pmix_info_t> infos_;
};

Status add_maps(const PmixOrder& order, Infos& infos) {
  char* nodes = nullptr;
  char* ranks = nullptr;
  HVD_RETURN_IF_ERROR(
      failed("names of hosts", PMIx_generate_regex(join(order.names, ",").c_str(), &nodes)));
  HVD_RETURN_IF_ERROR(
      failed("ranks of hosts", PMIx_generate_ppn(to_map(order.ranks).c_str(), &ranks)));
  infos.add(PMIX_NODE_MAP, nodes, PMIX_REGEX);
  infos.add(PMIX_PROC_MAP, ranks, PMIX_REGEX);
  std::free(nodes);
  std::free(ranks);
  return {};
}

// Returns a folder for one rank's files, in the folder that is removed with the server.
std::string rank_folder(const std::string& folder, int rank) { return cat(folder, "/", rank); }

void add_rank(const PmixOrder& order, size_t host, size_t place, const std::string& folder,
              Infos& infos) {
  const int rank = order.ranks[host][place];
  Infos of_rank;
  of_rank.add_rank(PMIX_RANK, rank);
  of_rank.add_short(PMIX_LOCAL_RANK, place);
  of_rank.add_short(PMIX_NODE_RANK, place);
  of_rank.add(PMIX_NODEID, static_cast<uint32_t>(host));
  of_rank.add(PMIX_APPNUM, 0u);
  of_rank.add_rank(PMIX_GLOBAL_RANK, rank);
  of_rank.add(PMIX_HOSTNAME, order.names[host]);
  if (host == order.host) of_rank.add(PMIX_PROCDIR, rank_folder(folder, rank));
  infos.add_array(PMIX_PROC_DATA, of_rank);
}

Status describe(const PmixOrder& order, const std::string& folder, Infos& infos) {
  const auto size = static_cast<uint32_t>(order.size());
  const std::vector<int>& own = order.ranks[order.host];
  const auto local = static_cast<uint32_t>(own.size());
  HVD_RETURN_IF_ERROR(add_maps(order, infos));
  infos.add(PMIX_JOBID, order.job);
  infos.add(PMIX_JOB_SIZE, size);
  infos.add(PMIX_UNIV_SIZE, size);
  infos.add(PMIX_MAX_PROCS, size);
  infos.add(PMIX_NUM_NODES, static_cast<uint32_t>(order.ranks.size()));
  infos.add(PMIX_JOB_NUM_APPS, 1u);
  infos.add(PMIX_LOCAL_SIZE, local);
  infos.add(PMIX_NODE_SIZE, local);
  infos.add(PMIX_LOCAL_PEERS, to_map({own}));
  infos.add_rank(PMIX_LOCALLDR, own.front());
  infos.add_flag(PMIX_SPAWNED, false);
  infos.add(PMIX_TMPDIR, folder);
  infos.add(PMIX_NSDIR, folder);
  infos.add_flag(PMIX_TDIR_RMCLEAN, true);
  for (size_t host = 0; host < order.ranks.size(); ++host) {
    for (size_t place = 0; place < order.ranks[host].size(); ++place) {
      add_rank(order, host, place, folder, infos);
    }
  }
  return {};
}

Status register_rank(const std::string& job, int rank) {
  pmix_proc_t proc;
  PMIX_LOAD_PROCID(&proc, job.c_str(), static_cast<pmix_rank_t>(rank));
  std::promise<pmix_status_t> done;
  pmix_status_t status =
      PMIx_server_register_client(&proc, ::getuid(), ::getgid(), nullptr, on_done, &done);
  if (status == PMIX_SUCCESS) status = done.get_future().get();
  return failed("a rank", status);
}

// Returns the server's port, the end of its address "horovod.0;tcp4://127.0.0.1:4711".
Result<std::string> port_of_server(const PmixOrder& order) {
  pmix_proc_t proc;
  PMIX_LOAD_PROCID(&proc, order.job.c_str(),
                   static_cast<pmix_rank_t>(order.ranks[order.host].front()));
  char** variables = nullptr;
  HVD_RETURN_IF_ERROR(failed("the address", PMIx_server_setup_fork(&proc, &variables)));
  std::string port;
  for (char** at = variables; at != nullptr && *at != nullptr; ++at) {
    const std::string_view text = *at;
    if (text.starts_with("PMIX_SERVER_URI")) port = text.substr(text.rfind(':') + 1);
  }
  PMIX_ARGV_FREE(variables);
  return port;
}

Status init(const PmixOrder& order, const std::string& folder) {
  // Do not use memory-mapped files, which a killed rank would leave behind.
  ::setenv("PMIX_MCA_gds", "hash", 1);
  // The server passes no topology on: ranks discover the topology themselves. The server's own discovery, with hwloc's
  // plugins for OpenCL, X11 and others, would take four fifths of the start.
  ::setenv("HWLOC_SYNTHETIC", "pu:1", 1);
  ::setenv("HWLOC_PLUGINS_PATH", folder.c_str(), 1);
  pmix_server_module_t& module = job().callbacks;
  module.client_connected2 = on_connected;
  module.client_finalized = on_finalized;
  module.abort = on_abort;
  module.fence_nb = on_fence;
  module.direct_modex = on_direct_modex;
  Infos infos;
  infos.add(PMIX_SERVER_TMPDIR, folder);
  infos.add(PMIX_SERVER_NSPACE, std::string("horovod"));
  infos.add_rank(PMIX_SERVER_RANK, static_cast<int>(order.host));
  infos.add(PMIX_HOSTNAME, order.names[order.host]);
  return failed("PMIx_server_init", PMIx_server_init(&module, infos.data(), infos.size()));
}

Status start_pmix_server(const PmixOrder& order, const std::string& folder) {
  HVD_RETURN_IF_ERROR(init(order, folder));
  const std::vector<int>& own = order.ranks[order.host];
  std::string pmi;
  {
    const MutexLock lock(job().mutex);
    job().fences = std::make_unique<PmixFences>(order);
    if (order.ranks.size() > 1) {
      HVD_ASSIGN_OR_RETURN(Secret secret, Secret::from_hex(order.secret));
      HVD_ASSIGN_OR_RETURN(job().store,
                           rendezvous::HttpStore::open(order.store, std::move(secret)));
    }
    job().pmi = std::make_unique<PmiServer>(
        order, job().store.get(),
        PmiServer::Events{count_connection, [] { send({}); }, send_failure});
    HVD_ASSIGN_OR_RETURN(pmi, job().pmi->listen());
  }
  Infos infos;
  HVD_RETURN_IF_ERROR(describe(order, folder, infos));
  std::promise<pmix_status_t> done;
  pmix_status_t status = PMIx_server_register_nspace(
      order.job.c_str(), static_cast<int>(own.size()), infos.data(), infos.size(), on_done, &done);
  if (status == PMIX_SUCCESS) status = done.get_future().get();
  HVD_RETURN_IF_ERROR(failed("the job", status));
  for (const int rank : own) {
    ::mkdir(rank_folder(folder, rank).c_str(), 0700);
    HVD_RETURN_IF_ERROR(register_rank(order.job, rank));
  }
  HVD_ASSIGN_OR_RETURN(const std::string port, port_of_server(order));
  send({port, pmi});
  return {};
}

int fail(const Status& status) {
  std::fprintf(stderr, "horovod-pmix: %s\n", status.message().c_str());
  return 1;
}

// Returns the order; nullopt at the end of the input.
std::optional<PmixTexts> receive() {
  std::string bytes;
  char buffer[4096];
  for (;;) {
    const ssize_t size = ::read(STDIN_FILENO, buffer, sizeof buffer);
    if (size < 0 && errno == EINTR) continue;
    if (size <= 0) return std::nullopt;
    bytes.append(buffer, static_cast<size_t>(size));
    if (auto texts = take_texts(bytes)) return texts;
  }
}

Status serve(const std::string& folder) {
  const auto texts = receive();
  if (!texts) return {};  // the job has ended
  HVD_ASSIGN_OR_RETURN(const PmixOrder order, parse_pmix_order(*texts));
  HVD_RETURN_IF_ERROR(start_pmix_server(order, folder));
  receive();
  PMIx_server_finalize();  // cleans up after ranks that did not finalize
  return {};
}

}  // namespace
}  // namespace hvd::launcher

int main(int argc, char** argv) {
  using namespace hvd;
  using namespace hvd::launcher;
  if (argc != 2) {
    return fail(invalid_argument("horovod-agent starts this program for the ranks of a job"));
  }
  // Ignore signals: ranks end first, and this process ends when the agent closes its input.
  for (const int number : {SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGPIPE, SIGUSR1, SIGUSR2, SIGXFSZ})
    ::signal(number, SIG_IGN);
  ::prctl(PR_SET_NAME, "horovod-pmix");
  const Status status = serve(argv[1]);
  // Exit without waiting for threads of abandoned fences.
  std::fflush(nullptr);
  ::_exit(status.ok() ? 0 : fail(status));
}
