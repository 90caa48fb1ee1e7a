// Asio as this project uses it: C++20 coroutines, and errors as values.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/basic_socket_acceptor.hpp>
#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/connect.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/error.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <boost/system/error_code.hpp>
#include <boost/system/system_error.hpp>
#include <cerrno>
#include <exception>
#include <string>
#include <string_view>
#include <utility>

#include "base/result.h"
#include "base/status.h"

namespace hvd::net {

namespace asio = boost::asio;
using boost::system::error_code;

template <typename T>
using Task = asio::awaitable<T>;

// co_await socket.async_read_some(buffer, net::use_tuple) returns a tuple (error_code, value).
constexpr auto use_tuple = asio::as_tuple(asio::use_awaitable);

// A socket of any stream family (TCP, Unix), for code that serves both.
using StreamSocket = asio::generic::stream_protocol::socket;

// Returns system_error(what, number) for an error's number, or OK without an error.
inline Status to_status(std::string_view what, const error_code& error) {
  if (!error) return {};
  return system_error(what, error.value());
}

// Returns the errno value in an exception of Boost; 0 for any other exception.
inline int error_number_of(const std::exception& thrown) {
  const auto* of_boost = dynamic_cast<const boost::system::system_error*>(&thrown);
  return of_boost == nullptr ? 0 : of_boost->code().value();
}

// Returns the error of a coroutine that ended by an exception. `cut_off`: the text for a cancellation or an unknown
// exception.
inline Status status_of(const std::exception_ptr& thrown, std::string cut_off) {
  try {
    std::rethrow_exception(thrown);
  } catch (const std::exception& error) {
    const int number = error_number_of(error);
    if (number == ECANCELED) return internal_error(std::move(cut_off));
    return number != 0 ? system_error("cannot go on", number) : hvd::status_of(error);
  } catch (...) {
    return internal_error(std::move(cut_off));
  }
}

}  // namespace hvd::net
