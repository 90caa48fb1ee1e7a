// Makes the C record of a bootstrap plugin from a C++ class. One object serves one call of hvd_init, or several calls
// with lists of ranks. One thread at a time.
#pragma once

#include <algorithm>
#include <cstring>
#include <string>
#include <string_view>

#include "base/bytes.h"
#include "base/plugin_record.h"

namespace hvd::bootstrap {

// Returns the number of seconds after which a waiting rank warns of the missing ranks.
inline double quiet_seconds(double timeout_seconds) { return std::min(60.0, timeout_seconds / 2); }

// Writes one line to this process's log, as a warning.
inline void warn(const hvd_plugin_host& host, const std::string& sentence) {
  host.log(host.host, 3, sentence.c_str());
}

class Source {
 public:
  virtual ~Source() = default;
  // Sets *identity. Members that the launcher does not provide stay -1.
  virtual Status identity(hvd_identity* identity) = 0;
  virtual Status put(std::string_view key, ByteView value) = 0;
  // The runtime calls get() after a fence.
  virtual Result<Bytes> get(std::string_view key, double timeout_seconds) = 0;
  // The runtime calls get_from() without a fence, in plugins with kGetsFromRanks.
  virtual Result<Bytes> get_from(int32_t, std::string_view, double) {
    return unimplemented("all ranks must start");
  }
  virtual Status fence(double timeout_seconds) = 0;
};

// The class Plugin has the members that PluginRecord needs, and declares kGetsFromRanks if get_from works. Its open()
// returns kFailedPrecondition if another launcher started the process.
template <typename Plugin>
struct BootstrapRecord {
  using Record = PluginRecord<Plugin, Source>;
  static constexpr bool kGetsFromRanks = requires { Plugin::kGetsFromRanks; };
  static Source& self(void* context) { return Record::self(context); }

  static int identity(void* context, hvd_identity* identity, char* error, size_t size) {
    return c_call(error, size, [&] { return self(context).identity(identity); });
  }
  static int put(void* context, const char* key, const void* value, size_t value_size, char* error,
                 size_t size) {
    return c_call(error, size, [&] {
      return self(context).put(key, {static_cast<const std::byte*>(value), value_size});
    });
  }
  static int get(void* context, const char* key, void* value, size_t capacity, size_t* value_size,
                 double timeout, char* error, size_t size) {
    return copy([&] { return self(context).get(key, timeout); }, value, capacity, value_size, error,
                size);
  }
  static int get_from(void* context, int32_t rank, const char* key, void* value, size_t capacity,
                      size_t* value_size, double timeout, char* error, size_t size) {
    return copy([&] { return self(context).get_from(rank, key, timeout); }, value, capacity,
                value_size, error, size);
  }
  template <typename Get>
  static int copy(Get get, void* value, size_t capacity, size_t* value_size, char* error,
                  size_t size) {
    return c_call(error, size, [&]() -> Status {
      auto found = get();
      if (!found.ok()) return found.status();
      *value_size = found->size();
      if (!found->empty()) std::memcpy(value, found->data(), std::min(capacity, found->size()));
      return {};
    });
  }
  static int fence(void* context, double timeout, char* error, size_t size) {
    return c_call(error, size, [&] { return self(context).fence(timeout); });
  }

  static constexpr hvd_bootstrap_v1 kVtable = {.struct_size = sizeof(hvd_bootstrap_v1),
                                               .identity = identity,
                                               .put = put,
                                               .get = get,
                                               .fence = fence,
                                               .secret = nullptr,
                                               .get_from = kGetsFromRanks ? get_from : nullptr};
  static constexpr hvd_plugin kRecord = Record::of(HVD_PLUGIN_BOOTSTRAP, &kVtable);
};

}  // namespace hvd::bootstrap
