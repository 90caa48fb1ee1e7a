#include "collectives/algorithms/flow.h"

#include <new>

namespace hvd::collectives {

void* FrameStack::take(size_t size) {
  const size_t whole = (sizeof(Header) + size + kAlign - 1) / kAlign * kAlign;
  static_assert(sizeof(Header) % kAlign == 0);
  const bool fits = whole <= kSize - used_;
  void* place = fits ? static_cast<void*>(memory_.data() + used_)
                     : ::operator new(whole, std::align_val_t(kAlign));
  if (fits) used_ += whole;
  auto* header = new (place) Header{fits ? this : nullptr, whole};
  return header + 1;
}

void FrameStack::give_back(void* frame) {
  auto* header = static_cast<Header*>(frame) - 1;
  if (header->stack == nullptr) {
    ::operator delete(header, std::align_val_t(kAlign));
  } else {
    header->stack->used_ -= header->size;
  }
}

void Flow::start(Coroutine coroutine) {
  coroutine_ = std::move(coroutine);
  coroutine_.handle_.resume();
  settle();
}

bool Flow::poll() {
  if (!ready()) return false;
  condition_ = nullptr;
  std::exchange(point_, nullptr).resume();
  settle();
  return true;
}

void Flow::settle() {
  if (coroutine_.handle_ && coroutine_.handle_.done()) coroutine_ = Coroutine();
}

void Flow::drop() {
  condition_ = nullptr;
  point_ = nullptr;
  coroutine_ = Coroutine();
}

}  // namespace hvd::collectives
