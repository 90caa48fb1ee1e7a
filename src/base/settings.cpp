#include "base/settings.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "base/check.h"
#include "base/text.h"

namespace hvd {
namespace {

Status check_value(const Setting& setting, std::string_view value) {
  using enum SettingType;
  const std::string_view text = trim(value);
  const char* wanted = nullptr;
  switch (setting.type) {
    case kText:
    case kList:
      break;
    case kInt:
      if (!parse_int(text)) wanted = "a whole number";
      break;
    case kDouble:
      if (!parse_double(text)) wanted = "a number";
      break;
    case kFlag:
      if (!parse_flag(text)) wanted = "1 or 0";
      break;
  }
  if (!wanted) return {};
  return invalid_argument(cat("'", printable(value), "' is not ", wanted));
}

std::string plain(double number) {
  constexpr double kWhole = 1e15;  // smaller whole numbers are exact; NaN compares false
  if (!(std::abs(number) < kWhole)) return cat(number);
  const auto whole = static_cast<int64_t>(number);
  return static_cast<double>(whole) == number ? cat(whole) : cat(number);
}

// Returns, for example, "; unset it for the default 1".
std::string about_default(const Setting& entry) {
  if (entry.default_value[0] == '\0') return "; unset it, or give a number in this range";
  return cat("; unset it for the default ", entry.default_value);
}

// Returns, for example, "; it lies between 0 and 1", with the unit. `unit` is the size of the user's unit.
std::string about_range(const Setting& entry, int64_t unit) {
  const auto size = static_cast<double>(unit);
  return cat("; it lies between ", plain(entry.range->low / size), " and ",
             plain(entry.range->high / size),
             entry.flag_unit == 1 ? ""
             : unit == 1          ? cat(" bytes; ", entry.flags, " takes MiB")
                                  : cat(" MiB; ", entry.variable, " takes bytes"));
}

// Returns an error for a variable whose value has the wrong type.
Status about_type(const Setting& entry, const Status& status) {
  if (!entry.range) return status.with_context(entry.variable);
  return invalid_argument(
      cat(entry.variable, ": ", status.message(), about_range(entry, 1), about_default(entry)));
}

}  // namespace

const Setting& setting(std::string_view key) {
  for (const Setting& entry : all_settings()) {
    if (key == entry.key) return entry;
  }
  check_failed(__FILE__, __LINE__, cat("setting ", key, " is in the table").c_str());
}

Result<Settings> Settings::from_environment() {
  Settings settings;
  for (const Setting& entry : all_settings()) {
    if (entry.variable[0] == '\0') continue;
    const char* value = std::getenv(entry.variable);
    if (value == nullptr || (value[0] == '\0' && entry.type != SettingType::kFlag)) continue;
    if (Status status = settings.set(entry.key, value); !status.ok()) {
      return about_type(entry, status);
    }
  }
  return settings;
}

Status Settings::set(std::string_view key, std::string_view value) {
  const Setting& entry = setting(key);
  HVD_RETURN_IF_ERROR(check_value(entry, value));
  if (entry.type == SettingType::kList) {
    lists_[entry.key].emplace_back(value);
    return {};
  }
  values_.insert_or_assign(std::string(key), std::string(value));
  return {};
}

Status Settings::check_range(std::string_view key, const std::string& name) const {
  const Setting& entry = setting(key);
  if (!entry.range || !is_set(key)) return {};
  const double value = number(key);
  if (value >= entry.range->low && value <= entry.range->high) return {};  // false for NaN
  const bool is_variable = name == entry.variable;
  const int64_t unit = is_variable ? 1 : entry.flag_unit;
  return invalid_argument(cat(name, " ", plain(value / static_cast<double>(unit)),
                              " is out of range", about_range(entry, unit),
                              is_variable ? about_default(entry) : ""));
}

Status Settings::check_ranges(
    const std::function<std::string(std::string_view key)>& name_of) const {
  for (const Setting& entry : all_settings()) {
    HVD_RETURN_IF_ERROR(check_range(entry.key, name_of(entry.key)));
  }
  return {};
}

Status Settings::check_ranges() const {
  return check_ranges([](std::string_view key) { return std::string(setting(key).variable); });
}

Status check_numbers(std::span<const std::pair<std::string, std::string>> variables) {
  Settings settings;
  for (const auto& [name, value] : variables) {
    for (const Setting& entry : all_settings()) {
      const bool is_number = entry.type == SettingType::kInt || entry.type == SettingType::kDouble;
      if (!is_number || name != entry.variable || value.empty()) continue;
      if (Status status = settings.set(entry.key, value); !status.ok()) {
        return about_type(entry, status);
      }
    }
  }
  return settings.check_ranges();
}

bool Settings::is_set(std::string_view key) const {
  return setting(key).type == SettingType::kList ? lists_.contains(key) : values_.contains(key);
}

Status Settings::set_in_units(std::string_view key, std::string_view value) {
  const Setting& entry = setting(key);
  const auto number = parse_int(trim(value));
  if (entry.flag_unit == 1 || !number) return set(key, value);
  int64_t product = 0;
  if (__builtin_mul_overflow(*number, entry.flag_unit, &product)) {
    return invalid_argument(cat("'", printable(value), "' is too large"));
  }
  return set(key, cat(product));
}

std::vector<std::string> Settings::list(std::string_view key) const {
  setting(key);
  const auto found = lists_.find(key);
  return found != lists_.end() ? found->second : std::vector<std::string>();
}

std::string Settings::text(std::string_view key) const {
  const Setting& entry = setting(key);
  const auto found = values_.find(key);
  return found != values_.end() ? found->second : entry.default_value;
}

int64_t Settings::integer(std::string_view key) const {
  return parse_int(trim(text(key))).value_or(0);
}

double Settings::number(std::string_view key) const {
  return parse_double(trim(text(key))).value_or(0);
}

bool Settings::flag(std::string_view key) const {
  return parse_flag(trim(text(key))).value_or(false);
}

double init_seconds(const Settings& settings) {
  const double seconds = settings.number("init_timeout");
  return settings.is_set("init_timeout") ? seconds
                                         : std::max(seconds, settings.number("start_timeout"));
}

std::optional<bool> parse_flag(std::string_view text) {
  const std::string word = to_lower(trim(text));
  if (word == "1" || word == "true" || word == "yes" || word == "on") return true;
  if (word.empty() || word == "0" || word == "false" || word == "no" || word == "off") {
    return false;
  }
  if (const auto number = parse_int(word)) return *number > 0;
  return {};
}

std::vector<std::string> about_misspelt_variables(
    std::span<const std::pair<std::string, std::string>> variables) {
  constexpr size_t kNear = 2;
  std::vector<std::string> known(other_variables().begin(), other_variables().end());
  for (const Setting& entry : all_settings()) known.emplace_back(entry.variable);
  std::vector<std::string> sentences;
  for (const auto& [name, value] : variables) {
    if (!name.starts_with("HOROVOD_") || std::find(known.begin(), known.end(), name) != known.end())
      continue;
    const std::string meant = nearest(name, known);
    if (meant.empty() || edit_distance(name, meant) > kNear) continue;
    sentences.push_back(cat("the variable ", printable(name),
                            " has no effect, since Horovod knows none of that "
                            "name; did you mean ",
                            meant, "?"));
  }
  return sentences;
}

std::optional<std::string> environment_variable(std::string_view name) {
  const char* value = std::getenv(std::string(name).c_str());
  if (value == nullptr) return {};
  return value;
}

void forget_environment_variable(std::string_view name) { ::unsetenv(std::string(name).c_str()); }

std::vector<std::pair<std::string, std::string>> environment() {
  std::vector<std::pair<std::string, std::string>> variables;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const size_t equals = text.find('=');
    if (equals == std::string_view::npos) continue;
    variables.emplace_back(text.substr(0, equals), text.substr(equals + 1));
  }
  return variables;
}

}  // namespace hvd
