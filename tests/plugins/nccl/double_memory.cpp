#include "plugins/nccl/double_memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <csignal>
#include <cstdint>
#include <cstring>
#include <map>

#include "base/mutex.h"

namespace hvd::test_double {

struct Block {
  uintptr_t address;
  size_t size;  // a multiple of the page size
  MemoryKind kind;
  int device;
  int uses = 0;
  bool is_free = false;
};

namespace {

const size_t kPage = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
constexpr size_t kRoom = size_t{1} << 36;  // size of the address range
constexpr int kFresh = 0xa5;

std::string text_of(uintptr_t address) {
  char text[32];
  std::snprintf(text, sizeof text, "%#zx", static_cast<size_t>(address));
  return text;
}

class Pages {
 public:
  // Lives as long as the process.
  static Pages& all() {
    static auto* const pages = new Pages;
    return *pages;
  }

  bool holds(uintptr_t address) const {
    return address - program_ < kRoom;  // a lower address wraps around
  }
  std::byte* for_kernel(uintptr_t address) const {
    return reinterpret_cast<std::byte*>(holds(address) ? address - program_ + kernel_ : address);
  }
  void* allocate(size_t size, MemoryKind kind) {
    const MutexLock lock(mutex_);
    const size_t pages = (size + kPage) / kPage * kPage;  // at least one page
    const bool is_pinned = kind == MemoryKind::kPinned;
    const int64_t limit =
        variable(is_pinned ? "HVD_DOUBLE_PINNED" : "HVD_DOUBLE_MEMORY", INT64_MAX);
    size_t& in_use = is_pinned ? pinned_ : in_use_;
    if (in_use + pages > static_cast<size_t>(limit)) return nullptr;
    if (next_ + pages + kPage > kRoom) return nullptr;
    const uintptr_t address = program_ + next_;
    next_ += pages + kPage;  // a guard page
    in_use += pages;
    std::memset(for_kernel(address), kFresh, pages);
    blocks_[address] =
        std::make_shared<Block>(Block{address, pages, kind, current_device_number()});
    watch_faults();
    if (kind != MemoryKind::kDevice) open(*blocks_[address]);
    return reinterpret_cast<void*>(address);
  }
  void release(uintptr_t address) {
    const MutexLock lock(mutex_);
    const auto found = blocks_.find(address);
    if (found == blocks_.end()) {
      report(kMemory, text_of(address) + " is freed, and is no memory that was allocated");
      return;
    }
    Block& block = *found->second;
    if (block.uses > 0) {
      report(kMemory, text_of(address) + " is freed while an operation refers to it");
    }
    block.is_free = true;
    close(block);
    (block.kind == MemoryKind::kPinned ? pinned_ : in_use_) -= block.size;
    // Frees the pages. Later allocations never reuse the addresses.
    ::madvise(for_kernel(address), block.size, MADV_REMOVE);
    blocks_.erase(found);
  }
  std::shared_ptr<Block> use(uintptr_t address, const char* operation, int device) {
    const MutexLock lock(mutex_);
    auto block = find(address);
    if (block == nullptr) {
      report(kMemory, std::string(operation) + " refers to " + text_of(address) +
                          ", which is freed or was never allocated");
      return nullptr;
    }
    if (block->device != device && block->kind != MemoryKind::kPinned) {
      report(kMemory, std::string(operation) + " on device " + std::to_string(device) +
                          " refers to " + text_of(address) + " of device " +
                          std::to_string(block->device));
    }
    if (block->uses++ == 0 && block->kind == MemoryKind::kManaged) close(*block);
    return block;
  }
  void end_use(Block& block) {
    const MutexLock lock(mutex_);
    if (--block.uses == 0 && block.kind == MemoryKind::kManaged && !block.is_free) open(block);
  }
  bool is_free(const Block& block) {
    const MutexLock lock(mutex_);
    return block.is_free;
  }

