// The functions of libnccl and of the CUDA runtime, or of librccl and HIP, which open_api loads at run time. Immutable
// once made; any thread.
#pragma once

#include <string>

#include "base/result.h"
#include "base/shared_library.h"
#include "ops/nccl/abi.h"

namespace hvd::ops::nccl {

struct NcclFunctions {
  SymbolFinder find;

  abi::GetVersion* get_version = find("GetVersion");
  abi::GetUniqueId* get_unique_id = find("GetUniqueId");
  abi::GetErrorString* get_error_string = find("GetErrorString");
  abi::CommInitRank* comm_init_rank = find("CommInitRank");
  abi::CommDestroy* comm_destroy = find("CommDestroy");
  abi::CommAbort* comm_abort = find("CommAbort");
  abi::CommGetAsyncError* comm_get_async_error = find("CommGetAsyncError");
  abi::GroupStart* group_start = find("GroupStart");
  abi::GroupEnd* group_end = find("GroupEnd");
  abi::AllReduce* all_reduce = find("AllReduce");
  abi::Reduce* reduce = find("Reduce");
  abi::Broadcast* broadcast = find("Broadcast");
  abi::ReduceScatter* reduce_scatter = find("ReduceScatter");
  abi::AllGather* all_gather = find("AllGather");
  abi::Send* send = find("Send");
  abi::Recv* recv = find("Recv");
  // The next four are nullptr in versions before 2.14, 2.13, 2.11 and 2.11.
  abi::CommInitRankConfig* comm_init_rank_config = find.may("CommInitRankConfig");
  abi::GetLastError* get_last_error = find.may("GetLastError");
  abi::RedOpCreatePreMulSum* red_op_create_pre_mul_sum = find.may("RedOpCreatePreMulSum");
  abi::RedOpDestroy* red_op_destroy = find.may("RedOpDestroy");
};

// The functions of the CUDA runtime or of HIP.
struct RuntimeFunctions {
  SymbolFinder find;
  bool is_cuda;

  abi::GetDeviceCount* get_device_count = find("GetDeviceCount");
  abi::SetDevice* set_device = find("SetDevice");
  abi::GetDevice* get_device = find("GetDevice");
  abi::DeviceGetStreamPriorityRange* device_get_stream_priority_range =
      find("DeviceGetStreamPriorityRange");
  abi::StreamCreateWithPriority* stream_create_with_priority = find("StreamCreateWithPriority");
  abi::StreamDestroy* stream_destroy = find("StreamDestroy");
  abi::StreamSynchronize* stream_synchronize = find("StreamSynchronize");
  abi::StreamWaitEvent* stream_wait_event = find("StreamWaitEvent");
  abi::EventCreateWithFlags* event_create_with_flags = find("EventCreateWithFlags");
  abi::EventRecord* event_record = find("EventRecord");
  abi::EventQuery* event_query = find("EventQuery");
  abi::MallocAsync* malloc_async = find("MallocAsync");
  abi::FreeAsync* free_async = find("FreeAsync");
  abi::MemcpyAsync* memcpy_async = find("MemcpyAsync");
  abi::LaunchHostFunc* launch_host_func = find("LaunchHostFunc");
  abi::ErrorString* error_string = find("GetErrorString");
  // The next members are nullptr if CUDA or HIP lacks the function.
  abi::EventElapsedTime* event_elapsed_time = find.may("EventElapsedTime");
  abi::HostAlloc* host_alloc = find.may("HostAlloc");
  abi::FreeHost* free_host = find.may("FreeHost");
  abi::GetLastDeviceError* get_last_device_error = find.may("GetLastError");
  // nullptr for HIP, because some of its versions have no UUID in the properties. HIP has hipDeviceGetUuid instead.
  abi::GetDeviceProperties* get_device_properties =
      is_cuda ? find.may("GetDeviceProperties") : SymbolFinder::Symbol{nullptr};
  abi::DeviceGetUuid* device_get_uuid = find.may("DeviceGetUuid");
  abi::DeviceGetPciBusId* device_get_pci_bus_id = find.may("DeviceGetPCIBusId");
  abi::ThreadExchangeStreamCaptureMode* thread_exchange_stream_capture_mode =
      find.may("ThreadExchangeStreamCaptureMode");
};

struct NcclApi : NcclFunctions, RuntimeFunctions {
  std::string family;                                          // "NCCL" or "RCCL"
  std::string library = NcclFunctions::find.library().path();  // path or name of libnccl
  std::string runtime =
      RuntimeFunctions::find.library().path();  // path or name of the CUDA runtime
  int version = 0;                              // 21805 is 2.18.5

  // Returns, for example, "NCCL 2.18.5".
  std::string title() const;
  // Returns the UUID of a device, in hexadecimal, and the PCI address of its GPU; empty: unknown.
  std::string uuid_of(int device) const;
  std::string bus_of(int device) const;
  // Converts the result of a call. An error has the function, the library's message, and a remedy if known.
  Status of_nccl(int result, const char* what, abi::Comm* comm = nullptr) const;
  Status of_device(int error, const char* what) const;
};

// Opens the libraries in HOROVOD_NCCL_LIBRARY and HOROVOD_CUDA_LIBRARY, else those that this process has
// already loaded, else the usual ones. If one is missing or lacks a function, returns an error with the
// remedy. Calls no function of the CUDA runtime.
Result<NcclApi> open_api();

}  // namespace hvd::ops::nccl
