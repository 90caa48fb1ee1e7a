// TCP links under a test's control: relays connections byte by byte, delayed, in odd pieces, or not
// at all, or cuts them. Has one thread; any thread may call.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <list>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/unique_fd.h"

namespace hvd::test {

class Relay {
 public:
  Relay();
  ~Relay();
  Relay(const Relay&) = delete;

  // Returns a port of 127.0.0.1 that forwards to another port.
  uint16_t route(uint16_t target);
  // From now on pieces of random sizes wait up to `most`.
  void delay(unsigned seed, std::chrono::microseconds most);
  // Forwards nothing until resume().
  void stall();
  void resume();
  // Cuts one connection, by a reset or by a plain end. Returns false without a connection.
  bool cut_one(unsigned pick);
  // Blocks until that many bytes have passed. Returns false if `abandoned` first.
  bool wait_for_bytes(uint64_t count);
  // Blocks until a sender is stalled. Returns false if abandoned.
  bool wait_for_withheld();
  // Ends all waits.
  void abandon();

 private:
  struct Piece {
    Clock::time_point due;
    std::string bytes;
    size_t sent = 0;
  };
  struct Direction {
    std::deque<Piece> pieces;
    size_t held = 0;
    bool ended = false;
    bool ready = false;  // became readable while stalled
  };
  struct Pair {
    UniqueFd ends[2];
    Direction from[2];  // bytes from ends[i]
    bool cut = false;
    bool reset = false;
    bool broken = false;
  };
  struct Route {
    UniqueFd listener;
    uint16_t target;
  };

  void run();
  void accept_all() HVD_REQUIRES(mutex_);
  void move(Pair& pair) HVD_REQUIRES(mutex_);
  void read(Pair& pair, int side) HVD_REQUIRES(mutex_);
  void write(Pair& pair, int side) HVD_REQUIRES(mutex_);
  void close_cut() HVD_REQUIRES(mutex_);
  void wake();

  UniqueFd doorbell_;
  Mutex mutex_;
  std::condition_variable changed_;
  std::deque<Route> routes_ HVD_GUARDED_BY(mutex_);
  std::list<Pair> pairs_ HVD_GUARDED_BY(mutex_);
  std::mt19937 random_ HVD_GUARDED_BY(mutex_);
  std::chrono::microseconds most_ HVD_GUARDED_BY(mutex_){0};
  uint64_t moved_ HVD_GUARDED_BY(mutex_) = 0;
  bool stalled_ HVD_GUARDED_BY(mutex_) = false;
  bool withheld_ HVD_GUARDED_BY(mutex_) = false;
  bool abandoned_ HVD_GUARDED_BY(mutex_) = false;
  bool stopping_ HVD_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace hvd::test
