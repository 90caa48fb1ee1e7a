// The built-in controller and operations through their plugin records, as a runtime calls them.
#include <doctest/doctest.h>
#include <poll.h>

#include <condition_variable>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/bytes.h"
#include "horovod/plugin_controller.h"
#include "horovod/plugin_op.h"

extern "C" {
const hvd_plugin* hvd_builtin_controller_tcp(void);
const hvd_plugin* hvd_builtin_op_cpu(void);
}

namespace {

struct Store {
  std::mutex mutex;
  std::condition_variable changed;
  std::map<std::string, std::string> values;
};

// A runtime's side of the host vtable, for one rank.
struct Host {
  Host(Store& shared, std::map<std::string, std::string> known)
      : store(shared), settings(std::move(known)) {
    vtable.struct_size = sizeof vtable;
    vtable.host = this;
    vtable.log = [](void*, int, const char*) {};
    vtable.setting = [](void* host, const char* name) -> const char* {
      auto& all = static_cast<Host*>(host)->settings;
      const auto found = all.find(name);
      return found == all.end() ? nullptr : found->second.c_str();
    };
    vtable.store_set = [](void* host, const char* key, const void* value, size_t size) -> int {
      Store& store = static_cast<Host*>(host)->store;
      const std::lock_guard lock(store.mutex);
      store.values[key].assign(static_cast<const char*>(value), size);
      store.changed.notify_all();
      return HVD_OK;
    };
    vtable.store_get = [](void* host, const char* key, void* value, size_t capacity, size_t* size,
                          double seconds) -> int {
      Store& store = static_cast<Host*>(host)->store;
      std::unique_lock lock(store.mutex);
      if (!store.changed.wait_for(lock, std::chrono::duration<double>(seconds),
                                  [&] { return store.values.contains(key); })) {
        return HVD_DEADLINE_EXCEEDED;
      }
      const std::string& found = store.values[key];
      *size = found.size();
      std::memcpy(value, found.data(), std::min(capacity, found.size()));
      return HVD_OK;
    };
    vtable.watch = [](void* host, int fd, void (*callback)(void*), void* argument) -> int {
      static_cast<Host*>(host)->watched[fd] = {callback, argument};
      return HVD_OK;
    };
    vtable.unwatch = [](void* host, int fd) { static_cast<Host*>(host)->watched.erase(fd); };
    vtable.publish = [](void* host, const char* name, void* pointer) -> int {
      static_cast<Host*>(host)->published[name] = pointer;
      return HVD_OK;
    };
    vtable.lookup = [](void* host, const char* name) {
      return static_cast<Host*>(host)->published[name];
    };
  }

  void block(int milliseconds) {
    std::vector<pollfd> entries;
    for (const auto& [fd, callback] : watched) entries.push_back({fd, POLLIN, 0});
    ::poll(entries.data(), entries.size(), milliseconds);
    for (const pollfd& entry : entries) {
      const auto [callback, argument] = watched[entry.fd];
      if (entry.revents != 0) callback(argument);
    }
  }

  Store& store;
  std::map<std::string, std::string> settings;
  std::map<int, std::pair<void (*)(void*), void*>> watched;
  std::map<std::string, void*> published;
  hvd_plugin_host vtable{};
};

struct Outcome {
  bool done = false;
  int status = -1;
  std::string error;
};

void note(void* argument, int status, const char* error) {
  auto* outcome = static_cast<Outcome*>(argument);
  outcome->done = true;
  outcome->status = status;
  outcome->error = error == nullptr ? "" : error;
}

// One rank's pair of plugins.
class Pair {
 public:
  Pair(Store& store, int32_t rank, int32_t size, const std::string& machine)
      : host_(store, {{"HOROVOD_JOB_SECRET", "00112233445566778899aabbccddeeff"},
                      {"HOROVOD_JOB_ID", "feedfacefeedface"},
                      {"HOROVOD_HOSTNAME", "h" + machine},
                      {"HOROVOD_TEST_MACHINE", machine},
                      {"HOROVOD_TEST_LOOPBACK", "1"},
                      {"HOROVOD_START_TIMEOUT", "10"}}) {
    config_.struct_size = sizeof config_;
    config_.rank = rank;
    config_.size = size;
    char text[512] = "";
    opened = controller_->open(&host_.vtable, &config_, &controller_context_, text, sizeof text);
    error = text;
    if (opened != HVD_OK) return;
    opened = op_->open(&host_.vtable, &config_, &op_context_, text, sizeof text);
    error = text;
  }
  ~Pair() {
    if (op_context_ != nullptr) op_->close(op_context_);
    if (controller_context_ != nullptr) controller_->close(controller_context_);
  }
  const hvd_controller_v1& link() const {
    return *static_cast<const hvd_controller_v1*>(controller_->vtable);
  }
  const hvd_op_v1& op() const { return *static_cast<const hvd_op_v1*>(op_->vtable); }
  void* link_context() { return controller_context_; }
  void* op_context() { return op_context_; }

