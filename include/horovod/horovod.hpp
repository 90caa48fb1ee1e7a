// The C++ API of libhorovod: header-only, in C++20, over the C ABI of horovod.h alone.
//
//   horovod::Job job; // joins; leaves at the end of its scope
//   std::vector<float> gradient = ...;
//   horovod::allreduce(gradient, "gradient");        // in place, the average of all ranks
//   auto work = horovod::allreduce_async(gradient, "gradient");
//   work.wait();
//   auto rows = horovod::allgather(gradient, "all"); // rows.data() is a std::span
//
// A function that fails throws horovod::Error with the runtime's message. Destructors never throw.
// All ranks submit equal names, and a name may be in flight only once. The memory of an operation
// must exist until its work is complete; the destructor of Work waits for the work. Any thread may call
// any function, but only one thread at a time may use an object.
#pragma once

#include <cstddef>
#include <cstdint>
#include <ranges>
#include <span>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "horovod/horovod.h"

namespace horovod {

class Error : public std::runtime_error {
 public:
  Error(int status, const char* sentence) : std::runtime_error(sentence), status_(status) {}
  // An hvd_status: HVD_ABORTED if a peer is lost, HVD_INVALID_ARGUMENT if ranks disagree, ...
  int status() const noexcept { return status_; }

 private:
  int status_;
};

namespace detail {

// Calls function(arguments..., error, error_size) and throws unless it is HVD_OK.
template <typename Function, typename... Arguments>
void call(Function function, Arguments... arguments) {
  char error[1024] = "";
  const int status = function(arguments..., error, sizeof error);
  if (status != HVD_OK) throw Error(status, error);
}

inline int32_t known(int32_t number) {
  if (number < 0) throw Error(HVD_FAILED_PRECONDITION, "there is no horovod::Job: make one first");
  return number;
}

}  // namespace detail

// Joins the job that the environment describes, and leaves it in the destructor. One object at a time.
class Job {
 public:
  // Waits for all ranks. With timeout 0, HOROVOD_INIT_TIMEOUT and HOROVOD_START_TIMEOUT limit the wait.
  explicit Job(double timeout_seconds = 0) {
    hvd_init_options options{};
    options.struct_size = sizeof options;
    options.timeout_seconds = timeout_seconds;
    detail::call(hvd_init, &options);
  }
  ~Job() { hvd_shutdown(nullptr, 0); }
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;
};

// These functions throw Error if no Job exists.
inline int32_t rank() { return detail::known(hvd_rank()); }
inline int32_t size() { return detail::known(hvd_size()); }
inline int32_t local_rank() { return detail::known(hvd_local_rank()); }
inline int32_t local_size() { return detail::known(hvd_local_size()); }
inline int32_t cross_rank() { return detail::known(hvd_cross_rank()); }
inline int32_t cross_size() { return detail::known(hvd_cross_size()); }

// 16-bit floating-point types, for which C++20 has no arithmetic.
struct Float16 {
  uint16_t bits;
};
struct BFloat16 {
  uint16_t bits;
};

namespace detail {
template <typename T>
inline constexpr int kDtype = -1;
template <>
inline constexpr int kDtype<bool> = HVD_BOOL;
template <>
inline constexpr int kDtype<float> = HVD_FLOAT32;
template <>
inline constexpr int kDtype<double> = HVD_FLOAT64;
template <>
inline constexpr int kDtype<Float16> = HVD_FLOAT16;
template <>
inline constexpr int kDtype<BFloat16> = HVD_BFLOAT16;

// Maps an integer type by its size and sign, since several C++ types may be equal in both.
constexpr int dtype_of_integer(size_t size, bool is_signed) {
  if (size == 1) return is_signed ? HVD_INT8 : HVD_UINT8;
  if (size == 2) return is_signed ? HVD_INT16 : HVD_UINT16;
  if (size == 4) return is_signed ? HVD_INT32 : HVD_UINT32;
  return is_signed ? HVD_INT64 : HVD_UINT64;
}
}  // namespace detail

template <typename T>
constexpr int32_t dtype_of() {
  if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>) {
    return detail::dtype_of_integer(sizeof(T), std::is_signed_v<T>);
  } else {
    static_assert(detail::kDtype<T> >= 0, "no element type of horovod");
    return detail::kDtype<T>;
  }
}

