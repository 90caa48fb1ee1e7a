// Takes the identity of a rank that a PMIx server started: srun --mpi=pmix, Open MPI's mpirun,
// prrte. The plugin opens libpmix at run time, and returns an error if libpmix is missing. The
// plugin uses only the types of libpmix's headers, which are equal in PMIx 3, 4 and 5.
#include <pmix.h>
#include <pmix_version.h>
#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/settings.h"
#include "base/shared_library.h"
#include "base/text.h"
#include "bootstrap/bootstrap_plugin.h"
#include "bootstrap/munge.h"

namespace hvd::bootstrap {
namespace {

static_assert(PMIX_VERSION_MAJOR >= 3 && PMIX_VERSION_MAJOR <= 5,
              "the types of this PMIx are not known to be those of PMIx 3, 4 and 5");

constexpr const char* kLibrary = "libpmix.so.2";

using Seconds = std::chrono::duration<double>;
constexpr Seconds kAnswerTime(2);
constexpr std::chrono::milliseconds kPause(100);
constexpr size_t kMostNames = 8;

struct PmixLibrary {
  SymbolFinder find;
  decltype(&PMIx_Init) init = find("PMIx_Init");
  decltype(&PMIx_Finalize) finalize = find("PMIx_Finalize");
  decltype(&PMIx_Get) get = find("PMIx_Get");
  decltype(&PMIx_Get_nb) get_nb = find("PMIx_Get_nb");
  decltype(&PMIx_Put) put = find("PMIx_Put");
  decltype(&PMIx_Commit) commit = find("PMIx_Commit");
  decltype(&PMIx_Fence_nb) fence_nb = find("PMIx_Fence_nb");
  decltype(&PMIx_Error_string) error_string = find("PMIx_Error_string");

  static Result<PmixLibrary> open() {
    auto opened = SharedLibrary::open(kLibrary);
    if (!opened.ok()) {
      return opened.error().with_context(
          "PMIx's library (Debian: libpmix2) cannot be opened; LD_LIBRARY_PATH may name its "
          "folder");
    }
    PmixLibrary library{SymbolFinder(*std::move(opened))};
    if (!library.find.missing().empty()) {
      return unavailable(
          cat(library.find.library().path(), " lacks functions of PMIx 3 and later"));
    }
    return library;
  }
};

// Copies a key. The key always fits, because the plugin's own keys are short.
void set_key(pmix_key_t to, std::string_view key) {
  std::memset(to, 0, sizeof(pmix_key_t));
  std::memcpy(to, key.data(), std::min(key.size(), sizeof(pmix_key_t) - 1));
}

// Limits seconds to PMIx's range.
double within_limits(double seconds) { return std::clamp(seconds, 1.0, 1e6); }

pmix_info_t timeout_info(double seconds) {
  pmix_info_t info;
  std::memset(&info, 0, sizeof info);
  set_key(info.key, PMIX_TIMEOUT);
  info.value.type = PMIX_INT;
  info.value.data.integer = static_cast<int>(std::ceil(within_limits(seconds)));
  return info;
}

// A fence of all ranks. PMIx may complete the fence after this rank has timed out, so end() owns a reference.
struct Fence {
  pmix_proc_t all;
  pmix_info_t infos[2];
  std::promise<pmix_status_t> code;

  static void end(pmix_status_t code, void* share) {
    const std::unique_ptr<std::shared_ptr<Fence>> fence(
        static_cast<std::shared_ptr<Fence>*>(share));
    (*fence)->code.set_value(code);
  }
};

// The ranks that have put a key. PMIx may answer about a rank after the asking rank has timed out,
// so each request owns a reference.
struct Arrivals {
  explicit Arrivals(size_t size) : has_come(size) {}
  Mutex mutex;
  std::condition_variable changed;
  std::vector<bool> has_come;
  size_t answers = 0;

  struct Question {
    std::shared_ptr<Arrivals> arrivals;
    size_t rank;
  };
  static void answer(pmix_status_t code, pmix_value_t*, void* question) {
    const std::unique_ptr<Question> asked(static_cast<Question*>(question));
    Arrivals& arrivals = *asked->arrivals;
    const MutexLock lock(arrivals.mutex);
    arrivals.has_come[asked->rank] = code == PMIX_SUCCESS;
    ++arrivals.answers;
    arrivals.changed.notify_all();
  }
};

// Slurm's servers send values between nodes unencrypted, and give a value to any process that claims to be a rank of
// this user. If MUNGE works, it hides values from other users.
std::optional<Munge> munge_for(const pmix_proc_t& self) {
  if (!std::string_view(self.nspace).starts_with("slurm.pmix.")) return std::nullopt;
  auto munge = Munge::open();
  if (!munge.ok()) return std::nullopt;
  const auto sealed = munge->seal(as_bytes("horovod"));
  // In some user namespaces a process can seal a message but not unseal it.
  if (!sealed.ok() || !munge->unseal(*sealed).ok()) return std::nullopt;
  return *munge;
}

class Pmix final : public Source {
 public:
  Pmix(const PmixLibrary& library, const pmix_proc_t& self, const hvd_plugin_host& host)
      : library_(library), self_(self), munge_(munge_for(self)), host_(host) {}
  ~Pmix() override { library_.finalize(nullptr, 0); }

