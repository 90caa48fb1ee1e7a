#include "runtime/plugins/plugin_host.h"

#include <sys/epoll.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/log/log.h"

namespace hvd::runtime {
namespace {

constexpr double kSetSeconds = 60;
constexpr const char* kFirstCause = "first-cause";
// Time limit for the store after a failure: a store that a rank serves often ends with the
// failure.
constexpr double kCauseSeconds = 0.5;
constexpr double kCauseSecondsOfRank = 0.05;

// Converts a status to a code, and logs the error, since the plugin gets only the code. Logs neither a
// timeout, since the caller may wait again, nor an interruption, which has its own message.
int code_of(const Status& status, const char* name) {
  const bool is_awaited =
      status.code() == Code::kDeadlineExceeded || status.code() == Code::kAborted;
  if (!status.ok() && !is_awaited) {
    log::error(cat("store: ", name, ": ", status.message()));
  }
  return static_cast<int>(status.code());
}

void write_log(void*, int level, const char* message) {
  const int clamped = std::clamp(level, 0, static_cast<int>(log::Level::kError));
  log::write(static_cast<log::Level>(clamped), message);
}

}  // namespace

PluginHost::PluginHost(Settings settings, std::shared_ptr<rendezvous::Store> store,
                       std::string prefix, bool rank_serves_store, net::EventLoop* events)
    : settings_(std::move(settings)),
      store_(std::move(store)),
      rank_serves_store_(rank_serves_store),
      prefix_(std::move(prefix)),
      events_(events) {
  vtable_.struct_size = sizeof vtable_;
  vtable_.host = this;
  vtable_.log = &write_log;
  vtable_.setting = [](void* host, const char* variable) { return self(host).setting(variable); };
  vtable_.store_set = [](void* host, const char* key, const void* value, size_t size) {
    return self(host).store_set(key, value, size);
  };
  vtable_.store_get = [](void* host, const char* key, void* value, size_t capacity, size_t* size,
                         double timeout) {
    return self(host).store_get(key, value, capacity, size, timeout);
  };
  vtable_.store_exchange = [](void* host, const char* name, int32_t index, int32_t count,
                              const void* record, size_t size, const int32_t* wanted,
                              int32_t wanted_count, double timeout, OnRecord on_record,
                              void* argument) {
    const rendezvous::Party party{index, count, {wanted, wanted + wanted_count}};
    return self(host).store_exchange(name, party, {static_cast<const std::byte*>(record), size},
                                     timeout, on_record, argument);
  };
  vtable_.post = [](void* host, void (*callback)(void*), void* argument) {
    self(host).post(callback, argument);
  };
  vtable_.watch = [](void* host, int fd, void (*callback)(void*), void* argument) {
    const bool is_watched = self(host).events_->watch(
        fd, EPOLLIN, [callback, argument](uint32_t) { callback(argument); });
    const Status failure =
        is_watched ? Status() : system_error(cat("cannot watch descriptor ", fd), errno);
    return static_cast<int>(failure.code());
  };
  vtable_.unwatch = [](void* host, int fd) { self(host).events_->unwatch(fd); };
  // Always fails: this host provides no shared memory.
  vtable_.allocate = [](void*, size_t) -> void* { return nullptr; };
  vtable_.release = [](void*, void*) {};
  vtable_.publish = [](void* host, const char* name, void* pointer) {
    MutexLock lock(self(host).mutex_);
    self(host).published_[name] = pointer;
    return static_cast<int>(HVD_OK);
  };
  vtable_.lookup = [](void* host, const char* name) -> void* {
    MutexLock lock(self(host).mutex_);
    const auto found = self(host).published_.find(name);
    return found == self(host).published_.end() ? nullptr : found->second;
  };
}

const char* PluginHost::setting(const char* variable) {
  std::optional<std::string> value;
  bool known = false;
  for (const Setting& entry : all_settings()) {
    if (entry.variable[0] == '\0' || std::string_view(entry.variable) != variable) continue;
    known = true;
    if (settings_.is_set(entry.key)) value = settings_.text(entry.key);
  }
  if (!known) value = environment_variable(variable);
  if (!value) return nullptr;
  MutexLock lock(mutex_);
  return strings_.try_emplace(variable, std::move(*value)).first->second.c_str();
}

std::map<std::string, void*> PluginHost::published() {
  MutexLock lock(mutex_);
  return published_;
}

int PluginHost::store_set(const char* key, const void* value, size_t size) {
  if (!store_) return HVD_FAILED_PRECONDITION;
  const ByteView bytes(static_cast<const std::byte*>(value), size);
  return code_of(store_->set(prefix_ + key, bytes, Deadline::after_seconds(kSetSeconds)), key);
}

int PluginHost::store_get(const char* key, void* value, size_t capacity, size_t* size,
                          double timeout) {
  size_t unused = 0;
  if (size == nullptr) size = &unused;
  *size = 0;
  if (!store_) return HVD_FAILED_PRECONDITION;
  const auto found = store_->wait(prefix_ + key, Deadline::after_seconds(timeout));
  if (!found.ok()) return static_cast<int>(found.error().code());
  *size = found->size();
  const size_t copied = std::min(capacity, found->size());
  if (copied > 0) std::memcpy(value, found->data(), copied);
  return HVD_OK;
}

int PluginHost::store_exchange(const char* name, const rendezvous::Party& party, ByteView record,
                               double timeout, OnRecord on_record, void* argument) {
  if (!store_) return HVD_FAILED_PRECONDITION;
  const auto records =
      store_->exchange(prefix_ + name, party, record, Deadline::after_seconds(timeout));
  if (!records.ok()) return code_of(records.error(), name);
  {
    MutexLock lock(mutex_);
    exchanged_.push_back(prefix_ + name);
  }
  for (const Bytes& one : *records) on_record(argument, one.data(), one.size());
  return HVD_OK;
}

void PluginHost::remove_bootstrap_records() {
  std::vector<std::string> names;
  {
    MutexLock lock(mutex_);
    names.swap(exchanged_);
  }
  if (!store_) return;
  const Deadline deadline = Deadline::after_seconds(kSetSeconds);
  Status status = names.empty() ? Status() : store_->remove(prefix_ + kFirstCause, deadline);
  for (const std::string& name : names) {
    if (status.ok()) status = store_->forget(name, deadline);
  }
  if (!status.ok())
    log::debug(cat("the next program of this job may not meet: ", status.message()));
}

Status PluginHost::first_cause(const Status& found) {
  if (!store_) return found;
  const Bytes record = ByteWriter().put(found.lost_rank()).put_text(found.message()).take();
  const double seconds = rank_serves_store_ ? kCauseSecondsOfRank : kCauseSeconds;
  const auto stored = store_->compare_and_set(prefix_ + kFirstCause, std::nullopt, record,
                                              Deadline::after_seconds(seconds));
  if (!stored.ok()) log::debug(cat("no common cause: ", stored.error().message()));
  if (!stored.ok() || !stored->value) return found;
  ByteReader in(*stored->value);
  const auto lost_rank = in.get<int32_t>();
  Status first(found.code(), in.get_text());
  return in.finish("the first cause").ok() ? first.with_lost_rank(lost_rank) : found;
}

void PluginHost::post(void (*callback)(void*), void* argument) {
  {
    MutexLock lock(mutex_);
    posted_.push_back({callback, argument});
    has_posted_.store(true);
  }
  events_->notify();
}

bool PluginHost::run_posted() {
  if (!has_posted_.load()) return false;
  std::vector<Posted> posted;
  {
    MutexLock lock(mutex_);
    posted.swap(posted_);
    has_posted_.store(false);
  }
  for (const Posted& one : posted) one.callback(one.argument);
  return !posted.empty();
}

}  // namespace hvd::runtime
