#include "collectives/shm/shared_region.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <cerrno>

#include "base/text.h"

namespace hvd::collectives {
namespace {

constexpr uint64_t kRegionMagic = 0x34616e6572612d68;
constexpr size_t kPage = 4096;
// Sub-regions are aligned to the largest page: kernels for 64-bit ARM have pages of up to 64 KiB.
constexpr size_t kLargestPage = 64 * 1024;

// Number of entries with memory. Further entries mark sub-regions that were refused for lack of space.
constexpr size_t kMostRooms = kSubRegions - 16;
// Minimum number of sub-regions: with fewer, a job with some process sets would fail later.
constexpr size_t kFewestRooms = 8;

size_t round_up_to(size_t size, size_t to) { return (size + to - 1) / to * to; }

size_t control_size(size_t rank_count) {
  return round_up_to(round_up_to(sizeof(RegionHeader), kPage) + rank_count * sizeof(RankBlock),
                     kLargestPage);
}

Status allocate(int fd, size_t offset, size_t size) {
  // Reserve the memory: otherwise a later write could end the process with SIGBUS.
  while (::fallocate(fd, 0, static_cast<off_t>(offset), static_cast<off_t>(size)) != 0) {
    if (errno == EINTR) continue;
    return system_error(cat("cannot get ", size >> 10, " KiB of memory to share on this host"),
                        errno);
  }
  return {};
}

// Returns the number of sub-regions within the limit of file sizes (ulimit -f): a write beyond the limit fails.
Result<size_t> rooms_within_limit(size_t rank_count, size_t control, size_t sub_region_size) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_FSIZE, &limit) != 0) return kMostRooms;
  const size_t left = limit.rlim_cur < control ? 0 : limit.rlim_cur - control;
  const size_t rooms = std::min(kMostRooms, left / sub_region_size);
  if (rooms >= kFewestRooms) return rooms;
  return unavailable(cat("the shared memory of the ", rank_count,
                         " ranks of this host is a file of at least ",
                         ((control + kFewestRooms * sub_region_size) >> 20) + 1,
                         " MiB, and the limit of file sizes is ", limit.rlim_cur >> 20,
                         " MiB; raise it by ulimit -f"));
}

Status no_room(size_t rooms) {
  return unavailable(
      cat("more than ", rooms,
          " process sets and groups at once share memory on this host; remove some",
          rooms < kMostRooms ? ", or raise the limit of file sizes (ulimit -f)" : ""));
}

GuardedFd create_region_file() {
  const NoFork hold;
  return GuardedFd(UniqueFd(::memfd_create("horovod", MFD_CLOEXEC | MFD_ALLOW_SEALING)));
}

}  // namespace

Result<void*> MemoryMap::map(int fd, size_t offset, size_t size) {
  void* memory =
      ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, static_cast<off_t>(offset));
  if (memory == MAP_FAILED) return system_error("cannot map shared memory", errno);
  // A forked child must not keep the mapping, since the memory belongs to its parent.
  ::madvise(memory, size, MADV_DONTFORK);
  return memory;
}

void MemoryMap::unmap(void* memory, size_t size) { ::munmap(memory, size); }

