// Memory that a host's ranks map from each other, and the allreduce that reduces it in place.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <memory>

#include "base/half.h"
#include "collectives/checks.h"

using namespace hvd;
using namespace hvd::test;
using collectives::PeerHeaps;
using collectives::SharedHeap;

namespace {

struct Freed {
  SharedHeap* heap;
  void operator()(void* memory) const { CHECK(heap->release(memory).message() == ""); }
};
template <typename T>
using Shared = std::unique_ptr<T[], Freed>;

template <typename T>
Shared<T> shared(World& world, size_t count) {
  auto memory = world.heap.allocate(count * sizeof(T));
  REQUIRE(memory.status().message() == "");
  return Shared<T>(static_cast<T*>(memory.value()), Freed{&world.heap});
}

struct Use {
  float* data;
  size_t count;
};

// Sums tensors in place; returns an error for a wrong element. Rank r has r + 1 + element % 7.
Status sum(Rank& rank, const std::vector<Use>& uses) {
  std::vector<hvd_batch_tensor> tensors;
  for (const Use& use : uses) {
    for (size_t i = 0; i < use.count; ++i) {
      use.data[i] = static_cast<float>(static_cast<size_t>(rank.rank()) + 1 + i % 7);
    }
    tensors.push_back({use.data, use.data, static_cast<int64_t>(use.count), 1, nullptr, nullptr});
  }
  HVD_RETURN_IF_ERROR(rank.run(batch_of(HVD_ALLREDUCE, HVD_FLOAT32, tensors)));
  const auto ranks = static_cast<size_t>(rank.size());
  for (const Use& use : uses) {
    for (size_t i = 0; i < use.count; ++i) {
      const auto expected = static_cast<float>(ranks * (ranks + 1) / 2 + ranks * (i % 7));
      if (use.data[i] != expected) {
        return internal_error(
            cat("element ", i, " of ", use.count, ": ", use.data[i], " and not ", expected));
      }
    }
  }
  return {};
}

}  // namespace

