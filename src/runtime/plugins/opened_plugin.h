// Owns an opened plugin, and closes it in the destructor.
#pragma once

#include <utility>

#include "base/result.h"
#include "base/text.h"
#include "horovod/plugin.h"

namespace hvd::runtime {

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

}  // namespace hvd::runtime
