// Declarations of the part of oneCCL's binary interface that this backend uses. The backend builds
// without oneCCL's headers. The functions are C++ with libstdc++ types and g++'s mangled names.
// tests/plugins/ccl/abi_test.cpp compares every declaration with the headers, if they are installed.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

namespace hvd::ops::ccl::abi {

// oneCCL's enums, which are ints.
enum DataType {
  kInt8 = 0,
  kUint8 = 1,
  kInt16 = 2,
  kUint16 = 3,
  kInt32 = 4,
  kUint32 = 5,
  kInt64 = 6,
  kUint64 = 7,
  kFloat16 = 8,
  kFloat32 = 9,
  kFloat64 = 10,
  kBfloat16 = 11
};
enum CclReduction { kSum = 0, kProduct = 1, kMin = 2, kMax = 3 };

struct String {
  size_t length;
  char* text;  // allocated by new[]
};

// oneCCL returns these types through a hidden pointer, because they have destructors in its headers. Therefore the
// types have destructors here too. kDestroyEvent and kDestroyCommunicator release what `held` points to.
struct Version {
  unsigned major, minor, update;
  const char *status, *date, *full;
  String backend;
  ~Version() { delete[] backend.text; }
};
struct Event {
  void* held;
  ~Event() {}
};
struct Communicator {
  void *held, *count;
  ~Communicator() {}
};

// The interface of the key-value store through which oneCCL's ranks find each other; class CclStore
// implements it. get returns an empty value for a missing key, and oneCCL then calls get again.
class KvsInterface {
 public:
  virtual ~KvsInterface() = default;
  virtual std::vector<char> get(const String& key) = 0;
  virtual void set(const String& key, const std::vector<char>& data) = 0;
  virtual int get_id() = 0;
};

struct Attribute;                   // the library's own defaults
using Events = std::vector<void*>;  // events to wait for; always empty

using GetVersion = Version();
using Init = void(const Attribute& attribute);
using CreateCommunicator = Communicator(int size, int rank, std::shared_ptr<KvsInterface> store,
                                        const Attribute& attribute);
using DestroyCommunicator = void(Communicator* communicator);
using TestEvent = bool(Event* event);
using DestroyEvent = void(Event* event);
using AllReduce = Event(const void* from, void* to, size_t count, int type, int reduction,
                        const Communicator& communicator, const Attribute& attribute,
                        const Events& after);
using ReduceScatter = Event(const void* from, void* to, size_t kept, int type, int reduction,
                            const Communicator& communicator, const Attribute& attribute,
                            const Events& after);
using AllGather = Event(const void* from, size_t sent, void* to, const std::vector<size_t>& counts,
                        int type, const Communicator& communicator, const Attribute& attribute,
                        const Events& after);
using Broadcast = Event(void* memory, size_t count, int type, int root,
                        const Communicator& communicator, const Attribute& attribute,
                        const Events& after);
using AllToAll = Event(const void* from, const std::vector<size_t>& sent, void* to,
                       const std::vector<size_t>& received, int type,
                       const Communicator& communicator, const Attribute& attribute,
                       const Events& after);

constexpr char kGetVersion[] = "_ZN3ccl2v119get_library_versionEv";
constexpr char kInit[] = "_ZN3ccl2v14initERKNS0_9init_attrE";
constexpr char kCreateCommunicator[] =
    "_ZN3ccl2v119create_communicatorEiiSt10shared_ptrINS0_13kvs_interfaceEERKNS0_9comm_attrE";
constexpr char kDestroyCommunicator[] = "_ZN3ccl2v112communicatorD1Ev";
constexpr char kTestEvent[] = "_ZN3ccl2v15event4testEv";
constexpr char kDestroyEvent[] = "_ZN3ccl2v15eventD1Ev";
constexpr char kAllReduce[] =
    "_ZN3ccl2v19allreduceEPKvPvmNS0_8datatypeENS0_9reductionERKNS0_12communicatorE"
    "RKNS0_14allreduce_attrERKSt6vectorINS0_5eventESaISD_EE";
constexpr char kReduceScatter[] =
    "_ZN3ccl2v114reduce_scatterEPKvPvmNS0_8datatypeENS0_9reductionERKNS0_12communicatorE"
    "RKNS0_19reduce_scatter_attrERKSt6vectorINS0_5eventESaISD_EE";
constexpr char kAllGather[] =
    "_ZN3ccl2v110allgathervEPKvmPvRKSt6vectorImSaImEENS0_8datatypeERKNS0_12communicatorE"
    "RKNS0_15allgatherv_attrERKS4_INS0_5eventESaISG_EE";
constexpr char kBroadcast[] =
    "_ZN3ccl2v19broadcastEPvmNS0_8datatypeEiRKNS0_12communicatorE"
    "RKNS0_14broadcast_attrERKSt6vectorINS0_5eventESaISA_EE";
constexpr char kAllToAll[] =
    "_ZN3ccl2v19alltoallvEPKvRKSt6vectorImSaImEEPvS7_NS0_8datatypeERKNS0_12communicatorE"
    "RKNS0_14alltoallv_attrERKS3_INS0_5eventESaISG_EE";

constexpr char kInitDefault[] = "_ZN3ccl2v117default_init_attrE";
constexpr char kCommunicatorDefault[] = "_ZN3ccl2v117default_comm_attrE";
constexpr char kAllReduceDefault[] = "_ZN3ccl2v122default_allreduce_attrE";
constexpr char kReduceScatterDefault[] = "_ZN3ccl2v127default_reduce_scatter_attrE";
constexpr char kAllGatherDefault[] = "_ZN3ccl2v123default_allgatherv_attrE";
constexpr char kBroadcastDefault[] = "_ZN3ccl2v122default_broadcast_attrE";
constexpr char kAllToAllDefault[] = "_ZN3ccl2v122default_alltoallv_attrE";

}  // namespace hvd::ops::ccl::abi
