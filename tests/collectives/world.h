// Ranks as threads of one process, each with its own mesh, over an in-memory store. Hosts are
// simulated: ranks with the same host number share memory, others connect by TCP on loopback.
#pragma once

#include <poll.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <atomic>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/text.h"
#include "collectives/algorithms/collectives.h"
#include "collectives/mesh/mesh.h"

namespace hvd::test {

using collectives::Flow;
using collectives::Group;
using collectives::Mesh;
using collectives::MeshOptions;

class MemoryStore final : public collectives::KeyValueStore {
 public:
  Status set(std::string_view key, ByteView value) override {
    const std::lock_guard lock(mutex_);
    values_[std::string(key)] = Bytes(value.begin(), value.end());
    changed_.notify_all();
    return {};
  }
  Result<Bytes> get(std::string_view key, Deadline deadline) override {
    std::unique_lock lock(mutex_);
    const std::string name(key);
    while (!values_.contains(name)) {
      if (changed_.wait_until(lock, deadline.time()) == std::cv_status::timeout) {
        return deadline_exceeded("no " + name);
      }
    }
    return values_[name];
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, Bytes> values_;
};

// Gives all ranks of the process the same addresses for the same memory, at offsets for the largest
// kernel pages, those of 64-bit ARM.
class SharedMap final : public collectives::MemoryMap {
 public:
  Result<void*> map(int fd, size_t offset, size_t size) override {
    if (offset % (64 * 1024) != 0) return invalid_argument("no page of 64 KiB begins there");
    struct stat info {};
    ::fstat(fd, &info);
    const std::lock_guard lock(mutex_);
    Mapping& mapping = mappings_[{info.st_ino, offset, size}];
    if (mapping.users++ == 0) {
      mapping.memory =
          ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, static_cast<off_t>(offset));
    }
    return mapping.memory;
  }
  void unmap(void* memory, size_t size) override {
    const std::lock_guard lock(mutex_);
    for (auto it = mappings_.begin(); it != mappings_.end(); ++it) {
      if (it->second.memory != memory || std::get<2>(it->first) != size) continue;
      if (--it->second.users == 0) {
        ::munmap(memory, size);
        mappings_.erase(it);
      }
      return;
    }
  }

 private:
  struct Mapping {
    void* memory = nullptr;
    int users = 0;
  };
  std::mutex mutex_;
  std::map<std::tuple<ino_t, size_t, size_t>, Mapping> mappings_;
};

inline Secret test_secret(std::string_view text = "the secret of the tests") {
  return Secret::from_bytes(as_bytes(text)).value();
}

// One rank: its mesh, the group of all ranks, and a loop that drives both.
class Rank {
 public:
  explicit Rank(std::unique_ptr<Mesh> mesh) : mesh_(std::move(mesh)) {
    std::vector<int32_t> everyone;
    for (int32_t rank = 0; rank < mesh_->size(); ++rank) everyone.push_back(rank);
    group_ = std::make_unique<Group>(*mesh_, 0, everyone, 0);
  }
  ~Rank() { group_.reset(); }

  Mesh& mesh() { return *mesh_; }
  Group& group() { return *group_; }
  int32_t rank() const { return mesh_->rank(); }
  int32_t size() const { return mesh_->size(); }
  // The number of polls before sleeping.
  int spins = 200;

