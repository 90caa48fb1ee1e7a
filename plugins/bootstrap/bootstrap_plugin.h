// A bootstrap plugin written in C++: what it must be able to do, and how that becomes the C record
// of plugin.h. One object for each time that a runtime starts, used by one thread.
#pragma once

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>

#include "base/bytes.h"
#include "base/c_status.h"
#include "base/result.h"
#include "horovod/plugin.h"

namespace hvd::bootstrap {

class Source {
 public:
  virtual ~Source() = default;
  // The others of *identity stay -1 where they are not known.
  virtual Status identity(hvd_identity* identity) = 0;
  virtual Status put(std::string_view key, ByteView value) = 0;
  // After a fence.
  virtual Result<Bytes> get(std::string_view key, double timeout_seconds) = 0;
  virtual Status fence(double timeout_seconds) = 0;
};

// What one plugin is: why it cannot work on this machine (nullptr or empty: it can), and the
// source of this process, where kFailedPrecondition says that it was started by somebody else.
template <typename Plugin>
struct Record {
  static int probe(char* why, size_t size) {
    return told(why, size, [] { return Plugin::probe(); }) == HVD_OK ? 1 : 0;
  }
  static int open(const hvd_plugin_host*, const hvd_plugin_config*, void** context, char* error,
                  size_t size) {
    return told(error, size, [&]() -> Status {
      auto source = Plugin::open();
      if (!source.ok()) return source.status();
      *context = source->release();
      return {};
    });
  }
  static void close(void* context) { delete static_cast<Source*>(context); }

  static int identity(void* context, hvd_identity* identity, char* error, size_t size) {
    return told(error, size, [&] { return of(context).identity(identity); });
  }
  static int put(void* context, const char* key, const void* value, size_t value_size, char* error,
                 size_t size) {
    return told(error, size, [&] {
      return of(context).put(key, {static_cast<const std::byte*>(value), value_size});
    });
  }
  static int get(void* context, const char* key, void* value, size_t capacity, size_t* value_size,
                 double timeout, char* error, size_t size) {
    return told(error, size, [&]() -> Status {
      auto found = of(context).get(key, timeout);
      if (!found.ok()) return found.status();
      *value_size = found->size();
      if (!found->empty()) std::memcpy(value, found->data(), std::min(capacity, found->size()));
      return {};
    });
  }
  static int fence(void* context, double timeout, char* error, size_t size) {
    return told(error, size, [&] { return of(context).fence(timeout); });
  }

  static const hvd_plugin* record() {
    static const hvd_bootstrap_v1 vtable{sizeof(hvd_bootstrap_v1), identity, put, get, fence,
                                         nullptr};
    static const hvd_plugin plugin{sizeof(hvd_plugin), HVD_PLUGIN_ABI,   HVD_PLUGIN_BOOTSTRAP,
                                   Plugin::kName,      Plugin::kPriority, HVD_THREADS_ONE,
                                   0,                  probe,             open,
                                   close,              &vtable};
    return &plugin;
  }

 private:
  static Source& of(void* context) { return *static_cast<Source*>(context); }
};

}  // namespace hvd::bootstrap

// Once, at the end of a plugin's source.
#define HVD_BOOTSTRAP_PLUGIN(Plugin)                                        \
  extern "C" __attribute__((visibility("default"))) const hvd_plugin*       \
  hvd_plugin_entry_v1(void) {                                               \
    return hvd::bootstrap::Record<Plugin>::record();                        \
  }
