// Asio as this project uses it: C++20 coroutines, and errors as values.
#pragma once

#include <boost/asio.hpp>
#include <boost/system/error_code.hpp>
#include <string_view>

#include "base/result.h"

namespace hvd::net {

namespace asio = boost::asio;
using boost::system::error_code;

template <typename T>
using Task = asio::awaitable<T>;

// co_await socket.async_read_some(buffer, net::use_tuple) returns a tuple (error_code, value).
constexpr auto use_tuple = asio::as_tuple(asio::use_awaitable);

// A socket of any stream family (TCP, Unix), for code that serves both.
using StreamSocket = asio::generic::stream_protocol::socket;

// Returns unavailable("what: reason"), or OK without an error.
inline Status to_status(std::string_view what, const error_code& error) {
  if (!error) return {};
  return system_error(what, error.value());
}

}  // namespace hvd::net
