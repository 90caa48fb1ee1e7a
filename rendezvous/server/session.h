// One connection of a server: reads requests, proves them, answers them in order. Lives on the
// server's loop and keeps itself alive until its connection is closed.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <unordered_set>
#include <vector>

#include "base/secrets/secret.h"
#include "net/asio.h"
#include "net/http.h"
#include "rendezvous/server/client_proof.h"
#include "rendezvous/server/monitor.h"
#include "rendezvous/server/reply_writer.h"
#include "rendezvous/server/server_limits.h"
#include "rendezvous/server/service.h"
#include "rendezvous/server/unsigned_store.h"

namespace hvd::rendezvous {

class Session;

// What the sessions of one server share.
struct ServerCore {
  ServerCore(Secret key, int size, ServerLimits bounds, bool open_monitor)
      : secret(std::move(key)),
        monitor_token(Monitor::token(secret)),
        limits(bounds),
        is_monitor_open(open_monitor),
        service(size) {}
  std::vector<WaitingRequest> waiting() const;

  const Secret secret;
  const std::string monitor_token;
  const ServerLimits limits;
  const bool is_monitor_open;
  Monitor monitor;
  std::shared_ptr<DurableStore> durable;  // null: nothing is stored
  Service service;
  std::optional<UnsignedStore> unsigned_store;  // for unsigned requests, where they are served
  std::unordered_set<Session*> sessions;
  std::function<void(net::StreamSocket)> on_agent;  // takes connections of agents, while set
  bool is_closing = false;
  std::function<void()> expiry_changed;  // a key was given a lifetime, maybe
};

class Session : public std::enable_shared_from_this<Session> {
 public:
  Session(std::shared_ptr<ServerCore> core, net::StreamSocket socket);
  ~Session();
  Session(const Session&) = delete;

  void start();
  // Who waits is told that the server is closing; everything else ends at once.
  void shut();

  // Ends without a word, so that the client comes again.
  void abandon();

  // What it waits for, if it does.
  std::optional<WaitingRequest> waiting() const;

 private:
  enum class Read { kRequest, kEnd, kRefused };

  net::Task<void> run();
  net::Task<Read> read_request();
  net::Task<bool> fill();
  net::Task<void> answer();
  net::Task<void> settle(Pending pending);
  net::Task<bool> finish_reply();
  net::Task<Read> refuse(Reply reply);
  net::Task<void> drain();
  net::Task<void> hand_over();

  std::optional<Reply> admit();
  std::optional<Reply> admit_monitor() const;
  Reply answer_monitor();
  std::optional<Reply> admit_unsigned();
  std::optional<Reply> admit_agent() const;
  Reply answer_unsigned();
  void begin_reply(Reply reply, bool keep);
  bool keeps() const;
  bool waits_for_durable_store() const;
  size_t announced_body() const;
  void arm(std::chrono::milliseconds limit);
  void on_limit();
  void disarm();
  void watch_peer();
  void close();

  std::shared_ptr<ServerCore> core_;
  net::StreamSocket socket_;
  net::asio::steady_timer limit_;  // closes the connection when it fires
  net::asio::steady_timer wake_;   // ends the wait of settle
  std::unique_ptr<net::HttpRequestParser> parser_;
  std::vector<std::byte> input_;  // received, not yet parsed: [begin_, end_)
  size_t begin_ = 0;
  size_t end_ = 0;

  ClientProof client_;
  bool is_admitted_ = false;  // the request being read
  bool is_unsigned_ = false;  // and it is one for core_->unsigned_store
  bool is_signed_ = false;    // the reply being made

  // Begun where a reply becomes known, so that nothing stands between a set and who waits for it.
  ReplyWriter writer_;
  bool is_waiting_ = false;
  WaitingRequest waiting_;  // while it is
  bool is_lost_ = false;
  bool is_armed_ = false;     // limit_
  uint64_t limit_epoch_ = 0;  // a late timer must not close what was armed anew
  uint64_t watch_epoch_ = 0;
};

}  // namespace hvd::rendezvous