  // One round of a progress loop; the controller's status.
  int step(bool may_sleep) {
    int32_t progressed = 0;
    char text[512] = "";
    const int status = link().poll(
        controller_context_,
        [](void* self, int32_t rank, const void* message, size_t size) {
          static_cast<Pair*>(self)->messages.emplace_back(
              rank, std::string(static_cast<const char*>(message), size));
        },
        this, &progressed, text, sizeof text);
    error = text;
    op().poll(op_context_, &progressed);
    if (status == HVD_OK && progressed == 0 && may_sleep &&
        link().before_sleep(controller_context_) == 1) {
      host_.block(5000);
      link().after_sleep(controller_context_);
    }
    return status;
  }

  int opened = -1;
  std::string error;
  std::vector<std::pair<int32_t, std::string>> messages;

 private:
  const hvd_plugin* controller_ = hvd_builtin_controller_tcp();
  const hvd_plugin* op_ = hvd_builtin_op_cpu();
  Host host_;
  hvd_plugin_config config_{};
  void* controller_context_ = nullptr;
  void* op_context_ = nullptr;
};

void run_ranks(int32_t size, const std::vector<std::string>& machines,
               const std::function<void(Pair&, int32_t)>& body) {
  Store store;
  std::vector<std::thread> threads;
  for (int32_t rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      Pair pair(store, rank, size, machines[static_cast<size_t>(rank)]);
      CHECK(pair.error == "");
      REQUIRE(pair.opened == HVD_OK);
      body(pair, rank);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

hvd_batch sum_of(hvd_batch_tensor& tensor, int32_t set) {
  hvd_batch batch{};
  batch.struct_size = sizeof batch;
  batch.op = HVD_ALLREDUCE;
  batch.reduce_op = HVD_SUM;
  batch.dtype = HVD_INT32;
  batch.device = HVD_CPU;
  batch.process_set = set;
  batch.prescale = batch.postscale = 1;
  batch.tensor_count = 1;
  batch.tensors = &tensor;
  return batch;
}

}  // namespace

TEST_CASE("many batches of several sets at once end in the order of each set") {
  for (const std::vector<std::string>& machines :
       {std::vector<std::string>{"a", "a", "a"}, {"a", "b", "a"}}) {
    run_ranks(3, machines, [](Pair& pair, int32_t rank) {
      const int32_t members[] = {0, 2};
      if (rank != 1) CHECK(pair.op().new_set(pair.op_context(), 7, members, 2) == HVD_OK);
      constexpr size_t kBatches = 40;
      std::vector<std::vector<int32_t>> values;
      std::vector<hvd_batch_tensor> tensors(kBatches);
      std::vector<hvd_batch> batches(kBatches);
      std::vector<Outcome> outcomes(kBatches);
      for (size_t i = 0; i < kBatches; ++i) values.emplace_back(i % 3 == 0 ? 90'000 : 5, rank + 1);
      for (size_t i = 0; i < kBatches; ++i) {
        tensors[i] = {values[i].data(), values[i].data(), static_cast<int64_t>(values[i].size()),
                      1, nullptr, nullptr};
        batches[i] = sum_of(tensors[i], i % 2 == 0 ? 0 : 7);
      }
      const auto takes_part = [rank](size_t i) { return i % 2 == 0 || rank != 1; };
      // Each rank starts the sets in another order.
      for (const size_t first : {rank == 0 ? size_t{0} : size_t{1}, rank == 0 ? size_t{1} : 0}) {
        for (size_t i = first; i < kBatches; i += 2) {
          if (!takes_part(i)) continue;
          CHECK(pair.op().supports(pair.op_context(), &batches[i]) > 0);
          CHECK(pair.op().run(pair.op_context(), &batches[i], note, &outcomes[i]) == HVD_OK);
        }
      }
      for (size_t i = 0; i < kBatches; ++i) {
        while (takes_part(i) && !outcomes[i].done) REQUIRE(pair.step(true) == HVD_OK);
        if (!takes_part(i)) continue;
        CHECK(outcomes[i].status == HVD_OK);
        CHECK(values[i].back() == (i % 2 == 0 ? 6 : 4));
      }
      if (rank != 1) CHECK(pair.op().drop_set(pair.op_context(), 7) == HVD_OK);
      // Nobody leaves while another one still drives.
      int32_t all = 1;
      hvd_batch_tensor tensor{&all, &all, 1, 1, nullptr, nullptr};
      hvd_batch last = sum_of(tensor, 0);
      Outcome outcome;
      pair.op().run(pair.op_context(), &last, note, &outcome);
      while (!outcome.done) REQUIRE(pair.step(true) == HVD_OK);
    });
  }
}

TEST_CASE("messages go to any rank and hosts are numbered by their lowest rank") {
  run_ranks(4, {"x", "y", "x", "z"}, [](Pair& pair, int32_t rank) {
    const int32_t* hosts = pair.link().hosts(pair.link_context());
    CHECK(std::vector<int32_t>(hosts, hosts + 4) == std::vector<int32_t>{0, 1, 0, 2});
    for (int32_t to = 0; to < 4; ++to) {
      const std::string text = "from " + std::to_string(rank);
      CHECK(pair.link().send(pair.link_context(), to, text.data(), text.size()) == HVD_OK);
    }
    while (pair.messages.size() < 4) REQUIRE(pair.step(true) == HVD_OK);
    for (const auto& [from, text] : pair.messages) CHECK(text == "from " + std::to_string(from));
    CHECK(pair.link().send(pair.link_context(), 4, "x", 1) == HVD_INVALID_ARGUMENT);
  });
}

TEST_CASE("an abort fails what is pending on all ranks with its cause") {
  run_ranks(3, {"a", "a", "b"}, [](Pair& pair, int32_t rank) {
    int32_t value = 1;
    hvd_batch_tensor tensor{&value, &value, 1, 1, nullptr, nullptr};
    hvd_batch batch = sum_of(tensor, 0);
    Outcome first, second;
    pair.op().run(pair.op_context(), &batch, note, &first);
    while (!first.done) REQUIRE(pair.step(true) == HVD_OK);
    CHECK(first.status == HVD_OK);
    if (rank == 1) {
      pair.link().abort(pair.link_context(), "rank 1 had enough");
    } else {
      pair.op().run(pair.op_context(), &batch, note, &second);
      while (!second.done) pair.step(true);
      CHECK(second.status == HVD_ABORTED);
      CHECK(second.error == "rank 1 had enough");
    }
    CHECK(pair.step(false) == HVD_ABORTED);
    CHECK(pair.error == "rank 1 had enough");
  });
}

TEST_CASE("without a secret, ranks that need one refuse to start and say how") {
  Store store;
  Host host(store, {});
  hvd_plugin_config config{};
  config.size = 2;
  void* context = nullptr;
  char error[256] = "";
  const hvd_plugin* controller = hvd_builtin_controller_tcp();
  CHECK(controller->open(&host.vtable, &config, &context, error, sizeof error) ==
        HVD_FAILED_PRECONDITION);
  CHECK(std::string(error).find("start the job with horovodrun") != std::string::npos);
}

TEST_CASE("the operations refuse to open without their controller") {
  Store store;
  Host host(store, {});
  hvd_plugin_config config{};
  void* context = nullptr;
  char error[256] = "";
  CHECK(hvd_builtin_op_cpu()->open(&host.vtable, &config, &context, error, sizeof error) ==
        HVD_FAILED_PRECONDITION);
  CHECK(std::string(error).find("tcp controller") != std::string::npos);
}

TEST_CASE("what the operations cannot do, they do not claim") {
  hvd_batch_tensor tensor{};
  hvd_batch batch = sum_of(tensor, 0);
  const auto* op = static_cast<const hvd_op_v1*>(hvd_builtin_op_cpu()->vtable);
  batch.device = 0;
  CHECK(op->supports(nullptr, &batch) == 0);
  batch.device = HVD_CPU;
  batch.reduce_op = HVD_ADASUM;
  batch.dtype = HVD_INT32;
  CHECK(op->supports(nullptr, &batch) == 0);
  batch.op = HVD_JOIN;
  CHECK(op->supports(nullptr, &batch) == 0);
}