  Status identity(hvd_identity* identity) override {
    const pmix_proc_t job = proc(PMIX_RANK_WILDCARD);
    HVD_ASSIGN_OR_RETURN(const int64_t size, number(job, PMIX_JOB_SIZE));
    identity->rank = static_cast<int32_t>(self_.rank);
    identity->size = static_cast<int32_t>(size);
    // PMIx may lack the local rank: the runtime itself detects the ranks that share a machine.
    const auto local_rank = number(self_, PMIX_LOCAL_RANK);
    const auto local_size = number(job, PMIX_LOCAL_SIZE);
    if (local_rank.ok() && local_size.ok()) {
      identity->local_rank = static_cast<int32_t>(*local_rank);
      identity->local_size = static_cast<int32_t>(*local_size);
    }
    return {};
  }

  Status put(std::string_view key, ByteView value) override {
    std::string sealed;
    if (munge_) {
      Bytes message = to_bytes(heading(key));
      message.insert(message.end(), value.begin(), value.end());
      HVD_ASSIGN_OR_RETURN(sealed, munge_->seal(message, true));
      value = as_bytes(sealed);
    }
    pmix_key_t name;
    set_key(name, key);
    pmix_value_t wrapped;
    std::memset(&wrapped, 0, sizeof wrapped);
    wrapped.type = PMIX_BYTE_OBJECT;
    // PMIx copies the value, and does not write to it.
    wrapped.data.bo.bytes = const_cast<char*>(reinterpret_cast<const char*>(value.data()));
    wrapped.data.bo.size = value.size();
    HVD_RETURN_IF_ERROR(check(library_.put(PMIX_GLOBAL, name, &wrapped), "PMIx_Put"));
    return check(library_.commit(), "PMIx_Commit");
  }

  Result<Bytes> get(std::string_view key, double timeout_seconds) override {
    return value_of(0, key, timeout_seconds);
  }

  // Does not use a fence of some ranks: after such a fence, Slurm's servers send other hosts only the values of its
  // first rank.
  Result<Bytes> get_from(int32_t rank, std::string_view key, double timeout_seconds) override {
    const double limit = within_limits(timeout_seconds);
    const double quiet = quiet_seconds(limit);
    const auto from = static_cast<pmix_rank_t>(rank);
    if (!comes(from, key, quiet)) {
      warn(host_, cat(host_of(from), " has not called hvd.init() for ", std::lround(quiet),
                      " s, and rank ", self_.rank, " waits there"));
      if (!comes(from, key, limit - quiet)) {
        return deadline_exceeded(cat(host_of(from), " has not come"));
      }
    }
    return value_of(from, key, kAnswerTime.count());
  }

  // A server waits for ranks of other hosts and ignores PMIX_TIMEOUT, so this rank checks the time itself.
  Status fence(double timeout_seconds) override {
    const std::string mark = cat("horovod.came.", ++fences_);
    pmix_key_t name;
    set_key(name, mark);
    pmix_value_t yes;
    std::memset(&yes, 0, sizeof yes);
    yes.type = PMIX_BOOL;
    yes.data.flag = true;
    HVD_RETURN_IF_ERROR(check(library_.put(PMIX_GLOBAL, name, &yes), "PMIx_Put"));
    HVD_RETURN_IF_ERROR(check(library_.commit(), "PMIx_Commit"));
    const auto fence = std::make_shared<Fence>();
    fence->all = proc(PMIX_RANK_WILDCARD);
    std::memset(fence->infos, 0, sizeof fence->infos);
    set_key(fence->infos[0].key, PMIX_COLLECT_DATA);
    fence->infos[0].value.type = PMIX_BOOL;
    fence->infos[0].value.data.flag = true;
    fence->infos[1] = timeout_info(timeout_seconds);
    auto code = fence->code.get_future();
    auto share = std::make_unique<std::shared_ptr<Fence>>(fence);
    const pmix_status_t begun =
        library_.fence_nb(&fence->all, 1, fence->infos, 2, Fence::end, share.get());
    if (begun == PMIX_OPERATION_SUCCEEDED) return {};  // then PMIx makes no callback
    HVD_RETURN_IF_ERROR(check(begun, "PMIx_Fence"));
    share.release();
    const Seconds limit(within_limits(timeout_seconds));
    const Seconds quiet(quiet_seconds(limit.count()));
    if (code.wait_for(quiet) != std::future_status::ready) {
      if (const std::string missing = missing_ranks(mark, true); !missing.empty()) {
        const auto seconds = std::lround(quiet.count());
        warn(host_,
             cat(missing, " not called hvd.init() for ", seconds, " s, and the others wait there"));
      }
      code.wait_for(limit - quiet);
    }
    const bool has_ended = code.wait_for(Seconds(0)) == std::future_status::ready;
    const pmix_status_t ended = has_ended ? code.get() : PMIX_ERR_TIMEOUT;
    if (ended != PMIX_ERR_TIMEOUT) return check(ended, "PMIx_Fence");
    const std::string missing = missing_ranks(mark, false);
    const Status status = check(ended, "PMIx_Fence");
    return missing.empty() ? status
                           : deadline_exceeded(cat(status.message(), ": ", missing, " not come"));
  }

