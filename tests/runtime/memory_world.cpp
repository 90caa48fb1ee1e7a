#include "runtime/memory_world.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <numeric>

#include "horovod/plugin_controller.h"
#include "horovod/plugin_framework.h"
#include "horovod/plugin_op.h"

namespace hvd::test {

MemoryWorld::MemoryWorld(std::vector<int32_t> of_rank) : machines(std::move(of_rank)) {
  for (size_t i = 0; i < machines.size(); ++i) {
    mailboxes.emplace_back().doorbell = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  }
}

MemoryWorld::~MemoryWorld() {
  delayed_delivery.reset();  // its thread uses the mailboxes' doorbells
  for (Mailbox& mailbox : mailboxes) ::close(mailbox.doorbell);
}

std::string MemoryWorld::address() const {
  return std::to_string(reinterpret_cast<uintptr_t>(this));
}

void MemoryWorld::lose(int32_t rank) {
  lost.store(rank);
  ring_all();
}

std::string MemoryWorld::cause() {
  const MutexLock lock(mutex);
  return failure;
}

int32_t MemoryWorld::lost_rank() {
  if (lost >= 0) return lost;
  const MutexLock lock(mutex);
  return failure_lost;
}

void MemoryWorld::fail(const char* cause, int32_t lost_rank) {
  {
    const MutexLock lock(mutex);
    if (failure.empty()) {
      failure = cause == nullptr ? "a rank failed its links" : cause;
      failure_lost = lost_rank;
    }
  }
  ring_all();
}

void MemoryWorld::deliver(int32_t rank, Message message) {
  const MutexLock lock(mutex);
  if (held_way == std::pair(message.from, rank)) return held.push_back(std::move(message));
  put(rank, std::move(message));
}

void MemoryWorld::release() {
  const MutexLock lock(mutex);
  const int32_t rank = std::exchange(held_way, {-1, -1}).second;
  for (Message& message : std::exchange(held, {})) put(rank, std::move(message));
}

void MemoryWorld::put(int32_t rank, Message message) {
  auto& mailbox = mailboxes[static_cast<size_t>(rank)];
  {
    const MutexLock lock(mailbox.mutex);
    mailbox.messages.push_back(std::move(message));
  }
  ring(rank);
}

void MemoryWorld::ring(int32_t rank) {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t n =
      ::write(mailboxes[static_cast<size_t>(rank)].doorbell, &one, sizeof one);
}

void MemoryWorld::ring_all() {
  for (size_t rank = 0; rank < mailboxes.size(); ++rank) ring(static_cast<int32_t>(rank));
}

namespace {

// With size 0, `from` may be null.
void copy(void* to, const void* from, size_t size) {
  if (size > 0) std::memcpy(to, from, size);
}

int probe(char*, size_t) { return 1; }

// ---- controller ----

struct Controller {
  const hvd_plugin_host* host = nullptr;
  std::unique_ptr<MemoryWorld> own;  // a single-process job needs no store
  MemoryWorld* world = nullptr;
  int32_t rank = 0;

