#include "base/fork_guard.h"

#include <pthread.h>
#include <unistd.h>

#include <array>
#include <atomic>

namespace hvd {
namespace {

// Fixed and without locks, since the child may use nothing that another thread could have held.
// Descriptors beyond it stay open in children.
class Table {
 public:
  Table() {
    ::pthread_atfork(nullptr, nullptr, [] { instance().close_all(); });
  }
  static Table& instance() {
    static Table table;
    return table;
  }
  void add(int fd) {
    for (auto& entry : entries_) {
      int none = 0;
      if (entry.load(std::memory_order_relaxed) == 0 && entry.compare_exchange_strong(none, fd + 1)) {
        return;
      }
    }
  }
  void remove(int fd) {
    for (auto& entry : entries_) {
      int mine = fd + 1;
      if (entry.load(std::memory_order_relaxed) == mine && entry.compare_exchange_strong(mine, 0)) {
        return;
      }
    }
  }

 private:
  void close_all() {
    for (auto& entry : entries_) {
      const int value = entry.exchange(0);
      if (value != 0) ::close(value - 1);
    }
  }
  // The descriptor plus one; 0 is a free entry.
  std::array<std::atomic<int>, 4096> entries_{};
};

}  // namespace

void close_in_forked_child(int fd) { Table::instance().add(fd); }
void forget_in_forked_child(int fd) { Table::instance().remove(fd); }

}  // namespace hvd