 private:
  Result<Bytes> value_of(pmix_rank_t rank, std::string_view key, double timeout_seconds) const {
    const pmix_proc_t from = proc(rank);
    pmix_key_t name;
    set_key(name, key);
    const pmix_info_t timeout = timeout_info(timeout_seconds);
    pmix_value_t* value = nullptr;
    HVD_RETURN_IF_ERROR(check(library_.get(&from, name, &timeout, 1, &value), "PMIx_Get"));
    if (value->type != PMIX_BYTE_OBJECT) {
      return internal_error(cat("PMIx gives a value of type ", value->type, " for ", key));
    }
    const auto* data = reinterpret_cast<const std::byte*>(value->data.bo.bytes);
    Bytes bytes(data, data + value->data.bo.size);
    std::free(value->data.bo.bytes);
    std::free(value);
    const std::string text(as_text(bytes));
    if (munge_) {
      HVD_ASSIGN_OR_RETURN(const Bytes message, munge_->unseal(text, true));
      if (!as_text(message).starts_with(heading(key))) {
        return permission_denied(
            cat("PMIx gives a message that rank ", rank, " of another step has sealed"));
      }
      return Bytes(message.begin() + static_cast<std::ptrdiff_t>(heading(key).size()),
                   message.end());
    }
    if (text.starts_with("MUNGE:")) {
      return unavailable(cat("rank ", rank,
                             " has sealed its message by MUNGE, which does not work on this host; "
                             "start munged here, as on the host of rank ",
                             rank));
    }
    return bytes;
  }

  // Returns the first line of a sealed message, which identifies this step and this key.
  std::string heading(std::string_view key) const { return cat(self_.nspace, " ", key, "\n"); }

  pmix_proc_t proc(pmix_rank_t rank) const {
    pmix_proc_t proc = self_;
    proc.rank = rank;
    return proc;
  }

  Status check(pmix_status_t code, std::string_view call) const {
    if (code == PMIX_SUCCESS) return {};
    const std::string message = cat(call, " failed: ", library_.error_string(code));
    return code == PMIX_ERR_TIMEOUT ? deadline_exceeded(message) : unavailable(message);
  }

  // Returns the ranks that have not put this key, for example "rank 2 on host b has"; empty if unknown. With
  // `is_first`, also empty if a lower rank has put the key, since that rank reports the same.
  std::string missing_ranks(const std::string& key, bool is_first) const {
    const auto size = number(proc(PMIX_RANK_WILDCARD), PMIX_JOB_SIZE);
    if (!size.ok() || self_.rank >= static_cast<uint64_t>(*size)) return {};
    if (is_first && self_.rank > 0 && arrivals(key, 0, 1).at(0)) return {};
    const std::vector<bool> has_come = arrivals(key, 0, static_cast<size_t>(*size));
    std::vector<std::string> missing;
    for (size_t rank = 0; rank < has_come.size(); ++rank) {
      if (has_come[rank] && rank < self_.rank && is_first) return {};
      if (!has_come[rank] && rank != self_.rank)
        missing.push_back(host_of(static_cast<pmix_rank_t>(rank)));
    }
    if (missing.empty()) return {};
    const bool is_one = missing.size() == 1;
    if (missing.size() > kMostNames) {
      const size_t more = missing.size() - kMostNames;
      missing.resize(kMostNames);
      missing.push_back(cat(more, " more"));
    }
    return cat(join(missing, ", "), is_one ? " has" : " have");
  }

