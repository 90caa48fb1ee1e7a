// Makes the C record of a plugin from a C++ class, for all kinds of plugins.
//
// The class Plugin has kName, kPriority, probe() and open(host, config). probe() returns an error if the plugin cannot
// work here. open() returns a Result of a unique_ptr<Context>; all further calls receive this object.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/status.h"
#include "horovod/plugin.h"

namespace hvd {

template <typename Plugin, typename Context>
struct PluginRecord {
  static Context& self(void* context) { return *static_cast<Context*>(context); }

  static int probe(char* why, size_t size) {
    return c_call(why, size, [] { return Plugin::probe(); }) == HVD_OK ? 1 : 0;
  }
  static int open(const hvd_plugin_host* host, const hvd_plugin_config* config, void** context,
                  char* error, size_t size) {
    return c_call(error, size, [&]() -> Status {
      HVD_ASSIGN_OR_RETURN(std::unique_ptr<Context> opened, Plugin::open(*host, *config));
      *context = opened.release();
      return {};
    });
  }
  static void close(void* context) { delete &self(context); }
  // Implements abort, for plugin kinds whose vtable has it.
  static void abort(void* context, const char* cause) {
    self(context).abort(aborted(cause == nullptr ? "" : cause));
  }

  static constexpr hvd_plugin of(hvd_plugin_kind kind, const void* vtable) {
    return {.struct_size = sizeof(hvd_plugin),
            .abi = HVD_PLUGIN_ABI,
            .kind = kind,
            .name = Plugin::kName,
            .priority = Plugin::kPriority,
            .threads = HVD_THREADS_ONE,
            .reserved = 0,
            .probe = probe,
            .open = open,
            .close = close,
            .vtable = vtable};
  }
};

// Returns a member of a C record; 0 or nullptr if an older binary made the record and it ends before the member.
template <typename Record, typename Field>
Field field_of(const Record& record, Field Record::*field) {
  const auto* const end = reinterpret_cast<const char*>(&(record.*field) + 1);
  return end <= reinterpret_cast<const char*>(&record) + record.struct_size ? record.*field
                                                                            : Field{};
}

// Exchanges records through the job's store, and returns the status of store_exchange. `wanted`: the parties whose
// records are appended to `records`; empty: all. Record: std::string or Bytes.
template <typename Record>
int exchange_records(const hvd_plugin_host& host, const std::string& name, int32_t index,
                     int32_t count, std::string_view record, std::span<const int32_t> wanted,
                     double seconds, std::vector<Record>* records) {
  const auto take = [](void* to, const void* bytes, size_t size) {
    const auto* const first = static_cast<const typename Record::value_type*>(bytes);
    static_cast<std::vector<Record>*>(to)->emplace_back(first, first + size);
  };
  return host.store_exchange(host.host, name.c_str(), index, count, record.data(), record.size(),
                             wanted.data(), static_cast<int32_t>(wanted.size()), seconds, take,
                             records);
}

}  // namespace hvd

// Exports the record of a plugin. Use this macro once, at the end of a plugin's source. The argument is the class that
// has kRecord.
#define HVD_PLUGIN_ENTRY(...)                                                                    \
  extern "C" __attribute__((visibility("default"))) const hvd_plugin* hvd_plugin_entry_v1(void); \
  extern "C" const hvd_plugin* hvd_plugin_entry_v1(void) { return &__VA_ARGS__::kRecord; }
