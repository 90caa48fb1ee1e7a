// Parts of HttpStore: one call, a connection of its pool, and the time that a call spends without a
// connection. Included by http_store*.cpp alone.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "rendezvous/client/backoff.h"
#include "rendezvous/client/http_store.h"
#include "rendezvous/wire/signature.h"
#include "rendezvous/wire/target.h"

namespace hvd::rendezvous {

// One client in the view of the server: one numbered call at a time. The server recognises a repetition
// on a new connection by the number. Threads that call at the same time use one of these each.
struct HttpStore::PooledConnection {
  std::string client = make_nonce();
  uint64_t sequence = 0;
  std::unique_ptr<HttpConnection> connection;
};

struct HttpStore::Call {
  std::string_view method;
  Target target;
  ByteView body;
  Deadline deadline = Deadline::never();
  bool is_counted = false;
  bool is_waiting = false;
};

// Limits the time that one call spends without a connection.
class HttpStore::Outage {
 public:
  Outage(double seconds, Deadline deadline)
      : seconds_(
            std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds))),
        deadline_(deadline),
        limit_(deadline) {}

  void begin(Clock::time_point since = Clock::now()) {
    if (std::exchange(has_begun_, true)) return;
    limit_ = earlier(deadline_, Deadline::at(since + seconds_));
    is_first_ = true;
    backoff_.begin_anew();
  }
  void end() { has_begun_ = false; }
  Deadline limit() const { return limit_; }
  Deadline deadline() const { return deadline_; }
  // Pauses before the next attempt; the first attempt of an outage comes without a pause.
  void rest(Deadline deadline) {
    if (!std::exchange(is_first_, false)) backoff_.rest(earlier(limit_, deadline));
  }

 private:
  static Deadline earlier(Deadline a, Deadline b) { return a.time() < b.time() ? a : b; }

  const Clock::duration seconds_;
  const Deadline deadline_;
  Deadline limit_;
  bool has_begun_ = false;
  bool is_first_ = true;
  Backoff backoff_{0.01, 1};  // seconds
};

}  // namespace hvd::rendezvous
