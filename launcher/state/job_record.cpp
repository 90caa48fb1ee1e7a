#include "launcher/state/job_record.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/machine_identity.h"
#include "base/proc_file.h"
#include "base/text.h"

namespace hvd::launcher {
namespace {

using Json = nlohmann::json;

constexpr size_t kMostName = 64;
// A launcher writes its record once a minute. Readers consider a launcher ended after three minutes without a record.
constexpr int64_t kSignSeconds = 180;

std::string text_of(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

int64_t number_of(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_number_integer() ? found->get<int64_t>() : 0;
}

int32_t small_number_of(const Json& object, const char* key) {
  return static_cast<int32_t>(
      std::clamp<int64_t>(number_of(object, key), 0, std::numeric_limits<int32_t>::max()));
}

// Limits times to the year 9999, which differences and the calendar support.
int64_t time_of(const Json& object, const char* key) {
  return std::clamp<int64_t>(number_of(object, key), 0, 253'402'300'799);
}

bool is_letter_of_name(char letter) {
  const bool is_letter = (letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z');
  return is_letter || (letter >= '0' && letter <= '9') || letter == '-' || letter == '_' ||
         letter == '.';
}

}  // namespace

int64_t start_of(int64_t pid) {
  const auto stat = ProcStat::of(pid);
  // A zombie has ended.
  if (!stat || stat->state() == 'Z' || stat->state() == 'X') return 0;
  return (*stat)[StatField::kStart];
}

int64_t parent_of(int64_t pid) {
  const auto stat = ProcStat::of(pid);
  return stat ? (*stat)[StatField::kParent] : 0;
}

bool is_stopped(int64_t pid) {
  const auto stat = ProcStat::of(pid);
  return stat && (stat->state() == 'T' || stat->state() == 't');
}

ProcessIdentity ProcessIdentity::own() {
  ProcessIdentity own;
  own.pid = ::getpid();
  char name[256] = "";
  if (::gethostname(name, sizeof name - 1) == 0) own.host = name;
  own.boot = boot_id();
  struct stat space {};
  if (::stat("/proc/self/ns/pid", &space) == 0)
    own.pid_namespace = static_cast<int64_t>(space.st_ino);
  own.start = start_of(own.pid);
  return own;
}

bool ProcessIdentity::is_beside(const ProcessIdentity& other) const {
  return host == other.host && boot == other.boot && pid_namespace == other.pid_namespace;
}

std::string to_json(const JobRecord& record) {
  const Json object = {{"host", record.launcher.host},
                       {"boot", record.launcher.boot},
                       {"pid_namespace", record.launcher.pid_namespace},
                       {"pid", record.launcher.pid},
                       {"start", record.launcher.start},
                       {"writer", record.writer},
                       {"writer_start", record.writer_start},
                       {"name", record.name},
                       {"command", record.command},
                       {"directory", record.directory},
                       {"allocation", record.allocation},
                       {"allocation_name", record.allocation_name},
                       {"node", record.node},
                       {"state", record.state},
                       {"began", record.began},
                       {"written", record.written},
                       {"ended", record.ended},
                       {"ranks", record.ranks},
                       {"is_constant", record.is_constant},
                       {"launches", record.launches},
                       {"exit_code", record.exit_code},
                       {"cause", record.cause},
                       {"lost_output", record.lost_output},
                       {"has_output", record.has_output},
                       {"log", record.log},
                       {"kill_grace", record.kill_grace},
                       {"metrics", record.metrics}};
  return object.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Result<JobRecord> parse_job_record(std::string_view text) {
  const Json object = Json::parse(text, nullptr, false);
  if (!object.is_object()) return invalid_argument("this is no record of a job");
  JobRecord record;
  record.launcher = {.host = text_of(object, "host"),
                     .boot = text_of(object, "boot"),
                     .pid_namespace = number_of(object, "pid_namespace"),
                     .pid = number_of(object, "pid"),
                     .start = number_of(object, "start")};
  record.writer = number_of(object, "writer");
  record.writer_start = number_of(object, "writer_start");
  record.name = text_of(object, "name");
  if (const auto command = object.find("command"); command != object.end() && command->is_array()) {
    for (const Json& word : *command) {
      if (word.is_string()) record.command.push_back(word.get<std::string>());
    }
  }
  record.directory = text_of(object, "directory");
  record.allocation = text_of(object, "allocation");
  record.allocation_name = text_of(object, "allocation_name");
  record.node = text_of(object, "node");
  record.state = text_of(object, "state");
  record.began = time_of(object, "began");
  record.written = time_of(object, "written");
  record.ended = time_of(object, "ended");
  record.ranks = small_number_of(object, "ranks");
  record.is_constant = object.value("is_constant", Json()) == true;
  record.launches = small_number_of(object, "launches");
  record.exit_code = small_number_of(object, "exit_code");
  record.cause = text_of(object, "cause");
  record.kill_grace = small_number_of(object, "kill_grace");
  record.metrics = text_of(object, "metrics");
  record.lost_output = std::max<int64_t>(number_of(object, "lost_output"), 0);
  record.has_output = object.value("has_output", Json()) == true;
  record.log = text_of(object, "log");
  const bool is_state =
      record.state == "starting" || record.state == "running" || record.has_ended();
  if (!is_state || record.launcher.host.empty() || record.launcher.pid <= 0 ||
      record.launcher.pid > std::numeric_limits<pid_t>::max() || record.exit_code > 255) {
    return invalid_argument("this is no record of a job");
  }
  return record;
}

JobLife life_of(const JobRecord& record, const ProcessIdentity& observer, int64_t now) {
  if (record.has_ended()) return JobLife::kEnded;
  // Use the absolute difference, because the clock of another machine may also be ahead.
  const bool is_alive = record.launcher.is_beside(observer)
                            ? start_of(record.launcher.pid) == record.launcher.start
                            : std::abs(now - record.written) < kSignSeconds;
  return is_alive ? JobLife::kRuns : JobLife::kUnknown;
}

Status check_job_name(std::string_view name) {
  const bool is_right = !name.empty() && name.size() <= kMostName && name[0] != '-' &&
                        name.find_first_not_of("0123456789") != std::string_view::npos &&
                        std::ranges::all_of(name, is_letter_of_name);
  if (is_right) return {};
  return invalid_argument(cat("'", printable(name), "' is no name of a job; use up to ", kMostName,
                              " letters, digits and . _ -, beginning with none of - and not only "
                              "digits"));
}

}  // namespace hvd::launcher
