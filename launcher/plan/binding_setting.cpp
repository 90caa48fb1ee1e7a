#include "launcher/plan/binding_setting.h"

#include "base/text.h"
#include "launcher/protocol/binding_choice.h"

namespace hvd::launcher {

Status check_binding(const Settings& settings) {
  const auto value_of = [&](std::string_view key) -> std::string {
    if (!settings.is_set(key)) return "";
    const bool is_flag = setting(key).type == SettingType::kFlag;
    return is_flag ? cat(settings.flag(key)) : settings.text(key);
  };
  return parse_binding(value_of).status();
}

}  // namespace hvd::launcher