using Shape = std::vector<int64_t>;

// A view of the caller's elements, row-major and dense, with their shape. Owns no elements.
template <typename T>
struct Tensor {
  Tensor(T* elements, Shape extents) : data(elements), shape(std::move(extents)) {}
  // A contiguous range becomes a tensor of one dimension.
  template <typename Range>
  requires(std::ranges::contiguous_range<Range>&& std::ranges::sized_range<Range>) explicit Tensor(
      Range& range)
      : data(std::ranges::data(range)), shape{static_cast<int64_t>(std::ranges::size(range))} {}

  T* data;
  Shape shape;
};
template <typename Range>
requires std::ranges::contiguous_range<Range> Tensor(Range&)
->Tensor<std::remove_reference_t<std::ranges::range_reference_t<Range>>>;

// Returns the Tensor of an operation's `values`: a Tensor, a contiguous range, or a number.
template <typename T>
const Tensor<T>& as_tensor(const Tensor<T>& tensor) {
  return tensor;
}
template <typename Range>
requires std::ranges::contiguous_range<Range>
auto as_tensor(Range&& range) { return Tensor(range); }
template <typename T>
requires std::is_arithmetic_v<T> Tensor<T> as_tensor(T& number) { return {&number, {}}; }

struct Options {
  hvd_reduce_op op = HVD_AVERAGE;  // for allreduce and reducescatter
  double prescale = 1;
  double postscale = 1;
  int32_t process_set = 0;
};

// Owns the handle of submitted work. The destructor waits for the work, which uses the caller's memory.
class Work {
 public:
  explicit Work(const hvd_submission& submission) {
    detail::call(hvd_submit, &submission, &handle_);
  }
  ~Work() { reset(); }
  Work(Work&& other) noexcept : handle_(std::exchange(other.handle_, 0)) {}
  Work& operator=(Work&& other) noexcept {
    if (this != &other) {
      reset();
      handle_ = std::exchange(other.handle_, 0);
    }
    return *this;
  }

  // Returns whether the work is complete or has failed. Never waits.
  bool done() const {
    int32_t done = 0;
    detail::call(hvd_poll, handle_, &done);
    return done != 0;
  }
  // Waits until the work is complete. Each call throws Error if the work failed.
  void wait() const { detail::call(hvd_wait, handle_, -1.0); }
  // Waits at most `seconds`. Returns false if the time has passed first.
  bool wait_for(double seconds) const {
    char error[1024] = "";
    const int status = hvd_wait(handle_, seconds < 0 ? 0 : seconds, error, sizeof error);
    if (status == HVD_IN_PROGRESS) return false;
    if (status != HVD_OK) throw Error(status, error);
    return true;
  }
  hvd_handle handle() const noexcept { return handle_; }
  // Takes ownership of a handle from the C ABI.
  static Work of(hvd_handle handle) noexcept { return Work(handle); }

 protected:
  explicit Work(hvd_handle handle) noexcept : handle_(handle) {}

 private:
  void reset() noexcept {
    if (handle_ == 0) return;
    hvd_wait(handle_, -1, nullptr, 0);
    hvd_release(std::exchange(handle_, 0), nullptr, 0);
  }
  hvd_handle handle_ = 0;
};

namespace detail {

// Returns the output that the runtime owns, valid until the work is released.
inline hvd_output output_of(const Work& work) {
  hvd_output output{};
  output.struct_size = sizeof output;
  call(hvd_get_output, work.handle(), uint32_t{0}, &output);
  return output;
}

}  // namespace detail

// Work whose output the runtime owns. The output is valid until this object is destroyed. Call wait()
// before the functions below.
template <typename T>
class Output : public Work {
 public:
  using Work::Work;
  std::span<const T> data() const {
    const hvd_output output = detail::output_of(*this);
    size_t count = 1;
    for (int32_t i = 0; i < output.ndim; ++i) count *= static_cast<size_t>(output.shape[i]);
    return {static_cast<const T*>(output.data), output.data == nullptr ? 0 : count};
  }
  std::span<const int64_t> shape() const {
    const hvd_output output = detail::output_of(*this);
    return {output.shape, static_cast<size_t>(output.ndim)};
  }
  // Returns the number of rows from each rank, for an alltoall.
  std::span<const int32_t> received_splits() const {
    const hvd_output output = detail::output_of(*this);
    return {output.received_splits, output.received_split_count};
  }
};

