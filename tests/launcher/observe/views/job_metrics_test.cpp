#include "launcher/observe/views/job_metrics.h"

#include <doctest/doctest.h>

#include <tuple>

#include "base/text.h"

namespace hvd::launcher {
namespace {

HostAnswer answer_of(HostMetrics host) { return {.sample = {.metrics = {std::move(host)}}}; }

HostMetrics host_of(std::vector<RankMetrics> ranks, uint64_t operations) {
  HostMetrics host;
  for (uint64_t i = 0; i < operations; ++i) {
    host.sum.finished(HVD_ALLREDUCE, true, 100, std::chrono::microseconds(3));
  }
  host.step_age = 1500;
  host.ranks = std::move(ranks);
  return host;
}

RankMetrics rank_of(int number, uint64_t cpu, RankActivity activity = RankActivity::kRuns) {
  RankMetrics rank{.rank = number, .activity = activity, .has_counters = 1};
  rank.counts.steps = 10;
  rank.usage.cpu_microseconds = cpu;
  return rank;
}

bool has_sample(const std::string& text, const std::string& sample) {
  return text.find(cat("\n", sample, "\n")) != std::string::npos;
}

size_t count(std::string_view text, std::string_view part) {
  size_t times = 0;
  for (size_t at = 0; (at = text.find(part, at)) != std::string_view::npos; ++at) ++times;
  return times;
}

}  // namespace

TEST_CASE("waits of ranks for each other are counted by rank, and stragglers in the summary") {
  HostTable hosts(*plan_slots({{"a", "", 1}, {"b", "", 1}}, {}));
  const JobMetrics metrics("00ff", "", 0);
  CHECK(metrics.waits_text(hosts, MetricsLevel::kRanks).empty());
  hosts.rank(0).set_waits(RankWaits{.waited_seconds = 1.5});
  hosts.rank(1).set_waits(RankWaits{.late_seconds = 1.25, .is_straggler = true});
  const std::string summary = metrics.waits_text(hosts, MetricsLevel::kHosts);
  CHECK(has_sample(summary, "horovod_stragglers{job_id=\"00ff\"} 1"));
  CHECK(summary.find("rank=") == std::string::npos);
  const std::string all = metrics.waits_text(hosts, MetricsLevel::kRanks);
  const std::string labels = "{job_id=\"00ff\",host=\"b\",rank=\"1\"}";
  CHECK(has_sample(all, cat("horovod_straggler", labels, " 1")));
  CHECK(has_sample(all, cat("horovod_late_seconds_total", labels, " 1.25")));
  CHECK(has_sample(all, cat("horovod_wait_seconds_total", labels, " 0")));
}

TEST_CASE("each level adds samples of hosts and ranks, and the sums are the same") {
  HostTable hosts(*plan_slots({{"a", "", 2}, {"b", "", 1}}, {}));
  JobMetrics metrics("00ff", "mnist", 2);
  metrics.take(
      {answer_of(host_of({rank_of(0, 1'000'000), rank_of(1, 500'000, RankActivity::kStopped)}, 4)),
       answer_of(host_of({rank_of(2, 250'000)}, 3))});
  const std::string summary = metrics.text(hosts, MetricsLevel::kSummary);
  CHECK(has_sample(summary, "horovod_operations_total{job_id=\"00ff\",operation=\"allreduce\"} 7"));
  CHECK(has_sample(summary, "horovod_job_cpu_seconds_total{job_id=\"00ff\"} 1.75"));
  CHECK(has_sample(summary, "horovod_job_restarts_total{job_id=\"00ff\"} 2"));
  CHECK(has_sample(summary, "horovod_ranks_up{job_id=\"00ff\"} 2"));
  CHECK(has_sample(summary, "horovod_ranks{job_id=\"00ff\",state=\"planned\"} 3"));
  CHECK(has_sample(summary, "horovod_step_age_seconds{job_id=\"00ff\"} 1.5"));
  CHECK(summary.find("rank=") == std::string::npos);
  CHECK(summary.find("host=") == std::string::npos);
  CHECK(count(summary, "\nhorovod_") <= 250);

  const std::string by_host = metrics.text(hosts, MetricsLevel::kHosts);
  CHECK(by_host.starts_with(summary));
  CHECK(has_sample(by_host, "horovod_host_cpu_seconds_total{job_id=\"00ff\",host=\"a\"} 1.5"));
  CHECK(has_sample(by_host, "horovod_host_steps_total{job_id=\"00ff\",host=\"a\"} 10"));
  CHECK(by_host.find("rank=") == std::string::npos);

  const std::string by_rank = metrics.text(hosts, MetricsLevel::kRanks);
  CHECK(by_rank.starts_with(by_host));
  CHECK(has_sample(by_rank, "horovod_rank_up{job_id=\"00ff\",host=\"a\",rank=\"0\"} 1"));
  CHECK(has_sample(by_rank, "horovod_rank_up{job_id=\"00ff\",host=\"a\",rank=\"1\"} 0"));
  CHECK(has_sample(by_rank,
                   "horovod_rank_cpu_seconds_total{job_id=\"00ff\",host=\"b\",rank=\"2\"} 0.25"));
}

TEST_CASE("a host that does not answer keeps its counts, and its ranks are not up") {
  HostTable hosts(*plan_slots({{"a", "", 1}, {"b", "", 1}}, {}));
  JobMetrics metrics("1", "", 0);
  const HostAnswer a = answer_of(host_of({rank_of(0, 1'000'000)}, 4));
  const auto now = Clock::now();
  metrics.take({a, answer_of(host_of({rank_of(1, 1'000'000)}, 4))}, now);
  metrics.take({a, {}}, now + std::chrono::milliseconds(2500));
  const std::string text = metrics.text(hosts, MetricsLevel::kRanks);
  CHECK(has_sample(text, "horovod_operations_total{job_id=\"1\",operation=\"allreduce\"} 8"));
  CHECK(has_sample(text, "horovod_host_up{job_id=\"1\",host=\"b\"} 0"));
  CHECK(has_sample(text, "horovod_rank_up{job_id=\"1\",host=\"b\",rank=\"1\"} 0"));
  CHECK(has_sample(text, "horovod_ranks_up{job_id=\"1\"} 1"));
  // The age of a step and the memory are current values.
  CHECK(has_sample(text, "horovod_step_age_seconds{job_id=\"1\"} 1.5"));
  metrics.take({{}, {}}, now + std::chrono::milliseconds(5000));
  const std::string none = metrics.text(hosts, MetricsLevel::kSummary);
  CHECK(none.find("step_age") == std::string::npos);
  CHECK(has_sample(none, "horovod_job_resident_bytes{job_id=\"1\"} 0"));
}

TEST_CASE("a job steps while a step ends within the time of a few steps") {
  HostMetrics host = host_of({rank_of(0, 1)}, 1);
  for (const auto& [age, step, is_stepping] : {std::tuple{-1, 0, false},
                                               {1500, 100'000, true},
                                               {3000, 100'000, false},
                                               {60'000, 20'000'000, true}}) {
    host.step_age = age;
    host.ranks[0].step_microseconds = static_cast<uint64_t>(step);
    JobMetrics metrics("1", "", 0);
    metrics.take({answer_of(host)});
    CHECK(metrics.is_stepping() == is_stepping);
  }
}

TEST_CASE("a host that answers late is up, by its last answer") {
  using std::chrono::milliseconds;
  HostTable hosts(*plan_slots({{"a", "", 1}, {"b", "", 1}}, {}));
  JobMetrics metrics("1", "", 0);
  const HostAnswer a = answer_of(host_of({rank_of(0, 1)}, 4));
  const HostAnswer b = answer_of(host_of({rank_of(1, 1)}, 4));
  const auto now = Clock::now();
  metrics.take({a, {}}, now);
  CHECK(metrics.rank(1) == nullptr);
  metrics.take_late(1, b, now + milliseconds(100));
  REQUIRE(metrics.rank(1) != nullptr);
  metrics.take({a, {}}, now + milliseconds(1000));
  REQUIRE(metrics.rank(1) != nullptr);
  CHECK(metrics.rank(1)->counts.steps == 10);
  CHECK(
      has_sample(metrics.text(hosts, MetricsLevel::kSummary), "horovod_ranks_up{job_id=\"1\"} 2"));
  metrics.take({a, {}}, now + milliseconds(3000));
  CHECK(metrics.rank(1) == nullptr);
}

TEST_CASE("metrics of a host that came back are those of one host, and only ranks have a rank") {
  HostTable hosts(*plan_slots({{"a", "", 1}, {"a", "", 1}}, {}));
  const int members[] = {1};
  hosts.set_members(1, members);
  JobMetrics metrics("1", "", 0);
  metrics.take({answer_of(host_of({rank_of(0, 1'000'000, RankActivity::kEnded)}, 1)),
                answer_of(host_of({rank_of(1, 2'000'000)}, 1))});
  const std::string text = metrics.text(hosts, MetricsLevel::kRanks);
  CHECK(has_sample(text, "horovod_host_cpu_seconds_total{job_id=\"1\",host=\"a\"} 3"));
  CHECK(count(text, "\nhorovod_host_up{") == 1);
  CHECK(has_sample(text, "horovod_rank_cpu_seconds_total{job_id=\"1\",host=\"a\",rank=\"0\"} 2"));
  CHECK(count(text, "\nhorovod_rank_up{") == 1);
}

TEST_CASE("One sentence names the first rank that counts where nobody reads") {
  HostTable hosts(*plan_slots({{"a", "", 2}}, {}));
  JobMetrics metrics("1", "", 0);
  RankMetrics foreign = rank_of(0, 1);
  foreign.has_counters = 0;  // a program that never calls hvd.init()
  RankMetrics unread = foreign;
  unread.rank = 1;
  metrics.take({answer_of(host_of({foreign, unread}, 0))});
  CHECK(metrics.about_unread(hosts).empty());
  unread.has_joined = 1;
  metrics.take({answer_of(host_of({foreign, unread}, 0))});
  CHECK(metrics.about_unread(hosts).starts_with("rank 1 on host a counts where "));
  CHECK(metrics.about_unread(hosts).empty());
}

TEST_CASE("an answer without metrics counts as none, and levels have names") {
  HostTable hosts(*plan_slots({{"a", "", 1}}, {}));
  JobMetrics metrics("1", "", 0);
  metrics.take({{}});
  const std::string text = metrics.text(hosts, MetricsLevel::kHosts);
  CHECK(has_sample(text, "horovod_host_up{job_id=\"1\",host=\"a\"} 0"));
  CHECK(!parse_metrics_level("ranks"));
  CHECK(parse_metrics_level("rank") == MetricsLevel::kRanks);
}

TEST_CASE("without --metrics-level, up to 64 hosts have samples") {
  CHECK(metrics_level_of("", 64) == MetricsLevel::kHosts);
  CHECK(metrics_level_of("", 65) == MetricsLevel::kSummary);
  CHECK(metrics_level_of("summary", 1) == MetricsLevel::kSummary);
  CHECK(metrics_level_of("host", 65) == MetricsLevel::kHosts);
}

}  // namespace hvd::launcher
