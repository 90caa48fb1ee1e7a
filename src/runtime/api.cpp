// The C ABI: one runtime pointer, and the border that no exception crosses.
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "base/text.h"
#include "collectives/shared_heap.h"
#include "horovod/horovod.h"
#include "horovod/version.h"
#include "runtime/api_call.h"
#include "runtime/capability.h"
#include "runtime/engine_choice.h"
#include "runtime/runtime.h"
#include "runtime/world_notice.h"

constinit hvd::runtime::api::State hvd::runtime::api::state;

namespace {

using hvd::Status;
using hvd::runtime::api::Call;
using hvd::runtime::api::guarded;
using hvd::runtime::api::state;
using hvd::runtime::Runtime;

// Memory of hvd_alloc may be there before the runtime, and outlives it.
hvd::collectives::SharedHeap& heap() {
  std::call_once(state.heap_made, [] { state.heap = new hvd::collectives::SharedHeap; });
  return *state.heap;
}

hvd::Deadline deadline_of(double seconds) {
  return seconds < 0 ? hvd::Deadline::never() : hvd::Deadline::after_seconds(seconds);
}

// As much of the caller's struct as it has; the rest is zero.
template <typename T>
Status copy_sized(const T* from, size_t least, T* to) {
  std::memset(static_cast<void*>(to), 0, sizeof *to);
  if (from == nullptr) return hvd::invalid_argument("the struct is NULL");
  if (from->struct_size < least) {
    return hvd::invalid_argument(hvd::cat("struct_size is ", from->struct_size,
                                          "; set it to the struct's sizeof"));
  }
  std::memcpy(static_cast<void*>(to), from, std::min(from->struct_size, sizeof *to));
  return {};
}

void apply_log_settings(const hvd::Settings& settings) {
  hvd::log::Level level = hvd::log::Level::kWarning;
  if (hvd::log::parse_level(settings.text("log_level"), level)) hvd::log::set_level(level);
  hvd::log::set_timestamps(!settings.flag("log_hide_time"));
}

Status read_sets(const hvd_init_options& wishes, std::vector<std::vector<int32_t>>* sets) {
  const int32_t* ranks = wishes.process_set_ranks;
  if (wishes.process_set_count > 0 && (ranks == nullptr || wishes.process_set_sizes == nullptr)) {
    return hvd::invalid_argument("the process sets' sizes or ranks are NULL");
  }
  for (uint32_t i = 0; i < wishes.process_set_count; ++i) {
    const uint32_t size = wishes.process_set_sizes[i];
    sets->emplace_back(ranks, ranks + size);
    ranks += size;
  }
  return {};
}

void apply_choice(const hvd::Result<hvd::runtime::EngineChoice>& choice,
                  hvd::runtime::RuntimeOptions* options) {
  if (!choice.ok()) {
    options->engines = choice.error();
    return;
  }
  options->engines = choice->words;
  options->ops.insert(options->ops.begin(), choice->ops.begin(), choice->ops.end());
  if (choice->controller == nullptr) return;
  if (choice->uses_own_ops && !options->controllers.empty()) {
    options->data_links = options->controllers.front();
  }
  options->controllers.insert(options->controllers.begin(), choice->controller);
}

// Until the process ends, and no longer: its thread uses what else ends then.
void keep(const std::shared_ptr<const hvd::runtime::Meeting>& meeting) {
  state.meeting = new std::shared_ptr<const hvd::runtime::Meeting>(meeting);
  state.meeting_process = ::getpid();
  std::atexit([] {
    if (state.meeting_process != ::getpid() || !state.mutex.try_lock()) return;
    delete std::exchange(state.meeting, nullptr);
    state.mutex.unlock();
  });
}

Status start(const hvd_init_options& wishes) {
  HVD_ASSIGN_OR_RETURN(hvd::Settings settings, hvd::Settings::from_environment());
  apply_log_settings(settings);
  const auto engines = hvd::runtime::chosen_engines(settings);
  const double seconds = wishes.timeout_seconds > 0 ? wishes.timeout_seconds
                                                    : settings.number("start_timeout");
  const hvd::Deadline deadline = hvd::Deadline::after_seconds(seconds);
  auto met = hvd::runtime::bootstrap(settings, deadline, state.epoch,
                                     state.meeting ? *state.meeting : nullptr);
  if (!met.ok()) return engines.ok() ? met.error() : engines.error();
  hvd::runtime::Bootstrap& bootstrap = *met;
  if (bootstrap.meeting && !state.meeting) keep(bootstrap.meeting);
  if (!bootstrap.secret.empty()) {
    HVD_RETURN_IF_ERROR(settings.set("job_secret", bootstrap.secret));
  }
  hvd::log::set_identity(hvd::cat("rank ", std::max(bootstrap.identity.rank, 0)));

  const auto catalogue = hvd::runtime::installed_plugins(settings);
  hvd::runtime::say_refusals(catalogue, settings, bootstrap.identity.rank == 0);
  hvd::runtime::RuntimeOptions options;
  options.settings = std::move(settings);
  options.controllers = catalogue.usable(HVD_PLUGIN_CONTROLLER);
  options.ops = catalogue.usable(HVD_PLUGIN_OP);
  apply_choice(engines, &options);
  if (!bootstrap.trouble.ok()) options.engines = bootstrap.trouble;
  options.published = std::move(bootstrap.published);
  options.heap = &heap();
  options.epoch = state.epoch++;
  options.stack = state.stack;
  options.start_deadline = deadline;
  HVD_RETURN_IF_ERROR(read_sets(wishes, &options.process_sets));
  if (wishes.rank_count > 0 && wishes.ranks == nullptr) {
    return hvd::invalid_argument("the ranks that are to start are NULL");
  }
  options.ranks.assign(wishes.ranks, wishes.ranks + wishes.rank_count);
  HVD_RETURN_IF_ERROR(hvd::runtime::restrict_to(options.ranks, &bootstrap.identity));
  // Before they meet, since wrong worlds may never. Who named its ranks wants one of its own.
  if (options.ranks.empty()) {
    hvd::runtime::tell_agent({bootstrap.identity.rank, bootstrap.identity.size});
  }
  HVD_ASSIGN_OR_RETURN(
      std::unique_ptr<Runtime> runtime,
      Runtime::create(bootstrap.identity, std::move(bootstrap.store), std::move(options)));
  Runtime* old = state.current.exchange(runtime.release());
  // Calls that still use the old one are about to end: it refuses everything.
  while (state.calls.load() != 0) std::this_thread::yield();
  delete old;
  state.tie = new std::shared_ptr<void>(std::move(bootstrap.tie));
  return {};
}

// Seconds that hvd_shutdown waits for the other ranks; they answer by themselves unless stopped.
constexpr double kShutdownSeconds = 30;

int32_t identity_number(int32_t hvd::runtime::Identity::* field) {
  const Call call;
  if (!state.initialized.load() || call.runtime() == nullptr) return -1;
  return call.runtime()->identity().*field;
}

}  // namespace