  MemoryWorld::Mailbox& mailbox() { return world->mailboxes[static_cast<size_t>(rank)]; }
};

int open_controller(const hvd_plugin_host* host, const hvd_plugin_config* config, void** context,
                    char* error, size_t error_size) {
  auto self = std::make_unique<Controller>();
  self->host = host;
  self->rank = config->rank;
  char text[64] = "";
  size_t size = 0;
  const int code = host->store_get(host->host, MemoryWorld::kKey, text, sizeof text - 1, &size, 5);
  if (code == HVD_OK) {
    self->world = reinterpret_cast<MemoryWorld*>(std::strtoull(text, nullptr, 10));
  } else if (config->size == 1) {
    self->own = std::make_unique<MemoryWorld>(std::vector<int32_t>{0});
    self->world = self->own.get();
  } else {
    std::snprintf(error, error_size, "the test's memory world is not in the store");
    return HVD_UNAVAILABLE;
  }
  host->publish(host->host, MemoryWorld::kKey, self->world);
  // poll() drains the descriptor, not the callback, so that no ring is lost between the two.
  host->watch(
      host->host, self->mailbox().doorbell, [](void*) {}, nullptr);
  *context = self.release();
  return HVD_OK;
}

void close_controller(void* context) {
  std::unique_ptr<Controller> self(static_cast<Controller*>(context));
  self->host->unwatch(self->host->host, self->mailbox().doorbell);
}

int send_message(void* context, int32_t rank, const void* message, size_t size) {
  auto* self = static_cast<Controller*>(context);
  if (rank < 0 || rank >= static_cast<int32_t>(self->world->mailboxes.size())) {
    return HVD_INVALID_ARGUMENT;
  }
  self->world->sent.fetch_add(1);
  MemoryWorld::Message letter{self->rank, std::string(static_cast<const char*>(message), size)};
  if (!self->world->delayed_delivery)
    self->world->deliver(rank, std::move(letter));
  else
    self->world->delayed_delivery->post(
        {self->rank, rank}, [world = self->world, rank, letter] { world->deliver(rank, letter); });
  return HVD_OK;
}

int poll_messages(void* context,
                  void (*on_message)(void* argument, int32_t rank, const void* message,
                                     size_t size),
                  void* argument, int32_t* progressed, char* error, size_t error_size) {
  auto* self = static_cast<Controller*>(context);
  std::deque<MemoryWorld::Message> messages;
  {
    const MutexLock lock(self->mailbox().mutex);
    messages.swap(self->mailbox().messages);
  }
  for (const auto& message : messages) {
    *progressed = 1;
    on_message(argument, message.from, message.bytes.data(), message.bytes.size());
  }
  const int32_t lost = self->world->lost.load();
  if (lost >= 0 && lost != self->rank && messages.empty()) {
    std::snprintf(error, error_size, "rank %d is lost: the test cut its links", lost);
    return HVD_ABORTED;
  }
  const std::string cause = self->world->cause();
  if (!cause.empty() && messages.empty()) {
    std::snprintf(error, error_size, "%s", cause.c_str());
    return HVD_ABORTED;
  }
  return HVD_OK;
}

void abort_for_lost(void* context, const char* cause, int32_t lost_rank) {
  static_cast<Controller*>(context)->world->fail(cause, lost_rank);
}

void abort_controller(void* context, const char* cause) { abort_for_lost(context, cause, -1); }

int32_t lost_rank_of(void* context) {
  return static_cast<Controller*>(context)->world->lost_rank();
}

const int32_t* hosts_of(void* context) {
  return static_cast<Controller*>(context)->world->machines.data();
}

int before_sleep(void* context) {
  auto* self = static_cast<Controller*>(context);
  uint64_t rings = 0;
  if (::read(self->mailbox().doorbell, &rings, sizeof rings) > 0) return 0;
  return 1;
}

// ---- op ----

struct Running {
  const hvd_batch* batch = nullptr;
  void (*done)(void*, int, const char*) = nullptr;
  void* argument = nullptr;
};

struct Set {
  std::string key;
  int32_t index = 0;  // index of this rank among the members
  int32_t size = 1;
  std::deque<Running> running;
};

struct Op {
  MemoryWorld* world = nullptr;
  int32_t rank = 0;
  std::map<int32_t, Set> sets;
  std::map<std::string, int> incarnations;
};

int open_op(const hvd_plugin_host* host, const hvd_plugin_config* config, void** context,
            char* error, size_t error_size) {
  auto self = std::make_unique<Op>();
  self->world = static_cast<MemoryWorld*>(host->lookup(host->host, MemoryWorld::kKey));
  self->rank = config->rank;
  if (self->world == nullptr) {
    std::snprintf(error, error_size, "the memory controller is not there");
    return HVD_FAILED_PRECONDITION;
  }
  static const hvd_framework_v1 kDevices{.struct_size = sizeof kDevices,
                                         .record_ready = nullptr,
                                         .is_ready = nullptr,
                                         .make_stream_wait = nullptr,
                                         .release_event = nullptr,
                                         .allocate = nullptr,
                                         .release =
                                             [](void*, int32_t, void* memory) {
                                               std::free(memory);
                                               --MemoryWorld::outputs;
                                             },
                                         .current_stream = nullptr};
  static hvd_framework devices{&kDevices, nullptr};
  if (self->world->has_devices) host->publish(host->host, HVD_FRAMEWORK_OF_DEVICES, &devices);
  *context = self.release();
  return HVD_OK;
}

void close_op(void* context) { delete static_cast<Op*>(context); }

size_t element_size(int32_t dtype) {
  switch (dtype) {
    case HVD_UINT8:
      return 1;
    case HVD_INT32:
    case HVD_FLOAT32:
      return 4;
    case HVD_INT64:
    case HVD_FLOAT64:
      return 8;
    default:
      return 0;
  }
}

int32_t supports(void*, const hvd_batch* batch) {
  if (element_size(batch->dtype) == 0 || batch->reduce_op == HVD_ADASUM) return 0;
  return batch->op == HVD_ALLREDUCE || batch->op == HVD_ALLGATHER || batch->op == HVD_BROADCAST ||
                 batch->op == HVD_ALLTOALL || batch->op == HVD_REDUCESCATTER
             ? 1
             : 0;
}

void put_inputs(const Op& op, const Set& set, const hvd_batch& batch) {
  const MutexLock lock(op.world->mutex);
  MemoryWorld::BatchInputs& inputs_of_batch = op.world->batch_inputs[{set.key, batch.sequence}];
  inputs_of_batch.inputs.resize(static_cast<size_t>(set.size));
  inputs_of_batch.present.resize(static_cast<size_t>(set.size));
  inputs_of_batch.rows.resize(static_cast<size_t>(set.size));
  const auto index = static_cast<size_t>(set.index);
  for (uint32_t i = 0; i < batch.tensor_count; ++i) {
    const hvd_batch_tensor& tensor = batch.tensors[i];
    const bool reads =
        (batch.op != HVD_BROADCAST || batch.root == set.index) && tensor.input != nullptr;
    const size_t bytes = static_cast<size_t>(tensor.count) * element_size(batch.dtype);
    inputs_of_batch.inputs[index].emplace_back(
        reads ? std::string(static_cast<const char*>(tensor.input), bytes) : std::string());
    inputs_of_batch.present[index].push_back(reads);
    auto& rows = inputs_of_batch.rows[index].emplace_back();
    if (batch.op == HVD_ALLTOALL) rows.assign(tensor.rank_rows, tensor.rank_rows + set.size);
  }
}

int run(void* context, const hvd_batch* batch, void (*done)(void*, int, const char*),
        void* argument) {
  auto* self = static_cast<Op*>(context);
  const auto found = self->sets.find(batch->process_set);
  if (found == self->sets.end()) return HVD_NOT_FOUND;
  Set& set = found->second;
  set.running.push_back({batch, done, argument});
  if (batch->device != HVD_CPU) {
    const MutexLock lock(self->world->mutex);
    self->world->devices[self->rank].push_back(batch->device);
    self->world->device_batches[self->rank].push_back(set.key + "/" +
                                                      std::to_string(batch->sequence));
  }
  if (batch->device != HVD_CPU && self->world->failing == self->rank) {
    self->world->sent_at_failure = self->world->sent.load();
    if (batch->op == HVD_ALLGATHER) {
      batch->made_outputs[0] = std::malloc(1);
      ++MemoryWorld::outputs;
    }
    batch->fails(argument, HVD_ABORTED, "its library broke");
    return HVD_OK;
  }
  put_inputs(*self, set, *batch);
  const auto bring = [world = self->world, size = set.size,
                      key = std::pair(set.key, batch->sequence)] {
    const MutexLock lock(world->mutex);
    if (++world->batch_inputs[key].brought == size) world->ring_all();
  };
  if (!self->world->delayed_delivery)
    bring();
  else
    self->world->delayed_delivery->post({self->rank, -1}, bring);
  return HVD_OK;
}

template <typename T>
T combine(int32_t reduce_op, T a, T b) {
  const bool has_nan = a != a || b != b;
  if (has_nan) return static_cast<T>(a + b);
  switch (reduce_op) {
    case HVD_MIN:
      return std::min(a, b);
    case HVD_MAX:
      return std::max(a, b);
    case HVD_PRODUCT:
      return static_cast<T>(a * b);
    default:
      return static_cast<T>(a + b);
  }
}

template <typename T>
T element(const std::string& bytes, size_t index) {
  T value;
  copy(&value, bytes.data() + index * sizeof(T), sizeof(T));
  return value;
}

template <typename T>
void reduce(const hvd_batch& batch, const MemoryWorld::BatchInputs& inputs_of_batch, uint32_t index,
            size_t first, size_t count) {
  T* output = static_cast<T*>(batch.tensors[index].output);
  if (output == nullptr) return;
  for (size_t i = 0; i < count; ++i) {
    T sum{};
    bool any = false;
    for (size_t member = 0; member < inputs_of_batch.inputs.size(); ++member) {
      if (!inputs_of_batch.present[member][index]) continue;
      const T scaled =
          static_cast<T>(batch.prescale * static_cast<double>(element<T>(
                                              inputs_of_batch.inputs[member][index], first + i)));
      sum = any ? combine(batch.reduce_op, sum, scaled) : scaled;
      any = true;
    }
    const double total = static_cast<double>(sum);
    output[i] = static_cast<T>(batch.divisor > 0 ? total / batch.divisor : batch.postscale * total);
  }
}

void reduce_any(const hvd_batch& op, const MemoryWorld::BatchInputs& inputs_of_batch, uint32_t i,
                size_t first, size_t count) {
  switch (op.dtype) {
    case HVD_UINT8:
      reduce<uint8_t>(op, inputs_of_batch, i, first, count);
      break;
    case HVD_INT32:
      reduce<int32_t>(op, inputs_of_batch, i, first, count);
      break;
    case HVD_INT64:
      reduce<int64_t>(op, inputs_of_batch, i, first, count);
      break;
    case HVD_FLOAT32:
      reduce<float>(op, inputs_of_batch, i, first, count);
      break;
    default:
      reduce<double>(op, inputs_of_batch, i, first, count);
      break;
  }
}

void take(const Set& op, const hvd_batch& batch, const MemoryWorld::BatchInputs& inputs_of_batch,
          uint32_t i) {
  const hvd_batch_tensor& tensor = batch.tensors[i];
  char* output = static_cast<char*>(tensor.output);
  const size_t row = static_cast<size_t>(tensor.row) * element_size(batch.dtype);
  if (batch.op == HVD_ALLREDUCE) {
    reduce_any(batch, inputs_of_batch, i, 0, static_cast<size_t>(tensor.count));
  } else if (batch.op == HVD_REDUCESCATTER) {
    const int64_t rows = tensor.row == 0 ? 0 : tensor.count / tensor.row;
    const int64_t each = rows / op.size;
    const int64_t more = rows % op.size;
    const int64_t first = op.index * each + std::min<int64_t>(op.index, more);
    const int64_t mine = each + (op.index < more ? 1 : 0);
    reduce_any(batch, inputs_of_batch, i, static_cast<size_t>(first * tensor.row),
               static_cast<size_t>(mine * tensor.row));
  } else if (batch.op == HVD_BROADCAST) {
    const std::string& bytes = inputs_of_batch.inputs[static_cast<size_t>(batch.root)][i];
    copy(output, bytes.data(), bytes.size());
  } else if (batch.op == HVD_ALLGATHER) {
    for (const auto& inputs : inputs_of_batch.inputs) {
      copy(output, inputs[i].data(), inputs[i].size());
      output += inputs[i].size();
    }
  } else {
    for (size_t from = 0; from < inputs_of_batch.inputs.size(); ++from) {
      const auto& rows = inputs_of_batch.rows[from][i];
      const auto before = std::accumulate(rows.begin(), rows.begin() + op.index, int64_t{0});
      const size_t bytes = static_cast<size_t>(tensor.from_rows[from]) * row;
      copy(output, inputs_of_batch.inputs[from][i].data() + static_cast<size_t>(before) * row,
           bytes);
      output += bytes;
    }
  }
}

// Executes the oldest batch of the set if all members have contributed their inputs.
bool advance(Op* self, Set& set) {
  if (set.running.empty()) return false;
  const Running first = set.running.front();
  {
    const MutexLock lock(self->world->mutex);
    const auto found = self->world->batch_inputs.find({set.key, first.batch->sequence});
    // Without inputs, the batch was abandoned.
    if (found == self->world->batch_inputs.end()) return false;
    MemoryWorld::BatchInputs& inputs_of_batch = found->second;
    if (inputs_of_batch.brought < set.size) return false;
    for (uint32_t i = 0; i < first.batch->tensor_count; ++i)
      take(set, *first.batch, inputs_of_batch, i);
    if (++inputs_of_batch.taken == set.size) self->world->batch_inputs.erase(found);
  }
  set.running.pop_front();
  if (first.batch->device != HVD_CPU) {
    const int64_t now = std::chrono::steady_clock::now().time_since_epoch().count();
    first.batch->ran(first.argument, now - self->world->device_time.count(), now);
  }
  first.done(first.argument, HVD_OK, nullptr);
  return true;
}

int poll_op(void* context, int32_t* progressed) {
  auto* self = static_cast<Op*>(context);
  for (auto& [id, set] : self->sets) {
    while (advance(self, set)) *progressed = 1;
  }
  return HVD_OK;
}

int new_set(void* context, int32_t process_set, const int32_t* members, int32_t count) {
  auto* self = static_cast<Op*>(context);
  Set set;
  for (int32_t i = 0; i < count; ++i) {
    if (members[i] == self->rank) set.index = i;
    set.key += std::to_string(members[i]) + ",";
  }
  set.size = count;
  set.key += "#" + std::to_string(self->incarnations[set.key]++);
  if (!self->sets.emplace(process_set, std::move(set)).second) return HVD_ALREADY_EXISTS;
  return HVD_OK;
}

int drop_set(void* context, int32_t process_set) {
  return static_cast<Op*>(context)->sets.erase(process_set) == 1 ? HVD_OK : HVD_NOT_FOUND;
}

int reduce_wholes(void* context, const hvd_batch* batch, const void* const* inputs) {
  const auto* self = static_cast<Op*>(context);
  const auto members = static_cast<size_t>(self->sets.at(batch->process_set).size);
  MemoryWorld::BatchInputs inputs_of_batch;
  inputs_of_batch.inputs.resize(members);
  inputs_of_batch.present.assign(members, std::vector<bool>(batch->tensor_count, true));
  for (size_t member = 0; member < members; ++member) {
    const auto* whole = static_cast<const char*>(inputs[member]);
    for (uint32_t i = 0; i < batch->tensor_count; ++i) {
      const hvd_batch_tensor& tensor = batch->tensors[i];
      const size_t bytes = static_cast<size_t>(tensor.count) * element_size(batch->dtype);
      const auto* own = static_cast<const char*>(tensor.input);
      inputs_of_batch.inputs[member].emplace_back(whole == nullptr ? own : whole, bytes);
      if (whole != nullptr) whole += bytes;
    }
  }
  for (uint32_t i = 0; i < batch->tensor_count; ++i) {
    reduce_any(*batch, inputs_of_batch, i, 0, static_cast<size_t>(batch->tensors[i].count));
  }
  return HVD_OK;
}

void abort_op(void* context, const char*) {
  const auto* self = static_cast<Op*>(context);
  if (self->world->failing == self->rank) self->world->sent_at_abort = self->world->sent.load();
}

const hvd_controller_v1 kControllerVtable = {sizeof kControllerVtable,
                                             send_message,
                                             poll_messages,
                                             abort_controller,
                                             hosts_of,
                                             before_sleep,
                                             [](void*) {},
                                             nullptr,
                                             lost_rank_of,
                                             abort_for_lost};
const hvd_plugin kController = {sizeof kController,
                                HVD_PLUGIN_ABI,
                                HVD_PLUGIN_CONTROLLER,
                                "memory",
                                1,
                                HVD_THREADS_ONE,
                                0,
                                probe,
                                open_controller,
                                close_controller,
                                &kControllerVtable};
const hvd_op_v1 kOpVtable = {sizeof kOpVtable, supports, run,     poll_op, new_set,
                             drop_set,         abort_op, nullptr, nullptr, reduce_wholes};
const hvd_plugin kOp = {sizeof kOp, HVD_PLUGIN_ABI, HVD_PLUGIN_OP, "memory",  1, HVD_THREADS_ONE, 0,
                        probe,      open_op,        close_op,      &kOpVtable};

}  // namespace

const hvd_plugin* memory_controller() { return &kController; }
const hvd_plugin* memory_op() { return &kOp; }

}  // namespace hvd::test
