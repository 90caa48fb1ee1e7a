// The flags of horovodrun as they are written: those of the table in base/settings, and what is
// answered to flags of other launchers that mean nothing here. Pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/settings.h"

namespace hvd::launcher {

struct Flag {
  std::vector<std::string> spellings;  // "-np", "--num-proc"; the last is long
  std::vector<std::string> aliases;    // understood as well, shown nowhere
  const Setting* setting = nullptr;
  bool is_off = false;  // sets it to 0; shown nowhere

  bool takes_value() const { return setting->type != SettingType::kFlag; }
};

std::vector<Flag> all_flags();

// True for a flag that `--help` without a topic shows.
bool is_common(const Setting& setting);

// Topics of `--help`, in the order of the table.
std::vector<std::string> all_topics();

// All values that a setting may have, where they are few; else none.
std::vector<std::string> choices_of(const Setting& setting);

// A flag of mpirun's or torchrun's, or one of the original's that this build lacks.
struct ForeignFlag {
  const char* spellings;  // between commas
  int values;             // that follow it
  const char* accepted;   // values that say what is so anyway, between commas; "*": any; or ""
  const char* answer;     // a sentence that names what to write instead
};
const ForeignFlag* find_foreign_flag(std::string_view name);

// The flag that was probably meant, or empty.
std::string nearest_flag(const std::vector<Flag>& flags, std::string_view name);

}  // namespace hvd::launcher