Result<std::unique_ptr<SharedRegion>> SharedRegion::create(size_t rank_count,
                                                           size_t sub_region_size, MemoryMap& map) {
  if (rank_count > kMaxLocalRanks) {
    return invalid_argument(cat(rank_count, " ranks on one host are more than the ", kMaxLocalRanks,
                                " that can share memory"));
  }
  GuardedFd file = create_region_file();
  if (!file) return system_error("cannot create shared memory", errno);
  const size_t control = control_size(rank_count);
  sub_region_size = round_up_to(sub_region_size, kLargestPage);
  HVD_ASSIGN_OR_RETURN(const size_t rooms,
                       rooms_within_limit(rank_count, control, sub_region_size));
  const size_t total = control + rooms * sub_region_size;
  if (::ftruncate(file.get(), static_cast<off_t>(total)) != 0) {
    return system_error("cannot size shared memory", errno);
  }
  HVD_RETURN_IF_ERROR(allocate(file.get(), 0, control));
  if (::fcntl(file.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    return system_error("cannot seal shared memory", errno);
  }
  std::unique_ptr<SharedRegion> region(new SharedRegion(std::move(file), map));
  HVD_RETURN_IF_ERROR(region->attach(control));
  RegionHeader& header = *region->header_;
  header.magic = kRegionMagic;
  header.rank_count = static_cast<uint32_t>(rank_count);
  header.sub_region_size = sub_region_size;
  header.sub_regions_at = control;
  header.rooms = rooms;
  for (size_t rank = 0; rank < rank_count; ++rank) {
    for (size_t i = 0; i < kMessageCells; ++i) {
      region->ranks_[rank].messages[i].turn.store(i, std::memory_order_relaxed);
    }
  }
  return region;
}

Result<std::unique_ptr<SharedRegion>> SharedRegion::open(UniqueFd file, MemoryMap& map) {
  struct stat info {};
  if (::fstat(file.get(), &info) != 0) return system_error("cannot inspect shared memory", errno);
  const int seals = ::fcntl(file.get(), F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0) {
    return permission_denied("the shared memory that a peer offers is not sealed");
  }
  std::unique_ptr<SharedRegion> region(new SharedRegion(GuardedFd(std::move(file)), map));
  if (static_cast<size_t>(info.st_size) < control_size(1)) {
    return invalid_argument("the shared memory that a peer offers is too small");
  }
  HVD_RETURN_IF_ERROR(region->attach(control_size(1)));
  const size_t rank_count = region->header_->rank_count;
  if (region->header_->magic != kRegionMagic || rank_count == 0 || rank_count > kMaxLocalRanks ||
      control_size(rank_count) != region->header_->sub_regions_at ||
      region->header_->rooms < kFewestRooms || region->header_->rooms > kMostRooms ||
      region->header_->sub_region_size > static_cast<size_t>(info.st_size) / kFewestRooms ||
      static_cast<size_t>(info.st_size) <
          region->header_->sub_regions_at +
              region->header_->rooms * region->header_->sub_region_size) {
    return invalid_argument("the shared memory that a peer offers has another layout");
  }
  map.unmap(region->memory_, region->size_);
  region->memory_ = nullptr;
  HVD_RETURN_IF_ERROR(region->attach(control_size(rank_count)));
  return region;
}

Status SharedRegion::attach(size_t size) {
  HVD_ASSIGN_OR_RETURN(memory_, map_.map(file_.get(), 0, size));
  size_ = size;
  auto* bytes = static_cast<std::byte*>(memory_);
  header_ = reinterpret_cast<RegionHeader*>(bytes);
  ranks_ = reinterpret_cast<RankBlock*>(bytes + round_up_to(sizeof(RegionHeader), kPage));
  return {};
}

SharedRegion::SharedRegion(GuardedFd file, MemoryMap& map) : file_(std::move(file)), map_(map) {}

SharedRegion::~SharedRegion() {
  if (memory_ != nullptr) map_.unmap(memory_, size_);
}

Status SharedRegion::make_sub_region(uint64_t key, size_t size, uint32_t users) {
  if (size > header_->sub_region_size) {
    return internal_error("a group's sub-region is larger than those of the shared region");
  }
  const auto claim = [this](size_t begin, size_t end) {
    while (begin < end) {
      auto expected = static_cast<uint32_t>(SubRegionState::kFree);
      if (header_->sub_regions[begin].state.compare_exchange_strong(
              expected, static_cast<uint32_t>(SubRegionState::kClaimed))) {
        break;
      }
      ++begin;
    }
    return begin;
  };
  size_t index = claim(0, header_->rooms);
  Status made;
  if (index < header_->rooms) {
    made = allocate(file_.get(), header_->sub_regions_at + index * header_->sub_region_size, size);
  } else {
    made = no_room(header_->rooms);
    index = claim(index, kSubRegions);
    if (index == kSubRegions) return internal_error(made.message());
  }
  SubRegionEntry& entry = header_->sub_regions[index];
  entry.users.store(users);
  entry.key.store(key);
  entry.state.store(
      static_cast<uint32_t>(made.ok() ? SubRegionState::kReady : SubRegionState::kRefused));
  return made;
}

Result<int> SharedRegion::find_sub_region(uint64_t key) const {
  for (size_t i = 0; i < kSubRegions; ++i) {
    const SubRegionEntry& entry = header_->sub_regions[i];
    // The order matters: a state read before the key could belong to another key.
    if (entry.key.load() != key) continue;
    const auto state = static_cast<SubRegionState>(entry.state.load());
    if (state < SubRegionState::kReady) continue;
    if (state == SubRegionState::kReady) return static_cast<int>(i);
    if (header_->sub_regions[i].users.fetch_sub(1) == 1) {
      header_->sub_regions[i].key.store(0);
      header_->sub_regions[i].state.store(static_cast<uint32_t>(SubRegionState::kFree));
    }
    if (i >= header_->rooms) return no_room(header_->rooms);
    return unavailable("no memory is left to share on this host for another process set");
  }
  return -1;
}

Result<std::byte*> SharedRegion::map_sub_region(int index, size_t size) {
  const size_t offset =
      header_->sub_regions_at + static_cast<size_t>(index) * header_->sub_region_size;
  HVD_ASSIGN_OR_RETURN(void* memory, map_.map(file_.get(), offset, size));
  return static_cast<std::byte*>(memory);
}

void SharedRegion::release_sub_region(int index, std::byte* memory, size_t size) {
  if (memory != nullptr) map_.unmap(memory, size);
  SubRegionEntry& entry = header_->sub_regions[index];
  if (entry.users.fetch_sub(1) != 1) return;
  // The punched hole also zeroes the memory for the next group.
  ::fallocate(file_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
              static_cast<off_t>(header_->sub_regions_at +
                                 static_cast<size_t>(index) * header_->sub_region_size),
              static_cast<off_t>(header_->sub_region_size));
  entry.key.store(0);
  entry.state.store(static_cast<uint32_t>(SubRegionState::kFree));
}

}  // namespace hvd::collectives
