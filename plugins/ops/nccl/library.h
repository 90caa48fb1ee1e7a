// The functions of libnccl and of the CUDA runtime, or of librccl and HIP, which open_api loads at run
// time. The plugin opens the libraries; each NcclThread copies NcclApi. Immutable once made; any thread.
#pragma once

#include <string>

#include "base/result.h"
#include "base/shared_library.h"
#include "ops/nccl/abi.h"

namespace hvd::ops::nccl {

struct NcclApi {
  std::string family;   // "NCCL" or "RCCL"
  std::string library;  // path or name of libnccl
  std::string runtime;  // path or name of the CUDA runtime
  int version = 0;      // 21805 is 2.18.5

  abi::GetVersion* get_version;
  abi::GetUniqueId* get_unique_id;
  abi::GetErrorString* get_error_string;
  abi::CommInitRank* comm_init_rank;
  abi::CommDestroy* comm_destroy;
  abi::CommAbort* comm_abort;
  abi::CommGetAsyncError* comm_get_async_error;
  abi::GroupStart* group_start;
  abi::GroupEnd* group_end;
  abi::AllReduce* all_reduce;
  abi::Reduce* reduce;
  abi::Broadcast* broadcast;
  abi::ReduceScatter* reduce_scatter;
  abi::AllGather* all_gather;
  abi::Send* send;
  abi::Recv* recv;
  // The next four are nullptr in versions before 2.14, 2.13, 2.11 and 2.11.
  abi::CommInitRankConfig* comm_init_rank_config;
  abi::GetLastError* get_last_error;
  abi::RedOpCreatePreMulSum* red_op_create_pre_mul_sum;
  abi::RedOpDestroy* red_op_destroy;

  abi::GetDeviceCount* get_device_count;
  abi::SetDevice* set_device;
  abi::GetDevice* get_device;
  abi::DeviceGetStreamPriorityRange* device_get_stream_priority_range;
  abi::StreamCreateWithPriority* stream_create_with_priority;
  abi::StreamDestroy* stream_destroy;
  abi::StreamSynchronize* stream_synchronize;
  abi::StreamWaitEvent* stream_wait_event;
  abi::EventCreateWithFlags* event_create_with_flags;
  abi::EventRecord* event_record;
  abi::EventQuery* event_query;
  abi::MallocAsync* malloc_async;
  abi::FreeAsync* free_async;
  abi::MemcpyAsync* memcpy_async;
  abi::LaunchHostFunc* launch_host_func;
  abi::ErrorString* error_string;
  // The next members are nullptr if CUDA or HIP lacks the function.
  abi::EventElapsedTime* event_elapsed_time;
  abi::HostAlloc* host_alloc;
  abi::FreeHost* free_host;
  abi::GetLastDeviceError* get_last_device_error;
  abi::GetDeviceProperties* get_device_properties;
  abi::DeviceGetUuid* device_get_uuid;
  abi::DeviceGetPciBusId* device_get_pci_bus_id;
  abi::ThreadExchangeStreamCaptureMode* thread_exchange_stream_capture_mode;

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
