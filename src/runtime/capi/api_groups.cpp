// The functions of the C ABI for groups.
#include <cstdint>
#include <vector>

#include "horovod/horovod.h"
#include "runtime/capi/api_call.h"

namespace {

using hvd::Status;
using hvd::runtime::api::ApiCall;
using hvd::runtime::api::copy_sized;
using hvd::runtime::api::guarded;

}  // namespace

extern "C" {

int hvd_group_create(const int32_t* ranks, uint32_t count, const char* name, int32_t* group,
                     char* error, size_t error_size) {
  return guarded(error, error_size, [&]() -> Status {
    ApiCall call;
    HVD_RETURN_IF_ERROR(call.check());
    if (group == nullptr) return hvd::invalid_argument("the address of the group is NULL");
    if (ranks == nullptr && count > 0) return hvd::invalid_argument("the ranks are NULL");
    return call.runtime()->create_group({ranks, ranks + count}, name == nullptr ? "" : name, group);
  });
}

int hvd_group_destroy(int32_t group, char* error, size_t error_size) {
  return guarded(error, error_size, [&]() -> Status {
    ApiCall call;
    HVD_RETURN_IF_ERROR(call.check());
    return call.runtime()->destroy_group(group);
  });
}

int hvd_group_submit(const hvd_group_call* call, hvd_handle* handle, char* error,
                     size_t error_size) {
  return guarded(error, error_size, [&]() -> Status {
    ApiCall api;
    HVD_RETURN_IF_ERROR(api.check());
    if (handle == nullptr) return hvd::invalid_argument("the address of the handle is NULL");
    hvd_group_call whole;
    HVD_RETURN_IF_ERROR(copy_sized(call, sizeof call->struct_size, &whole));
    return api.runtime()->submit_group_call(whole, handle);
  });
}

}  // extern "C"