TEST_CASE("tensors in shared memory are summed where they lie, one or many, on one host or more") {
  for (const auto& hosts : all_worlds()) {
    CAPTURE(name_of_world(hosts));
    World world(hosts);
    require_all_ok(world.run([&world](Rank& rank) -> Status {
      const auto memory = shared<float>(world, 400'000);
      for (int round = 0; round < 3; ++round) {
        HVD_RETURN_IF_ERROR(sum(rank, {{memory.get(), 400'000}}));
        // Reduces parts of one block at any offset.
        HVD_RETURN_IF_ERROR(sum(rank, {{memory.get() + 3, 70'001},
                                       {memory.get() + 100'000, 5},
                                       {memory.get() + 200'001, 33'333}}));
      }
      return {};
    }));
  }
}

TEST_CASE("one private tensor on one rank makes all ranks pack, batch by batch") {
  for (const auto& hosts : all_worlds()) {
    CAPTURE(name_of_world(hosts));
    World world(hosts);
    require_all_ok(world.run([&world](Rank& rank) -> Status {
      const auto memory = shared<float>(world, 100'000);
      std::vector<float> own(100'000);
      for (int round = 0; round < 8; ++round) {
        const bool is_private = round % 2 == 1 && rank.rank() == round / 2 % rank.size();
        float* data = is_private ? own.data() : memory.get();
        HVD_RETURN_IF_ERROR(sum(rank, {{data, 100'000}}));
        HVD_RETURN_IF_ERROR(sum(rank, {{memory.get(), 50'000}, {data + 50'000, 20'000}}));
        HVD_RETURN_IF_ERROR(sum(rank, {{data, 10}}));
      }
      return {};
    }));
  }
}

TEST_CASE("memory that comes and goes between steps is never another's") {
  World world({0, 0, 0});
  require_all_ok(world.run([&world](Rank& rank) -> Status {
    for (int round = 0; round < 40; ++round) {
      const auto memory = shared<float>(world, 20'000 + static_cast<size_t>(round) * 100);
      HVD_RETURN_IF_ERROR(sum(rank, {{memory.get(), 20'000}}));
    }
    return {};
  }));
}

TEST_CASE("a place is found for memory inside a block, and for no other") {
  SharedHeap heap;
  const auto memory = heap.allocate(10'000);
  REQUIRE(memory.ok());
  auto* bytes = static_cast<std::byte*>(memory.value());
  CHECK(bytes[0] == std::byte{0});
  CHECK(heap.find(bytes, 10'000).has_value());
  CHECK(heap.find(bytes + 400, 100)->offset == 400);
  CHECK_FALSE(heap.find(bytes + 12'000, 400).has_value());
  CHECK_FALSE(heap.find(bytes - 1, 1).has_value());
  int elsewhere = 0;
  CHECK_FALSE(heap.find(&elsewhere, sizeof elsewhere).has_value());
  CHECK(heap.release(bytes).ok());
  CHECK_FALSE(heap.find(bytes, 1).has_value());
  CHECK(heap.release(bytes).message() ==
        "hvd_free of memory that hvd_alloc did not give, or that was freed before");
  CHECK(heap.allocate(0).status().message() == "hvd_alloc of no bytes");
}

TEST_CASE("freed memory goes back to the host, also while a peer has it mapped") {
  SharedHeap heap;
  const auto memory = heap.allocate(4 << 20);
  REQUIRE(memory.ok());
  const auto place = heap.find(memory.value(), 4 << 20);
  collectives::MemoryMap map;
  std::vector<UniqueFd> files;
  files.emplace_back(::fcntl(heap.file().value(), F_DUPFD_CLOEXEC, 0));
  PeerHeaps peers(std::move(files), map);
  const auto seen = peers.reach(0, *place, 4 << 20);
  REQUIRE(seen.ok());
  std::memset(memory.value(), 7, 4 << 20);
  CHECK(seen.value()[1 << 20] == std::byte{7});
  struct stat before {
  }, after{};
  ::fstat(heap.file().value(), &before);
  CHECK(heap.release(memory.value()).ok());
  ::fstat(heap.file().value(), &after);
  CHECK(before.st_blocks >= (4 << 20) / 512);
  CHECK(after.st_blocks == 0);
  // A peer that still reads gets zeros, without a signal.
  CHECK(seen.value()[1 << 20] == std::byte{0});
  CHECK(heap.find(heap.allocate(4 << 20).value(), 1)->block != place->block);
}

TEST_CASE("a place outside of the heap, or in none, is refused") {
  SharedHeap heap;
  collectives::MemoryMap map;
  std::vector<UniqueFd> files;
  files.emplace_back(::fcntl(heap.file().value(), F_DUPFD_CLOEXEC, 0));
  files.emplace_back(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  PeerHeaps peers(std::move(files), map);
  const std::string refusal = "a peer names shared memory that it does not have";
  CHECK(peers.reach(0, {uint64_t{1} << 62, 4096, 0}, 1).status().message() == refusal);
  CHECK(peers.reach(0, {0, uint64_t{1} << 62, 0}, 1).status().message() == refusal);
  CHECK(peers.reach(0, {0, 4096, 4096}, 1).status().message() == refusal);
  CHECK(peers.reach(1, {0, 4096, 0}, 1).status().message() == refusal);
  const auto memory = heap.allocate(4096);
  const SharedHeap::Place place = *heap.find(memory.value(), 4096);
  CHECK(peers.reach(0, {place.block, place.size, 96}, place.size - 95).status().message() ==
        refusal);
}

TEST_CASE("a forked child can use its parent's memory and cannot allocate or free") {
  SharedHeap heap;
  const auto memory = heap.allocate(4096);
  REQUIRE(memory.ok());
  auto* word = static_cast<volatile int*>(memory.value());
  const pid_t child = ::fork();
  if (child == 0) {
    *word = 5;
    const bool refused = !heap.allocate(4096).ok() && !heap.release(memory.value()).ok();
    ::_exit(refused ? 0 : 1);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  CHECK(status == 0);
  CHECK(*word == 5);
  CHECK(heap.release(memory.value()).ok());
}