extern "C" {

const char* hvd_version(void) { return HVD_VERSION; }

int hvd_init(const hvd_init_options* options, char* error, size_t error_size) {
  return guarded(error, error_size, [&]() -> Status {
    if (state.forked.load()) return Call().check();
    std::lock_guard lock(state.mutex);
    if (state.initialized.load()) return {};
    hvd_init_options wishes{};
    if (options != nullptr) {
      HVD_RETURN_IF_ERROR(copy_sized(options, sizeof options->struct_size, &wishes));
    }
    if (!state.watches_forks) {
      ::pthread_atfork(nullptr, nullptr, [] { state.forked.store(state.current != nullptr); });
      state.watches_forks = true;
    }
    HVD_RETURN_IF_ERROR(start(wishes));
    state.initialized.store(true);
    return {};
  });
}

int hvd_shutdown(char* error, size_t error_size) {
  return guarded(error, error_size, [&]() -> Status {
    // A forked child's exit handlers come here too; the job is its parent's.
    if (state.forked.load()) return {};
    std::lock_guard lock(state.mutex);
    if (!state.initialized.load()) return {};
    const Status status =
        state.current.load()->shutdown(hvd::Deadline::after_seconds(kShutdownSeconds));
    state.initialized.store(false);
    delete std::exchange(state.tie, nullptr);
    return status;
  });
}

int hvd_is_initialized(void) {
  return state.initialized.load() && !state.forked.load() ? 1 : 0;
}

int32_t hvd_rank(void) { return identity_number(&hvd::runtime::Identity::rank); }
int32_t hvd_size(void) { return identity_number(&hvd::runtime::Identity::size); }
int32_t hvd_local_rank(void) { return identity_number(&hvd::runtime::Identity::local_rank); }
int32_t hvd_local_size(void) { return identity_number(&hvd::runtime::Identity::local_size); }
int32_t hvd_cross_rank(void) { return identity_number(&hvd::runtime::Identity::cross_rank); }
int32_t hvd_cross_size(void) { return identity_number(&hvd::runtime::Identity::cross_size); }

int32_t hvd_is_homogeneous(void) {
  const Call call;
  if (!state.initialized.load() || call.runtime() == nullptr) return -1;
  return call.runtime()->identity().is_homogeneous ? 1 : 0;
}

int hvd_submit(const hvd_submission* submission, hvd_handle* handle, char* error,
               size_t error_size) {
  return guarded(error, error_size, [&]() -> Status {
    const Call call;
    HVD_RETURN_IF_ERROR(call.check());
    if (handle == nullptr) return hvd::invalid_argument("the handle's address is NULL");
    hvd_submission whole;
    HVD_RETURN_IF_ERROR(copy_sized(submission, sizeof submission->struct_size, &whole));
    return call.runtime()->submit(whole, handle);
  });
}

int hvd_runs_on_device(int32_t op, int32_t dtype, int32_t reduce_op, double prescale,
                       double postscale, int32_t* runs, char* error, size_t error_size) {
  return guarded(error, error_size, [&]() -> Status {
    const Call call;
    HVD_RETURN_IF_ERROR(call.check());
    if (runs == nullptr) return hvd::invalid_argument("the answer's address is NULL");
    *runs = call.runtime()->device_support().has(op, dtype, reduce_op, prescale, postscale) ? 1 : 0;
    return {};
  });
}

int hvd_poll(hvd_handle handle, int32_t* done, char* error, size_t error_size) {
  return guarded(error, error_size, [&]() -> Status {
    const Call call;
    HVD_RETURN_IF_ERROR(call.check());
    bool is_done = false;
    HVD_RETURN_IF_ERROR(call.runtime()->poll(handle, &is_done));
    if (done != nullptr) *done = is_done ? 1 : 0;
    return {};
  });
}

int hvd_wait(hvd_handle handle, double timeout_seconds, char* error, size_t error_size) {
  bool in_progress = false;
  const int code = guarded(error, error_size, [&]() -> Status {
    const Call call;
    HVD_RETURN_IF_ERROR(call.check());
    const auto status = call.runtime()->wait(handle, deadline_of(timeout_seconds));
    in_progress = !status.has_value();
    return in_progress ? Status() : *status;
  });
  return in_progress ? HVD_IN_PROGRESS : code;
}

int hvd_get_output(hvd_handle handle, uint32_t index, hvd_output* output, char* error,
                   size_t error_size) {
  return guarded(error, error_size, [&]() -> Status {
    const Call call;
    HVD_RETURN_IF_ERROR(call.check());
    hvd_output whole;
    HVD_RETURN_IF_ERROR(copy_sized(output, sizeof output->struct_size, &whole));
    HVD_RETURN_IF_ERROR(call.runtime()->output(handle, index, &whole));
    std::memcpy(output, &whole, std::min(output->struct_size, sizeof whole));
    return {};
  });
}

int hvd_release(hvd_handle handle, char* error, size_t error_size) {
  return guarded(error, error_size, [&]() -> Status {
    const Call call;
    HVD_RETURN_IF_ERROR(call.check());
    return call.runtime()->release(handle);
  });
}

int hvd_alloc(size_t size, void** memory, char* error, size_t error_size) {
  return guarded(error, error_size, [&]() -> Status {
    if (memory == nullptr) return hvd::invalid_argument("the memory's address is NULL");
    HVD_ASSIGN_OR_RETURN(*memory, heap().allocate(size));
    return {};
  });
}

int hvd_free(void* memory, char* error, size_t error_size) {
  return guarded(error, error_size, [&]() -> Status {
    return heap().release(memory);
  });
}

int32_t hvd_capability(const char* name, char* why, size_t why_size) {
  bool works = false;
  guarded(why, why_size, [&]() -> Status {
    if (name == nullptr) return hvd::invalid_argument("a capability has a name");
    HVD_ASSIGN_OR_RETURN(const hvd::Settings settings, hvd::Settings::from_environment());
    std::string reason;
    if (std::string_view(name) == "mpi-threads") {
      const Call call;
      works = call.runtime() != nullptr && call.runtime()->uses("mpi-threads");
      return works ? Status() : hvd::unavailable(
          "no MPI that was initialised with MPI_THREAD_MULTIPLE is in use");
    }
    works = hvd::runtime::is_capable(name, settings, &reason);
    return works ? Status() : hvd::unavailable(std::move(reason));
  });
  return works ? 1 : 0;
}

}  // extern "C"
