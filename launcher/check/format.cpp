#include "launcher/check/format.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "base/text.h"
#include "horovod/version.h"

namespace hvd::launcher {
namespace {

using Json = nlohmann::ordered_json;

// Returns "2.13.0, /usr/lib/..." for a row that works, else the reason.
std::string found(const CheckRow& row) {
  if (!row.works) return row.why;
  if (row.version.empty() || row.path.empty()) return row.version + row.path;
  return cat(row.version, ", ", row.path);
}

// Returns the text after a row's name: `words`, and the fix if the row does not work.
std::string described(const CheckRow& row, const std::string& words) {
  std::string line = words.empty() ? "" : cat(": ", words);
  if (!row.works && !row.fix.empty()) line += cat("\n            fix: ", row.fix);
  return line;
}

std::string lay_out(std::span<const CheckRow> rows, bool with_extra, const auto& describe) {
  std::string text;
  std::string_view section;
  for (const CheckRow& row : rows) {
    if (row.is_extra && !with_extra) continue;
    if (section != row.section) text += cat("\n", row.section, ":\n");
    section = row.section;
    text += cat("    [", row.works ? "X" : " ", "] ", row.name, describe(row), "\n");
  }
  return text;
}

Json object_of(std::span<const CheckRow> rows) {
  Json list = Json::array();
  for (const CheckRow& row : rows) {
    Json object = {{"section", row.section}, {"name", row.name}, {"works", row.works}};
    const auto add = [&](const char* name, const std::string& text) {
      if (!text.empty()) object[name] = text;
    };
    add("why", row.why);
    add("version", row.version);
    add("path", row.path);
    add("note", row.note);
    add("fix", row.fix);
    if (row.is_extra) object["extra"] = true;
    list.push_back(std::move(object));
  }
  return {{"version", HVD_VERSION}, {"rows", std::move(list)}};
}

std::string dump(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string text_of(const nlohmann::json& object, const char* name) {
  const auto at = object.find(name);
  return at != object.end() && at->is_string() ? at->get<std::string>() : "";
}

const CheckRow* find_row(const CheckTable& rows, const CheckRow& like) {
  for (const CheckRow& row : rows) {
    if (row.name == like.name && row.section == like.section) return &row;
  }
  return nullptr;
}

// Returns the differences between hosts, as text. `find` returns a host's row, or null.
std::string difference_by(std::span<const HostCheck> hosts, const auto& find) {
  std::vector<std::pair<std::string, std::vector<std::string>>> answers;
  for (const HostCheck& host : hosts) {
    if (!host.rows.ok()) continue;
    const CheckRow* row = find(*host.rows);
    std::string answer = "no such row";
    if (row != nullptr) answer = row->works ? row->version : row->why;
    if (row != nullptr && row->works && answer.empty()) answer = "works";
    auto at = std::ranges::find(answers, answer, [](const auto& each) { return each.first; });
    if (at == answers.end()) at = answers.insert(at, {answer, {}});
    at->second.push_back(host.host);
  }
  if (answers.size() < 2) return {};
  std::vector<std::string> parts;
  parts.reserve(answers.size());
  for (const auto& [answer, names] : answers)
    parts.push_back(cat("on ", join(names, ", "), ": ", answer));
  return join(parts, "; ");
}

// Returns the rows of all hosts. A row works if it works on every host.
CheckTable common_rows(std::span<const HostCheck> hosts) {
  CheckTable common;
  for (const HostCheck& host : hosts) {
    if (!host.rows.ok()) continue;
    if (common.empty()) common = *host.rows;
    for (CheckRow& row : common) {
      const CheckRow* other = find_row(*host.rows, row);
      if (other != nullptr && other->works) continue;
      if (row.works && other != nullptr) row = *other;
      row.works = false;
    }
  }
  return common;
}

}  // namespace

std::string about_interpreter(std::string_view interpreter) {
  return cat("frameworks are looked for by ", interpreter,
             "; --verbose says why a row is empty, and what fills it");
}

std::string format_check(std::span<const CheckRow> rows, bool verbose) {
  std::string text = lay_out(rows, verbose, [&](const CheckRow& row) -> std::string {
    return verbose ? described(row, found(row)) : "";
  });
  // The last line of the original's table ends in blanks.
  if (!text.empty() && !verbose) text.insert(text.size() - 1, "    ");
  return cat(verbose ? "\n" : "", "Horovod v", HVD_VERSION, ":\n", text);
}

std::string check_as_json(std::span<const CheckRow> rows) { return dump(object_of(rows)); }

Result<CheckTable> check_from_json(std::string_view text) {
  const auto json = nlohmann::json::parse(text, nullptr, false);
  const auto list = json.is_object() ? json.find("rows") : json.end();
  if (!json.is_object() || list == json.end() || !list->is_array()) {
    return invalid_argument(
        cat("'", printable(text), "' is not an answer of --check-build --json"));
  }
  CheckTable rows;
  for (const auto& object : *list) {
    if (!object.is_object()) return invalid_argument("a row is not an object");
    CheckRow row{text_of(object, "section"), text_of(object, "name")};
    row.works = object.contains("works") && object["works"] == true;
    row.why = text_of(object, "why");
    row.version = text_of(object, "version");
    row.path = text_of(object, "path");
    row.note = text_of(object, "note");
    row.fix = text_of(object, "fix");
    row.is_extra = object.contains("extra");
    rows.push_back(std::move(row));
  }
  return rows;
}

Result<CheckTable> check_from_job(std::string_view host, std::string_view text) {
  std::vector<std::string> sentences;
  for (const std::string& line : split(text, '\n')) {
    const auto json = nlohmann::json::parse(line, nullptr, false);
    std::string text = json.is_object() ? text_of(json, "text") : "";
    if (text.empty()) continue;
    if (auto rows = check_from_json(text); rows.ok() && json.contains("rank")) return rows;
    for (const std::string& start : {cat("host ", host, ": "), std::string("horovodrun: ")}) {
      if (text.starts_with(start)) text.erase(0, start.size());
    }
    sentences.push_back(std::move(text));
  }
  return unavailable(sentences.empty() ? "it gave no answer" : join(sentences, "; "));
}

std::string compare_checks(std::span<const HostCheck> hosts, bool verbose) {
  std::vector<std::string> names;
  std::vector<std::string> differing;
  std::string silent;
  for (const HostCheck& host : hosts) {
    if (host.rows.ok())
      names.push_back(host.host);
    else
      silent += cat(host.host, ": ", host.rows.status().message(), "\n");
  }
  if (names.empty()) return silent;
  const CheckTable common = common_rows(hosts);
  std::string table = lay_out(common, verbose, [&](const CheckRow& row) -> std::string {
    const std::string words =
        difference_by(hosts, [&](const CheckTable& rows) { return find_row(rows, row); });
    if (!words.empty()) differing.push_back(row.name);
    if (verbose) return described(row, words.empty() ? found(row) : words);
    return words.empty() ? "" : cat(": ", words);
  });
  const char* whom = silent.empty() ? "The hosts" : "The hosts that answered";
  std::string end = cat("\n", whom, " agree.\n");
  if (names.size() == 1) end = silent.empty() ? "" : "\n";
  if (!differing.empty()) end = cat("\n", whom, " differ in ", join(differing, ", "), ".\n");
  return cat("Horovod v", HVD_VERSION, " on ", join(names, ", "), ":\n", table, end, silent);
}

std::string interpreters_of(std::span<const HostCheck> hosts) {
  std::map<std::string, std::vector<std::string>> hosts_of;
  for (const HostCheck& host : hosts) {
    const CheckRow* row = host.rows.ok() ? find_row(*host.rows, {kOtherRows, "Python"}) : nullptr;
    if (row != nullptr && row->works) hosts_of[row->path].push_back(host.host);
  }
  std::vector<std::string> parts;
  parts.reserve(hosts_of.size());
  for (const auto& [path, names] : hosts_of) parts.push_back(cat(path, " on ", join(names, ", ")));
  return join(parts, "; ");
}

std::string difference(std::span<const HostCheck> hosts, std::string_view name) {
  return difference_by(hosts, [&](const CheckTable& rows) -> const CheckRow* {
    const auto row = std::ranges::find(rows, name, &CheckRow::name);
    return row == rows.end() ? nullptr : &*row;
  });
}

std::string comparison_as_json(std::span<const HostCheck> hosts) {
  Json all = Json::object();
  for (const HostCheck& host : hosts) {
    all[host.host] =
        host.rows.ok() ? object_of(*host.rows) : Json{{"error", host.rows.status().message()}};
  }
  return dump({{"version", HVD_VERSION}, {"hosts", std::move(all)}});
}

Status check_required(std::string_view names, std::span<const CheckRow> rows) {
  std::vector<std::string> known;
  for (const CheckRow& row : rows) {
    if (std::ranges::find(known, row.name) == known.end()) known.push_back(row.name);
  }
  std::vector<std::string> missing;
  bool names_any = false;
  for (const std::string& each : split(names, ',')) {
    const std::string name = to_lower(trim(each));
    if (name.empty()) continue;
    names_any = true;
    bool is_known = false;
    for (const CheckRow& row : rows) {
      if (to_lower(row.name) != name) continue;
      is_known = true;
      if (!row.works) missing.push_back(cat(row.name, " (", row.section, "): ", row.why));
    }
    if (!is_known) {
      return invalid_argument(
          cat("--require: '", printable(trim(each)), "' is not one of: ", join(known, ", ")));
    }
  }
  if (!names_any) {
    return invalid_argument(cat("--require names nothing; it takes some of: ", join(known, ", ")));
  }
  if (missing.empty()) return {};
  return unavailable(cat("--require: ", join(missing, "; ")));
}

}  // namespace hvd::launcher
