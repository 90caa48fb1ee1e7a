// A real agent as a child of this test. The test holds the launcher's end of the link on its own
// loop, and records all reports of the agent.
#pragma once

#include <array>
#include <chrono>
#include <csignal>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "launcher/link/agent_link.h"
#include "launcher/link/resumable_duplex.h"
#include "launcher/protocol/protocol.h"
#include "net/asio.h"
#include "rendezvous/server/server.h"

namespace hvd::launcher {

inline constexpr auto kOut = OutputStream::kStdout;

// The stream to a local agent over one end of a socket pair.
class SocketDuplex : public Duplex {
 public:
  SocketDuplex(net::asio::any_io_executor executor, int fd);
  net::Task<Result<size_t>> read_some(std::span<std::byte> buffer) override;
  net::Task<Status> write(ByteView bytes) override;
  void close() override;
  std::string last_words() const override { return {}; }

 private:
  std::shared_ptr<net::StreamSocket> socket_;
};

// Fails the test if the PID is -1, which kill() would apply to every process of the machine.
void send_signal(pid_t pid, int number);

class AgentFixture : public AgentEvents {
 public:
  // Starts build/bin/horovod-agent, or `command` instead.
  explicit AgentFixture(std::vector<std::string> command = {});
  // Restarts the same program when the link breaks, as over ssh.
  struct Respawned {};
  explicit AgentFixture(Respawned);
  // The agent joins with one token, and the launcher admits another or the same token. A refused
  // agent ends, and there is no link.
  AgentFixture(const std::string& agents_token, const std::string& launchers_token);
  const std::string& admitted_name() const { return admitted_name_; }
  ~AgentFixture() override;

  // Returns a job of `ranks` ranks that run `script` with /bin/sh.
  HostJob shell_job(const std::string& script, int ranks = 1) const;
  Status prepare(const HostJob& job);
  Status start();
  // Prepares the host and starts the job.
  Status begin(const HostJob& job);
  Status suspend();
  void wait_for_end();
  // Begins and waits for the end. Returns "" or the error.
  std::string run(const HostJob& job);
  // Drives the loop until `claim` returns true or the time is over. Returns whether it returned
  // true.
  bool until(const std::function<bool()>& claim, double seconds = 30);
  // Drives the loop for a time.
  void pass(double seconds);

  // Breaks the connection and loses the bytes that the agent has sent and this side has not read.
  void cut();
  // From now on, this connection loses all bytes of both directions.
  void mute() { *is_muted_ = true; }
  // Ends the session on the launcher's side.
  void forget_session() { session_.reset(); }
  // Closes the port to which the agent connects.
  void close_port() { server_.reset(); }
  int returns = 0;  // connections that could replace a broken one
  bool may_return = true;

  AgentLink& link() { return *link_; }
  net::asio::io_context& loop() { return loop_; }
  // The agent itself, a child of its guardian.
  pid_t agent() const;
  pid_t guardian() const { return guardian_; }
  // Processes with this test's mark in their environment, without the agent and its guardian.
  std::vector<pid_t> marked() const;
  const std::string& mark() const { return mark_; }

  std::map<int, RankExit> exits;
  std::map<std::pair<int, OutputStream>, std::string> output;
  std::vector<std::pair<int, OutputStream>> ended;
  std::map<int, size_t> input_taken;
  std::string inspected;
  HostSample sampled;
  std::vector<ExecResult> ran;
  std::map<std::pair<uint32_t, bool>, std::string> said;  // key: command number, is standard error
  bool is_taking = true;
  std::vector<std::array<int, 3>> joined;  // rank of the job, rank and size of its generation
  std::vector<net::StreamSocket> stores;
  bool is_finished = false;
  std::vector<std::string> leavings, endings, lost;
  bool is_ended_by_scheduler = false;
  std::vector<int> signalled;
  std::vector<double> silences, standstills;
  int answers = 0;
  bool is_consuming = true;
  size_t output_size = 0;

 private:
  void on_output(int rank, OutputStream stream, ByteView bytes) override;
  void on_output_end(int rank, OutputStream stream) override;
  void on_report(const AgentReport& report) override;
  void on(const Inspected& each) { inspected = each.text; }
  void on(const Sampled& each) { sampled = each.sample; }
  void on(const Joined& each) { joined.push_back({each.rank, each.world_rank, each.world_size}); }
  void on(const ExecResult& each) { ran.push_back(each); }
  void on(const OutputChunk& each);
  void on(const InputTaken& each) { input_taken[each.rank] += each.size; }
  void on(const Exited& each);
  void on(const Signalled& each) { signalled.push_back(each.number); }
  void on(const Leaving& each) { leavings.push_back(each.sentence); }
  void on(const Ending& each) {
    endings.push_back(each.sentence);
    is_ended_by_scheduler = each.is_by_scheduler != 0;
  }
  void on(const PmixReport&) {}
  void on(const Finished&);
  void on_silence(double seconds) override { silences.push_back(seconds); }
  void on_answer() override { ++answers; }
  void on_standstill(double seconds) override { standstills.push_back(seconds); }
  void on_lost(const Status& why) override;
  void on_store_connection(net::StreamSocket socket) override;
  Status drive(net::Task<Status> task);
  void begin_session(std::unique_ptr<Duplex> connection, Reconnection reconnection);
  net::Task<void> take(net::AcceptedSocket socket, Secret token);
  pid_t fork_agent(std::vector<std::string> command, int input, int output);
  std::unique_ptr<Duplex> start_program(std::vector<std::string> command, pid_t& pid);
  net::Task<Result<std::unique_ptr<Duplex>>> respawn();

  net::asio::io_context loop_;
  std::unique_ptr<rendezvous::Server> server_;
  std::shared_ptr<AgentLink> link_;
  std::weak_ptr<ResumableDuplex::Running> session_;
  int connection_ = -1;
  std::shared_ptr<bool> is_muted_;
  pid_t guardian_ = -1;
  std::vector<pid_t> later_processes_;
  std::string mark_;
  std::string admitted_name_;
};

// Returns the PIDs of the direct children of a process.
std::vector<pid_t> children_of(pid_t pid);
bool is_alive(pid_t pid);
std::string read_file(const std::string& path);

}  // namespace hvd::launcher
