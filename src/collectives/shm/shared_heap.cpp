#include "collectives/shm/shared_heap.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/text.h"

namespace hvd::collectives {
namespace {

constexpr uint64_t kFileSize = uint64_t{1} << 46;
// Blocks are aligned to huge pages, in case the host uses them for shared memory.
constexpr uint64_t kBlockAlign = uint64_t{2} << 20;

// Returns the page size. The system frees only whole pages.
uint64_t page() { return static_cast<uint64_t>(::sysconf(_SC_PAGESIZE)); }

uint64_t rounded_up(uint64_t value, uint64_t to) { return (value + to - 1) / to * to; }

uint64_t file_size() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return kFileSize;
  return std::min<uint64_t>(kFileSize, limit.rlim_cur / page() * page());
}

void punch(int file, uint64_t at, uint64_t size) {
  ::fallocate(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(at),
              static_cast<off_t>(size));
}

GuardedFd create_heap_file() {
  const NoFork hold;
  return GuardedFd(UniqueFd(::memfd_create("horovod-memory", MFD_CLOEXEC | MFD_ALLOW_SEALING)));
}

// Maximum number of mapped blocks per peer. One batch uses fewer blocks.
constexpr size_t kMostBlocks = 1024;

// Returns the size of a file, or 0 if the file could shrink below its mapping.
uint64_t sealed_size(int file) {
  struct stat info {};
  const int seals = ::fcntl(file, F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0 || ::fstat(file, &info) != 0) return 0;
  return static_cast<uint64_t>(info.st_size);
}

}  // namespace

Status SharedHeap::open() {
  if (file_) {
    if (owner_ == ::getpid()) return {};
    return failed_precondition(
        "memory from hvd_alloc belongs to the process that this one was forked from; only that "
        "one can allocate or free it");
  }
  GuardedFd file = create_heap_file();
  if (!file) return system_error("cannot create shared memory", errno);
  const uint64_t size = file_size();
  if (::ftruncate(file.get(), static_cast<off_t>(size)) != 0 ||
      ::fcntl(file.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    return system_error("cannot size and seal shared memory", errno);
  }
  file_ = std::move(file);
  owner_ = ::getpid();
  end_ = size;
  return {};
}

Result<int> SharedHeap::file() {
  const MutexLock lock(mutex_);
  HVD_RETURN_IF_ERROR(open());
  return file_.get();
}

Result<void*> SharedHeap::allocate(size_t size) {
  const MutexLock lock(mutex_);
  HVD_RETURN_IF_ERROR(open());
  if (size == 0) return invalid_argument("hvd_alloc of no bytes");
  if (size > end_ - next_) {
    return unavailable(cat("no room for ", size, " bytes of shared memory: this process has had ",
                           next_ >> 20, " of at most ", end_ >> 20, " MiB (ulimit -f)"));
  }
  const Block block{next_, std::min(rounded_up(size, page()), end_ - next_)};
  while (::fallocate(file_.get(), 0, static_cast<off_t>(block.at),
                     static_cast<off_t>(block.size)) != 0) {
    if (errno == EINTR) continue;
    const int error = errno;
    punch(file_.get(), block.at, block.size);
    return system_error(cat("cannot get ", size >> 10, " KiB of memory to share on this host"),
                        error);
  }
  void* memory = ::mmap(nullptr, block.size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE,
                        file_.get(), static_cast<off_t>(block.at));
  if (memory == MAP_FAILED) {
    const int error = errno;
    punch(file_.get(), block.at, block.size);
    return system_error(cat("cannot map ", size >> 10, " KiB of shared memory"), error);
  }
  next_ = std::min(end_, rounded_up(block.at + block.size, kBlockAlign));
  blocks_.emplace(reinterpret_cast<uintptr_t>(memory), block);
  block_count_.store(blocks_.size(), std::memory_order_release);
  return memory;
}

Status SharedHeap::release(void* memory) {
  if (memory == nullptr) return {};
  const MutexLock lock(mutex_);
  HVD_RETURN_IF_ERROR(open());
  const auto found = blocks_.find(reinterpret_cast<uintptr_t>(memory));
  if (found == blocks_.end()) {
    return not_found("hvd_free of memory that hvd_alloc did not give, or that was freed before");
  }
  const Block block = found->second;
  blocks_.erase(found);
  block_count_.store(blocks_.size(), std::memory_order_release);
  ::munmap(memory, block.size);
  punch(file_.get(), block.at, block.size);
  return {};
}

std::optional<SharedHeap::Place> SharedHeap::find(const void* memory, size_t size) const {
  if (block_count_.load(std::memory_order_acquire) == 0) return std::nullopt;
  const auto address = reinterpret_cast<uintptr_t>(memory);
  const MutexLock lock(mutex_);
  auto next = blocks_.upper_bound(address);
  if (next == blocks_.begin()) return std::nullopt;
  const auto& [begin, block] = *--next;
  const uint64_t offset = address - begin;
  if (offset > block.size || size > block.size - offset) return std::nullopt;
  return Place{block.at, block.size, offset};
}

PeerHeaps::PeerHeaps(std::vector<UniqueFd> files, MemoryMap& map) : map_(map) {
  for (UniqueFd& file : files) {
    Heap heap;
    heap.size = file ? sealed_size(file.get()) : 0;
    heap.file = GuardedFd(std::move(file));
    heaps_.push_back(std::move(heap));
  }
}

PeerHeaps::~PeerHeaps() {
  for (Heap& heap : heaps_) {
    for (auto& [at, block] : heap.blocks) map_.unmap(block.memory, block.size);
  }
}

Result<std::byte*> PeerHeaps::reach(size_t local, const SharedHeap::Place& place, size_t bytes) {
  Heap& heap = heaps_[local];
  if (place.size == 0 || place.offset >= place.size || bytes > place.size - place.offset ||
      place.block > heap.size || place.size > heap.size - place.block) {
    return invalid_argument("a peer names shared memory that it does not have");
  }
  auto found = heap.blocks.find(place.block);
  if (found == heap.blocks.end()) {
    if (heap.blocks.size() >= kMostBlocks) forget_oldest(heap);
    HVD_ASSIGN_OR_RETURN(void* memory, map_.map(heap.file.get(), place.block, place.size));
    found = heap.blocks.emplace(place.block, Block{static_cast<std::byte*>(memory), place.size, 0})
                .first;
  }
  if (found->second.size != place.size) {
    return invalid_argument("a peer says two things of the same shared memory");
  }
  found->second.last_use = ++uses_;
  return found->second.memory + place.offset;
}

void PeerHeaps::forget_oldest(Heap& heap) {
  const auto oldest = std::min_element(
      heap.blocks.begin(), heap.blocks.end(),
      [](const auto& a, const auto& b) { return a.second.last_use < b.second.last_use; });
  map_.unmap(oldest->second.memory, oldest->second.size);
  heap.blocks.erase(oldest);
}

}  // namespace hvd::collectives
