#include "launcher/cli/config_file.h"

#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <array>
#include <map>

#include "base/check.h"
#include "base/text.h"
#include "launcher/cli/flag_table.h"

namespace hvd::launcher {
namespace {

constexpr std::string_view kVariables = "env";

constexpr std::array kNotInFiles = {"help",        "help_all",   "version", "check_build",
                                    "config_file", "completion", "manual",  "json",
                                    "require",     "gloo",       "mpi",     "jsrun"};

std::string place(std::string_view path, const YAML::Mark& mark) {
  return mark.is_null() ? cat("config file ", path)
                        : cat("config file ", path, ", line ", mark.line + 1);
}

Status unknown_key(const std::string& key) {
  std::vector<std::string> known;
  for (const Setting& setting : all_settings()) {
    if (const std::string each = config_key(setting); !each.empty()) known.push_back(each);
  }
  std::string near = nearest(key, known);
  // If no key has a similar spelling, suggest a key with the same name in another section.
  const auto last = [](const std::string& text) { return text.substr(text.rfind('.') + 1); };
  for (const std::string& each : known) {
    if (near.empty() && last(each) == last(key)) near = each;
  }
  return invalid_argument(
      cat("unknown key ", printable(key), "; ",
          near.empty() ? "docs/settings.md lists all" : cat("did you mean ", near, "?")));
}

// Sets the variables in the map of the key `env`.
Status set_variables(const Setting& setting, const YAML::Node& variables, Settings& settings) {
  for (const auto& entry : variables) {
    const YAML::Node& name = entry.first;
    const YAML::Node& value = entry.second;
    if (!name.IsScalar() || !value.IsScalar())
      return invalid_argument("expected NAME: VALUE for each variable");
    HVD_RETURN_IF_ERROR(settings.set(setting.key, cat(name.Scalar(), "=", value.Scalar())));
  }
  return {};
}

Status set_value(const Setting& setting, const YAML::Node& value, Settings& settings) {
  if (value.IsNull()) return {};
  if (value.IsMap() && std::string_view(setting.key) == kVariables)
    return set_variables(setting, value, settings);
  if (value.IsSequence()) {
    std::vector<std::string> items;
    for (const YAML::Node& item : value) {
      if (!item.IsScalar()) return invalid_argument("expected a list of texts");
      items.push_back(item.Scalar());
    }
    const bool is_stage = std::string_view(setting.key) == "stage";
    if (setting.type != SettingType::kList) {
      return settings.set(setting.key, join(items, is_stage ? "\n" : ","));
    }
    for (const std::string& item : items) HVD_RETURN_IF_ERROR(settings.set(setting.key, item));
    return {};
  }
  if (!value.IsScalar()) return invalid_argument("expected a single value");
  if (!setting.is_inverse_in_config) return set_given(setting, value.Scalar(), settings);
  const auto flag = parse_flag(value.Scalar());
  if (!flag) return settings.set(setting.key, value.Scalar());  // returns the error
  return settings.set(setting.key, *flag ? "0" : "1");
}

// Returns the setting with a flag that is spelled like the key: -np for "np", --min-np for "min-np". Null if no flag
// matches.
const Setting* find_spelling(const std::string& key) {
  const auto is_spelt = [&](const std::string& spelling) {
    std::string name = spelling.substr(std::min(spelling.find_first_not_of('-'), spelling.size()));
    if (name.empty() || name == key) return name == key;
    std::ranges::replace(name, '-', '_');
    return name == key;
  };
  for (const Flag& flag : all_flags()) {
    if (flag.is_off || config_key(*flag.setting).empty()) continue;
    if (std::ranges::any_of(flag.spellings, is_spelt)) return flag.setting;
    if (std::ranges::any_of(flag.aliases, is_spelt)) return flag.setting;
  }
  return nullptr;
}

class ConfigReader {
 public:
  ConfigReader(std::string_view path, Settings& settings) : path_(path), settings_(settings) {}

  Status apply_map(const std::string& prefix, const YAML::Node& map) {
    for (const auto& entry : map) {
      const YAML::Node& name = entry.first;
      const YAML::Node& value = entry.second;
      if (!name.IsScalar()) {
        return invalid_argument(cat(place(path_, name.Mark()), ": a key is not a text"));
      }
      const std::string key = prefix + name.Scalar();
      const bool is_section = value.IsMap() && prefix.empty() && key != kVariables;
      const Status status =
          is_section ? apply_map(key + ".", value) : apply_key(key, value, name.Mark().line + 1);
      if (!status.ok()) return is_section ? status : status.with_context(place(path_, name.Mark()));
    }
    return {};
  }

 private:
  Status apply_key(const std::string& key, const YAML::Node& value, int line) {
    // In a file, `controller` is one key; on the command line, each of its values is a flag.
    if (key == "controller") {
      const std::string name = value.IsScalar() ? to_lower(value.Scalar()) : "";
      if (name == "gloo" || name == "mpi" || name == "jsrun") return settings_.set(name, "1");
      return invalid_argument("controller: it is gloo, mpi or jsrun");
    }
    const Setting* setting = find_spelling(key);
    for (const Setting& each : all_settings()) {
      if (config_key(each) == key) setting = &each;
    }
    if (setting == nullptr) return unknown_key(key);
    const auto [earlier, is_new] = lines_.emplace(setting->key, line);
    if (!is_new) {
      return invalid_argument(
          cat(printable(key), " has a value in line ", earlier->second, "; remove one of the two"));
    }
    if (Status status = set_value(*setting, value, settings_); !status.ok())
      return status.with_context(key);
    return settings_.check_range(setting->key, key);
  }

  std::string_view path_;
  Settings& settings_;
  std::map<std::string_view, int> lines_;  // line numbers by the setting's key
};

}  // namespace

std::string config_key(const Setting& setting) {
  if (setting.config_key[0] != '\0') return setting.config_key;
  const bool is_hidden = std::find(kNotInFiles.begin(), kNotInFiles.end(),
                                   std::string_view(setting.key)) != kNotInFiles.end();
  return setting.flags[0] == '\0' || is_hidden ? "" : setting.key;
}

Status apply_config(std::string_view text, std::string_view path, Settings& settings) {
  try {
    const YAML::Node root = YAML::Load(std::string(text));
    if (root.IsNull()) return {};
    if (!root.IsMap()) {
      return invalid_argument(cat("config file ", path, ": it holds no 'key: value' lines"));
    }
    return ConfigReader(path, settings).apply_map("", root);
  } catch (const YAML::Exception& error) {
    return invalid_argument(cat(place(path, error.mark), ": ", error.msg));
  }
}

}  // namespace hvd::launcher
