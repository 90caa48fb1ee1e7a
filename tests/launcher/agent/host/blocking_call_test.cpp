#include "launcher/agent/host/blocking_call.h"

#include <doctest/doctest.h>

#include <future>
#include <memory>
#include <thread>

namespace hvd::launcher {

TEST_CASE("the loop goes on while a call blocks") {
  auto loop = *net::EventLoop::open();
  BlockingCall call(loop);
  std::promise<void> may_end;
  std::thread::id worker;
  bool is_done = false;
  REQUIRE(call.start(
      [&] {
        worker = std::this_thread::get_id();
        may_end.get_future().wait();
      },
      [&] { is_done = true; }));
  loop.turn(Deadline::after_seconds(0.05));
  CHECK(call.is_running());
  CHECK_FALSE(is_done);
  may_end.set_value();
  loop.turn(Deadline::after_seconds(200));
  CHECK(is_done);
  CHECK_FALSE(call.is_running());
  CHECK(worker != std::this_thread::get_id());
}

TEST_CASE("an abandoned call does not call back") {
  auto loop = *net::EventLoop::open();
  const auto has_ended = std::make_shared<std::promise<void>>();
  bool is_called = false;
  {
    BlockingCall call(loop);
    REQUIRE(call.start([=] { has_ended->set_value(); }, [&] { is_called = true; }));
  }
  has_ended->get_future().wait();
  loop.turn(Deadline::after_seconds(0.05));
  CHECK_FALSE(is_called);
}

}  // namespace hvd::launcher