namespace detail {

inline hvd_submission terms_of(hvd_op_kind op, const char* name, const Options& options) {
  hvd_submission submission{};
  submission.struct_size = sizeof submission;
  submission.op = op;
  submission.reduce_op = options.op;
  submission.name = name;
  submission.process_set = options.process_set;
  submission.device = HVD_CPU;
  submission.prescale = options.prescale;
  submission.postscale = options.postscale;
  return submission;
}

// hvd_submit copies names, shapes and tensor records: they may lie on this stack.
template <typename Result, typename T>
Result submit(hvd_submission submission, const Tensor<T>& tensor, const void* input, void* output) {
  const hvd_tensor entry{nullptr,
                         dtype_of<std::remove_const_t<T>>(),
                         static_cast<int32_t>(tensor.shape.size()),
                         tensor.shape.data(),
                         input,
                         output};
  submission.tensor_count = 1;
  submission.tensors = &entry;
  return Result(submission);
}

template <typename T>
using OutputOf = Output<std::remove_const_t<T>>;

template <typename Values>
auto submit_rows(const hvd_submission& submission, Values&& values) {
  const auto& tensor = as_tensor(values);
  return [&]<typename T>(const Tensor<T>& rows) {
    return submit<OutputOf<T>>(submission, rows, rows.data, nullptr);
  }(tensor);
}

template <typename Done>
Done waited(Done work) {
  work.wait();
  return work;
}

}  // namespace detail

// Reduces the values of all ranks in place.
template <typename Values>
Work allreduce_async(Values&& values, const std::string& name, const Options& options = {}) {
  const auto& tensor = as_tensor(values);
  return detail::submit<Work>(detail::terms_of(HVD_ALLREDUCE, name.c_str(), options), tensor,
                              tensor.data, tensor.data);
}
template <typename Values>
void allreduce(Values&& values, const std::string& name, const Options& options = {}) {
  allreduce_async(values, name, options).wait();
}

// Replaces the values on every rank by those of rank `root` of the job.
template <typename Values>
Work broadcast_async(Values&& values, int32_t root, const std::string& name,
                     const Options& options = {}) {
  const auto& tensor = as_tensor(values);
  hvd_submission submission = detail::terms_of(HVD_BROADCAST, name.c_str(), options);
  submission.root_rank = root;
  return detail::submit<Work>(submission, tensor, tensor.data, tensor.data);
}
template <typename Values>
void broadcast(Values&& values, int32_t root, const std::string& name,
               const Options& options = {}) {
  broadcast_async(values, root, name, options).wait();
}

// Returns the rows of all ranks, in the order of the ranks. Their numbers of rows may differ.
template <typename Values>
auto allgather_async(Values&& values, const std::string& name, const Options& options = {}) {
  return detail::submit_rows(detail::terms_of(HVD_ALLGATHER, name.c_str(), options), values);
}
template <typename Values>
auto allgather(Values&& values, const std::string& name, const Options& options = {}) {
  return detail::waited(allgather_async(values, name, options));
}

// Sends splits[r] rows to rank r, in order; empty splits: equally many to each rank. Returns the
// rows from all ranks.
template <typename Values>
auto alltoall_async(Values&& values, std::span<const int32_t> splits, const std::string& name,
                    const Options& options = {}) {
  hvd_submission submission = detail::terms_of(HVD_ALLTOALL, name.c_str(), options);
  submission.splits = splits.data();
  submission.split_count = static_cast<uint32_t>(splits.size());
  return detail::submit_rows(submission, values);
}
template <typename Values>
auto alltoall(Values&& values, std::span<const int32_t> splits, const std::string& name,
              const Options& options = {}) {
  return detail::waited(alltoall_async(values, splits, name, options));
}

