#include "launcher/observe/job_part.h"

#include <doctest/doctest.h>

#include <chrono>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace hvd::launcher {
namespace {

using Said = std::vector<std::string>;

class Recorder : public JobPart {
 public:
  Recorder(Said& said, std::string name) : said_(said), name_(std::move(name)) {}

  void on(const JobEvent& event) override {
    if (std::holds_alternative<Starting>(event)) said_.push_back(name_ + " starts");
  }
  Clock::time_point deadline() const override { return next; }
  void on_deadline() override {
    next = Clock::time_point::max();
    said_.push_back(name_ + " is due");
  }
  net::Task<void> end() override {
    said_.push_back(name_ + " ends");
    co_await JobPart::end();
  }
  // The part is due again when its work ends.
  net::Task<void> work(bool fails) {
    next = Clock::now();
    if (fails) throw std::runtime_error("planted");
    co_return;
  }

  Clock::time_point next = Clock::time_point::max();

 private:
  Said& said_;
  const std::string name_;
};

struct Watched {
  // Runs until the parts have recorded `count` texts.
  void run_until(size_t count) {
    for (loop.restart(); said.size() < count && loop.run_one() > 0;) continue;
    REQUIRE(said.size() == count);
  }
  void run_for(std::chrono::milliseconds time) {
    loop.restart();
    loop.run_for(time);
  }

  Said said;
  net::asio::io_context loop;
  std::shared_ptr<Recorder> first = std::make_shared<Recorder>(said, "first");
  std::shared_ptr<Recorder> second = std::make_shared<Recorder>(said, "second");
};

TEST_CASE("parts see events in their order, and each is called when it is due") {
  Watched job;
  JobParts parts(job.loop.get_executor(), {job.first, job.second});
  job.second->next = Clock::now() + std::chrono::milliseconds(1);
  parts.report(Starting{});
  CHECK(job.said == Said{"first starts", "second starts"});
  job.run_until(3);
  CHECK(job.said.back() == "second is due");
  // An earlier time replaces a later one; without a time, the timer is off.
  job.first->next = Clock::now() + std::chrono::hours(1);
  parts.report(AllStarted{});
  job.first->next = Clock::now();
  parts.report(AllStarted{});
  job.run_until(4);
  CHECK(job.said.back() == "first is due");
  job.run_for(std::chrono::milliseconds(5));
  CHECK(job.said.size() == 4);
}

TEST_CASE("the time of a part is read after its task, also after one that has failed") {
  for (const bool fails : {false, true}) {
    Watched job;
    JobParts parts(job.loop.get_executor(), {job.first});
    parts.run(job.first, job.first->work(fails));
    job.run_until(1);
    CHECK(job.said == Said{"first is due"});
  }
}

TEST_CASE(
    "nothing follows the end, and parts do not outlive the launch though its loop stands still") {
  Watched job;
  {
    JobParts parts(job.loop.get_executor(), {job.first, job.second});
    job.first->next = Clock::now() + std::chrono::milliseconds(1);
    parts.report(AllStarted{});
    net::asio::co_spawn(job.loop, parts.end(), net::asio::detached);
    job.run_for(std::chrono::milliseconds(5));
    CHECK(job.said == Said{"first ends", "second ends"});
    parts.report(Starting{});
    CHECK(job.said.size() == 2);
  }
  {
    JobParts parts(job.loop.get_executor(), {job.first});
    job.first->next = Clock::now() + std::chrono::hours(1);
    parts.report(AllStarted{});
    CHECK(job.first.use_count() == 2);
  }
  CHECK(job.first.use_count() == 1);  // the cancelled wait is still in the loop
}

}  // namespace
}  // namespace hvd::launcher