  // Returns, for example, "rank 2 on host b".
  std::string host_of(pmix_rank_t rank) const {
    pmix_info_t is_local;
    std::memset(&is_local, 0, sizeof is_local);
    set_key(is_local.key, PMIX_OPTIONAL);
    is_local.value.type = PMIX_BOOL;
    is_local.value.data.flag = true;
    const pmix_proc_t of = proc(rank);
    pmix_value_t* value = nullptr;
    std::string name = cat("rank ", rank);
    if (library_.get(&of, PMIX_HOSTNAME, &is_local, 1, &value) != PMIX_SUCCESS) return name;
    if (value->type == PMIX_STRING) {
      name += cat(" on host ", printable(value->data.string));
      std::free(value->data.string);
    }
    std::free(value);
    return name;
  }

  // Returns whether the rank puts the key within this time. Some servers wait for the rank; others reply at once.
  bool comes(pmix_rank_t rank, std::string_view key, double seconds) const {
    const Deadline deadline = Deadline::after_seconds(seconds);
    while (!arrivals(key, rank, 1, Seconds(deadline.seconds_left())).front()) {
      if (deadline.passed()) return false;
      std::this_thread::sleep_for(kPause);
    }
    return true;
  }

  // Returns which of the ranks `first`, `first` + 1, ... have put the key, as far as PMIx replies within this time.
  std::vector<bool> arrivals(std::string_view key, size_t first, size_t count,
                             Seconds limit = kAnswerTime) const {
    const auto all = std::make_shared<Arrivals>(count);
    pmix_key_t name;
    set_key(name, key);
    const pmix_info_t timeout = timeout_info(limit.count());
    size_t asked = 0;
    for (size_t rank = 0; rank < count; ++rank) {
      auto question = std::make_unique<Arrivals::Question>(Arrivals::Question{all, rank});
      const pmix_proc_t of = proc(static_cast<pmix_rank_t>(first + rank));
      if (library_.get_nb(&of, name, &timeout, 1, Arrivals::answer, question.get()) != PMIX_SUCCESS)
        continue;
      question.release();
      ++asked;
    }
    MutexLock lock(all->mutex);
    all->changed.wait_for(lock.native(), limit, [&] { return all->answers == asked; });
    return all->has_come;
  }

  Result<int64_t> number(const pmix_proc_t& of, const char* key) const {
    pmix_value_t* value = nullptr;
    HVD_RETURN_IF_ERROR(
        check(library_.get(&of, key, nullptr, 0, &value), "PMIx_Get").with_context(key));
    int64_t found = -1;
    if (value->type == PMIX_UINT16) found = value->data.uint16;
    if (value->type == PMIX_UINT32) found = value->data.uint32;
    if (value->type == PMIX_INT) found = value->data.integer;
    if (value->type == PMIX_PROC_RANK) found = value->data.rank;
    std::free(value);
    if (found < 0 || found > INT32_MAX) {
      return internal_error(cat("PMIx gives no number for ", key));
    }
    return found;
  }

  const PmixLibrary library_;
  const pmix_proc_t self_;
  const std::optional<Munge> munge_;
  const hvd_plugin_host host_;
  int fences_ = 0;
};

// Returns whether hydra has started this process inside a job of a PMIx server: the process then has the variables of
// both.
bool is_started_by_hydra() {
  const auto fd = parse_int(environment_variable("PMI_FD").value_or(""));
  struct stat info {};
  return environment_variable("MPI_LOCALRANKID") && fd &&
         ::fstat(static_cast<int>(*fd), &info) == 0 && S_ISSOCK(info.st_mode);
}

struct Plugin {
  static constexpr const char* kName = "pmix";
  static constexpr int32_t kPriority = 30;
  static constexpr bool kGetsFromRanks = true;
  static Status probe() { return PmixLibrary::open().status(); }
  static Result<std::unique_ptr<Source>> open(const hvd_plugin_host& host,
                                              const hvd_plugin_config&) {
    if (!environment_variable("PMIX_NAMESPACE") || !environment_variable("PMIX_RANK")) {
      return failed_precondition("no server of PMIx started this process");
    }
    if (is_started_by_hydra()) {
      return failed_precondition("MPICH's hydra, inside of a job of PMIx, started this process");
    }
    HVD_ASSIGN_OR_RETURN(const PmixLibrary library, PmixLibrary::open());
    pmix_proc_t self;
    if (const pmix_status_t code = library.init(&self, nullptr, 0); code != PMIX_SUCCESS) {
      return unavailable(cat("PMIx_Init failed: ", library.error_string(code),
                             "; PMIX_NAMESPACE and PMIX_RANK are set, but the server that set "
                             "them does not answer"));
    }
    return std::unique_ptr<Source>(new Pmix(library, self, host));
  }
};

}  // namespace
}  // namespace hvd::bootstrap

HVD_PLUGIN_ENTRY(hvd::bootstrap::BootstrapRecord<hvd::bootstrap::Plugin>)
