// The table of settings: variable, flag, config key, type, default, help. The only code that reads the
// environment. --help, config files, man page and docs come from this table.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"

namespace hvd {

// A list has an element for each time that it is given.
enum class SettingType { kFlag, kInt, kDouble, kText, kList };

// The least and the greatest value of a number, in units of its variable.
struct NumberRange {
  double low, high;
};

struct Setting {
  const char* key = "";         // "start_timeout": the name in code
  const char* flags = "";       // "-p,--ssh-port" or "" when it has none
  const char* off_flag = "";    // "--no-autotune": sets it to 0 on the command line; not in --help
  const char* aliases = "";     // flags by which other launchers call it; not in --help
  const char* config_key = "";  // "params.cycle_time_ms" or ""
  const char* variable = "";    // "HOROVOD_START_TIMEOUT" or ""
  SettingType type = SettingType::kText;
  const char* value = "";  // kind of its value in help, "SECONDS"; "" for a flag without one
  // As text; "" is unset. A row that leaves it out has "0" for a flag, else "".
  const char* default_value = nullptr;
  // Size of one unit of the flag and config key, in units of the variable.
  int64_t flag_unit = 1;
  bool is_inverse_in_config = false;  // the config key says the opposite
  std::optional<NumberRange> range =
      std::nullopt;  // of each number that a user sets; a launcher sets the others (identity)
  const char* choices =
      "";  // the values that it takes, separated by commas, in any case of letters; "": all
  bool takes_others = false;  // besides its choices
  const char* section = "";   // topic of --help; the table sets it
  bool is_common = false;     // --help lists it, besides --help-all
  const char* help = "";      // begins with a verb or a noun phrase; at most 132 letters
};

std::span<const Setting> all_settings();
// Known variables that are not settings of users.
std::span<const char* const> other_variables();
// Ends the process when the key is not in the table: a defect, not an input.
const Setting& setting(std::string_view key);

// The value of a setting that has a default, and whether the user has set it.
template <typename T>
struct Chosen {
  T value{};
  bool is_set = false;
};

// The values of one program: explicit ones over the environment over the defaults.
class Settings {
 public:
  // Reads every variable of the table. A value of the wrong type is an error that names it.
  static Result<Settings> from_environment();
  // Only defaults, for tests.
  Settings() = default;

  Status set(std::string_view key, std::string_view value);
  // As set(), with a value in the unit of flags and config files.
  Status set_in_units(std::string_view key, std::string_view value);
  // An error for a number out of its range, under this name.
  Status check_range(std::string_view key, const std::string& name) const;
  // An error for the first number out of its range, with the name that `name_of` gives its key.
  Status check_ranges(const std::function<std::string(std::string_view key)>& name_of) const;
  // As check_ranges(name_of), with the names of variables.
  Status check_ranges() const;
  // Not empty when it was set by anybody.
  bool is_set(std::string_view key) const;
  std::string text(std::string_view key) const;
  int64_t integer(std::string_view key) const;
  double number(std::string_view key) const;
  bool flag(std::string_view key) const;
  std::vector<std::string> list(std::string_view key) const;

  // Fills a field by its type. The range of the setting must fit into an int.
  void read(std::string_view key, int& field) const { field = static_cast<int>(integer(key)); }
  void read(std::string_view key, int64_t& field) const { field = integer(key); }
  void read(std::string_view key, double& field) const { field = number(key); }
  void read(std::string_view key, bool& field) const { field = flag(key); }
  void read(std::string_view key, std::string& field) const { field = text(key); }
  void read(std::string_view key, std::vector<std::string>& field) const { field = list(key); }
  template <typename T>
  void read(std::string_view key, Chosen<T>& field) const {
    read(key, field.value);
    field.is_set = is_set(key);
  }
  // Nothing, without its default, where it is not set.
  template <typename T>
  void read(std::string_view key, std::optional<T>& field) const {
    field.reset();
    if (is_set(key)) read(key, field.emplace());
  }

 private:
  std::map<std::string, std::vector<std::string>, std::less<>> lists_;
  std::map<std::string, std::string, std::less<>> values_;
};

// Seconds that a rank has to call hvd.init() once another one waits for it there: init_timeout, where it is set; else
// its default, or a longer start_timeout.
double init_seconds(const Settings& settings);

// "1", "true", "yes", "on" and "0", "false", "no", "off", "": any case.
std::optional<bool> parse_flag(std::string_view text);

// A sentence for each of `variables` whose name HOROVOD_... is unknown and at most two letters away from a
// known one: of the table, or of this version's or the original's others.
std::vector<std::string> about_misspelt_variables(
    std::span<const std::pair<std::string, std::string>> variables);

// An error for a number of the table among the variables that is none, or out of its range.
Status check_numbers(std::span<const std::pair<std::string, std::string>> variables);

// A variable that is no knob (PATH, HOME, another launcher's); empty optional when unset.
std::optional<std::string> environment_variable(std::string_view name);
// Takes a variable out of this process's environment. Only before there are threads.
void forget_environment_variable(std::string_view name);
// The whole environment, in its order.
std::vector<std::pair<std::string, std::string>> environment();

}  // namespace hvd
