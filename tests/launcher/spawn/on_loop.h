// Runs one coroutine on its own loop until it ends, with a time limit.
#pragma once

#include <doctest/doctest.h>

#include <chrono>
#include <exception>
#include <optional>

#include "net/asio.h"

namespace hvd::launcher {

template <typename T>
net::Task<void> store_result(net::Task<T> task, std::optional<T>& result) {
  result.emplace(co_await std::move(task));
}

// Runs the loop until it is empty: a leaked coroutine or watch fails the test.
template <typename T>
T run_on(net::asio::io_context& loop, net::Task<T> task,
         std::chrono::seconds limit = std::chrono::seconds(30)) {
  std::optional<T> result;
  net::asio::co_spawn(loop, store_result(std::move(task), result), [&](std::exception_ptr error) {
    if (error) std::rethrow_exception(error);
    if (result) loop.stop();
  });
  loop.restart();
  loop.run_for(limit);
  REQUIRE_MESSAGE(result.has_value(), "the coroutine did not end in time");
  return std::move(*result);
}

// Runs the remaining work (a process that ends, a connection that closes); fails if work remains.
inline void run_out(net::asio::io_context& loop) {
  loop.restart();
  loop.run_for(std::chrono::seconds(10));
  CHECK_MESSAGE(loop.stopped(), "something is left on the loop");
}

template <typename T>
T run_alone(net::Task<T> task) {
  net::asio::io_context loop(1);
  return run_on(loop, std::move(task));
}

// Like run_on, but cancels the coroutine after `delay`. The loop must then become empty.
template <typename T>
std::optional<T> run_and_cancel(net::asio::io_context& loop, net::Task<T> task,
                                std::chrono::milliseconds delay) {
  std::optional<T> result;
  net::asio::cancellation_signal cancel;
  net::asio::co_spawn(loop, store_result(std::move(task), result),
                      net::asio::bind_cancellation_slot(cancel.slot(), [](std::exception_ptr) {}));
  net::asio::steady_timer timer(loop, delay);
  timer.async_wait(
      [&](const net::error_code&) { cancel.emit(net::asio::cancellation_type::terminal); });
  run_out(loop);
  return result;
}

}  // namespace hvd::launcher
