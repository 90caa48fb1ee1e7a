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
// A launcher writes its record once a minute. After three minutes without a new record, readers on other machines do
// not know whether the launcher runs.
constexpr int64_t kSignSeconds = 180;

// Calls `visit` with the key of each member in JSON, and the member.
void for_each_member(auto& record, const auto& visit) {
  visit("host", record.launcher.host);
  visit("boot", record.launcher.boot);
  visit("pid_namespace", record.launcher.pid_namespace);
  visit("pid", record.launcher.pid);
  visit("start", record.launcher.start);
  visit("writer", record.writer);
  visit("writer_start", record.writer_start);
  visit("name", record.name);
  visit("command", record.command);
  visit("directory", record.directory);
  visit("allocation", record.allocation);
  visit("allocation_name", record.allocation_name);
  visit("node", record.node);
  visit("state", record.state);
  visit("began", record.began);
  visit("written", record.written);
  visit("ended", record.ended);
  visit("ranks", record.ranks);
  visit("is_constant", record.is_constant);
  visit("launches", record.launches);
  visit("exit_code", record.exit_code);
  visit("cause", record.cause);
  visit("lost_output", record.lost_output);
  visit("has_output", record.has_output);
  visit("log", record.log);
  visit("kill_grace", record.kill_grace);
  visit("metrics", record.metrics);
}

// Members of another type are read as empty, 0 or false.
void read_member(const Json& json, std::string& text) {
  text = json.is_string() ? json.get<std::string>() : "";
}
void read_member(const Json& json, bool& value) { value = json == true; }
void read_member(const Json& json, int64_t& number) {
  number = json.is_number_integer() ? json.get<int64_t>() : 0;
}
void read_member(const Json& json, int32_t& number) {
  int64_t wide = 0;
  read_member(json, wide);
  number = static_cast<int32_t>(std::clamp<int64_t>(wide, 0, std::numeric_limits<int32_t>::max()));
}
void read_member(const Json& json, std::vector<std::string>& words) {
  if (!json.is_array()) return;
  for (const Json& word : json) {
    if (word.is_string()) words.push_back(word.get<std::string>());
  }
}

bool is_letter_of_name(char letter) {
  const bool is_letter = (letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z');
  return is_letter || (letter >= '0' && letter <= '9') || letter == '-' || letter == '_' ||
         letter == '.';
}

}  // namespace

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
  Json object;
  for_each_member(record, [&](const char* key, const auto& value) { object[key] = value; });
  return object.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Result<JobRecord> parse_job_record(std::string_view text) {
  const Json object = Json::parse(text, nullptr, false);
  if (!object.is_object()) return invalid_argument("this is no record of a job");
  JobRecord record;
  for_each_member(record, [&](const char* key, auto& value) {
    const auto found = object.find(key);
    read_member(found == object.end() ? Json() : *found, value);
  });
  // Limit times to the year 9999, which differences and the calendar support.
  for (int64_t* const time : {&record.began, &record.written, &record.ended})
    *time = std::clamp<int64_t>(*time, 0, 253'402'300'799);
  record.lost_output = std::max<int64_t>(record.lost_output, 0);
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
  // The clock of another machine may also be ahead.
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
