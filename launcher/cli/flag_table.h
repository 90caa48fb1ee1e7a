// The command-line flags of horovodrun: the spellings of the settings in base/settings, and the flags of other
// launchers, each with an answer. `options` parses with this table; `manual` prints it. Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/settings.h"

namespace hvd::launcher {

struct Flag {
  std::vector<std::string> spellings;  // "-np", "--num-proc"; the last is long; empty: not listed
  std::vector<std::string> aliases;    // accepted, but not in --help
  const Setting* setting = nullptr;
  bool is_off = false;  // sets the setting to 0; not in --help

  bool takes_value() const { return setting->type != SettingType::kFlag; }
  // Returns the number of words that follow the flag: 2 for "LO HI".
  size_t values() const;
};

std::vector<Flag> all_flags();

// Returns the topics of `--help`, in the order of the table.
std::vector<std::string> all_topics();

// Returns the values of a setting that accepts a fixed list; else an empty list.
std::vector<std::string> choices_of(const Setting& setting);

// Sets the value of a flag or of a key of the config file. A number of slots may be a device: gpu, auto or cpu.
Status set_given(const Setting& setting, std::string_view value, Settings& settings);

// A flag of mpirun or torchrun, or a flag of the original Horovod that this build lacks.
struct ForeignFlag {
  const char* spellings;  // separated by commas
  int values;             // the number of words that follow the flag
  // Values with which the flag changes nothing, separated by commas; "*": any value; or "".
  const char* accepted;
  const char* answer;  // a sentence that names the flag to use instead
};
const ForeignFlag* find_foreign_flag(std::string_view name);

// Returns the only long flag of the original Horovod that begins with `name`, of two letters or more, as the original's
// parser does. Returns an empty text if several flags begin so, or none.
std::string flag_of_beginning(std::string_view name);

// Returns the flag that is most similar to a misspelled flag, or an empty text.
std::string nearest_flag(const std::vector<Flag>& flags, std::string_view name);

}  // namespace hvd::launcher
