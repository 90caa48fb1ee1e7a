#include "launcher/state/state_folder.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <string>

#include "base/text.h"
#include "launcher/state/job_choice.h"
#include "launcher/state/job_commands.h"

namespace hvd::launcher {
namespace {

namespace fs = std::filesystem;

struct State {
  State() {
    char name[] = "/tmp/e2e-state-XXXXXX";
    REQUIRE(::mkdtemp(name) != nullptr);
    parent = name;
    path = parent + "/a/state";
  }
  ~State() { fs::remove_all(parent); }
  State(const State&) = delete;

  // Adds a record of a launcher on another machine.
  JobRecord add(int64_t pid, int64_t began, const std::string& name = "",
                const std::string& state = "ended") const {
    JobRecord record;
    record.launcher = {.host = "b", .boot = "boot", .pid_namespace = 1, .pid = pid, .start = 7};
    record.name = name;
    record.command = {"train"};
    record.state = state;
    record.began = began;
    record.written = record.ended = began + 10;
    const auto folder = make_job_folder(path, record.launcher);
    REQUIRE(folder.ok());
    REQUIRE(write_record(*folder, record).ok());
    return record;
  }
  fs::path folder_of(const JobRecord& record) const {
    return fs::path(path) / job_folder_name(record.launcher);
  }
  void set_age(const JobRecord& record, int64_t seconds) const {
    timespec times[2]{};
    times[0].tv_sec = times[1].tv_sec = std::time(nullptr) - seconds;
    REQUIRE(::utimensat(AT_FDCWD, folder_of(record).c_str(), times, 0) == 0);
  }
  StateView view(int64_t now) const {
    StateView view;
    view.path = path;
    view.observer = ProcessIdentity::own();
    view.now = now;
    view.records = read_records(path, &view.unreadable).value_or({});
    return view;
  }
  std::string parent, path;
};

mode_t mode_of(const fs::path& path) {
  struct stat status {};
  REQUIRE(::stat(path.c_str(), &status) == 0);
  return status.st_mode & 07777;
}

}  // namespace

TEST_CASE("the state directory is below the home, where it is not named or switched off") {
  CHECK(state_folder_path("~/.local/state/horovodrun", "/home/me") ==
        "/home/me/.local/state/horovodrun");
  CHECK(state_folder_path("/scratch/s", "/home/me") == "/scratch/s");
  CHECK(state_folder_path("~", "/home/me") == "/home/me");
  CHECK(state_folder_path("st", "/home/me") == (fs::current_path() / "st").string());
  CHECK(state_folder_path("none", "/home/me").empty());
  CHECK(state_folder_path("~/x", "").empty());
}

TEST_CASE("only the user can enter the folders of jobs") {
  const State state;
  CHECK(read_records(state.path).value_or({JobRecord()}).empty());
  const JobRecord record = state.add(1, 100);
  CHECK(mode_of(state.path) == 0700);
  CHECK(mode_of(state.folder_of(record)) == 0700);
  CHECK(mode_of(state.folder_of(record) / "record.json") == 0600);
  CHECK(fs::exists(state.folder_of(record) / "record.json"));
  CHECK_FALSE(fs::exists(state.folder_of(record) / "record.new"));
  // A folder that other users can write to is not a record.
  REQUIRE(::chmod(state.folder_of(record).c_str(), 0777) == 0);
  CHECK(read_records(state.path).value_or({}).empty());
  CHECK_FALSE(open_job_folder(state.path, record.launcher).ok());
  REQUIRE(::chmod(state.path.c_str(), 0777) == 0);
  const auto refused = read_records(state.path);
  REQUIRE_FALSE(refused.ok());
  CHECK(refused.status().message().find("HOROVOD_STATE_DIR") != std::string::npos);
}

TEST_CASE("records of other users are refused") {
  if (::geteuid() != 0) return;
  const State state;
  const JobRecord record = state.add(1, 100);
  REQUIRE(::chown(state.folder_of(record).c_str(), 1, 1) == 0);
  CHECK(read_records(state.path).value_or({}).empty());
  REQUIRE(::chown(state.path.c_str(), 1, 1) == 0);
  CHECK_FALSE(read_records(state.path).ok());
  CHECK_FALSE(make_job_folder(state.path, record.launcher).ok());
}

TEST_CASE("a damaged record hides no other") {
  const State state;
  state.add(1, 100);
  std::ofstream(state.folder_of(state.add(2, 200)) / "record.json") << "{";
  fs::remove(state.folder_of(state.add(3, 300)) / "record.json");  // the job has just begun
  fs::remove(state.folder_of(state.add(4, 400)) / "record.json");
  fs::create_symlink("/dev/zero", fs::path(state.path) / "b_boot_4_7.job" / "record.json");
  fs::create_symlink("/etc", fs::path(state.path) / "link.job");
  size_t unreadable = 0;
  const auto records = read_records(state.path, &unreadable);
  REQUIRE(records.ok());
  CHECK(records->size() == 1);
  CHECK(unreadable == 2);
}

TEST_CASE("old jobs are removed, and the oldest ones of too many, but none that gives signs") {
  const State state;
  const int64_t now = std::time(nullptr);
  constexpr int64_t kDay = 24 * 3600;
  for (int i = 0; i < 6; ++i) state.set_age(state.add(i + 1, i), kDay * (16 - i));
  fs::create_directories(fs::path(state.path) / "other-things");
  remove_old_jobs(state.path, now);
  CHECK(read_records(state.path).value_or({}).size() == 4);  // the jobs of 14, 13, 12 and 11 days
  remove_old_jobs(state.path, now, 2);
  auto left = read_records(state.path).value_or({});
  REQUIRE(left.size() == 2);
  CHECK(left[0].launcher.pid == 5);
  state.set_age(left[0], 10);
  state.set_age(left[1], 20);
  remove_old_jobs(state.path, now, 0);
  CHECK(read_records(state.path).value_or({}).size() == 2);
  CHECK(fs::exists(fs::path(state.path) / "other-things"));
}

TEST_CASE("the target of a job is a file for Prometheus, until its launcher gives no sign") {
  const State state;
  JobRecord record = state.add(1, 100, "", "running");
  record.metrics = "127.0.0.1:9400";
  REQUIRE(write_target(state.path, record).ok());
  REQUIRE(write_target(state.path, record).ok());
  const fs::path file = fs::path(state.path) / "b_boot_1_7.metrics.json";
  std::ifstream stream(file);
  const std::string text((std::istreambuf_iterator<char>(stream)), {});
  CHECK(text == "[{\"targets\":[\"127.0.0.1:9400\"]}]\n");
  CHECK((fs::status(file).permissions() & fs::perms::others_read) != fs::perms::none);
  CHECK(std::distance(fs::directory_iterator(state.path), {}) == 2);
  const int64_t now = std::time(nullptr);
  remove_old_jobs(state.path, now);
  CHECK(fs::exists(file));
  remove_old_jobs(state.path, now + 200);
  CHECK_FALSE(fs::exists(file));
  CHECK(read_records(state.path).value_or({}).size() == 1);
  REQUIRE(write_target(state.path, record).ok());
  remove_target(state.path, record.launcher);
  CHECK_FALSE(fs::exists(file));
}

TEST_CASE(
    "the directory of detached jobs is refused where others may use it, also through a link") {
  const State state;
  const std::string path = local_state_path(state.parent);
  JobRecord record;
  record.launcher = ProcessIdentity::own();
  CHECK(check_local_state(path).code() == Code::kNotFound);
  fs::create_directory(path);
  fs::permissions(path, fs::perms::owner_all | fs::perms::group_exec);
  const Status open_to_others = begin_local_record(path, record);
  CHECK(open_to_others.code() == Code::kPermissionDenied);
  CHECK(open_to_others.message().starts_with(path));
  fs::remove(path);
  fs::create_directory(state.parent + "/elsewhere");
  fs::permissions(state.parent + "/elsewhere", fs::perms::owner_all);
  fs::create_directory_symlink(state.parent + "/elsewhere", path);
  CHECK(begin_local_record(path, record).code() == Code::kPermissionDenied);
  fs::remove(path);
  REQUIRE(begin_local_record(path, record).ok());
  CHECK(mode_of(path) == 0700);
  const auto records = read_records(path).value_or({});
  REQUIRE(records.size() == 1);
  CHECK(records[0].place == path);
}

TEST_CASE("a detached job has two records, of which that beside its log counts") {
  const State state;
  REQUIRE(::setenv("HOROVOD_STATE_DIR", state.path.c_str(), 1) == 0);
  REQUIRE(::setenv("HOROVOD_SPOOL_DIR", state.parent.c_str(), 1) == 0);
  const JobRecord first = state.add(1, 100);
  JobRecord record = state.add(2, 200, "detached", "running");
  record.log = local_state_path(state.parent);
  REQUIRE(begin_local_record(record.log, record).ok());
  state.add(3, 300);
  const auto view = view_state();
  REQUIRE(view.ok());
  REQUIRE(view->records.size() == 3);
  CHECK(view->records[0].place == state.path);
  CHECK(view->records[1].place == record.log);
  CHECK(view->records[1].name == "detached");
  REQUIRE(::setenv("HOROVOD_STATE_DIR", "none", 1) == 0);
  CHECK(view_state()->records.size() == 1);
  fs::remove_all(record.log);
  CHECK(view_state().status().message().find("HOROVOD_STATE_DIR is none") == 0);
  ::unsetenv("HOROVOD_STATE_DIR");
  ::unsetenv("HOROVOD_SPOOL_DIR");
}

TEST_CASE("a name means the job that runs, or else the newest one") {
  const State state;
  state.add(1, 100, "train");
  state.add(2, 200, "train");
  state.add(3, 300, "other");
  StateView view = state.view(400);
  CHECK(choose_job(view, "train", "stop")->launcher.pid == 2);
  CHECK(choose_job(view, "", "stop")->launcher.pid == 3);
  CHECK(choose_job(view, "b:1", "stop")->launcher.pid == 1);
  CHECK(choose_job(view, "1", "stop").status().code() == Code::kNotFound);  // PIDs name local jobs
  CHECK(choose_job(view, "no\n", "stop").status().message().find('\n') == std::string::npos);
  state.add(4, 350, "train", "running");
  state.add(5, 360, "other");
  view = state.view(400);
  CHECK(choose_job(view, "train", "stop")->launcher.pid == 4);
  CHECK(choose_job(view, "", "stop")->launcher.pid == 4);
  state.add(6, 370, "train", "running");
  const auto several = choose_job(state.view(400), "train", "stop");
  REQUIRE_FALSE(several.ok());
  const std::string& said = several.status().message();
  CHECK_MESSAGE(said.find("\n  b:4  train  ") < said.find("\n  b:6  train  "), said);
}

TEST_CASE("the table of jobs has their ends, and no control characters") {
  const State state;
  JobRecord record = state.add(1, 1'700'000'000, "train");
  record.command = {"sh", "-c", "a\n\x1b[31mb"};
  record.exit_code = 3;
  record.cause = "rank 0 on host \x1b[31mb exited with code 3";
  record.ranks = 4;
  const auto folder = open_job_folder(state.path, record.launcher);
  REQUIRE(folder.ok());
  REQUIRE(write_record(*folder, record).ok());
  state.add(2, 1'700'000'500, "", "running");
  const std::string table = jobs_as_table(state.view(1'700'001'000));
  CHECK(table.find("ended, exit code 3: rank 0 on host") != std::string::npos);
  CHECK(table.find("unknown since 20") != std::string::npos);
  CHECK(table.find("b:1") != std::string::npos);
  CHECK(table.find('\x1b') == std::string::npos);
  CHECK(split(table, '\n').size() == 6);
  CHECK(jobs_as_table(state.view(1'700'000'600)).find("running") != std::string::npos);
  const std::string json = jobs_as_json(state.view(1'700'001'000));
  CHECK(split(json, '\n').size() == 3);
  CHECK(json.find("\"state\":\"unknown\"") != std::string::npos);
  CHECK(json.find("\"exit_code\":3") != std::string::npos);
}

}  // namespace hvd::launcher