 private:
  Pages() {
    const int file = ::memfd_create("hvd-double", MFD_CLOEXEC);
    const auto map = [file](int protection) {
      void* at = ::mmap(nullptr, kRoom, protection, MAP_SHARED | MAP_NORESERVE, file, 0);
      if (file < 0 || at == MAP_FAILED) std::abort();
      ::madvise(at, kRoom, MADV_DONTDUMP);
      return reinterpret_cast<uintptr_t>(at);
    };
    if (::ftruncate(file, static_cast<off_t>(kRoom)) != 0) std::abort();
    program_ = map(PROT_NONE);
    kernel_ = map(PROT_READ | PROT_WRITE);
    ::close(file);
  }

  static void open(const Block& block) {
    ::mprotect(reinterpret_cast<void*>(block.address), block.size, PROT_READ | PROT_WRITE);
  }
  static void close(const Block& block) {
    watch_faults();
    ::mprotect(reinterpret_cast<void*>(block.address), block.size, PROT_NONE);
  }
  // A test framework may have set its own handler since.
  static void watch_faults() {
    struct sigaction now {};
    ::sigaction(SIGSEGV, nullptr, &now);
    if ((now.sa_flags & SA_SIGINFO) != 0 && now.sa_sigaction == &on_fault) return;
    next_handler_ = now;
    struct sigaction own {};
    own.sa_sigaction = &on_fault;
    own.sa_flags = SA_SIGINFO | SA_NODEFER;
    ::sigaction(SIGSEGV, &own, nullptr);
  }
  // Report the access and continue.
  static void on_fault(int, siginfo_t* fault, void*) {
    const auto address = reinterpret_cast<uintptr_t>(fault->si_addr);
    if (!all().holds(address)) {
      ::sigaction(SIGSEGV, &next_handler_, nullptr);  // the access faults once more
      return;
    }
    report(kMemory, "the CPU reads or writes " + text_of(address) +
                        ", which is memory of a device, freed, or in use by an operation");
    ::mprotect(reinterpret_cast<void*>(address / kPage * kPage), kPage, PROT_READ | PROT_WRITE);
  }

  std::shared_ptr<Block> find(uintptr_t address) HVD_REQUIRES(mutex_) {
    auto found = blocks_.upper_bound(address);
    if (found == blocks_.begin()) return nullptr;
    --found;
    return address - found->first < found->second->size ? found->second : nullptr;
  }

  inline static struct sigaction next_handler_ {};
  uintptr_t program_ = 0, kernel_ = 0;
  Mutex mutex_;
  std::map<uintptr_t, std::shared_ptr<Block>> blocks_ HVD_GUARDED_BY(mutex_);
  size_t next_ HVD_GUARDED_BY(mutex_) = 0;
  size_t in_use_ HVD_GUARDED_BY(mutex_) = 0;  // bytes in use by devices
  size_t pinned_ HVD_GUARDED_BY(mutex_) = 0;
};

uintptr_t number_of(const void* address) { return reinterpret_cast<uintptr_t>(address); }

}  // namespace

void* allocate(size_t size, MemoryKind kind) { return Pages::all().allocate(size, kind); }
void release(void* memory) { Pages::all().release(number_of(memory)); }
bool is_of_double(const void* address) { return Pages::all().holds(number_of(address)); }
std::byte* for_kernel(const void* address) { return Pages::all().for_kernel(number_of(address)); }

MemoryUse::MemoryUse(const void* address, const char* operation, int device)
    : operation_(operation) {
  if (Pages::all().holds(number_of(address))) {
    block_ = Pages::all().use(number_of(address), operation, device);
  }
}
MemoryUse::~MemoryUse() {
  if (block_ != nullptr) Pages::all().end_use(*block_);
}
bool MemoryUse::check() const {
  if (block_ == nullptr || !Pages::all().is_free(*block_)) return true;
  report(kMemory,
         std::string(operation_) + " comes to " + text_of(block_->address) + " after it was freed");
  return false;
}

}  // namespace hvd::test_double
