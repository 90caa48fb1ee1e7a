// The ranks' connections to the job's store, through their agent and its link.
#include <doctest/doctest.h>

#include "base/text.h"
#include "launcher/agent/agent_fixture.h"

using namespace hvd;
using namespace hvd::launcher;

namespace asio = hvd::net::asio;

namespace {

using Connection = asio::local::stream_protocol::socket;

// The test itself connects while a rank runs: the agent checks the user, not the process.
Connection connect_to_store(AgentFixture& fixture) {
  REQUIRE(fixture.begin(fixture.shell_job("echo $HOROVOD_STORE; sleep 1000")).ok());
  const std::string& told = fixture.output[{0, OutputStream::kStdout}];
  REQUIRE(fixture.until([&] { return told.ends_with("\n"); }));
  const std::string name(trim(told).substr(std::string_view("agent:@").size()));
  Connection rank(fixture.loop());
  rank.connect(asio::local::stream_protocol::endpoint(std::string(1, '\0') + name));
  return rank;
}

}  // namespace

TEST_CASE("A connection of a rank to the store reaches the launcher and back, also much at once") {
  AgentFixture fixture;
  Connection rank = connect_to_store(fixture);
  REQUIRE(fixture.until([&] { return fixture.stores.size() == 1; }));
  // The store sends back all bytes that it receives.
  auto echo = [](net::StreamSocket store, bool& is_done) -> net::Task<void> {
    std::vector<char> buffer(100'000);
    for (;;) {
      const auto [error, size] =
          co_await store.async_read_some(asio::buffer(buffer), net::use_tuple);
      if (error) break;
      const auto [failed, written] =
          co_await asio::async_write(store, asio::buffer(buffer.data(), size), net::use_tuple);
      if (failed) break;
    }
    is_done = true;
  };
  bool is_store_done = false;
  asio::co_spawn(fixture.loop(), echo(std::move(fixture.stores[0]), is_store_done), asio::detached);
  std::string sent(5'000'000, ' ');
  for (size_t i = 0; i < sent.size(); ++i) sent[i] = static_cast<char>(i * 7 % 251);
  std::string received(sent.size(), ' ');
  size_t received_size = 0;
  asio::async_write(rank, asio::buffer(sent), [](const net::error_code&, size_t) {});
  asio::async_read(rank, asio::buffer(received),
                   [&](const net::error_code&, size_t size) { received_size = size; });
  CHECK(fixture.until([&] { return received_size == sent.size(); }));
  CHECK((received == sent));

  SUBCASE("the rank's end of sending reaches the store, and the store's close the rank") {
    rank.shutdown(asio::socket_base::shutdown_send);
    CHECK(fixture.until([&] { return is_store_done; }));
    bool is_ended = false;
    char byte;
    rank.async_read_some(asio::buffer(&byte, 1), [&](const net::error_code& error, size_t) {
      is_ended = error == asio::error::eof;
    });
    CHECK(fixture.until([&] { return is_ended; }));
  }
  SUBCASE("the rank's death reaches the store") {
    rank.close();
    CHECK(fixture.until([&] { return is_store_done; }));
  }
  SUBCASE("the job's end closes the connection") {
    fixture.link().send(End{0});
    CHECK(fixture.until([&] { return fixture.is_finished && is_store_done; }));
  }
  fixture.link().close();
  fixture.pass(0.1);
}

TEST_CASE("A store that closes a connection is seen by the rank") {
  AgentFixture fixture;
  Connection rank = connect_to_store(fixture);
  REQUIRE(fixture.until([&] { return fixture.stores.size() == 1; }));
  fixture.stores[0].close();
  bool is_ended = false;
  char byte;
  rank.async_read_some(asio::buffer(&byte, 1), [&](const net::error_code& error, size_t) {
    is_ended = static_cast<bool>(error);
  });
  CHECK(fixture.until([&] { return is_ended; }));
}

TEST_CASE("A request that a rank sends before it closes its connection reaches the store") {
  AgentFixture fixture;
  Connection rank = connect_to_store(fixture);
  const std::string sent(1'000'000, 's');
  bool is_sent = false;
  asio::async_write(rank, asio::buffer(sent), [&](const net::error_code& error, size_t) {
    is_sent = !error;
    rank.close();
  });
  REQUIRE(fixture.until([&] { return fixture.stores.size() == 1; }));
  std::string received(sent.size() + 1, ' ');
  size_t received_size = 0;
  bool is_ended = false;
  asio::async_read(fixture.stores[0], asio::buffer(received),
                   [&](const net::error_code& error, size_t size) {
                     received_size = size;
                     is_ended = static_cast<bool>(error);
                   });
  CHECK(fixture.until([&] { return is_ended; }));
  CHECK(is_sent);
  CHECK(received_size == sent.size());
}
