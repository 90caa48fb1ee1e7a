// What http_store's requests are made of: a call, the pooled connection that it takes, and how it gets over a
// connection that breaks. Of http_store alone.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "rendezvous/client/backoff.h"
#include "rendezvous/client/http_store.h"
#include "rendezvous/wire/signature.h"
#include "rendezvous/wire/target.h"

namespace hvd::rendezvous {

// A client as the server knows it: one call at a time, counted, so that a repetition on a new
// connection is recognised. Threads that call at once have one each.
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

// A time without a connection, within one call.
class HttpStore::Outage {
 public:
  Outage(double seconds, Deadline deadline)
      : seconds_(seconds), deadline_(deadline), limit_(deadline) {}

  void begin() {
    if (std::exchange(has_begun_, true)) return;
    limit_ = earlier(deadline_, Deadline::after_seconds(seconds_));
    is_first_ = true;
    backoff_.begin_anew();
  }
  void end() { has_begun_ = false; }
  Deadline limit() const { return limit_; }
  Deadline deadline() const { return deadline_; }
  // Not at all the first time.
  void rest(Deadline deadline) {
    if (!std::exchange(is_first_, false)) backoff_.rest(earlier(limit_, deadline));
  }

 private:
  static Deadline earlier(Deadline a, Deadline b) { return a.time() < b.time() ? a : b; }

  const double seconds_;
  const Deadline deadline_;
  Deadline limit_;
  bool has_begun_ = false;
  bool is_first_ = true;
  Backoff backoff_{0.01, 1};  // seconds
};

}  // namespace hvd::rendezvous
