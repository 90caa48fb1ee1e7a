#include "launcher/plan/environment_choice.h"

#include <algorithm>
#include <cstdint>
#include <span>

#include "base/check.h"
#include "base/secrets/secret.h"
#include "base/text.h"
#include "launcher/plan/text_file.h"
#include "launcher/protocol/other_launchers.h"

namespace hvd::launcher {
namespace {

constexpr char kHashSeed[] = "PYTHONHASHSEED";

// Returns the same seed for all ranks, also after restarts: Python's sets of strings then have the same order on all
// ranks. The seed is at least 1, since 0 disables random hashes. It is secret: with the seed, anyone can make many
// strings with equal hashes.
uint32_t hash_seed() {
  static const uint32_t seed = [] {
    uint32_t drawn = 0;
    while (drawn == 0) fill_random(std::as_writable_bytes(std::span(&drawn, 1)));
    return drawn;
  }();
  return seed;
}

Status check_name(std::string_view name) {
  const bool is_odd = name.empty() || name.find('\0') != std::string_view::npos ||
                      name.substr(0, name.size() - 1).find('*') != std::string_view::npos;
  if (!is_odd) return {};
  return invalid_argument(cat("'", printable(name),
                              "' is neither the name of a variable nor a pattern "
                              "such as NAME*"));
}

// Adds an entry. `text` is "NAME", "NAME*" or "NAME=VALUE".
Status add(std::string_view text, EnvironmentChoice& choice) {
  const size_t equals = text.find('=');
  const std::string_view name = text.substr(0, equals);
  HVD_RETURN_IF_ERROR(check_name(name));
  if (equals == std::string_view::npos) {
    // Keep an earlier value of this name: the launcher's environment may lack the name.
    const auto first =
        std::stable_partition(choice.values.begin(), choice.values.end(),
                              [&](const auto& variable) { return !fits(variable.first, name); });
    choice.earlier_values =
        overlay(std::move(choice.earlier_values), Environment(first, choice.values.end()));
    choice.values.erase(first, choice.values.end());
    choice.names.emplace_back(name);
    return {};
  }
  const std::string_view value = text.substr(equals + 1);
  if (name.ends_with('*') || value.find('\0') != std::string_view::npos) {
    return invalid_argument(cat("'", printable(text), "' is not NAME=VALUE"));
  }
  choice.values = overlay(std::move(choice.values), {{std::string(name), std::string(value)}});
  return {};
}

std::string unquoted(std::string_view value) {
  const bool is_quoted = value.size() >= 2 && value.front() == value.back() &&
                         (value.front() == '"' || value.front() == '\'');
  return std::string(is_quoted ? value.substr(1, value.size() - 2) : value);
}

}  // namespace

Status parse_env_file(std::string_view text, std::string_view path, EnvironmentChoice& choice) {
  for (int number = 1; !text.empty(); ++number) {
    std::string_view line = trim(take_line(text));
    if (line.empty() || line.front() == '#') continue;
    if (line.starts_with("export ")) line = trim(line.substr(7));
    const size_t equals = line.find('=');
    const std::string_view name = trim(line.substr(0, equals));
    Status status;
    if (name.find_first_of(" \t") != std::string_view::npos) {
      status = invalid_argument("a name with a blank");
    } else if (equals == std::string_view::npos) {
      status = add(name, choice);
    } else {
      status = add(cat(name, "=", unquoted(trim(line.substr(equals + 1)))), choice);
    }
    if (status.ok()) continue;
    // The message omits the line, which may contain a secret.
    return invalid_argument(cat("env file ", path, ", line ", number,
                                " is neither NAME=VALUE, NAME, a pattern such as NAME* nor a "
                                "comment; correct it (its text is not shown, since it may be a "
                                "secret)"));
  }
  return {};
}

Result<EnvironmentChoice> read_environment_choice(const LaunchSettings& settings) {
  EnvironmentChoice choice;
  choice.inherits_nothing = settings.environment.no_env;
  if (settings.environment.env_file.has_value()) {
    const std::string path = settings.environment.env_file.value_or("");
    HVD_ASSIGN_OR_RETURN(const std::string text, read_text_file(path, "env file"));
    HVD_RETURN_IF_ERROR(parse_env_file(text, path, choice));
  }
  for (const std::string& text : settings.environment.variables) {
    if (Status status = add(text, choice); !status.ok()) return status.with_context("-x");
  }
  HVD_RETURN_IF_ERROR(check_numbers(choice.earlier_values));
  HVD_RETURN_IF_ERROR(check_numbers(choice.values));
  return choice;
}

Environment chosen_environment(const Environment& inherited, const Environment& flags,
                               const EnvironmentChoice& choice, bool is_local) {
  const Environment allowed = host_environment(inherited, is_local);
  Environment chosen;
  if (!choice.inherits_nothing) chosen = allowed;
  chosen = overlay(std::move(chosen), choice.earlier_values);
  for (const std::string& name : choice.names) {
    for (const auto& variable : name.ends_with('*') ? allowed : inherited) {
      if (fits(variable.first, name)) chosen = overlay(std::move(chosen), {variable});
    }
  }
  chosen = overlay(overlay(std::move(chosen), flags), choice.values);
  const bool has_own = std::ranges::any_of(chosen, [](const auto& variable) {
    return variable.first == kHashSeed && !variable.second.empty();  // Python ignores an empty one
  });
  if (has_own) return chosen;
  return overlay(std::move(chosen), {{kHashSeed, cat(hash_seed())}});
}

std::vector<std::string> ineffective_names(const EnvironmentChoice& choice, bool torch) {
  std::vector<std::string> names = choice.names;
  for (const Environment* values : {&choice.earlier_values, &choice.values}) {
    for (const auto& variable : *values) names.push_back(variable.first);
  }
  std::erase_if(names, [&](const std::string& name) { return !is_set_by_launcher(name, torch); });
  return names;
}

std::vector<std::string> unset_names(const Environment& inherited,
                                     const EnvironmentChoice& choice) {
  std::vector<std::string> unset;
  for (const std::string& name : choice.names) {
    const auto is_it = [&](const auto& variable) { return variable.first == name; };
    if (name.ends_with('*') || std::ranges::any_of(inherited, is_it)) continue;
    if (std::ranges::none_of(choice.earlier_values, is_it)) unset.push_back(name);
  }
  return unset;
}

}  // namespace hvd::launcher
