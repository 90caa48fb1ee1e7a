// The thread of a library: order of calls, failures, and a library that hangs.
#include "ops/common/library_thread.h"

#include <doctest/doctest.h>
#include <poll.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <future>
#include <stdexcept>
#include <string>
#include <thread>

namespace {

using hvd::Result;
using hvd::Status;
using hvd::ops::QueuedBatch;
using hvd::ops::WakeEvent;

class TestThread : public hvd::ops::LibraryThread {
 public:
  explicit TestThread(std::shared_ptr<WakeEvent> event)
      : LibraryThread("hvd-test", "Library", std::move(event)) {}
  size_t left_running = 0;  // valid after the thread's end
  bool has_failed = false;  // valid after the thread's end

 protected:
  void close_library(bool failed, Batches running) override {
    has_failed = failed;
    left_running = running.size();
  }
};

struct TestBatch : QueuedBatch {
  explicit TestBatch(std::string* log, char name) : QueuedBatch(kNothing), log(log), name(name) {}
  Status start() override {
    log->push_back(name);
    started.set_value();
    if (hangs.valid()) hangs.wait();
    if (fails) throw std::runtime_error("it broke\nhere");
    return {};
  }
  void finish() override { is_written = true; }
  static constexpr hvd_batch kNothing{};
  std::string* log;
  const char name;
  bool fails = false, is_written = false;
  std::promise<void> started;
  std::shared_future<void> hangs;
};

// Sleeps like the progress thread.
Status wait_for(const WakeEvent& event, QueuedBatch& batch) {
  for (;;) {
    if (const auto over = batch.poll()) return *over;
    pollfd ready{event.fd(), POLLIN, 0};
    REQUIRE(::poll(&ready, 1, 60'000) == 1);
    event.clear();
  }
}

}  // namespace

TEST_CASE("batches and calls run in their order, and the event reports each end") {
  const auto event = *WakeEvent::make();
  const auto thread = std::make_shared<TestThread>(event);
  std::string log;
  const auto a = std::make_shared<TestBatch>(&log, 'a');
  const auto b = std::make_shared<TestBatch>(&log, 'b');
  thread->add(a);  // before the first call: the library opens first
  thread->call([&log]() -> Status {
    log.push_back('-');
    return {};
  });
  thread->add(b);
  thread->start();
  CHECK(wait_for(*event, *a).ok());
  CHECK(wait_for(*event, *b).ok());
  CHECK(log == "a-b");
  CHECK(a->is_written);
  CHECK(thread->stop());
  CHECK(!thread->has_failed);
}

TEST_CASE("an exception of a library fails its batch and all later ones, with one cause") {
  const auto event = *WakeEvent::make();
  const auto thread = std::make_shared<TestThread>(event);
  thread->start();
  std::string log;
  const auto broken = std::make_shared<TestBatch>(&log, 'a');
  const auto later = std::make_shared<TestBatch>(&log, 'b');
  broken->fails = true;
  thread->add(broken);
  thread->add(later);
  CHECK(wait_for(*event, *broken).message() == "Library: it broke");
  CHECK(wait_for(*event, *later).message() == "Library: it broke");
  const auto last = std::make_shared<TestBatch>(&log, 'c');
  thread->add(last);
  CHECK(wait_for(*event, *last).message() == "Library: it broke");
  CHECK(log == "a");
  CHECK(thread->stop());
  CHECK(thread->has_failed);
  CHECK(thread->left_running == 1);
}

TEST_CASE("a write of a library to a connection that has ended fails, and sends no signal") {
  const auto event = *WakeEvent::make();
  const auto thread = std::make_shared<TestThread>(event);
  std::array<int, 2> pipe{};
  REQUIRE(::pipe(pipe.data()) == 0);
  ::close(pipe[0]);
  int of_thread = 0, of_its_own_thread = 0;
  const auto write = [&](int& error) { error = ::write(pipe[1], "x", 1) < 0 ? errno : 0; };
  thread->call([&]() -> Status {
    write(of_thread);
    std::thread([&] { write(of_its_own_thread); }).join();
    return {};
  });
  std::string log;
  const auto last = std::make_shared<TestBatch>(&log, 'l');
  thread->add(last);
  thread->start();
  CHECK(wait_for(*event, *last).ok());
  CHECK(of_thread == EPIPE);
  CHECK(of_its_own_thread == EPIPE);
  CHECK(thread->stop());
  ::close(pipe[1]);
}

TEST_CASE("a thread that hangs stays behind, and writes no output afterwards") {
  const auto event = *WakeEvent::make();
  const auto thread = std::make_shared<TestThread>(event);
  thread->start();
  std::string log;
  std::promise<void> returns;
  const auto stuck = std::make_shared<TestBatch>(&log, 'a');
  stuck->hangs = returns.get_future().share();
  thread->add(stuck);
  stuck->started.get_future().wait();
  CHECK(!thread->stop(hvd::Deadline::after_seconds(0)));
  returns.set_value();
  thread->close();  // waits for the call in progress
  CHECK(!stuck->is_written);
}

namespace {

// Two libraries; the first returns only when the second is interrupted.
class TwoSets : public hvd::ops::Backend {
 public:
  ~TwoSets() override { drop_all(); }
  int32_t supports(const hvd_batch&) override { return 1; }
  Result<std::unique_ptr<hvd::ops::BackendCommunicator>> open_communicator(
      const hvd::ops::ProcessSetDescriptor&) override {
    return std::unique_ptr<hvd::ops::BackendCommunicator>(std::make_unique<Communicator>(*this));
  }
  std::atomic<int> interrupted = 0;
  int given_up = 0;

 private:
  struct Thread : hvd::ops::LibraryThread {
    Thread(TwoSets& sets, std::shared_ptr<WakeEvent> event)
        : LibraryThread("hvd-test", "Library", std::move(event)), sets(sets) {}
    void interrupt() override {
      if (!is_interrupted.exchange(true)) ++sets.interrupted;
      sets.interrupted.notify_all();
    }
    TwoSets& sets;
    std::atomic<bool> is_interrupted = false;
  };
  struct Batch : QueuedBatch {
    Batch(TwoSets& sets, const hvd_batch& batch) : QueuedBatch(batch), sets(sets) {}
    Status start() override {
      for (int seen = sets.interrupted; seen < 2; seen = sets.interrupted) {
        sets.interrupted.wait(seen);
      }
      return hvd::aborted("Library: interrupted");
    }
    TwoSets& sets;
  };
  struct Communicator : hvd::ops::BackendCommunicator {
    explicit Communicator(TwoSets& sets)
        : sets(sets), thread(std::make_shared<Thread>(sets, *WakeEvent::make())) {
      thread->start();
    }
    Result<std::shared_ptr<hvd::ops::RunningBatch>> start(const hvd_batch& batch) override {
      auto queued = std::make_shared<Batch>(sets, batch);
      thread->add(queued);
      return std::shared_ptr<hvd::ops::RunningBatch>(std::move(queued));
    }
    void begin_abort() override { thread->begin_end(); }
    void abort(hvd::Deadline until) override { sets.given_up += thread->stop(until) ? 0 : 1; }
    TwoSets& sets;
    const std::shared_ptr<Thread> thread;
  };
};

}  // namespace

TEST_CASE(
    "after a failure the libraries of all process sets are interrupted before any is waited for") {
  TwoSets sets;
  CHECK(sets.new_set(0, {0}) == HVD_OK);
  CHECK(sets.new_set(1, {0}) == HVD_OK);
  int ended = 0;
  const auto done = [](void* argument, int, const char*) { ++*static_cast<int*>(argument); };
  hvd_batch batches[2]{};
  batches[1].process_set = 1;
  for (const hvd_batch& batch : batches) CHECK(sets.run(batch, done, &ended) == HVD_OK);
  sets.abort(hvd::aborted("a peer was lost"));
  CHECK(sets.given_up == 0);
  CHECK(ended == 2);
}
