#include "launcher/options.h"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>

#include "base/text.h"

namespace hvd::launcher {
namespace {

constexpr char kHelpKey[] = "help";

// A flag of the table, or --help.
struct Flag {
  std::vector<std::string> spellings;  // "-np", "--num-proc"; the last is long
  std::string key;
  bool takes_value = false;
  const Setting* setting = nullptr;  // null for --help
  bool off = false;                  // means 0; not in --help

  const std::string& long_form() const { return spellings.back(); }
};

std::vector<Flag> all_flags() {
  std::vector<Flag> flags = {{{"-h", "--help"}, kHelpKey, false, nullptr}};
  for (const Setting& setting : all_settings()) {
    if (setting.flags[0] == '\0') continue;
    flags.push_back({split(setting.flags, ','), setting.key, setting.type != SettingType::kFlag,
                     &setting});
    if (setting.off_flag[0] != '\0') {
      flags.push_back({{setting.off_flag}, setting.key, false, &setting, true});
    }
  }
  return flags;
}

// A word of the command line, taken apart.
struct Word {
  const Flag* flag = nullptr;
  std::string spelling;
  std::optional<std::string> value;  // attached to it
};

bool is_short(std::string_view spelling) { return spelling.size() == 2; }

// "--num-proc=4", "-np=4", "-p22", "-p=22", "-p".
Word recognise(const std::vector<Flag>& flags, const std::string& text) {
  const size_t equals = text.find('=');
  const std::string name = text.substr(0, equals);
  for (const Flag& flag : flags) {
    for (const std::string& spelling : flag.spellings) {
      if (name != spelling) continue;
      Word word{&flag, spelling, {}};
      if (equals != std::string::npos) word.value = text.substr(equals + 1);
      return word;
    }
  }
  for (const Flag& flag : flags) {
    for (const std::string& spelling : flag.spellings) {
      if (!flag.takes_value || !is_short(spelling) || !text.starts_with(spelling)) continue;
      return {&flag, spelling, text.substr(2)};
    }
  }
  return {};
}

bool looks_like_flag(const std::string& text) {
  return text.size() > 1 && text[0] == '-' && !parse_double(text);
}

Status unknown_flag(const std::vector<Flag>& flags, const std::string& text) {
  const std::string name = text.substr(0, text.find('='));
  std::vector<std::string> spellings;  // of one letter: every other letter would be near
  std::string near;                    // begun but not ended
  for (const Flag& flag : flags) {
    for (const std::string& spelling : flag.spellings) {
      if (is_short(spelling)) continue;
      spellings.push_back(spelling);
      if (near.empty() && name != "--" && spelling.starts_with(name)) near = spelling;
    }
  }
  if (near.empty()) near = nearest(name, spellings);
  const std::string hint = near.empty() ? "see horovodrun --help" : cat("did you mean ", near, "?");
  return invalid_argument(cat("unknown flag ", printable(name), "; ", hint));
}

struct CommandLine {
  std::vector<std::string> flags;  // each as "--long=value" or "--long"
  std::vector<std::string> command;
};

// CLI11 knows neither single-dash names of several letters nor where a command begins.
Result<CommandLine> translate(const std::vector<Flag>& flags,
                              std::span<const std::string> arguments) {
  CommandLine line;
  size_t i = 0;
  for (; i < arguments.size() && arguments[i].starts_with('-') && arguments[i] != "-"; ++i) {
    if (arguments[i] == "--") {
      ++i;
      break;
    }
    Word word = recognise(flags, arguments[i]);
    if (word.flag == nullptr) return unknown_flag(flags, arguments[i]);
    if (!word.flag->takes_value) {
      if (word.value) return invalid_argument(cat(word.spelling, " takes no value"));
      // The parser does not keep the order of different flags: the last of a pair wins.
      for (const Flag& flag : flags) {
        if (flag.key == word.flag->key) std::erase(line.flags, flag.long_form());
      }
      line.flags.push_back(word.flag->long_form());
      continue;
    }
    if (!word.value && i + 1 < arguments.size() && !looks_like_flag(arguments[i + 1])) {
      word.value = arguments[++i];
    }
    if (!word.value || word.value->empty()) {
      return invalid_argument(cat(word.spelling, " needs a value"));
    }
    line.flags.push_back(cat(word.flag->long_form(), "=", *word.value));
  }
  line.command.assign(arguments.begin() + static_cast<ptrdiff_t>(i), arguments.end());
  return line;
}

// Shows the spellings that CLI11 was not told of.
class HelpFormatter : public CLI::Formatter {
 public:
  explicit HelpFormatter(const std::vector<Flag>& flags) : flags_(flags) { column_width(34); }

  std::string make_usage(const CLI::App*, std::string) const override {
    return "\nUsage: horovodrun -np N [-H HOST:SLOTS,...] [flags] COMMAND [ARGUMENTS...]\n";
  }
  std::string make_option_name(const CLI::Option* option, bool) const override {
    const std::string name = option->get_name(false, true);
    for (const Flag& flag : flags_) {
      if (name.ends_with(flag.long_form())) return join(flag.spellings, ", ");
    }
    return name;
  }
  std::string make_option_opts(const CLI::Option* option) const override {
    return option->get_type_size() == 0 ? "" : cat(" ", option->get_type_name());
  }

