// A rendezvous server on its own thread and loop, for tests. The destructor ends the server.
#pragma once

#include <doctest/doctest.h>

#include <functional>
#include <future>
#include <optional>
#include <string>
#include <thread>

#include "base/text.h"
#include "rendezvous/client/http_store.h"
#include "rendezvous/server/server.h"

namespace hvd::rendezvous {

inline Secret test_secret() { return *Secret::from_hex("00112233445566778899aabbccddeeff"); }

class RunningServer {
 public:
  explicit RunningServer(const std::string& address = "tcp:127.0.0.1:0", int size = 0,
                         ServerLimits limits = {}, std::optional<ScopeSizes> insecure_compat = {}) {
    server_.emplace(loop_.get_executor(),
                    ServerOptions{.secret = test_secret(),
                                  .size = size,
                                  .limits = limits,
                                  .insecure_compat = std::move(insecure_compat),
                                  .insecure_compat_at_ports = true});
    listen(address);
  }
  // Resumes the job of a durable store.
  RunningServer(
      const std::string& address, int size,
      const std::function<net::Task<Result<OpenedStore>>(net::asio::any_io_executor)>& open) {
    server_.emplace(loop_.get_executor(), ServerOptions{test_secret(), size});
    net::asio::co_spawn(
        loop_,
        [&]() -> net::Task<void> {
          Result<OpenedStore> opened = co_await open(loop_.get_executor());
          opened_ = opened.status();
          if (opened.ok()) opened_ = server_->resume(std::move(*opened), [](const Status&) {});
          loop_.stop();
        },
        net::asio::detached);
    loop_.run();
    loop_.restart();
    REQUIRE_MESSAGE(opened_.ok(), opened_.message());
    listen(address);
  }
  // Calls the function on the server's loop and returns its result.
  template <typename F>
  auto run(F function) {
    std::packaged_task<decltype(function(*server_))()> task([&] { return function(*server_); });
    auto result = task.get_future();
    net::asio::post(loop_, [&] { task(); });
    return result.get();
  }
  ~RunningServer() {
    run([](Server& server) { server.close(); });
    work_.reset();
    thread_.join();
    server_.reset();
  }

  // Waits until the server has this number of waiting requests.
  void await_waiters(size_t count) {
    await([&] { return run([](Server& server) { return server.waiter_count(); }) == count; });
  }
  void await_sessions(size_t count) {
    await([&] { return run([](Server& server) { return server.session_count(); }) == count; });
  }
  const net::Endpoint& endpoint() const { return endpoint_; }
  net::asio::io_context& loop() { return loop_; }

 private:
  void listen(const std::string& address) {
    const auto bound = server_->listen(*net::parse_endpoint(address));
    REQUIRE_MESSAGE(bound.ok(), bound.status().message());
    endpoint_ = *bound;
    thread_ = std::thread([this] { loop_.run(); });
  }

  template <typename F>
  void await(F is_so) {
    const Deadline deadline = Deadline::after_seconds(200);
    while (!is_so()) {
      REQUIRE_FALSE(deadline.passed());
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
  }

  net::asio::io_context loop_{1};
  net::asio::executor_work_guard<net::asio::io_context::executor_type> work_{loop_.get_executor()};
  std::optional<Server> server_;
  net::Endpoint endpoint_;
  Status opened_;
  std::thread thread_;
};

}  // namespace hvd::rendezvous
