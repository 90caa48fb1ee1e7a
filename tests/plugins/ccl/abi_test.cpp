// Compares plugins/ops/ccl/abi.h with oneCCL's own headers; compiling is the test.
// tests/e2e/backends_test.py tests the symbol names at run time.
#include "ops/ccl/abi.h"

#include <oneapi/ccl.hpp>
#include <type_traits>

namespace {

namespace abi = hvd::ops::ccl::abi;

template <typename Ours, typename Theirs>
constexpr bool kAlike = sizeof(Ours) == sizeof(Theirs) && alignof(Ours) == alignof(Theirs) &&
                        std::is_trivially_copyable_v<Ours> == std::is_trivially_copyable_v<Theirs>;
static_assert(sizeof(abi::String) == sizeof(ccl::string));
static_assert(kAlike<abi::Version, ccl::library_version>);
static_assert(kAlike<abi::Event, ccl::event>);
static_assert(kAlike<abi::Communicator, ccl::communicator>);
static_assert(sizeof(abi::KvsInterface) == sizeof(ccl::kvs_interface));
static_assert(sizeof(abi::Events) == sizeof(std::vector<ccl::event>));

static_assert(abi::kInt8 == static_cast<int>(ccl::datatype::int8));
static_assert(abi::kUint8 == static_cast<int>(ccl::datatype::uint8));
static_assert(abi::kInt16 == static_cast<int>(ccl::datatype::int16));
static_assert(abi::kUint16 == static_cast<int>(ccl::datatype::uint16));
static_assert(abi::kInt32 == static_cast<int>(ccl::datatype::int32));
static_assert(abi::kUint32 == static_cast<int>(ccl::datatype::uint32));
static_assert(abi::kInt64 == static_cast<int>(ccl::datatype::int64));
static_assert(abi::kUint64 == static_cast<int>(ccl::datatype::uint64));
static_assert(abi::kFloat16 == static_cast<int>(ccl::datatype::float16));
static_assert(abi::kFloat32 == static_cast<int>(ccl::datatype::float32));
static_assert(abi::kFloat64 == static_cast<int>(ccl::datatype::float64));
static_assert(abi::kBfloat16 == static_cast<int>(ccl::datatype::bfloat16));
static_assert(abi::kSum == static_cast<int>(ccl::reduction::sum));
static_assert(abi::kProduct == static_cast<int>(ccl::reduction::prod));
static_assert(abi::kMin == static_cast<int>(ccl::reduction::min));
static_assert(abi::kMax == static_cast<int>(ccl::reduction::max));

// The overloads that the plugin calls.
using Events = std::vector<ccl::event>;
using Counts = std::vector<size_t>;
[[maybe_unused]] ccl::library_version (*const kGetVersion)() = &ccl::get_library_version;
[[maybe_unused]] void (*const kInit)(const ccl::init_attr&) = &ccl::init;
[[maybe_unused]] ccl::communicator (*const kCreate)(int, int, std::shared_ptr<ccl::kvs_interface>,
                                                    const ccl::comm_attr&) =
    &ccl::create_communicator;
[[maybe_unused]] ccl::event (*const kAllReduce)(const void*, void*, size_t, ccl::datatype,
                                                ccl::reduction, const ccl::communicator&,
                                                const ccl::allreduce_attr&,
                                                const Events&) = &ccl::allreduce;
[[maybe_unused]] ccl::event (*const kReduceScatter)(const void*, void*, size_t, ccl::datatype,
                                                    ccl::reduction, const ccl::communicator&,
                                                    const ccl::reduce_scatter_attr&,
                                                    const Events&) = &ccl::reduce_scatter;
[[maybe_unused]] ccl::event (*const kAllGather)(const void*, size_t, void*, const Counts&,
                                                ccl::datatype, const ccl::communicator&,
                                                const ccl::allgatherv_attr&,
                                                const Events&) = &ccl::allgatherv;
[[maybe_unused]] ccl::event (*const kBroadcast)(void*, size_t, ccl::datatype, int,
                                                const ccl::communicator&,
                                                const ccl::broadcast_attr&,
                                                const Events&) = &ccl::broadcast;
[[maybe_unused]] ccl::event (*const kAllToAll)(const void*, const Counts&, void*, const Counts&,
                                               ccl::datatype, const ccl::communicator&,
                                               const ccl::alltoallv_attr&,
                                               const Events&) = &ccl::alltoallv;

}  // namespace
