// Compares the declarations of NCCL's and the CUDA runtime's binary interface with their headers,
// at compile time only.
#include "ops/nccl/abi.h"

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <cstddef>
#include <type_traits>

namespace {

namespace abi = hvd::ops::nccl::abi;

// Checks that types have the same size and register class: enums are ints, handles are pointers.
template <typename Ours, typename Theirs>
constexpr bool passes_alike() {
  if constexpr (std::is_same_v<Ours, Theirs>) {
    return true;
  } else if constexpr (std::is_pointer_v<Ours> && std::is_pointer_v<Theirs>) {
    return true;
  } else if constexpr (std::is_enum_v<Theirs>) {
    return std::is_integral_v<Ours> && sizeof(Ours) == sizeof(Theirs);
  } else if constexpr (std::is_class_v<Ours> && std::is_class_v<Theirs>) {
    return sizeof(Ours) == sizeof(Theirs) && alignof(Ours) == alignof(Theirs);
  } else {
    return false;
  }
}

template <typename Ours, typename Theirs>
struct Agree : std::false_type {};
template <typename Ours, typename... OurArguments, typename Theirs, typename... TheirArguments>
struct Agree<Ours(OurArguments...), Theirs(TheirArguments...)>
    : std::bool_constant<sizeof...(OurArguments) == sizeof...(TheirArguments)> {};
template <typename Ours, typename Theirs, typename... OurArguments, typename... TheirArguments>
requires(sizeof...(OurArguments) ==
         sizeof...(TheirArguments)) struct Agree<Ours(OurArguments...), Theirs(TheirArguments...)>
    : std::bool_constant<passes_alike<Ours, Theirs>() &&
                         (passes_alike<OurArguments, TheirArguments>() && ...)> {
};

template <typename Ours, typename Theirs>
constexpr bool agree(Theirs*) {
  return Agree<Ours, Theirs>::value;
}

static_assert(abi::kSuccess == ncclSuccess && abi::kInProgress == ncclInProgress);
static_assert(sizeof(abi::UniqueId) == sizeof(ncclUniqueId));
#ifdef NCCL_API_MAGIC  // since 2.29
static_assert(abi::kConfigMagic == NCCL_API_MAGIC);
#endif
static_assert(offsetof(abi::Config, size) == offsetof(ncclConfig_t, size));
static_assert(offsetof(abi::Config, magic) == offsetof(ncclConfig_t, magic));
static_assert(offsetof(abi::Config, version) == offsetof(ncclConfig_t, version));
static_assert(offsetof(abi::Config, blocking) == offsetof(ncclConfig_t, blocking));
static_assert(abi::kConfigVersion == NCCL_VERSION(2, 14, 0) && NCCL_VERSION_CODE >= 21400);
static_assert(abi::kInt8 == int{ncclInt8} && abi::kUint8 == int{ncclUint8});
static_assert(abi::kInt32 == int{ncclInt32} && abi::kUint32 == int{ncclUint32});
static_assert(abi::kInt64 == int{ncclInt64} && abi::kUint64 == int{ncclUint64});
static_assert(abi::kFloat16 == int{ncclFloat16} && abi::kFloat32 == int{ncclFloat32});
static_assert(abi::kFloat64 == int{ncclFloat64} && abi::kBfloat16 == int{ncclBfloat16});
static_assert(abi::kSum == int{ncclSum} && abi::kProduct == int{ncclProd});
static_assert(abi::kMax == int{ncclMax} && abi::kMin == int{ncclMin});
static_assert(abi::kAverage == int{ncclAvg});
static_assert(abi::kScalarInHostMemory == int{ncclScalarHostImmediate});

static_assert(agree<abi::GetVersion>(ncclGetVersion));
static_assert(agree<abi::GetUniqueId>(ncclGetUniqueId));
static_assert(agree<abi::GetErrorString>(ncclGetErrorString));
static_assert(agree<abi::GetLastError>(ncclGetLastError));
static_assert(agree<abi::CommInitRank>(ncclCommInitRank));
static_assert(agree<abi::CommInitRankConfig>(ncclCommInitRankConfig));
static_assert(agree<abi::CommDestroy>(ncclCommDestroy));
static_assert(agree<abi::CommAbort>(ncclCommAbort));
static_assert(agree<abi::CommGetAsyncError>(ncclCommGetAsyncError));
static_assert(agree<abi::GroupStart>(ncclGroupStart));
static_assert(agree<abi::GroupEnd>(ncclGroupEnd));
static_assert(agree<abi::AllReduce>(ncclAllReduce));
static_assert(agree<abi::Reduce>(ncclReduce));
static_assert(agree<abi::Broadcast>(ncclBroadcast));
static_assert(agree<abi::ReduceScatter>(ncclReduceScatter));
static_assert(agree<abi::AllGather>(ncclAllGather));
static_assert(agree<abi::Send>(ncclSend));
static_assert(agree<abi::Recv>(ncclRecv));
static_assert(agree<abi::RedOpCreatePreMulSum>(ncclRedOpCreatePreMulSum));
static_assert(agree<abi::RedOpDestroy>(ncclRedOpDestroy));

static_assert(abi::kOutOfMemory == int{cudaErrorMemoryAllocation});
static_assert(abi::kNotReady == int{cudaErrorNotReady});
static_assert(abi::kStreamNonBlocking == cudaStreamNonBlocking);
static_assert(abi::kCaptureRelaxed == int{cudaStreamCaptureModeRelaxed});
static_assert(abi::kCopyDefault == int{cudaMemcpyDefault});
static_assert(agree<abi::GetDeviceCount>(cudaGetDeviceCount));
static_assert(agree<abi::SetDevice>(cudaSetDevice));
static_assert(agree<abi::GetDevice>(cudaGetDevice));
static_assert(agree<abi::DeviceGetStreamPriorityRange>(cudaDeviceGetStreamPriorityRange));
static_assert(agree<abi::StreamCreateWithPriority>(cudaStreamCreateWithPriority));
static_assert(agree<abi::StreamDestroy>(cudaStreamDestroy));
static_assert(agree<abi::StreamSynchronize>(cudaStreamSynchronize));
static_assert(agree<abi::StreamWaitEvent>(cudaStreamWaitEvent));
static_assert(agree<abi::EventCreateWithFlags>(cudaEventCreateWithFlags));
static_assert(agree<abi::EventRecord>(cudaEventRecord));
static_assert(agree<abi::EventQuery>(cudaEventQuery));
static_assert(agree<abi::EventElapsedTime>(cudaEventElapsedTime));
static_assert(agree<abi::MallocAsync>(
    static_cast<cudaError_t (*)(void**, size_t, cudaStream_t)>(cudaMallocAsync)));
static_assert(agree<abi::FreeAsync>(cudaFreeAsync));
static_assert(agree<abi::MemcpyAsync>(cudaMemcpyAsync));
static_assert(
    agree<abi::HostAlloc>(static_cast<cudaError_t (*)(void**, size_t, unsigned)>(cudaHostAlloc)));
static_assert(agree<abi::FreeHost>(cudaFreeHost));
static_assert(agree<abi::GetLastDeviceError>(cudaGetLastError));
static_assert(agree<abi::LaunchHostFunc>(cudaLaunchHostFunc));
static_assert(agree<abi::ThreadExchangeStreamCaptureMode>(cudaThreadExchangeStreamCaptureMode));
static_assert(agree<abi::ErrorString>(cudaGetErrorString));

}  // namespace
