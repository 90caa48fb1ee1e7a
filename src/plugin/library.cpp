#include "plugin/library.h"

#include "base/check.h"
#include "base/shared_library.h"
#include "base/text.h"

namespace hvd::plugin {

Result<const hvd_plugin*> load(const std::string& path) {
  HVD_ASSIGN_OR_RETURN(const SharedLibrary library, SharedLibrary::open(path));
  const auto entry =
      reinterpret_cast<hvd_plugin_entry>(library.symbol(HVD_PLUGIN_ENTRY_SYMBOL));
  if (entry == nullptr) {
    return invalid_argument(cat(path, " is no plugin of this version: it does not export ",
                                HVD_PLUGIN_ENTRY_SYMBOL));
  }
  const hvd_plugin* record = entry();
  if (Status status = check_record(record); !status.ok()) return status.with_context(path);
  return record;
}

Status check_record(const hvd_plugin* record) {
  if (record == nullptr) return invalid_argument("the plugin gave no record");
  if (record->struct_size < sizeof(hvd_plugin)) {
    return invalid_argument(cat("the plugin's record has ", record->struct_size,
                                " bytes where at least ", sizeof(hvd_plugin), " are needed"));
  }
  if (record->abi != HVD_PLUGIN_ABI) {
    return invalid_argument(cat("the plugin speaks plugin ABI ", record->abi,
                                ", this library speaks ", HVD_PLUGIN_ABI));
  }
  if (record->kind < HVD_PLUGIN_BOOTSTRAP || record->kind > HVD_PLUGIN_FRAMEWORK) {
    return invalid_argument(cat("the plugin is of kind ", record->kind, ", which is unknown"));
  }
  if (record->name == nullptr || record->probe == nullptr || record->open == nullptr ||
      record->close == nullptr || record->vtable == nullptr) {
    return invalid_argument("the plugin's record lacks its name, probe, open, close or vtable");
  }
  return {};
}

}  // namespace hvd::plugin
