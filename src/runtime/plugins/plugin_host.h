// Implements hvd_plugin_host (plugin.h) over settings, store and wake-ups. Class Runtime owns one
// PluginHost for all plugins. Plugins may call the host on any thread.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/result.h"
#include "base/settings.h"
#include "base/text.h"
#include "horovod/plugin.h"
#include "horovod/plugin_framework.h"
#include "net/event_loop.h"
#include "rendezvous/store/store.h"

namespace hvd::runtime {

// Owns an opened plugin, and closes it in the destructor.
class OpenedPlugin {
 public:
  static Result<OpenedPlugin> open(const hvd_plugin* record, const hvd_plugin_host* host,
                                   const hvd_plugin_config& config) {
    void* context = nullptr;
    char error[1024] = "";
    const int code = record->open(host, &config, &context, error, sizeof error);
    if (code == HVD_OK) return OpenedPlugin(record, context);
    return Status(static_cast<Code>(code),
                  error[0] != '\0' ? error : cat("the plugin ", record->name, " did not open"));
  }
  // Wraps a plugin that the caller has opened; its record has close and a vtable.
  static OpenedPlugin made(const hvd_plugin* record, void* context) {
    return OpenedPlugin(record, context);
  }
  OpenedPlugin(OpenedPlugin&& other) noexcept
      : record_(std::exchange(other.record_, nullptr)), context_(other.context_) {}
  OpenedPlugin& operator=(OpenedPlugin&&) = delete;
  ~OpenedPlugin() {
    if (record_ != nullptr) record_->close(context_);
  }

  const hvd_plugin& record() const { return *record_; }
  void* context() const { return context_; }
  template <typename Vtable>
  const Vtable& vtable() const {
    return *static_cast<const Vtable*>(record_->vtable);
  }

 private:
  OpenedPlugin(const hvd_plugin* record, void* context) : record_(record), context_(context) {}
  const hvd_plugin* record_;
  void* context_;
};

class PluginHost {
 public:
  // `store` is nullptr in a single-process job. Keys are stored below `prefix`.
  PluginHost(Settings settings, std::shared_ptr<rendezvous::Store> store, std::string prefix,
             bool rank_serves_store, net::EventLoop* events);

  const hvd_plugin_host* vtable() const { return &vtable_; }

  // Interfaces that plugins have published, by name.
  std::map<std::string, void*> published();

  // Removes this start's records from the store, so that the next program of the same job does not
  // find them. One rank calls this function, after all ranks have connected.
  void remove_bootstrap_records();

  // Returns the framework interface that an op plugin has published. If the interface is nullptr,
  // work on devices is refused.
  const hvd_framework* framework() {
    return static_cast<const hvd_framework*>(vtable_.lookup(this, HVD_FRAMEWORK_OF_DEVICES));
  }

  bool has_posted() const { return has_posted_.load(); }
  // Runs the calls that plugins have posted; returns true if any call was posted.
  bool run_posted();
  // Returns one cause of the failed links for all ranks that still reach the store: the error that the first of
  // them stored, possibly this rank's. Otherwise each end of a broken link would name the other end.
  Status first_cause(const Status& found);

 private:
  struct Posted {
    void (*callback)(void*);
    void* argument;
  };
  static PluginHost& self(void* host) { return *static_cast<PluginHost*>(host); }
  const char* setting(const char* variable);
  int store_set(const char* key, const void* value, size_t size);
  int store_get(const char* key, void* value, size_t capacity, size_t* size, double timeout);
  using OnRecord = void (*)(void* argument, const void* record, size_t size);
  int store_exchange(const char* name, const rendezvous::Party& party, ByteView record,
                     double timeout, OnRecord on_record, void* argument);
  void post(void (*callback)(void*), void* argument);

  const Settings settings_;
  const std::shared_ptr<rendezvous::Store> store_;
  const bool rank_serves_store_;
  const std::string prefix_;
  net::EventLoop* const events_;
  hvd_plugin_host vtable_{};
  std::atomic<bool> has_posted_{false};

  Mutex mutex_;
  std::map<std::string, std::string> strings_ HVD_GUARDED_BY(mutex_);
  std::map<std::string, void*> published_ HVD_GUARDED_BY(mutex_);
  std::vector<std::string> exchanged_ HVD_GUARDED_BY(mutex_);
  std::vector<Posted> posted_ HVD_GUARDED_BY(mutex_);
};

}  // namespace hvd::runtime
