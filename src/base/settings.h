// The table of settings: variable, flag, config key, type, default, help. --help, config files, man page and docs come
// from this table. No other C++ code reads the environment.
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

// A kList has one element for each occurrence of its flag.
enum class SettingType { kFlag, kInt, kDouble, kText, kList };

// The lowest and highest value of a number, in units of its variable.
struct NumberRange {
  double low, high;
};

struct Setting {
  const char* key = "";         // "start_timeout": the name in code
  const char* flags = "";       // "-p,--ssh-port", or "" without a flag
  const char* off_flag = "";    // "--no-autotune": gives 0 on the command line; not in --help
  const char* aliases = "";     // other launchers' names of these flags; not in --help
  const char* config_key = "";  // "params.cycle_time_ms" or ""
  const char* variable = "";    // "HOROVOD_START_TIMEOUT" or ""
  SettingType type = SettingType::kText;
  const char* value = "";  // type of the flag's value in help: "SECONDS"; "" without a value
  // The default as text; "" means unset. A row without a default gets "0" for a flag, else "".
  const char* default_value = nullptr;
  // Size of one unit of the flag and config key, in units of the variable.
  int64_t flag_unit = 1;
  bool is_inverse_in_config = false;  // the config key has the opposite meaning
  std::optional<NumberRange> range =
      std::nullopt;  // set for each number that users set; empty for numbers that launchers set
  const char* choices = "";   // allowed values, separated by commas, case-insensitive; "": any
  bool takes_others = false;  // also accepts values that are not in `choices`
  const char* section = "";   // topic in --help; the table sets it
  bool is_common = false;     // listed by --help, not only by --help-all
  const char* help = "";      // begins with a verb or a noun phrase; at most 132 letters
};

std::span<const Setting> all_settings();
// Returns known variables that are not in the table.
std::span<const char* const> other_variables();
// Returns the row of a key. Ends the process if the table lacks the key, because this is a defect.
const Setting& setting(std::string_view key);

// The value of a setting with a default, and whether the user has set it.
template <typename T>
struct Chosen {
  T value{};
  bool is_set = false;
};

// The values of one program: explicit values override the environment, which overrides defaults.
class Settings {
 public:
  // Reads every variable of the table. If a value has the wrong type, the error names the variable.
  static Result<Settings> from_environment();
  // Makes settings that have only defaults, for tests.
  Settings() = default;

  Status set(std::string_view key, std::string_view value);
  // Like set(), with a value in the unit of flags and config files.
  Status set_in_units(std::string_view key, std::string_view value);
  // Returns an error, with this name, if the setting's number is out of range.
  Status check_range(std::string_view key, const std::string& name) const;
  // Returns an error for the first number out of range, with the name that `name_of` returns for its key.
  Status check_ranges(const std::function<std::string(std::string_view key)>& name_of) const;
  // Like check_ranges(name_of), with the names of variables.
  Status check_ranges() const;
  // Returns true if the environment or a call has set a value. In the environment, an empty value
  // sets only a flag.
  bool is_set(std::string_view key) const;
  std::string text(std::string_view key) const;
  int64_t integer(std::string_view key) const;
  double number(std::string_view key) const;
  bool flag(std::string_view key) const;
  std::vector<std::string> list(std::string_view key) const;

  // Set a field from a setting of its type. For an int, the setting's range must fit.
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
  // Sets the field to nullopt if the setting is not set; ignores the setting's default.
  template <typename T>
  void read(std::string_view key, std::optional<T>& field) const {
    field.reset();
    if (is_set(key)) read(key, field.emplace());
  }
  template <typename T>
  T get(std::string_view key) const {
    T value{};
    read(key, value);
    return value;
  }

 private:
  std::map<std::string, std::vector<std::string>, std::less<>> lists_;
  std::map<std::string, std::string, std::less<>> values_;
};

// Returns the seconds within which a rank must call hvd.init() after another rank has called it: init_timeout if it is
// set; otherwise the larger of its default and start_timeout.
double init_seconds(const Settings& settings);

// Parses, case-insensitive, "1", "true", "yes", "on" and "0", "false", "no", "off", "". Another
// whole number is true if it is above 0.
std::optional<bool> parse_flag(std::string_view text);

// Returns a sentence for each variable with an unknown name HOROVOD_... that is at most two letters
// away from a known name: one of the table or of other_variables().
std::vector<std::string> about_misspelt_variables(
    std::span<const std::pair<std::string, std::string>> variables);

// Returns an error for a variable of the table that has an invalid number or a number out of range.
Status check_numbers(std::span<const std::pair<std::string, std::string>> variables);

// Returns the value of a variable, for example PATH; nullopt if it is unset.
std::optional<std::string> environment_variable(std::string_view name);
// Removes a variable from this process's environment. Call it before starting threads.
void forget_environment_variable(std::string_view name);
std::vector<std::pair<std::string, std::string>> environment();

}  // namespace hvd
