// What an AgentLink is made of, for agent_link.cpp alone.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "launcher/link/agent_link.h"
#include "launcher/link/frame_channel.h"
#include "launcher/link/lease_pings.h"
#include "launcher/link/rank_outputs.h"
#include "launcher/link/store_streams.h"
#include "launcher/protocol/notification.h"
#include "launcher/protocol/protocol.h"
#include "net/frame.h"

namespace hvd::launcher {

namespace asio = net::asio;

class AgentLink::Impl : public std::enable_shared_from_this<Impl> {
 public:
  Impl(asio::any_io_executor executor, std::unique_ptr<Duplex> duplex, AgentEvents& events)
      : executor_(std::move(executor)),
        frames_(executor_, std::move(duplex)),
        events_(&events),
        answered_(executor_),
        pings_(executor_, [this](uint64_t number) { put(Ping{number}); }),
        outputs_(events),
        stores_(std::make_shared<StoreStreams>(
            executor_,
            [this](net::FrameType type, uint32_t stream, uint32_t credit, ByteView payload) {
              put(type, stream, credit, payload, net::Urgency::kStore);
            },
            [this](net::StreamSocket socket) {
              events_->on_store_connection(std::move(socket));
            })) {}

  net::Task<Status> prepare(HostJob job, NextPart code);
  net::Task<Status> stage(const NextPart& next);
  const Status& state() const { return lost_; }
  const MasterCandidates& candidates() const { return candidates_; }
  const std::vector<std::pair<std::string, std::string>>& versions() const { return versions_; }
  uint32_t threads() const { return threads_; }
  net::Task<Reached> test_reachability(MasterCandidates candidates);
  net::Task<Status> start(StartOrder order);
  net::Task<Status> suspend();
  void put(const Message& message);
  void consumed(int rank, OutputStream stream, size_t size);
  void close();

 private:
  // Runs a coroutine of this object, which lives at least as long.
  void spawn(net::Task<void> (Impl::*body)());
  net::Task<void> read_link();
  net::Task<void> write_link();
  net::Task<void> ping();
  // Until `is_there` or the link is gone; then its failure.
  template <typename Claim>
  net::Task<Status> wait_for(Claim is_there);

  void put(net::FrameType type, uint32_t stream, uint32_t credit, ByteView payload,
           net::Urgency urgency);
  Status handle(const net::Frame& frame);
  Status obey(Message message);
  void lose(Status why);
  void shut();

  asio::any_io_executor executor_;
  FrameChannel frames_;
  AgentEvents* events_;
  Notification answered_;
  LeasePings pings_;
  HostJob job_;
  RankOutputs outputs_;
  const std::shared_ptr<StoreStreams> stores_;

  bool is_running_ = false;  // the coroutines are
  std::optional<AgentHello> hello_;
  std::optional<Status> prepared_, started_;
  Staged staged_;
  MasterCandidates candidates_;
  std::vector<std::pair<std::string, std::string>> versions_;
  uint32_t threads_ = 0;
  std::optional<Reached> reached_;
  bool is_start_awaited_ = false;  // prepare, state or start will report a loss
  bool is_suspended_ = false;
  bool is_finished_ = false;
  bool is_closed_ = false;
  Status lost_;
};

}  // namespace hvd::launcher
