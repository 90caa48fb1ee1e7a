#include "plugin/library.h"

#include <array>
#include <cstring>
#include <span>

#include "base/check.h"
#include "base/shared_library.h"
#include "base/text.h"

namespace hvd::plugin {
namespace {

// The functions that the vtable of each kind must have, in the order of its members after struct_size.
// Later functions, and functions with the entry "", may be missing.
constexpr std::array kOfBootstrap = {"identity", "put", "get", "fence"};
constexpr std::array kOfController = {"send",  "poll",         "abort",
                                      "hosts", "before_sleep", "after_sleep"};
constexpr std::array kOfOp = {"supports", "run", "poll", "", "", "abort"};

std::span<const char* const> needed_functions(uint32_t kind) {
  switch (kind) {
    case HVD_PLUGIN_BOOTSTRAP:
      return kOfBootstrap;
    case HVD_PLUGIN_CONTROLLER:
      return kOfController;
    case HVD_PLUGIN_OP:
      return kOfOp;
    default:
      return {};
  }
}

Status check_functions(const void* table, std::span<const char* const> needed) {
  size_t reach = 0;
  std::memcpy(&reach, table, sizeof reach);
  using Function = void (*)();
  for (size_t i = 0; i < needed.size(); ++i) {
    const size_t place = sizeof reach + i * sizeof(Function);
    Function function = nullptr;
    if (reach >= place + sizeof function) {
      std::memcpy(&function, static_cast<const char*>(table) + place, sizeof function);
    }
    if (function == nullptr && *needed[i] != '\0') {
      return invalid_argument(
          cat("the plugin's table, of struct_size ", reach, ", has no function ", needed[i]));
    }
  }
  return {};
}

}  // namespace

Result<const hvd_plugin*> load(const std::string& path) {
  HVD_ASSIGN_OR_RETURN(const SharedLibrary library, SharedLibrary::open(path));
  const auto entry = reinterpret_cast<hvd_plugin_entry>(library.symbol(HVD_PLUGIN_ENTRY_SYMBOL));
  if (entry == nullptr) {
    return invalid_argument(
        cat(path, " is no plugin of this version: it does not export ", HVD_PLUGIN_ENTRY_SYMBOL));
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
  if (record->threads > HVD_THREADS_ONE) {
    return invalid_argument(cat("the plugin's record has threads ", record->threads,
                                ", but this library offers only 0 (HVD_THREADS_ANY) and 1 "
                                "(HVD_THREADS_ONE): build the plugin with one of these"));
  }
  if (record->name == nullptr || record->open == nullptr || record->close == nullptr ||
      record->vtable == nullptr) {
    return invalid_argument("the plugin's record lacks its name, open, close or vtable");
  }
  return check_functions(record->vtable, needed_functions(record->kind));
}

Status probe(const hvd_plugin& record) {
  char why[512] = "";
  if (record.probe == nullptr || record.probe(why, sizeof why) == 1) return {};
  return unavailable(why[0] != '\0' ? why : "its probe says no, without a reason");
}

}  // namespace hvd::plugin
