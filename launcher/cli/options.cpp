#include "launcher/cli/options.h"

#include <algorithm>
#include <optional>

#include "base/check.h"
#include "base/text.h"
#include "launcher/allocation/slurm_nodes.h"
#include "launcher/cli/commands.h"
#include "launcher/cli/config_file.h"
#include "launcher/cli/flag_table.h"
#include "launcher/elastic/elastic_settings.h"
#include "launcher/output/line_tagger.h"
#include "launcher/output/metrics_port.h"
#include "launcher/plan/binding_setting.h"
#include "launcher/plan/hosts.h"
#include "launcher/plan/rank_set.h"
#include "launcher/plan/text_file.h"
#include "launcher/state/job_record.h"
#include "net/endpoint.h"
#include "net/interfaces.h"

namespace hvd::launcher {
namespace {

// A word of the command line that begins with a flag.
struct FlagWord {
  const Flag* flag = nullptr;
  std::string spelling;
  std::optional<std::string> value;  // a value in the same word as the flag
};

bool has(const std::vector<std::string>& words, std::string_view word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

// Splits "--num-proc=4", "-np=4", "-p22", "-p=22" or "-p" into flag and value.
FlagWord recognise(const std::vector<Flag>& flags, const std::string& text) {
  const size_t equals = text.find('=');
  const std::string name = text.substr(0, equals);
  const auto find = [&](const std::string& spelling) -> FlagWord {
    for (const Flag& flag : flags) {
      if (!has(flag.spellings, spelling) && !has(flag.aliases, spelling)) continue;
      FlagWord word{&flag, spelling, {}};
      if (equals != std::string::npos) word.value = text.substr(equals + 1);
      return word;
    }
    return {};
  };
  const FlagWord exact = find(name);
  if (exact.flag != nullptr || find_foreign_flag(name) != nullptr) return exact;
  if (const std::string whole = flag_of_beginning(name); !whole.empty()) return find(whole);
  for (const Flag& flag : flags) {
    for (const std::string& spelling : flag.spellings) {
      if (!flag.takes_value() || spelling.size() != 2 || !text.starts_with(spelling)) continue;
      return {&flag, spelling, text.substr(2)};
    }
  }
  return {};
}

bool looks_like_flag(const std::string& text) {
  // A value such as "-x A" may begin with a hyphen, but no flag contains a space.
  return text.size() > 1 && text[0] == '-' && text.find(' ') == std::string::npos &&
         !parse_double(text);
}

Status unknown_flag(const std::vector<Flag>& flags, std::string_view name) {
  const std::string near = nearest_flag(flags, name);
  const std::string hint = near.empty() ? "see horovodrun --help" : cat("did you mean ", near, "?");
  return invalid_argument(cat("unknown flag ", printable(name), "; ", hint));
}

// Handles a flag of another launcher. If the flag changes nothing, returns the number of words to skip. Otherwise
// returns an error that names the flag to use.
Result<size_t> skip_foreign(const std::vector<Flag>& flags, const std::string& text,
                            std::span<const std::string> rest) {
  const size_t equals = text.find('=');
  const std::string name = text.substr(0, equals);
  const ForeignFlag* foreign = find_foreign_flag(name);
  if (foreign == nullptr) return unknown_flag(flags, name);
  const auto accepted = split(foreign->accepted, ',');
  std::string value;
  if (equals != std::string::npos) {
    value = text.substr(equals + 1);
  } else if (foreign->values > 0 && !rest.empty()) {
    value = rest.front();
  }
  if (!has(accepted, "*") && (foreign->accepted[0] == '\0' || !has(accepted, value))) {
    return invalid_argument(cat(name, ": ", foreign->answer));
  }
  return equals == std::string::npos ? static_cast<size_t>(foreign->values) : 0;
}

struct Given {
  const Flag* flag;
  std::string spelling;
  std::string value;
};

struct CommandLine {
  std::vector<Given> flags;
  std::vector<std::string> command;
  bool has_separator = false;          // "--" precedes the command
  bool ends_with_help = false;         // -h directly precedes the command
  std::vector<std::string> shortened;  // sentences about abbreviated flags
};

bool has_value_after(std::span<const std::string> arguments, size_t at) {
  return at + 1 < arguments.size() && !looks_like_flag(arguments[at + 1]);
}

// Reads the values of the flag at arguments[at]. Moves `at` to the last word of the flag.
Result<std::string> read_value(FlagWord word, std::span<const std::string> arguments, size_t& at) {
  if (!word.value && has_value_after(arguments, at)) word.value = arguments[++at];
  // The values "LO HI" may also be one word: "LO,HI".
  size_t missing = word.flag->values() - 1;
  if (!word.value || word.value->find_first_of(", ") != std::string::npos) missing = 0;
  for (; missing > 0 && has_value_after(arguments, at); --missing) {
    *word.value += " " + arguments[++at];
  }
  if (word.value && !word.value->empty() && missing == 0) return *std::move(word.value);
  const std::string needed = word.flag->values() > 1 ? word.flag->setting->value : "a value";
  return invalid_argument(cat(word.spelling, " needs ", needed));
}

// Sets `misread` to the first error, and then continues with the next words.
CommandLine read_words(const std::vector<Flag>& flags, std::span<const std::string> arguments,
                       Status& misread) {
  CommandLine line;
  const auto fail = [&](Status status) {
    if (misread.ok()) misread = std::move(status);
  };
  size_t i = 0;
  for (; i < arguments.size() && arguments[i].starts_with('-') && arguments[i] != "-"; ++i) {
    if (arguments[i] == "--") {
      line.has_separator = true;
      ++i;
      break;
    }
    const FlagWord word = recognise(flags, arguments[i]);
    line.ends_with_help = word.spelling == "-h";
    if (word.flag != nullptr && !arguments[i].starts_with(word.spelling))
      line.shortened.push_back(cat(printable(arguments[i]), " is read as ", word.spelling));
    if (word.flag == nullptr) {
      const auto more = skip_foreign(flags, arguments[i], arguments.subspan(i + 1));
      if (!more.ok()) fail(more.status());
      i += std::min<size_t>(more.ok() ? *more : has_value_after(arguments, i),
                            arguments.size() - i - 1);
    } else if (word.flag->takes_value()) {
      auto value = read_value(word, arguments, i);
      if (value.ok())
        line.flags.push_back({word.flag, word.spelling, *std::move(value)});
      else
        fail(value.status());
    } else {
      if (word.value) fail(invalid_argument(cat(word.spelling, " takes no value")));
      line.flags.push_back({word.flag, word.spelling, word.flag->is_off ? "0" : "1"});
    }
  }
  line.command.assign(arguments.begin() + static_cast<ptrdiff_t>(i), arguments.end());
  return line;
}

// Returns the user's spelling of a setting: the flag or variable that has set it, else its first flag.
std::string name_of(const CommandLine& line, std::string_view key) {
  for (const Given& given : line.flags) {
    if (given.flag->setting->key == key) return given.spelling;
  }
  std::string variable(setting(key).variable);
  if (!variable.empty() && environment_variable(variable)) return variable;
  return split(setting(key).flags, ',').front();
}

// With --detach, refuses settings that need standard input or another launcher of ranks. A detached launcher does not
// read standard input.
Status check_detached(const LaunchSettings& settings, const CommandLine& line) {
  if (!settings.job.detach) return {};
  const std::string readers = to_lower(settings.output.stdin_ranks.value);
  if (readers != "none" && readers != "0") {
    return invalid_argument(cat("--stdin ", printable(readers),
                                " needs a launcher that stays in its terminal; omit it or "
                                "--detach"));
  }
  if (settings.hosts.hostfile.value_or("") == "-") {
    return invalid_argument(
        "--hostfile - reads standard input, which a job with --detach does not have; name a file");
  }
  for (const char* key : {"mpi", "jsrun", "store_fd"}) {
    if (!settings.table().is_set(key) || settings.table().text(key) == "0") continue;
    return invalid_argument(cat("--detach cannot be combined with ", name_of(line, key),
                                ", which leaves the end of the job to another program; leave out "
                                "one of them"));
  }
  return {};
}

Status check_name(const LaunchSettings& settings, const CommandLine& line) {
  return check_job_name(settings.job.name.value_or("")).with_context(name_of(line, "name"));
}

Status check_readers(const LaunchSettings& settings, const std::string& name) {
  const std::string readers = to_lower(settings.output.stdin_ranks.value);
  if (!settings.output.stdin_ranks.is_set || readers == "none" || readers == "all") return {};
  if (parse_ranks(readers, kMaxSlots).ok()) return {};
  return invalid_argument(
      cat(name, " ", printable(readers), " is not one of: none, all, or ranks such as 0,3-5"));
}

// Refuses a relative path or one below ~: each host has its own current directory and home.
Status check_stage_dir(const LaunchSettings& settings, const CommandLine& line) {
  const std::string& folder = settings.job.stage_dir;
  if (folder.empty() || folder.starts_with('/')) return {};
  return invalid_argument(cat(name_of(line, "stage_dir"), " ", printable(folder),
                              " is not an absolute path; name a directory of the hosts, such as "
                              "/scratch"));
}

// The placeholders that launcher/spawn/command_spawner replaces.
constexpr std::string_view kOfLaunchAgent[] = {"host", "user", "port"};

// Checks each setting by itself.
Status check_rows(const LaunchSettings& settings, const CommandLine& line) {
  HVD_RETURN_IF_ERROR(
      settings.table().check_ranges([&](std::string_view key) { return name_of(line, key); }));
  for (const Setting& each : all_settings()) {
    const std::vector<std::string> values = choices_of(each);
    if (values.empty() || each.takes_others || !settings.table().is_set(each.key)) continue;
    const std::string value = settings.table().text(each.key);
    const auto is_it = [&](const std::string& choice) {
      return to_lower(choice) == to_lower(value);
    };
    if (std::ranges::any_of(values, is_it)) continue;
    return invalid_argument(cat(name_of(line, each.key), " ", printable(value),
                                " is not one of: ", join(values, ", ")));
  }
  return {};
}

Status check_exclusive(const LaunchSettings& settings) {
  if (settings.hosts.list.has_value() && settings.hosts.hostfile.has_value()) {
    return invalid_argument("-H and -hostfile both name the hosts; use only one of them");
  }
  if (settings.launchers.gloo + settings.launchers.mpi + settings.launchers.jsrun > 1) {
    return invalid_argument(
        "--gloo, --mpi and --jsrun each say who starts the ranks; give one of them");
  }
  if (settings.ssh.launch_agent.has_value() && settings.ssh.command.has_value()) {
    return invalid_argument(
        "--launch-agent and --ssh-command both say how hosts are reached; give one of them");
  }
  if (settings.join.tls_cert.has_value() && settings.join.insecure_plaintext) {
    return invalid_argument("--insecure-plaintext and --tls-cert exclude each other: omit one");
  }
  if (settings.network.encrypt && settings.launchers.insecure_compat) {
    return invalid_argument(
        "--encrypt and --insecure-compat exclude each other: workers of the original Horovod do "
        "not encrypt; omit one");
  }
  return {};
}

bool takes_hosts_that_join(const LaunchSettings& settings) {
  return settings.join.listen.has_value() || settings.network.port_range.has_value();
}

bool has_join_token(const LaunchSettings& settings) {
  return settings.join.token_file.has_value() || settings.join.token_fd.has_value();
}

// Checks the settings for hosts that join, and for their admission.
Status check_joining(const LaunchSettings& settings) {
  const bool listens = takes_hosts_that_join(settings);
  const bool has_token = has_join_token(settings);
  if (settings.join.listen.has_value() && !has_token) {
    return invalid_argument(
        "--listen needs --token-file FILE, the secret by which hosts join; a FILE "
        "that is missing is created");
  }
  if (!listens && has_token) {
    return invalid_argument(
        "--token-file and --token-fd are for hosts that join, with --listen [HOST]:PORT");
  }
  if (settings.join.tls_cert.has_value() != settings.join.tls_key.has_value()) {
    return invalid_argument(
        "--tls-cert and --tls-key need each other: the certificates and their key");
  }
  const bool is_plain = settings.join.insecure_plaintext;
  if ((settings.join.tls_cert.has_value() || is_plain) && !listens) {
    return invalid_argument(cat(is_plain ? "--insecure-plaintext" : "--tls-cert",
                                " is for hosts that join, with --listen [HOST]:PORT"));
  }
  return net::parse_port_range(settings.network.port_range.value_or("")).status();
}

// Refuses restarts and spares for hosts that have joined: their agents end with the job.
Status check_tried_again(const LaunchSettings& settings) {
  const bool is_tried_again = settings.job.max_restarts.value > 0 || settings.job.spares > 0;
  if (is_tried_again && (settings.join.listen.has_value() || has_join_token(settings))) {
    return invalid_argument(
        "--max-restarts and --spares work only with hosts reached by ssh; hosts that joined with "
        "--listen cannot be restarted");
  }
  return {};
}

// Checks --json, --fold and the streams of ranks.
Status check_streams(const LaunchSettings& settings, const CommandLine& line) {
  const bool checks = settings.questions.check_build || settings.questions.require.has_value();
  if (settings.questions.json && !checks && !settings.job.dry_run) {
    return invalid_argument(
        "--json is for --check-build and --dry-run; for ranks' output as JSON give "
        "--log-format json");
  }
  if (settings.output.fold && to_lower(settings.output.log_format) == "json") {
    return invalid_argument("--fold does not work with --log-format json; omit one");
  }
  HVD_RETURN_IF_ERROR(check_readers(settings, name_of(line, "stdin")));
  HVD_RETURN_IF_ERROR(check_detached(settings, line));
  if (settings.job.name.has_value()) HVD_RETURN_IF_ERROR(check_name(settings, line));
  return check_tag(settings.output.tag);
}

// Checks a number of slots given as a device (gpu, auto or cpu).
Status check_counted_slots(const LaunchSettings& settings, const CommandLine& line) {
  if (settings.hosts.slots_by.empty()) return {};
  const std::string given = cat(name_of(line, "slots_per_host"), " ", settings.hosts.slots_by);
  if (takes_hosts_that_join(settings)) {
    return invalid_argument(
        cat(given,
            ": hosts that join by --listen choose their own number of slots, by "
            "horovod-agent --slots N; leave the flag out"));
  }
  if (settings.elastic.host_discovery_script.has_value()) {
    return invalid_argument(cat(given,
                                " counts before the job starts, and --host-discovery-script names "
                                "hosts later; let the script print HOST:SLOTS"));
  }
  return {};
}

// A flag that may be given only once. Otherwise a second value would silently replace the first one: hosts, ranks,
// variables or commands.
struct RepeatedFlag {
  std::string_view key;
  const char* separator;  // null: the values cannot be joined on the command line
};
constexpr RepeatedFlag kJoined[] = {
    {"hosts", ","},        {"only_rank", ","},    {"network_interfaces", ","},
    {"require", ","},      {"stdin", ","},        {"remote_init", "; "},
    {"hostfile", nullptr}, {"env_file", nullptr}, {"stage_env", nullptr}};

Status check_repeated(const CommandLine& line) {
  for (const RepeatedFlag& joined : kJoined) {
    const Given* last = nullptr;
    std::vector<std::string> values;
    for (const Given& given : line.flags) {
      if (given.flag->setting->key != joined.key || has(values, given.value)) continue;
      last = &given;
      values.push_back(given.value);
    }
    if (values.size() < 2) continue;
    return invalid_argument(
        cat(last->spelling, " is given ", values.size(), " times; write ",
            joined.separator == nullptr
                ? cat("it once, with one ", last->flag->setting->value)
                : cat(last->spelling, " ", shell_quote(join(values, joined.separator)))));
  }
  return {};
}

Status check_values(const LaunchSettings& settings, const CommandLine& line) {
  const auto name = [&](std::string_view key) { return name_of(line, key); };
  HVD_RETURN_IF_ERROR(check_repeated(line));
  HVD_RETURN_IF_ERROR(check_rows(settings, line));
  HVD_RETURN_IF_ERROR(check_stage_dir(settings, line));
  HVD_RETURN_IF_ERROR(check_exclusive(settings));
  HVD_RETURN_IF_ERROR(check_joining(settings));
  HVD_RETURN_IF_ERROR(check_metrics_port(settings));
  HVD_RETURN_IF_ERROR(check_binding(settings.table()));
  HVD_RETURN_IF_ERROR(check_counted_slots(settings, line));
  HVD_RETURN_IF_ERROR(check_streams(settings, line));
  HVD_RETURN_IF_ERROR(check_elastic(settings, name));
  HVD_RETURN_IF_ERROR(check_tried_again(settings));
  HVD_RETURN_IF_ERROR(
      check_placeholders("--launch-agent", settings.ssh.launch_agent.value_or(""), kOfLaunchAgent));
  return net::InterfaceChoice::parse(settings.network.network_interfaces).status();
}

Status apply(const CommandLine& line, Settings& settings) {
  constexpr std::string_view kLaunchMethods[] = {"gloo", "mpi", "jsrun"};
  const bool names_launch_method =
      std::any_of(line.flags.begin(), line.flags.end(), [&](const Given& given) {
        return std::find(std::begin(kLaunchMethods), std::end(kLaunchMethods),
                         given.flag->setting->key) != std::end(kLaunchMethods);
      });
  for (const std::string_view key : kLaunchMethods) {  // overrides the config file
    if (names_launch_method) HVD_RETURN_IF_ERROR(settings.set(key, "0"));
  }
  std::string staged;
  for (const Given& given : line.flags) {
    std::string value = given.value;
    if (std::string_view(given.flag->setting->key) == "stage") {
      staged += cat(staged.empty() ? "" : "\n", value);
      value = staged;
    }
    const Status status = set_given(*given.flag->setting, value, settings);
    if (!status.ok()) return status.with_context(given.spelling);
  }
  return {};
}

// Refuses -h directly before the command: the user often means -H.
Status check_help(const Options& options, const CommandLine& line) {
  if (!line.ends_with_help || options.command.empty()) return {};
  const std::string& word = options.command.front();
  if (has(all_topics(), word) || find_command(word)) return {};
  const bool is_list = word.find_first_of(":,[") != std::string::npos;
  if (!is_list && options.command.size() == 1) return {};
  return invalid_argument(cat("-h prints help, and '", printable(word),
                              "' is not one of its topics; write -H ", printable(word),
                              " for hosts"));
}

// Refuses a single word after --help that is not a topic or a command.
Status check_topic(const Options& options) {
  if (!options.settings.questions.help || options.command.size() != 1) return {};
  const auto topics = all_topics();
  if (has(topics, options.command.front()) || find_command(options.command.front())) return {};
  std::vector<std::string> commands;
  for (const Command& command : all_commands()) commands.emplace_back(command.name);
  return invalid_argument(cat("--help ", printable(options.command.front()),
                              ": there is no such topic; give one of ", join(topics, ", "),
                              "; or a command: ", join(commands, ", ")));
}

Status check_complete(const Options& options) {
  if (is_question(options) || options.settings.job.dry_run || !options.command.empty()) {
    return {};
  }
  return invalid_argument(
      "the command is missing; it follows the flags, as in: "
      "horovodrun -np 4 python3 train.py");
}

// Refuses several programs separated by ":", which only mpirun can start. horovodrun would pass the words after ":" to
// the first program.
Status check_contexts(const std::vector<std::string>& command) {
  constexpr std::string_view kFlags[] = {"-np", "--np", "-n", "-H", "-host", "--host", "-x"};
  for (size_t i = 1; i + 1 < command.size(); ++i) {
    if (command[i] != ":" || std::ranges::find(kFlags, command[i + 1]) == std::end(kFlags)) {
      continue;
    }
    return invalid_argument(
        cat("': ", printable(command[i + 1]),
            " ...' is a second program of mpirun, and all ranks of horovodrun run one: start a "
            "script that chooses by HOROVOD_RANK, or write -- before the command to pass ':' on"));
  }
  return {};
}

// Refuses a word that is a command of other tools, unless a number of ranks, hosts or "--" show that the user means a
// job.
Status check_command(const Options& options, bool has_separator) {
  if (options.command.empty() || has_separator || is_question(options)) return {};
  HVD_RETURN_IF_ERROR(check_contexts(options.command));
  for (const char* key : {"num_proc", "hosts", "hostfile", "slots_per_host", "slots_by",
                          "min_num_proc", "host_discovery_script"}) {
    if (options.settings.table().is_set(key)) return {};
  }
  const std::string& word = options.command.front();
  return is_command_elsewhere(word) ? invalid_argument(explain_unknown_command(word)) : Status();
}

// Reads environment, config file and command line, up to the first error.
Status read_settings(const CommandLine& line, Settings& settings) {
  HVD_ASSIGN_OR_RETURN(settings, Settings::from_environment());
  for (const Given& given : line.flags) {
    if (std::string_view(given.flag->setting->key) != "config_file") continue;
    HVD_ASSIGN_OR_RETURN(const std::string text, read_text_file(given.value, "config file"));
    HVD_RETURN_IF_ERROR(apply_config(text, given.value, settings));
  }
  return apply(line, settings);
}

Status settle(CommandLine& line, Options& options) {
  Settings settings;
  const Status unread = read_settings(line, settings);
  options.settings = LaunchSettings(std::move(settings));
  HVD_RETURN_IF_ERROR(unread);
  options.command = std::move(line.command);
  HVD_RETURN_IF_ERROR(check_values(options.settings, line));
  HVD_RETURN_IF_ERROR(check_help(options, line));
  HVD_RETURN_IF_ERROR(check_topic(options));
  HVD_RETURN_IF_ERROR(check_command(options, line.has_separator));
  // With --report-bindings alone, starts a program that does nothing: the agents report before a program starts.
  const bool is_report = std::ranges::any_of(line.flags, [](const Given& given) {
    return std::string_view(given.flag->setting->key) == "report_bindings";
  });
  if (options.command.empty() && is_report && options.settings.table().flag("report_bindings"))
    options.command = {"true"};
  return check_complete(options);
}

}  // namespace

Result<Options> parse_options(std::span<const std::string> arguments, MessageForm* form) {
  const std::vector<Flag> flags = all_flags();
  std::vector<std::string> words(arguments.begin(), arguments.end());
  if (!words.empty() && words.front() == "help") words.front() = "--help";
  Status misread;
  CommandLine line = read_words(flags, words, misread);
  Options options;
  options.is_in_slurm_step = is_in_plain_step(environment_variable);
  options.shortened = std::move(line.shortened);
  const Status unfit = settle(line, options);
  if (form != nullptr) {
    std::string format = options.settings.output.log_format;
    form->color = options.settings.output.color;
    for (const Given& given : line.flags) {
      const std::string_view key = given.flag->setting->key;
      if (key == "log_format") format = given.value;
      if (key == "color") form->color = given.value;
    }
    form->is_json = to_lower(format) == "json";
  }
  HVD_RETURN_IF_ERROR(misread);
  HVD_RETURN_IF_ERROR(unfit);
  return options;
}

}  // namespace hvd::launcher