  // Runs a batch to its end; a failure of the mesh ends it too.
  Status run(const hvd_batch& batch) { return run(batch, *group_); }
  Status run(const hvd_batch& batch, Group& group) {
    if (!mesh_->failure().ok()) return mesh_->failure();
    flow_.start(collectives::run(flow_, group, batch));
    const Status driven = drive([this] {
      flow_.poll();
      return !flow_.running();
    });
    flow_.drop();
    return driven;
  }
  // Polls until `done`, sleeping in between.
  Status drive(const std::function<bool()>& done) {
    mesh_->set_idle_check([this] { return !flow_.ready(); });
    int idle = 0;
    while (!done()) {
      bool moved = false;
      const Status polled =
          mesh_->poll([this](int32_t from, ByteView message) { on_message(from, message); }, moved);
      if (!polled.ok()) return polled;
      if (flow_.running() && !moved) {
        const int left =
            flow_.awaited_rank_that_left([this](int rank) { return mesh_->departed(rank); });
        if (left >= 0) return aborted(cat(mesh_->describe(left), " has shut down"));
      }
      idle = moved ? 0 : idle + 1;
      if (idle > spins && mesh_->before_sleep()) {
        pollfd entry{mesh_->fd(), POLLIN, 0};
        const int woken = ::poll(&entry, 1, 20000);
        mesh_->after_sleep();
        mesh_->notice();
        if (woken == 0) return deadline_exceeded("nobody woke this rank in 20 seconds");
        ++sleeps;
        idle = 0;
      }
    }
    return {};
  }
  std::function<void(int32_t, ByteView)> on_message = [](int32_t, ByteView) {};
  int sleeps = 0;

 private:
  std::unique_ptr<Mesh> mesh_;
  std::unique_ptr<Group> group_;
  Flow flow_;
};

struct World {
  // The host of each rank.
  std::vector<int> hosts;
  MemoryStore store;
  SharedMap memory;
  collectives::SharedHeap heap;  // each process has one heap
  std::string site = {};         // prefix of a host's site
  collectives::LinkTimes times = {};
  collectives::Credentials credentials = {
      .job = "0123456789abcdef", .generation = 0, .secret = test_secret(), .encrypts = false};

  explicit World(std::vector<int> host_of_rank) : hosts(std::move(host_of_rank)) {}

  MeshOptions options(int32_t rank) {
    return MeshOptions{.rank = rank,
                       .size = static_cast<int32_t>(hosts.size()),
                       .host = std::string(1, static_cast<char>('a' + hosts[size_t(rank)])),
                       .credentials = credentials,
                       .site = site.empty() ? "" : cat(site, hosts[size_t(rank)]),
                       .times = times,
                       .heap = &heap,
                       .memory_map = &memory,
                       .machine = cat("/", hosts[size_t(rank)]),
                       .with_loopback = true};
  }

  // Runs `body` on a thread per rank. Returns the failures of `body` or of the rendezvous.
  std::vector<Status> run(const std::function<Status(Rank&)>& body, double seconds = 20);
};

inline std::vector<Status> run_on(World& world, collectives::KeyValueStore& store,
                                  const std::function<Status(Rank&)>& body, double seconds = 20) {
  std::vector<Status> outcomes(world.hosts.size());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < world.hosts.size(); ++i) {
    threads.emplace_back([&, i] {
      auto mesh = Mesh::establish(world.options(static_cast<int32_t>(i)), store,
                                  Deadline::after_seconds(seconds));
      if (!mesh.ok()) {
        outcomes[i] = mesh.status();
        return;
      }
      Rank rank(std::move(mesh).value());
      outcomes[i] = body(rank);
    });
  }
  for (std::thread& thread : threads) thread.join();
  return outcomes;
}

inline std::vector<Status> World::run(const std::function<Status(Rank&)>& body, double seconds) {
  return run_on(*this, store, body, seconds);
}

// The layouts to test, as the host of each rank.
inline std::vector<std::vector<int>> all_worlds() {
  return {{0},          {0, 0},       {0, 0, 0},          {0, 0, 0, 0, 0}, {0, 1},
          {0, 0, 1, 1}, {0, 1, 0, 1}, {0, 0, 0, 1, 2, 2}, {0, 1, 2, 3, 4}};
}

inline std::string name_of_world(const std::vector<int>& hosts) {
  std::string name = "hosts";
  for (const int host : hosts) name += cat(" ", host);
  return name;
}

}  // namespace hvd::test
