// A TCP relay on loopback that delays, stalls, cuts and changes its data, and a store that puts a
// relay in front of every rank.
#pragma once

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <deque>
#include <list>

#include "collectives/world.h"

namespace hvd::test {

class Relay {
 public:
  explicit Relay(uint16_t target) : target_(target) {
    listener_ = UniqueFd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    sockaddr_in address = loopback(0);
    ::bind(listener_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address);
    ::listen(listener_.get(), 256);
    socklen_t size = sizeof address;
    ::getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&address), &size);
    port_ = ntohs(address.sin_port);
    bell_ = UniqueFd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    thread_ = std::thread([this] { run(); });
  }
  ~Relay() {
    stopping_ = true;
    ring();
    thread_.join();
  }
  uint16_t port() const { return port_; }
  // Holds all incoming data for this time, then forwards it.
  void delay(std::chrono::milliseconds time) { delay_ = time.count(); }
  // Forwards this many bytes in all, then nothing until resume().
  void stall_after(size_t bytes) { stall_after_ = bytes; }
  void resume() {
    stall_after_ = SIZE_MAX;
    ring();
  }
  // Breaks all connections after this many bytes.
  void cut_after(size_t bytes) { cut_after_ = bytes; }
  // Calls `change` once on the bytes after this many. Call before the first connection.
  void change_after(size_t bytes, std::function<void(Bytes&)> change) {
    change_after_ = bytes;
    change_ = std::move(change);
  }
  // Returns whether the relay has stalled within this time.
  bool wait_for_stall(std::chrono::milliseconds timeout) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, timeout, [this] { return has_stalled_; });
  }

 private:
  struct Way {
    UniqueFd* from;
    UniqueFd* to;
    std::deque<std::pair<Clock::time_point, Bytes>> held;
    bool has_ended = false;  // end of the stream
  };
  struct Pair {
    UniqueFd ends[2];
    Way ways[2];
  };

  static sockaddr_in loopback(uint16_t port) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
  }
  void ring() { ::eventfd_write(bell_.get(), 1); }

  void run() {
    while (!stopping_) {
      std::vector<pollfd> entries{{listener_.get(), POLLIN, 0}, {bell_.get(), POLLIN, 0}};
      int timeout = 1000;
      for (Pair& pair : pairs_) {
        for (Way& way : pair.ways) {
          const bool full = way.held.size() > 64 || stalls();
          entries.push_back({full || way.has_ended ? -1 : way.from->get(), POLLIN, 0});
          if (!way.held.empty() && !stalls()) timeout = 1;
        }
      }
      ::poll(entries.data(), entries.size(), timeout);
      eventfd_t count;
      ::eventfd_read(bell_.get(), &count);
      if (stalls()) {
        const std::lock_guard lock(mutex_);
        has_stalled_ = true;
        changed_.notify_all();
      }
      open_pairs();
      for (auto pair = pairs_.begin(); pair != pairs_.end();) {
        pump(pair->ways[0]);
        pump(pair->ways[1]);
        const bool over = is_over(pair->ways[0]) && is_over(pair->ways[1]);
        pair = over || passed_ >= cut_after_ ? pairs_.erase(pair) : std::next(pair);
      }
    }
  }
  bool stalls() const { return passed_ >= stall_after_; }
  void open_pairs() {
    for (;;) {
      UniqueFd one(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
      if (!one) return;
      UniqueFd other(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
      const sockaddr_in address = loopback(target_);
      if (::connect(other.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) !=
          0) {
        continue;
      }
      ::fcntl(other.get(), F_SETFL, O_NONBLOCK);
      Pair& pair = pairs_.emplace_back();
      pair.ends[0] = std::move(one);
      pair.ends[1] = std::move(other);
      pair.ways[0] = {&pair.ends[0], &pair.ends[1], {}};
      pair.ways[1] = {&pair.ends[1], &pair.ends[0], {}};
    }
  }
  static bool is_over(const Way& way) { return way.has_ended && way.held.empty(); }
  void pump(Way& way) {
    if (stalls()) return;
    if (way.held.size() <= 64 && !way.has_ended) {
      Bytes bytes(64 * 1024);
      const ssize_t got = ::recv(way.from->get(), bytes.data(), bytes.size(), 0);
      if (got > 0) {
        bytes.resize(static_cast<size_t>(got));
        passed_ += bytes.size();
        if (change_ && passed_ >= change_after_ && bytes.size() >= 1000) {
          std::exchange(change_, nullptr)(bytes);
        }
        way.held.emplace_back(Clock::now() + std::chrono::milliseconds(delay_), std::move(bytes));
      } else if (got == 0 || errno != EAGAIN) {
        way.has_ended = true;
        if (way.held.empty()) ::shutdown(way.to->get(), SHUT_WR);
      }
    }
    while (!way.held.empty() && way.held.front().first <= Clock::now()) {
      Bytes& bytes = way.held.front().second;
      const ssize_t put = ::send(way.to->get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (put < 0 && errno == EAGAIN) return;
      if (put < 0) {
        way.has_ended = true;
        way.held.clear();
        return;
      }
      bytes.erase(bytes.begin(), bytes.begin() + put);
      if (!bytes.empty()) return;
      way.held.pop_front();
      if (is_over(way)) ::shutdown(way.to->get(), SHUT_WR);
    }
  }

  const uint16_t target_;
  UniqueFd listener_, bell_;
  uint16_t port_ = 0;
  std::atomic<bool> stopping_ = false;
  std::atomic<long> delay_ = 0;
  std::atomic<size_t> stall_after_ = SIZE_MAX, cut_after_ = SIZE_MAX;
  std::atomic<size_t> passed_ = 0;
  size_t change_after_ = 0;
  std::function<void(Bytes&)> change_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool has_stalled_ = false;
  std::list<Pair> pairs_;
  std::thread thread_;
};

// Other ranks read a rank's address as `place` rewrites it.
class ChangingStore final : public collectives::KeyValueStore {
 public:
  using Change = std::function<void(collectives::PeerRecord&)>;
  explicit ChangingStore(Change change) : change_(std::move(change)) {}

  Status set(std::string_view key, ByteView value) override {
    auto record = collectives::PeerRecord::decode(value);
    if (!record.ok()) return store_.set(key, value);
    std::erase_if(record->candidates, [](const auto& one) { return one.bytes.size() != 4; });
    change_(*record);
    return store_.set(key, record->encode());
  }
  Result<Bytes> get(std::string_view key, Deadline deadline) override {
    return store_.get(key, deadline);
  }

 private:
  Change change_;
  MemoryStore store_;
};

}  // namespace hvd::test
