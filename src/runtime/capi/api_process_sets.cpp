// The functions of the C ABI for process sets and groups.
#include <algorithm>
#include <numeric>
#include <vector>

#include "base/text.h"
#include "horovod/horovod.h"
#include "runtime/capi/api_call.h"

namespace {

using hvd::Status;
using hvd::runtime::Runtime;
using hvd::runtime::SetMembers;
using hvd::runtime::api::ApiCall;
using hvd::runtime::api::copy_sized;
using hvd::runtime::api::guarded;
using hvd::runtime::api::state;
using hvd::runtime::api::with_runtime;

// Calls use(set) for the process set `id`; returns an error if the set does not exist.
template <typename Use>
int with_set(int32_t id, char* error, size_t error_size, Use&& use) {
  return guarded(error, error_size, [&]() -> Status {
    ApiCall call;
    if (const auto* const place = state.provisional.load(); place != nullptr && id == 0) {
      SetMembers all{.name = {},
                     .ranks = std::vector<int32_t>(static_cast<size_t>(place->size)),
                     .index = place->rank};
      std::iota(all.ranks.begin(), all.ranks.end(), 0);
      return use(all);
    }
    if (Status status = call.check(); !status.ok()) return status;
    const auto set = call.runtime()->process_sets().find(id);
    if (set == nullptr) {
      return hvd::not_found(hvd::cat("Process set provided does not exist: ", id));
    }
    return use(*set);
  });
}

void copy_out(const std::vector<int32_t>& from, int32_t* to, uint32_t room, uint32_t* count) {
  if (to != nullptr) std::copy_n(from.begin(), std::min<size_t>(from.size(), room), to);
  if (count != nullptr) *count = static_cast<uint32_t>(from.size());
}

}  // namespace

extern "C" {

int hvd_add_process_set(const int32_t* ranks, uint32_t count, hvd_handle* handle, char* error,
                        size_t error_size) {
  return with_runtime(error, error_size, [&](Runtime& runtime) -> Status {
    if (handle == nullptr || (ranks == nullptr && count > 0)) {
      return hvd::invalid_argument("the handle's address or the ranks are NULL");
    }
    return runtime.add_process_set({ranks, ranks + count}, handle);
  });
}

int hvd_add_named_process_set(const char* name, const int32_t* ranks, uint32_t count,
                              hvd_handle* handle, char* error, size_t error_size) {
  return with_runtime(error, error_size, [&](Runtime& runtime) -> Status {
    if (name == nullptr || handle == nullptr || (ranks == nullptr && count > 0)) {
      return hvd::invalid_argument("the name, the handle's address or the ranks are NULL");
    }
    return runtime.add_named_set(name, {ranks, ranks + count}, handle);
  });
}

int hvd_remove_process_set(int32_t process_set, hvd_handle* handle, char* error,
                           size_t error_size) {
  return with_runtime(error, error_size, [&](Runtime& runtime) -> Status {
    if (handle == nullptr) return hvd::invalid_argument("the handle's address is NULL");
    return runtime.remove_process_set(process_set, handle);
  });
}

int hvd_process_set_rank(int32_t process_set, int32_t* rank, char* error, size_t error_size) {
  return with_set(process_set, error, error_size, [&](const SetMembers& set) -> Status {
    if (set.index < 0) {
      return hvd::invalid_argument(
          hvd::cat("this rank is not a member of process set ", process_set));
    }
    if (rank != nullptr) *rank = set.index;
    return {};
  });
}

int hvd_process_set_size(int32_t process_set, int32_t* size, char* error, size_t error_size) {
  return with_set(process_set, error, error_size, [&](const SetMembers& set) -> Status {
    if (size != nullptr) *size = set.size();
    return {};
  });
}

int hvd_process_set_included(int32_t process_set, int32_t* included, char* error,
                             size_t error_size) {
  return with_set(process_set, error, error_size, [&](const SetMembers& set) -> Status {
    if (included != nullptr) *included = set.index >= 0 ? 1 : 0;
    return {};
  });
}

int hvd_process_set_ranks(int32_t process_set, int32_t* ranks, uint32_t room, uint32_t* count,
                          char* error, size_t error_size) {
  return with_set(process_set, error, error_size, [&](const SetMembers& set) -> Status {
    copy_out(set.ranks, ranks, room, count);
    return {};
  });
}

int hvd_process_set_ids(int32_t* ids, uint32_t room, uint32_t* count, char* error,
                        size_t error_size) {
  return with_runtime(error, error_size, [&](Runtime& runtime) -> Status {
    copy_out(runtime.process_sets().ids(), ids, room, count);
    return {};
  });
}

int hvd_process_set_count(int32_t* count, char* error, size_t error_size) {
  uint32_t all = 0;
  const int code = hvd_process_set_ids(nullptr, 0, &all, error, error_size);
  if (count != nullptr) *count = static_cast<int32_t>(all);
  return code;
}

int hvd_group_create(const int32_t* ranks, uint32_t count, const char* name, int32_t* group,
                     char* error, size_t error_size) {
  return with_runtime(error, error_size, [&](Runtime& runtime) -> Status {
    if (group == nullptr) return hvd::invalid_argument("the address of the group is NULL");
    if (ranks == nullptr && count > 0) return hvd::invalid_argument("the ranks are NULL");
    return runtime.create_group({ranks, ranks + count}, name == nullptr ? "" : name, group);
  });
}

int hvd_group_destroy(int32_t group, char* error, size_t error_size) {
  return with_runtime(error, error_size,
                      [&](Runtime& runtime) -> Status { return runtime.destroy_group(group); });
}

int hvd_group_submit(const hvd_group_call* call, hvd_handle* handle, char* error,
                     size_t error_size) {
  return with_runtime(error, error_size, [&](Runtime& runtime) -> Status {
    if (handle == nullptr) return hvd::invalid_argument("the address of the handle is NULL");
    hvd_group_call whole;
    HVD_RETURN_IF_ERROR(copy_sized(call, sizeof call->struct_size, &whole));
    return runtime.submit_group_call(whole, handle);
  });
}

}  // extern "C"
