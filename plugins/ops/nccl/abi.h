// Declarations of the parts of the ABIs of NCCL and of the CUDA runtime that this backend uses. The backend needs the
// headers of neither. Enums of C (results, types, reductions) are declared as ints; streams and events of CUDA as
// void*. RCCL and HIP have the same numbers and layouts. tests/plugins/nccl/abi_test.cpp compares every declaration
// with the headers, if they are installed.
#pragma once

#include <cstddef>

namespace hvd::ops::nccl::abi {

constexpr int kSuccess = 0;
constexpr int kInProgress = 7;  // result of a call on a nonblocking communicator

struct UniqueId {
  char internal[128];
};
struct Comm;

// The layout of NCCL 2.14. Later versions accept this struct by its size and version.
struct Config {
  size_t size;
  unsigned magic, version;
  int blocking;
};
constexpr unsigned kConfigMagic = 0xcafebeef;
constexpr unsigned kConfigVersion = 21400;

enum DataType {
  kInt8 = 0,
  kUint8 = 1,
  kInt32 = 2,
  kUint32 = 3,
  kInt64 = 4,
  kUint64 = 5,
  kFloat16 = 6,
  kFloat32 = 7,
  kFloat64 = 8,
  kBfloat16 = 9
};
enum RedOp { kSum = 0, kProduct = 1, kMax = 2, kMin = 3, kAverage = 4 };
enum ScalarPlace { kScalarInHostMemory = 1 };

using GetVersion = int(int* version);
using GetUniqueId = int(UniqueId* id);
using GetErrorString = const char*(int result);
using GetLastError = const char*(Comm* comm);
using CommInitRank = int(Comm** comm, int ranks, UniqueId id, int rank);
using CommInitRankConfig = int(Comm** comm, int ranks, UniqueId id, int rank, Config* config);
using CommDestroy = int(Comm* comm);
using CommAbort = int(Comm* comm);
using CommGetAsyncError = int(Comm* comm, int* result);
using GroupStart = int();
using GroupEnd = int();
using AllReduce = int(const void* from, void* to, size_t count, int type, int reduction, Comm* comm,
                      void* stream);
using Reduce = int(const void* from, void* to, size_t count, int type, int reduction, int root,
                   Comm* comm, void* stream);
using Broadcast = int(const void* from, void* to, size_t count, int type, int root, Comm* comm,
                      void* stream);
using ReduceScatter = int(const void* from, void* to, size_t kept, int type, int reduction,
                          Comm* comm, void* stream);
using AllGather = int(const void* from, void* to, size_t sent, int type, Comm* comm, void* stream);
using Send = int(const void* from, size_t count, int type, int peer, Comm* comm, void* stream);
using Recv = int(void* to, size_t count, int type, int peer, Comm* comm, void* stream);
using RedOpCreatePreMulSum = int(int* reduction, void* scalar, int type, int place, Comm* comm);
using RedOpDestroy = int(int reduction, Comm* comm);

constexpr int kOutOfMemory = 2, kNotReady = 600;
constexpr unsigned kStreamNonBlocking = 1;
constexpr int kCaptureRelaxed = 2;
constexpr int kCopyDefault = 4;  // the runtime derives the direction from the addresses

using GetDeviceCount = int(int* count);
using SetDevice = int(int device);
using GetDevice = int(int* device);
using DeviceGetStreamPriorityRange = int(int* least, int* greatest);
using StreamCreateWithPriority = int(void** stream, unsigned flags, int priority);
using StreamDestroy = int(void* stream);
using StreamSynchronize = int(void* stream);
using StreamWaitEvent = int(void* stream, void* event, unsigned flags);
using EventCreateWithFlags = int(void** event, unsigned flags);
using EventRecord = int(void* event, void* stream);
using EventQuery = int(void* event);
using EventElapsedTime = int(float* milliseconds, void* from, void* to);
using MallocAsync = int(void** memory, size_t size, void* stream);
using FreeAsync = int(void* memory, void* stream);
using HostAlloc = int(void** memory, size_t size, unsigned flags);
using FreeHost = int(void* memory);
using GetLastDeviceError = int();
using MemcpyAsync = int(void* to, const void* from, size_t size, int kind, void* stream);
// cudaDeviceProp starts with a name of 256 bytes and a UUID of 16 bytes. Its size differs between versions.
constexpr size_t kPropertiesSize = 16384, kUuidOffset = 256, kUuidSize = 16;
using GetDeviceProperties = int(void* properties, int device);
using DeviceGetUuid = int(void* uuid, int device);  // HIP only
using DeviceGetPciBusId = int(char* text, int size, int device);
using LaunchHostFunc = int(void* stream, void (*function)(void*), void* argument);
using ThreadExchangeStreamCaptureMode = int(int* mode);
using ErrorString = const char*(int error);

}  // namespace hvd::ops::nccl::abi