 private:
  const std::vector<Flag>& flags_;
};

const char* value_name(SettingType type) {
  switch (type) {
    case SettingType::kInt: return "N";
    case SettingType::kDouble: return "SECONDS";
    default: return "TEXT";
  }
}

using Receiver = std::function<void(const Flag&, const std::string&)>;

std::unique_ptr<CLI::App> make_parser(const std::vector<Flag>& flags, const Receiver& receive) {
  auto app = std::make_unique<CLI::App>(
      "Starts a command once on each slot of the hosts, as the ranks of one job.");
  app->set_help_flag();
  for (const Flag& flag : flags) {
    CLI::Option* option = nullptr;
    if (flag.takes_value) {
      option = app->add_option_function<std::string>(
          flag.long_form(), [&flag, receive](const std::string& value) { receive(flag, value); });
      option->multi_option_policy(CLI::MultiOptionPolicy::TakeLast)
          ->type_name(value_name(flag.setting->type));
    } else {
      option = app->add_flag_function(flag.long_form(), [&flag, receive](int64_t) {
        receive(flag, flag.off ? "0" : "1");
      });
    }
    const Setting* setting = flag.setting;
    std::string text = setting == nullptr ? "show this and exit" : setting->help;
    if (setting != nullptr && setting->variable[0] != '\0') {
      text += cat(" [", setting->default_value, "; ", setting->variable, "]");
    }
    const char* section = setting == nullptr ? "general" : setting->section;
    option->description(text)->group(flag.off ? "" : section);
  }
  app->formatter(std::make_shared<HelpFormatter>(flags));
  return app;
}

std::string plain(double number) {
  const auto whole = static_cast<int64_t>(number);
  return static_cast<double>(whole) == number ? cat(whole) : cat(number);
}

Status check_range(const Settings& settings, const std::vector<Flag>& flags,
                   std::string_view key, double low, double high) {
  if (!settings.is_set(key)) return {};
  const double value = settings.number(key);
  if (value >= low && value <= high) return {};
  const auto flag = std::find_if(flags.begin(), flags.end(),
                                 [&](const Flag& other) { return other.key == key; });
  return invalid_argument(cat(flag->spellings.front(), " ", settings.text(key),
                              " is out of range; it lies between ", plain(low), " and ", plain(high)));
}

Status check_values(const Options& options, const std::vector<Flag>& flags) {
  const Settings& settings = options.settings;
  HVD_RETURN_IF_ERROR(check_range(settings, flags, "num_proc", 1, 1 << 24));
  HVD_RETURN_IF_ERROR(check_range(settings, flags, "ssh_port", 1, 65535));
  HVD_RETURN_IF_ERROR(check_range(settings, flags, "start_timeout", 0.1, 1e8));
  HVD_RETURN_IF_ERROR(check_range(settings, flags, "lease", 1, 1e8));
  HVD_RETURN_IF_ERROR(check_range(settings, flags, "cycle_time", 0, 1e6));
  HVD_RETURN_IF_ERROR(check_range(settings, flags, "cache_capacity", 0, 1 << 20));
  HVD_RETURN_IF_ERROR(check_range(settings, flags, "autotune_warmup_samples", 0, 1 << 20));
  HVD_RETURN_IF_ERROR(check_range(settings, flags, "autotune_steps_per_sample", 0, 1 << 20));
  HVD_RETURN_IF_ERROR(check_range(settings, flags, "autotune_points", 0, 1 << 20));
  HVD_RETURN_IF_ERROR(check_range(settings, flags, "autotune_noise", 0, 1));
  HVD_RETURN_IF_ERROR(check_range(settings, flags, "stall_check_time", 0, 1e8));
  HVD_RETURN_IF_ERROR(check_range(settings, flags, "stall_shutdown_time", 0, 1e8));
  if (settings.is_set("hosts") && settings.is_set("hostfile")) {
    return invalid_argument("-H and -hostfile both say where to run; give one of them");
  }
  return {};
}

Status check_complete(const Options& options) {
  const Settings& settings = options.settings;
  if (options.help || settings.flag("version") || settings.flag("check_build")) return {};
  if (!settings.is_set("num_proc") && !settings.is_set("hosts") && !settings.is_set("hostfile")) {
    return invalid_argument("say how many ranks to start, with -np N, or where, with -H or "
                            "-hostfile");
  }
  if (options.command.empty() && !settings.flag("dry_run")) {
    return invalid_argument("the command is missing; it follows the flags, as in: "
                            "horovodrun -np 4 python3 train.py");
  }
  return {};
}

}  // namespace

Result<Options> parse_options(std::span<const std::string> arguments) {
  const std::vector<Flag> flags = all_flags();
  HVD_ASSIGN_OR_RETURN(CommandLine line, translate(flags, arguments));
  HVD_ASSIGN_OR_RETURN(Settings settings, Settings::from_environment());
  Options options{std::move(settings), std::move(line.command), false};
  Status status;
  const auto app = make_parser(flags, [&](const Flag& flag, const std::string& value) {
    if (flag.key == kHelpKey) {
      options.help = true;
    } else if (Status set = options.settings.set(flag.key, value); !set.ok() && status.ok()) {
      status = set.with_context(flag.spellings.front());
    }
  });
  try {
    std::vector<std::string> reversed(line.flags.rbegin(), line.flags.rend());
    app->parse(std::move(reversed));
  } catch (const CLI::Error& error) {
    return invalid_argument(error.what());
  }
  HVD_RETURN_IF_ERROR(status);
  HVD_RETURN_IF_ERROR(check_values(options, flags));
  HVD_RETURN_IF_ERROR(check_complete(options));
  return options;
}

std::string help_text() {
  const std::vector<Flag> flags = all_flags();
  return make_parser(flags, [](const Flag&, const std::string&) {})->help("horovodrun");
}

}  // namespace hvd::launcher