// Returns this rank's rows of the reduction. The first ranks have one row more if the rows do not split
// evenly.
template <typename Values>
auto reducescatter_async(Values&& values, const std::string& name, const Options& options = {}) {
  return detail::submit_rows(detail::terms_of(HVD_REDUCESCATTER, name.c_str(), options), values);
}
template <typename Values>
auto reducescatter(Values&& values, const std::string& name, const Options& options = {}) {
  return detail::waited(reducescatter_async(values, name, options));
}

// Takes part in the allreduces of other ranks, without data of this rank, until all ranks have joined.
// Returns the last rank that joined.
inline int32_t join() {
  const Work work(detail::terms_of(HVD_JOIN, nullptr, {}));
  work.wait();
  return detail::output_of(work).last_joined_rank;
}

// Waits until all ranks of the set have called barrier.
inline void barrier(int32_t process_set = 0) {
  Options options;
  options.process_set = process_set;
  Work(detail::terms_of(HVD_BARRIER, nullptr, options)).wait();
}

// The options of a send or receive. Both ranks name the same type and number of elements.
struct MessageOptions {
  int32_t tag = 0;
  int32_t process_set = 0;
  double timeout_seconds = 0;  // 0: no limit
};

namespace detail {

template <typename T>
Work message(int (*function)(const hvd_message*, hvd_handle*, char*, size_t), int32_t rank,
             const Tensor<T>& tensor, const MessageOptions& options) {
  hvd_message message{};
  message.struct_size = sizeof message;
  message.rank = rank;
  message.tag = options.tag;
  message.process_set = options.process_set;
  message.dtype = dtype_of<std::remove_const_t<T>>();
  message.count = 1;
  for (const int64_t extent : tensor.shape) message.count *= extent;
  message.data = const_cast<std::remove_const_t<T>*>(tensor.data);  // hvd_send only reads it
  message.timeout_seconds = options.timeout_seconds;
  hvd_handle handle = 0;
  call(function, static_cast<const hvd_message*>(&message), &handle);
  return Work::of(handle);
}

}  // namespace detail

// Sends the values to a rank of the job.
template <typename Values>
Work send_async(Values&& values, int32_t to, const MessageOptions& options = {}) {
  return detail::message(hvd_send, to, as_tensor(values), options);
}
template <typename Values>
void send(Values&& values, int32_t to, const MessageOptions& options = {}) {
  send_async(values, to, options).wait();
}
// Receives the values from a rank of the job, or from HVD_ANY_RANK: see source_of().
template <typename Values>
Work recv_async(Values&& values, int32_t from, const MessageOptions& options = {}) {
  return detail::message(hvd_recv, from, as_tensor(values), options);
}
// Returns the sender's rank of a complete receive.
inline int32_t source_of(const Work& receive) { return detail::output_of(receive).source_rank; }
// Returns the sender's rank.
template <typename Values>
int32_t recv(Values&& values, int32_t from, const MessageOptions& options = {}) {
  const Work work = recv_async(values, from, options);
  work.wait();
  return source_of(work);
}

// A group of ranks with its own collectives: set Options::process_set to its id. Every rank of the job, member
// or not, must create and remove the same sets in the same order. The destructor does not remove the set.
class ProcessSet {
 public:
  explicit ProcessSet(std::span<const int32_t> ranks) {
    hvd_handle handle = 0;
    detail::call(hvd_add_process_set, ranks.data(), static_cast<uint32_t>(ranks.size()), &handle);
    const Work work = Work::of(handle);
    work.wait();
    id_ = detail::output_of(work).process_set;
  }
  void remove() {
    hvd_handle handle = 0;
    detail::call(hvd_remove_process_set, id_, &handle);
    Work::of(handle).wait();
  }

  int32_t id() const noexcept { return id_; }
  int32_t size() const { return ask(hvd_process_set_size); }
  bool included() const { return ask(hvd_process_set_included) != 0; }
  // Returns the rank of this process among the members. Throws Error if the process is not a member.
  int32_t rank() const { return ask(hvd_process_set_rank); }

 private:
  int32_t ask(int (*question)(int32_t, int32_t*, char*, size_t)) const {
    int32_t answer = 0;
    detail::call(question, id_, &answer);
    return answer;
  }
  int32_t id_ = 0;
};

}  // namespace horovod
