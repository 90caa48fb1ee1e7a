#include "launcher/state/job_record.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <string>

#include "base/proc_file.h"

namespace hvd::launcher {
namespace {

JobRecord some_record() {
  JobRecord record;
  record.launcher = ProcessIdentity::own();
  record.name = "mnist";
  record.command = {"python3", "train.py", "--text", "a\nb\x1b[31m"};
  record.directory = "/home/me";
  record.allocation = "4711";
  record.allocation_name = "train";
  record.state = "ended";
  record.began = 1'700'000'000;
  record.written = record.ended = 1'700'000'100;
  record.ranks = 8;
  record.is_constant = true;
  record.launches = 2;
  record.exit_code = 3;
  record.cause = "rank 3 on host b exited with code 3";
  return record;
}

}  // namespace

TEST_CASE("a record is read as it was written") {
  const std::string text = to_json(some_record());
  CHECK(text.find('\n') == std::string::npos);
  const auto read = parse_job_record(text);
  REQUIRE(read.ok());
  CHECK(to_json(*read) == text);
  CHECK(read->command == some_record().command);
  CHECK(read->is_constant);
  CHECK(read->launcher.is_beside(some_record().launcher));
}

TEST_CASE("bytes that are no text are replaced in a record") {
  JobRecord record = some_record();
  record.command = {"\xff\xfe"};
  const auto read = parse_job_record(to_json(record));
  REQUIRE(read.ok());
  CHECK(read->command == std::vector<std::string>{"\xef\xbf\xbd\xef\xbf\xbd"});
}

TEST_CASE("text that is no record is refused") {
  const std::string whole = to_json(some_record());
  for (const std::string& text :
       {std::string(), std::string("{}"), std::string("[1]"), whole.substr(0, 40),
        std::string(R"({"host":"a","pid":-1,"state":"running"})"),
        std::string(R"({"host":"a","pid":99999999999,"state":"running"})"),
        std::string(R"({"host":"a","pid":1,"state":"gone"})"),
        std::string(R"({"host":7,"pid":1,"state":"running"})")}) {
    CHECK_MESSAGE(!parse_job_record(text).ok(), text);
  }
  const auto other = parse_job_record(R"({"host":"a","pid":1,"state":"running","of_later":{}})");
  REQUIRE(other.ok());
  CHECK(!other->is_constant);  // a record in the format of an earlier release
}

TEST_CASE("times of a record cannot overflow") {
  const auto read = parse_job_record(
      R"({"host":"a","pid":1,"state":"running","written":-9223372036854775808,"began":9223372036854775807})");
  REQUIRE(read.ok());
  CHECK(read->written == 0);
  CHECK(life_of(*read, ProcessIdentity::own(), 1'700'000'000) == JobLife::kUnknown);
}

TEST_CASE("a job beside its observer runs while its launcher does") {
  JobRecord record = some_record();
  CHECK(life_of(record, ProcessIdentity::own(), record.written) == JobLife::kEnded);
  record.state = "running";
  const int64_t much_later = record.written + 86'400;
  CHECK(life_of(record, ProcessIdentity::own(), much_later) == JobLife::kRuns);
  // Simulates another process with the same PID.
  ++record.launcher.start;
  CHECK(life_of(record, ProcessIdentity::own(), record.written) == JobLife::kUnknown);
}

TEST_CASE("a job elsewhere runs while it gives signs") {
  JobRecord record = some_record();
  record.state = "running";
  ProcessIdentity observer = ProcessIdentity::own();
  const auto is_running_after = [&](int64_t seconds) {
    return life_of(record, observer, record.written + seconds) == JobLife::kRuns;
  };
  for (const int what : {0, 1, 2}) {
    observer = ProcessIdentity::own();
    if (what == 0) observer.host += "-other";
    if (what == 1) observer.boot += "-later";
    if (what == 2) ++observer.pid_namespace;
    CHECK(is_running_after(0));
    CHECK(is_running_after(179));
    CHECK_FALSE(is_running_after(180));
    CHECK(is_running_after(-179));  // the job's host has a clock 179 s ahead of ours
    CHECK_FALSE(is_running_after(-180));
  }
}

TEST_CASE("names of jobs are words that are neither a pid nor a flag") {
  for (const char* name : {"mnist", "run-7", "a.b_c", "7b", "A"})
    CHECK_MESSAGE(check_job_name(name).ok(), name);
  const std::string long_name(65, 'x');
  for (const std::string& name :
       {std::string(), std::string("7"), std::string(30, '9'), std::string("-a"),
        std::string("a b"), std::string("a\nb"), std::string("a\x1b[0m"), std::string("a/b"),
        std::string("b:7"), std::string("\xc3\xa4"), long_name}) {
    const Status status = check_job_name(name);
    CHECK_MESSAGE(!status.ok(), name);
    CHECK(status.message().find('\x1b') == std::string::npos);
  }
}

TEST_CASE("a process that does not exist has no start") {
  CHECK(start_of(::getpid()) > 0);
  CHECK(start_of(-1) == 0);
}

}  // namespace hvd::launcher
